"""The handlers to start from: an echo that has an answer to everything, and a menu that leads somewhere."""

from typing import Any

import pytest

from handlers import echo, menu
from shared.domain.message_parts import Button, ContactCard, Interactive, Location, Media, Order, OrderItem
from shared.domain.messages import DEFAULT_KINDS, Contact, Drop, Message
from shared.domain.outbound_messages import OutboundMessage
from shared.handlers.loader import TeamFunction
from shared.pipeline.ports import HandlerCall
from tests.unit.builders import NOW


def message(kind: str = "text", text: str | None = None, **more: Any) -> Message:
    return Message(kind, text, "wamid.1", Contact("15550002222"), "1", "default", NOW, **more)


def tapped(id: str, type: str = "button_reply") -> Message:
    return message("interactive", id.title(), interactive=Interactive(type, id=id, title=id.title()))


SAID: dict[str, tuple[Message, str]] = {
    "a text": (message(text="hello"), "hello"),
    "a text of blanks": (message(text=" \n"), "I do not know what to say to that."),
    "a text longer than a business may write": (message(text="é" * 5000), "é" * 4096),
    "a file": (message("media", media=Media("audio", id="9")), "Thank you for the audio."),
    "a file with words": (
        message("media", "look", media=Media("image", id="9")),
        "Thank you for the image. You wrote: look",
    ),
    "contacts": (message("contacts", contacts=(ContactCard("Ana"), ContactCard())), "Thank you for the contacts: 2."),
    "an order": (
        message("order", "quickly", order=Order("1", (OrderItem("9", 2.0),))),
        "Thank you for the order: 1 to pack.",
    ),
    "a tapped button": (tapped("yes"), "You chose: Yes"),
    "a form": (message("interactive", interactive=Interactive("nfm_reply")), "Thank you for the answer."),
    "a template's button": (message("button", "Yes", button=Button("y", "Yes")), "You chose: Yes"),
}
PLACE = message("location", location=Location(1.5, -2.5, "Here"))


@pytest.mark.parametrize(("told", "said"), SAID.values(), ids=SAID)
def test_the_echo_has_an_answer_to_everything(told: Message, said: str) -> None:
    assert echo.handle(told) == OutboundMessage.text(said, reply_to="wamid.1")


def test_the_echo_gives_a_place_back() -> None:
    assert echo.handle(PLACE) == OutboundMessage.location(1.5, -2.5, reply_to="wamid.1")


def test_the_echo_is_tested_with_every_kind_it_is_called_for() -> None:
    assert {told.kind for told, _ in SAID.values()} | {PLACE.kind} == DEFAULT_KINDS


def served(told: Message) -> list[OutboundMessage]:
    """What the menu answers, by way of the loader."""
    return TeamFunction(menu.handle, 30)(HandlerCall("e", "c", 1, told))


TYPING = OutboundMessage.typing("wamid.1")


@pytest.mark.parametrize("told", [message(text="hello"), PLACE, tapped("unknown"), message("media")], ids=str)
def test_the_menu_meets_everybody_with_its_buttons(told: Message) -> None:
    typing, buttons = served(told)
    assert typing == TYPING
    assert isinstance(buttons.content, dict)
    assert [one["reply"]["id"] for one in buttons.content["action"]["buttons"]] == ["drinks", "where", "bye"]


def test_a_tapped_button_leads_to_the_list_and_a_row_to_a_drink() -> None:
    typing, drinks = served(tapped("drinks"))
    assert typing == TYPING
    assert isinstance(drinks.content, dict)
    (section,) = drinks.content["action"]["sections"]
    for row in section["rows"]:
        assert served(tapped(row["id"], "list_reply")) == [
            TYPING,
            OutboundMessage.reaction("wamid.1", "☕"),
            OutboundMessage.text(f"One {row['title']}, coming right up."),
        ]


def test_what_is_written_is_understood_like_what_is_tapped() -> None:
    assert served(message(text=" WHERE ")) == served(tapped("where"))
    assert [reply.type for reply in served(tapped("where"))] == ["typing", "location"]


def test_who_says_bye_is_left_alone() -> None:
    with pytest.raises(Drop, match=r"They want nothing more\."):
        served(tapped("bye"))
