"""The audit of a chaos run: it counts the fate of every message and keeps the first bad ones.

Pure: its inputs are the ledger, the records and a summary of the logs.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from cli.chaos.api_fate import judge_api_message
from cli.chaos.api_load import ApiSent
from cli.chaos.message_fate import (
    BAD,
    Evidence,
    Fate,
    LedgerEntry,
    Rules,
    is_by_policy,
    judge_event,
    judge_reply,
)
from cli.chaos.order_audit import Call, out_of_lane, overlaps
from cli.chaos.plan import Inbound
from shared.domain.identity import message_event_id, outbound_key
from shared.domain.record import Delivery, State

FINDINGS_KEPT = 20
"""Bad messages that the audit keeps. Reading more of them does not help to understand a run."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A bad message, in a sentence. `key` is the key of its record; None if the ledger's entry names no record."""

    fate: Fate
    key: str | None
    sentence: str


@dataclass
class Audit:
    """The result: counts, and the first findings."""

    received: Counter[Fate] = field(default_factory=Counter)
    replies: Counter[Fate] = field(default_factory=Counter)
    by_api: Counter[Fate] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    doubted: int = 0
    on_their_way: int = 0
    """Messages that still had an open record when the run was stopped early."""
    findings: list[Finding] = field(default_factory=list)

    @property
    def bad(self) -> int:
        return sum(counts[fate] for counts in (self.received, self.replies, self.by_api) for fate in BAD)

    def note(self, counts: Counter[Fate], fate: Fate, key: str | None, sentence: str) -> None:
        counts[fate] += 1
        if fate in BAD and len(self.findings) < FINDINGS_KEPT:
            self.findings.append(Finding(fate, key, sentence))


Read = Callable[[str], Delivery | None]
"""Reads the record under a key."""


@dataclass(frozen=True, slots=True)
class AuditInputs:
    """What the audit judges. `ledger` is grouped by the key that each entry echoes, in order. `refused`: contacts whom
    WhatsApp never delivers to. `evidence`: from the logs, about messages that were sent twice. `by_api`: what programs
    sent through the API, and what it answered them.
    """

    ledger: Mapping[str | None, Sequence[LedgerEntry]]
    read: Read
    refused: Collection[str]
    rules: Rules
    evidence: Mapping[str, Evidence] = field(default_factory=dict)
    by_api: Sequence[ApiSent] = ()
    ended_at: datetime | None = None
    """When the run was stopped, if before it became quiet. The audit does not judge what was open then."""
    calls: Mapping[int, Sequence[tuple[float, float]]] = field(default_factory=dict)
    """When the calls of the handler for each message began and ended, by its number."""
    inbound_lease: float = 0.0
    """Seconds that a lease of an event lasts."""
    lost_leases: Collection[str] = ()
    """The keys of events whose lease ran out while an attempt held it."""


def by_key(ledger: Iterable[LedgerEntry]) -> dict[str | None, list[LedgerEntry]]:
    found: dict[str | None, list[LedgerEntry]] = {}
    for entry in ledger:
        found.setdefault(entry.key, []).append(entry)
    return found


def audit(sent: Iterable[Inbound], inputs: AuditInputs) -> Audit:
    """Judge every message that was sent to the business or through the API, every reply planned, and every entry of
    the ledger.
    """
    account, sent = Audit(), [*sent]
    planned: set[str | None] = set()
    for program in inputs.by_api:
        planned.add(_judge_api_message(account, program, inputs))
    for inbound in sent:
        business = inputs.rules.businesses[inbound.tenant]
        key = message_event_id("meta", business.sender, inbound.id)
        keys = [outbound_key(key, index) for index in range(len(inbound.script.replies))]
        planned.update(keys)
        event = inputs.read(key)
        if inputs.ended_at and _was_on_its_way(event, keys, inputs.ended_at, inputs.read):
            account.on_their_way += 1
            continue
        fate, sentence = judge_event(inbound, event, business)
        account.note(account.received, fate, key, sentence)
        if event and fate is Fate.DEAD_LETTER:
            account.reasons[f"{event.kind}: {event.reason}"] += 1
        if event is None or event.state is not State.DEAD or any(key in inputs.ledger for key in keys):
            _judge_replies(account, inbound, keys, inputs)
    _judge_order(account, sent, inputs)
    for stray, found in inputs.ledger.items():
        if stray not in planned:
            for _ in found:
                account.note(
                    account.replies,
                    Fate.UNACCOUNTED,
                    stray,
                    "WhatsApp received a message that was not planned.",
                )
    return account


