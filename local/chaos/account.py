"""The account of a chaos run: what became of each message, from WhatsApp's ledger and the records, held to the plan.

Pure. The ledger says what was sent, the plan what should have been; the records only say what Pombo knows of it.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from local.chaos.plan import Inbound
from local.chaos.script import Reply
from shared.domain.identity import message_event_id, outbound_key
from shared.domain.limits import DoubtPolicy
from shared.domain.record import Delivery, State

FINDINGS_KEPT = 20
"""Of bad messages; a run that finds more is not understood by reading on."""


class Verdict(StrEnum):
    """What became of one message: of one received, or of one reply to it."""

    HANDLED = "handled once"
    DELIVERED = "delivered once"
    DEAD_AS_PLANNED = "dead as planned"
    DEAD_LETTER = "dead letter, told"
    DOUBLED_BY_POLICY = "doubled by policy, told"
    LOST = "lost"
    DOUBLED = "doubled"
    OUT_OF_ORDER = "out of order"
    WRONG = "wrong content"
    UNACCOUNTED = "unaccounted"


BAD = (Verdict.LOST, Verdict.DOUBLED, Verdict.OUT_OF_ORDER, Verdict.WRONG, Verdict.UNACCOUNTED)


@dataclass(frozen=True, slots=True)
class Entry:
    """One message in WhatsApp's ledger; `place` is its place in the order in which they were taken."""

    key: str | None
    to: str | None
    reply: Reply
    accepted_at: datetime
    place: int


