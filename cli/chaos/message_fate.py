"""The fate of a message of a chaos run: WhatsApp's ledger and the record, compared with the plan.

Pure. The ledger says what was sent, the plan what should have been sent; the record only says what Pombo knows of it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from cli.chaos.businesses import Business
from cli.chaos.message_script import ScriptedReply
from cli.chaos.plan import Inbound
from shared.domain.limits import DoubtPolicy
from shared.domain.record import Delivery, State


class Fate(StrEnum):
    """The result for one inbound message, for one reply to it, or for one message that was sent through the API."""

    HANDLED = "handled once"
    DELIVERED = "delivered once"
    CANCELLED = "cancelled, never sent"
    DEAD_AS_PLANNED = "dead as planned"
    DEAD_LETTER = "dead letter, told"
    DOUBLED_BY_POLICY = "doubled by policy, told"
    LOST = "lost"
    DOUBLED = "doubled"
    OUT_OF_ORDER = "out of order"
    OVERLAPPED = "handled at once"
    EARLY = "sent early"
    UNSTOPPED = "sent though cancelled"
    WRONG = "wrong content"
    CROSSED = "crossed tenants"
    UNACCOUNTED = "unaccounted"


BAD = (
    Fate.LOST,
    Fate.DOUBLED,
    Fate.OUT_OF_ORDER,
    Fate.OVERLAPPED,
    Fate.EARLY,
    Fate.UNSTOPPED,
    Fate.WRONG,
    Fate.CROSSED,
    Fate.UNACCOUNTED,
)


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One message in WhatsApp's ledger, sent from the number `sender`; `place` is its position in the order in which
    WhatsApp accepted them.
    """

    key: str | None
    sender: str
    to: str | None
    reply: ScriptedReply
    accepted_at: datetime
    place: int


def entries(ledger: Iterable[Mapping[str, Any]]) -> Iterator[LedgerEntry]:
    """The ledger as the simulator gives it, oldest first."""
    for place, row in enumerate(ledger):
        reply = ScriptedReply(row["type"], row["body"])
        accepted_at = datetime.fromisoformat(row["accepted_at"])
        yield LedgerEntry(
            row["key"], row["phone_number_id"], row["to"].lstrip("+") if row["to"] else None, reply, accepted_at, place
        )


@dataclass(frozen=True, slots=True)
class Evidence:
    """What only the logs know of a message that was sent twice: when it was first in doubt, and when its first receipt
    was stored. None: never.
    """

    doubted_at: datetime | None = None
    receipt_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """The policy for doubts that Pombo was configured with, and the businesses, by the tenants' numbers."""

    businesses: Sequence[Business]
    policy: DoubtPolicy
    doubt_window: timedelta


Judgement = tuple[Fate, str]
FINE = ""


def judge_event(inbound: Inbound, event: Delivery | None, business: Business) -> Judgement:
    """The fate of an inbound message to this business."""
    if event is None:
        return Fate.UNACCOUNTED, "A message was sent to the business but has no record."
    if event.tenant != business.tenant:
        return Fate.CROSSED, f"A message to {business.tenant} is stored as one to {event.tenant or 'no tenant'}."
    if not event.final:
        return Fate.UNACCOUNTED, f"A message that was received is {event.state} at the end."
    planned = len(inbound.script.replies)
    match event.state:
        case State.DONE if inbound.script.raises is None:
            return Fate.WRONG, "The handler raised on every attempt, but the message is done."
        case State.DONE if event.plan_size != planned:
            return Fate.WRONG, f"The handler returned {planned} replies, but {event.plan_size} were planned."
        case State.DONE:
            return Fate.HANDLED, FINE
        case State.DEAD if inbound.script.raises is None and event.reason in ("error", "attempts"):
            return Fate.DEAD_AS_PLANNED, FINE
        case State.DEAD:
            return Fate.DEAD_LETTER, FINE
        case _:
            return Fate.LOST, f"A message that was received is {event.state}: {event.reason}."


def judge_reply(
    contact: str,
    reply: ScriptedReply,
    record: Delivery | None,
    found: Sequence[LedgerEntry],
    refused: bool,
    business: Business,
    what: str = "reply",
) -> Judgement:
    """The fate of one reply of this business, except for its order and for why it was doubled. `refused`: WhatsApp
    never delivers to this contact. `what` names it in sentences.
    """
    if any(entry.sender != business.sender for entry in found) or (record and record.tenant != business.tenant):
        return Fate.CROSSED, f"A {what} of {business.tenant} was sent, or stored, as another business's."
    if any((entry.to, entry.reply) != (contact, reply) for entry in found):
        return Fate.WRONG, f"A {what} was sent whose content or recipient is not the planned one."
    if refused and found:
        return Fate.WRONG, f"A {what} reached a contact whom WhatsApp refuses."
    if record is None:
        return (Fate.UNACCOUNTED, f"A {what} has no record.") if found else (Fate.LOST, f"A {what} was never created.")
    if not record.final:
        return Fate.UNACCOUNTED, f"A {what} is {record.state} at the end."
    if len(found) > 1:
        return Fate.DOUBLED, f"A {what} was sent {len(found)} times."
    match record.state:
        case State.DEAD if refused and record.reason == "permanent":
            return Fate.DEAD_AS_PLANNED, FINE
        case State.DEAD:
            return Fate.DEAD_LETTER, FINE
        case State.DONE if found:
            return Fate.DELIVERED, FINE
        case _:
            return Fate.LOST, f"A {what} is {record.state}, but WhatsApp never received it."


def is_by_policy(found: Sequence[LedgerEntry], record: Delivery, evidence: Evidence, rules: Rules) -> bool:
    """Whether the policy allowed the second send: one resend after a doubt that no receipt ended in time.

    The record loses its doubt_until when the doubt ends, so the end is computed from the log line of its beginning.
    That line is written just after the record, so the computed end is slightly late, but never after the second send.
    """
    if rules.policy is not DoubtPolicy.RESEND or len(found) != 2 or not record.doubts:
        return False
    if evidence.doubted_at is None:
        return False
    doubted_until = min(evidence.doubted_at + rules.doubt_window, found[1].accepted_at)
    return evidence.receipt_at is None or evidence.receipt_at >= doubted_until
