"""A menu: the Café Pombo takes orders by buttons and a list, sends its location, and drops what needs no answer."""

from collections.abc import Iterator

from pombo import Drop, Message, OutboundMessage

DRINKS = {"espresso": "Espresso", "galao": "Galão", "tea": "Mint tea"}
BUTTONS = {"drinks": "Order a drink", "where": "Where are you?", "bye": "Nothing, bye"}


def handle(message: Message) -> Iterator[OutboundMessage | str]:
    """Answer what was tapped or written; anything unknown gets the buttons."""
    chosen = choice(message)
    if chosen == "bye":
        raise Drop("They want nothing more.")
    yield OutboundMessage.typing(message.id)  # sent with the rest, when this function has ended
    if chosen in DRINKS:
        yield OutboundMessage.reaction(message.id, "☕")
        yield f"One {DRINKS[chosen]}, coming right up."
    elif chosen == "drinks":
        rows = [(key, name, "Hot, and with a biscuit") for key, name in DRINKS.items()]
        yield OutboundMessage.list("What may it be?", "See the drinks", rows, footer="All drinks cost the same.")
    elif chosen == "where":
        yield OutboundMessage.location(38.7139, -9.1334, name="Café Pombo", address="On the square with the pigeons")
    else:
        yield OutboundMessage.buttons("Welcome to the Café Pombo! What can I do for you?", BUTTONS)


def choice(message: Message) -> str:
    """The id of the tapped button or row; otherwise the text, in lower case."""
    if message.interactive and message.interactive.id:
        return message.interactive.id
    return (message.text or "").strip().lower()