def entries(ledger: Iterable[Mapping[str, Any]]) -> Iterator[Entry]:
    """The ledger as the simulator gives it, oldest first."""
    for place, row in enumerate(ledger):
        reply = Reply(row["type"], row["body"])
        accepted_at = datetime.fromisoformat(row["accepted_at"])
        yield Entry(row["key"], row["to"].lstrip("+") if row["to"] else None, reply, accepted_at, place)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What only the logs still know of a message that was sent twice: when it was first in doubt, when the first
    receipt was stored. None: never.
    """

    doubted_at: datetime | None = None
    receipt_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """How Pombo was told to deal with doubt, and which sender it was."""

    sender: str
    policy: DoubtPolicy
    doubt_window: timedelta


@dataclass(frozen=True, slots=True)
class Finding:
    """A bad message, in a sentence. `key` is its record's; None where the ledger's entry names none."""

    verdict: Verdict
    key: str | None
    sentence: str


@dataclass
class Account:
    """The result: counts, and the first findings."""

    received: Counter[Verdict] = field(default_factory=Counter)
    replies: Counter[Verdict] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    doubted: int = 0
    on_their_way: int = 0
    """Messages received of which something is still open in a run that was ended early."""
    findings: list[Finding] = field(default_factory=list)

    @property
    def bad(self) -> int:
        return sum(counts[verdict] for counts in (self.received, self.replies) for verdict in BAD)

    def note(self, counts: Counter[Verdict], verdict: Verdict, key: str | None, sentence: str) -> None:
        counts[verdict] += 1
        if verdict in BAD and len(self.findings) < FINDINGS_KEPT:
            self.findings.append(Finding(verdict, key, sentence))


Read = Callable[[str], Delivery | None]
"""The record under a key."""

Judgement = tuple[Verdict, str]
FINE = ""


@dataclass(frozen=True, slots=True)
class Books:
    """What an account is taken from. `ledger` by the key that each entry echoes, in order; `refused`: contacts to whom
    nothing can be delivered; `evidence` of what was sent twice.
    """

    ledger: Mapping[str | None, Sequence[Entry]]
    read: Read
    refused: Collection[str]
    rules: Rules
    evidence: Mapping[str, Evidence] = field(default_factory=dict)
    ended_at: datetime | None = None
    """When the run was ended, if before it was quiet: what was still on its way then is not judged."""


def by_key(ledger: Iterable[Entry]) -> dict[str | None, list[Entry]]:
    found: dict[str | None, list[Entry]] = {}
    for entry in ledger:
        found.setdefault(entry.key, []).append(entry)
    return found


def take_account(sent: Iterable[Inbound], books: Books) -> Account:
    """Judge every message that was sent to the business, every reply planned, and every entry of the ledger."""
    account = Account()
    planned: set[str | None] = set()
    for inbound in sent:
        key = message_event_id("meta", books.rules.sender, inbound.id)
        keys = [outbound_key(key, index) for index in range(len(inbound.script.replies))]
        planned.update(keys)
        event = books.read(key)
        if books.ended_at and _was_on_its_way(event, keys, books.ended_at, books.read):
            account.on_their_way += 1
            continue
        verdict, sentence = judge_event(inbound, event)
        account.note(account.received, verdict, key, sentence)
        if event and verdict is Verdict.DEAD_LETTER:
            account.reasons[f"{event.kind}: {event.reason}"] += 1
        if event is None or event.state is not State.DEAD or any(key in books.ledger for key in keys):
            _judge_replies(account, inbound, keys, books)
    for stray, found in books.ledger.items():
        if stray not in planned:
            for _ in found:
                account.note(account.replies, Verdict.UNACCOUNTED, stray, "WhatsApp has a message nobody planned.")
    return account


def _was_on_its_way(event: Delivery | None, keys: Sequence[str], at: datetime, read: Read) -> bool:
    """Whether anything of a message was open then; the ledger is as it was at that time."""
    if event is None or not event.final:
        return True
    ends = [event, *filter(None, map(read, keys[: event.plan_size or 0]))]
    return any(not record.final or record.finished_at is None or record.finished_at >= at for record in ends)


def judge_event(inbound: Inbound, event: Delivery | None) -> Judgement:
    """What became of a message that was received."""
    if event is None:
        return Verdict.UNACCOUNTED, "A message was sent to the business and has no record."
    if not event.final:
        return Verdict.UNACCOUNTED, f"A message that was received is {event.state} at the end."
    planned = len(inbound.script.replies)
    match event.state:
        case State.DONE if inbound.script.raises is None:
            return Verdict.WRONG, "The handler raised at every try, and the message is done."
        case State.DONE if event.plan_size != planned:
            return Verdict.WRONG, f"The handler gave {planned} replies, and {event.plan_size} were planned."
        case State.DONE:
            return Verdict.HANDLED, FINE
        case State.DEAD if inbound.script.raises is None and event.reason == "error":
            return Verdict.DEAD_AS_PLANNED, FINE
        case State.DEAD:
            return Verdict.DEAD_LETTER, FINE
        case _:
            return Verdict.LOST, f"A message that was received is {event.state}: {event.reason}."


def _judge_replies(account: Account, inbound: Inbound, keys: Sequence[str], books: Books) -> None:
    """In the order of the plan: each is handed over for the first time after those before it were. A replayed one may
    come after its successors.
    """
    last = -1
    for key, reply in zip(keys, inbound.script.replies, strict=True):
        record, found = books.read(key), books.ledger.get(key, ())
        verdict, sentence = judge_reply(inbound.contact, reply, record, found, books)
        replayed = record is not None and record.round > 0
        if verdict not in BAD and found and found[0].place < last and not replayed:
            verdict, sentence = Verdict.OUT_OF_ORDER, "A reply was sent before the one that precedes it."
        last = max([last, *(entry.place for entry in found[:1] if not replayed)])
        account.doubted += record is not None and record.doubts > 0
        if record and record.state is State.DEAD and verdict is not Verdict.DEAD_AS_PLANNED:
            account.reasons[f"{record.kind}: {record.reason}"] += 1
        account.note(account.replies, verdict, key, sentence)


def judge_reply(contact: str, reply: Reply, record: Delivery | None, found: Sequence[Entry], books: Books) -> Judgement:
    """What became of one reply, but for its order."""
    refused = contact in books.refused
    if any((entry.to, entry.reply) != (contact, reply) for entry in found):
        return Verdict.WRONG, "A reply was sent whose content or recipient is not the planned one."
    if refused and found:
        return Verdict.WRONG, "A reply reached a contact whom WhatsApp refuses."
    if record is None:
        return (Verdict.UNACCOUNTED, "A reply has no record.") if found else (Verdict.LOST, "A reply was never made.")
    if not record.final:
        return Verdict.UNACCOUNTED, f"A reply is {record.state} at the end."
    if len(found) > 1:
        by_policy = is_by_policy(found, record, books.evidence.get(record.key, Evidence()), books.rules)
        return Verdict.DOUBLED_BY_POLICY if by_policy else Verdict.DOUBLED, f"A reply was sent {len(found)} times."
    match record.state:
        case State.DEAD if refused and record.reason == "permanent":
            return Verdict.DEAD_AS_PLANNED, FINE
        case State.DEAD:
            return Verdict.DEAD_LETTER, FINE
        case State.DONE if found:
            return Verdict.DELIVERED, FINE
        case _:
            return Verdict.LOST, f"A reply is {record.state}, and WhatsApp never had it."


def is_by_policy(found: Sequence[Entry], record: Delivery, evidence: Evidence, rules: Rules) -> bool:
    """Whether the second sending was what the policy says: once more, out of a doubt that no receipt ended in time.

    The record's own doubt_until is gone with the doubt; the log tells when the doubt began. Its line is written just
    after the record is, so that a doubt ends a moment earlier than it says here, but never after the second sending.
    """
    if rules.policy is not DoubtPolicy.RESEND or len(found) != 2 or not record.doubts:
        return False
    if evidence.doubted_at is None:
        return False
    doubted_until = min(evidence.doubted_at + rules.doubt_window, found[1].accepted_at)
    return evidence.receipt_at is None or evidence.receipt_at >= doubted_until
