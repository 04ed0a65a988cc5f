"""The simplest handler: echoes every message. A start for your own."""

from pombo import Message, OutboundMessage

LONGEST = 4096  # customers may write longer texts than a business may


def handle(message: Message) -> OutboundMessage:
    """Quote the message; answer a text with the same text, a place with the same place, all else with a sentence."""
    if message.location:
        return OutboundMessage.location(message.location.latitude, message.location.longitude, reply_to=message.id)
    return OutboundMessage.text(_said(message)[:LONGEST], reply_to=message.id)


def _said(message: Message) -> str:
    match message.kind:
        case "media" if message.media:
            return f"Thank you for the {message.media.type}." + (f" You wrote: {message.text}" if message.text else "")
        case "contacts":
            return f"Thank you for the contacts: {len(message.contacts)}."
        case "order" if message.order:
            return f"Thank you for the order: {len(message.order.items)} to pack."
        case "interactive" | "button":
            return f"You chose: {message.text}" if message.text else "Thank you for the answer."
        case _:
            return (message.text or "").strip() or "I do not know what to say to that."
