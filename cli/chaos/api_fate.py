"""The fate of a message that a business's program sent through the API, compared with what the API answered. Pure."""

from collections.abc import Sequence

from cli.chaos.api_load import ApiSent
from cli.chaos.businesses import Business
from cli.chaos.message_fate import FINE, Fate, Judgement, LedgerEntry, judge_reply
from shared.domain.record import Delivery, is_cancelled


def judge_api_message(
    sent: ApiSent, record: Delivery | None, found: Sequence[LedgerEntry], refused: bool, business: Business
) -> Judgement:
    """The fate of one message, except for why it was doubled. `found`: what WhatsApp has of it. `refused`: WhatsApp
    never delivers to this contact.
    """
    if sent.fault:
        return Fate.UNACCOUNTED, sent.fault
    if not sent.answered:
        return Fate.UNACCOUNTED, "The API did not answer a program that repeated its request."
    if sent.cancelled and found:
        return Fate.UNSTOPPED, "A message was sent although the API had said that it is cancelled."
    if sent.cancelled and record and record.tenant == business.tenant:
        is_kept = is_cancelled(record)
        return (Fate.CANCELLED, FINE) if is_kept else (Fate.UNSTOPPED, f"A cancelled message is {record.state}.")
    if sent.send_at and any(entry.accepted_at < sent.send_at for entry in found):
        return Fate.EARLY, "A message was sent before its time."
    message = sent.message
    return judge_reply(message.contact, message.reply, record, found, refused, business, "message of the API")
