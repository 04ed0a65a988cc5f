"""The simplest handler: says back what it was told. A start for your own."""

from shared.handlers import Message, OutboundMessage


def handle(message: Message) -> OutboundMessage:
    """Answer a text with the same text, quoting it; anything else with a sentence."""
    return OutboundMessage.text(message.text or "I can read text messages only, so far.", reply_to=message.id)