def _judge_order(account: Audit, sent: Iterable[Inbound], inputs: AuditInputs) -> None:
    """Check the calls and the lane of each contact. A run that was stopped early has no order at its end."""
    if inputs.ended_at:
        return
    calls, lanes = dict[tuple[int, str], list[Call]](), dict[tuple[int, str], list[Delivery]]()
    for inbound in sent:
        whose = inbound.tenant, inbound.contact
        key = message_event_id("meta", inputs.rules.businesses[inbound.tenant].sender, inbound.id)
        calls.setdefault(whose, []).extend(Call(key, *call) for call in inputs.calls.get(inbound.script.number, ()))
        replies = (inputs.read(outbound_key(key, index)) for index in range(len(inbound.script.replies)))
        lanes.setdefault(whose, []).extend(reply for reply in replies if reply)
    for program in inputs.by_api:
        message = program.message
        record = inputs.read(message.key(inputs.rules.businesses[message.tenant].tenant))
        if record and not record.joins_lane_later:
            lanes.setdefault((message.tenant, message.contact), []).append(record)
    for of_contact in calls.values():
        for key, sentence in overlaps(of_contact, inputs.inbound_lease, inputs.lost_leases):
            account.note(account.received, Fate.OVERLAPPED, key, sentence)
    for lane in lanes.values():
        for key, sentence in out_of_lane(lane, inputs.ledger):
            account.note(account.replies, Fate.OUT_OF_ORDER, key, sentence)


def _was_on_its_way(event: Delivery | None, keys: Sequence[str], at: datetime, read: Read) -> bool:
    """Whether any record of a message was open at that time; the ledger is as it was then."""
    if event is None or not event.final:
        return True
    ends = [event, *filter(None, map(read, keys[: event.plan_size or 0]))]
    return any(not record.final or record.finished_at is None or record.finished_at >= at for record in ends)


def _judge_replies(account: Audit, inbound: Inbound, keys: Sequence[str], inputs: AuditInputs) -> None:
    """Check the order of the plan: the first send of each reply must come after its predecessors. A replayed reply may
    come after its successors, and one whose record says that its patience was over before its predecessors.
    """
    last, business = -1, inputs.rules.businesses[inbound.tenant]
    for key, reply in zip(keys, inbound.script.replies, strict=True):
        record, found = inputs.read(key), inputs.ledger.get(key, ())
        is_refused = inbound.contact in inputs.refused
        fate, sentence = judge_reply(inbound.contact, reply, record, found, is_refused, business)
        fate = _excused(fate, key, record, inputs)
        replayed = record is not None and record.round > 0
        if record and record.overtook:
            last = -1
        if fate not in BAD and found and found[0].place < last and not replayed:
            fate, sentence = Fate.OUT_OF_ORDER, "A reply was sent before the one that precedes it."
        last = max([last, *(entry.place for entry in found[:1] if not replayed)])
        _note_record(account, fate, record)
        account.note(account.replies, fate, key, sentence)


def _judge_api_message(account: Audit, sent: ApiSent, inputs: AuditInputs) -> str:
    """The key that the message must have."""
    business = inputs.rules.businesses[sent.message.tenant]
    key = sent.message.key(business.tenant)
    record, found = inputs.read(key), inputs.ledger.get(key, ())
    if inputs.ended_at and (not sent.answered or _was_on_its_way(record, [], inputs.ended_at, inputs.read)):
        account.on_their_way += 1
        return key
    fate, sentence = judge_api_message(sent, record, found, sent.message.contact in inputs.refused, business)
    fate = _excused(fate, key, record, inputs)
    _note_record(account, fate, record)
    account.note(account.by_api, fate, key, sentence)
    return key


def _excused(fate: Fate, key: str, record: Delivery | None, inputs: AuditInputs) -> Fate:
    """The same fate, unless the policy for doubts allowed the second send."""
    evidence = inputs.evidence.get(key, Evidence())
    by_policy = record and is_by_policy(inputs.ledger.get(key, ()), record, evidence, inputs.rules)
    return Fate.DOUBLED_BY_POLICY if fate is Fate.DOUBLED and by_policy else fate


def _note_record(account: Audit, fate: Fate, record: Delivery | None) -> None:
    account.doubted += record is not None and record.doubts > 0
    if record and record.state is State.DEAD and fate is not Fate.DEAD_AS_PLANNED:
        account.reasons[f"{record.kind}: {record.reason}"] += 1
