"""The delivery record: what is stored of one event for the handler, or of one message for the provider."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from shared.domain.identity import task_name

ATTEMPTS_KEPT = 50
"""How many attempts a record keeps, the newest. MAX_ATTEMPTS may not be larger, so that every attempt of a round can be
shown; with its default of 8 the rounds before a replay are shown too."""

WAKE = -1
"""The generation of wake tasks: older than any record, so that they never hop and never stand for its own task."""

MOST_WAITERS = 20
"""How many records a bell holds. Another one that waits hops without it."""

ERROR_KEPT = 200
"""How many characters each attempt keeps of its failure, including the type and the place: 50 attempts of that fit into
any record. `last_error` keeps more of the last failure."""

INVALID = "invalid"
"""The reason of a reply that is dead because the handler returned an invalid message."""

CANCELLED = "cancelled"
"""The reason of a message that was dropped because its caller took it back before it was sent."""

DROPPED_BY_HANDLER = "dropped"
"""The answer of an attempt in which the handler dropped the event."""


class Kind(StrEnum):
    """Which half of the pipeline a record belongs to."""

    INBOUND = "inbound"
    OUTBOUND = "outbound"


class State(StrEnum):
    """The state of a delivery. It is ours; the provider reports by receipts."""

    PENDING = "pending"  # waits for an attempt; leaves by lease
    LEASED = "leased"  # one attempt holds it; leaves by settle, or once lease_until has passed
    IN_DOUBT = "in_doubt"  # outbound: the provider may have it; leaves by a receipt, or by its deadline
    DONE = "done"  # final: the effect happened
    DROPPED = "dropped"  # final: no operator could fix it
    DEAD = "dead"  # final until an operator replays or discards it


OPEN_STATES = frozenset({State.PENDING, State.LEASED, State.IN_DOUBT})
FINAL_STATES = frozenset(State) - OPEN_STATES
COUNTED_STATES = (*sorted(OPEN_STATES), State.DEAD)
"""The states whose records a store counts: there is something left to do."""


class ReceiptKind(StrEnum):
    """The provider's report on a message that was sent."""

    SENT = "sent"
    DELIVERED = "delivered"
    READ = "read"
    PLAYED = "played"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Receipts:
    """The provider's reports on one round of a message: a time per kind, so that receipts commute."""

    sent: datetime | None = None
    delivered: datetime | None = None
    read: datetime | None = None
    played: datetime | None = None
    failed: datetime | None = None
    failed_code: int | None = None
    provider_ids: frozenset[str] = frozenset()
    """Hashes of the provider's ids that the receipts named."""

    @property
    def reached(self) -> bool:
        """Whether it is on the customer's phone."""
        return any((self.delivered, self.read, self.played))

    @property
    def positive(self) -> bool:
        return self.reached or self.sent is not None

    @property
    def any(self) -> bool:
        """Whether there is a receipt. Even a failed one proves that the provider took the message."""
        return self.positive or self.failed is not None

    def merged(self, other: "Receipts") -> "Receipts":
        """Both merged, commutative and idempotent: of two times for a kind the earlier one is kept."""
        first_failed = min(
            (r for r in (self, other) if r.failed), key=lambda r: (r.failed, _code(r.failed_code)), default=None
        )
        return Receipts(
            sent=_earlier(self.sent, other.sent),
            delivered=_earlier(self.delivered, other.delivered),
            read=_earlier(self.read, other.read),
            played=_earlier(self.played, other.played),
            failed=first_failed.failed if first_failed else None,
            failed_code=first_failed.failed_code if first_failed else None,
            provider_ids=self.provider_ids | other.provider_ids,
        )


def _code(code: int | None) -> int:
    return -1 if code is None else code  # 0 is a provider's code: if None equalled it, merging would not commute


def _earlier(one: datetime | None, other: datetime | None) -> datetime | None:
    return min((time for time in (one, other) if time), default=None)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt, as the timeline shows it. `answer` is the verdict's name, `code` the provider's.

    `error` says why a handler failed, at most ERROR_KEPT characters including the next three fields. With an
    `error_type` it is the text of a team exception, and may be private; otherwise it is a sentence of ours. `place`
    (file:line) and `function` are the team's code that raised it.
    """

    at: datetime
    attempt: int
    answer: str
    code: int | None = None
    provider_id: str | None = None
    round: int = 0
    error: str | None = None
    error_type: str | None = None
    place: str | None = None
    function: str | None = None


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a message is tried, and how long it waits before each further try, if its caller said so."""

    attempts: int
    wait: timedelta


@dataclass(frozen=True, slots=True)
class Delivery:
    """The record that carries one event or message to exactly one outcome. All times are UTC."""

    key: str
    kind: Kind
    provider: str
    tenant: str
    sender: str
    contact: str
    correlation_id: str
    state: State
    received_at: datetime
    payload: Mapping[str, Any]
    attempt: int = 0
    token: str | None = None
    lease_until: datetime | None = None
    generation: int = 0
    due_at: datetime | None = None
    sweep_at: datetime | None = None
    sweeps: int = 0
    give_up_at: datetime | None = None
    doubts: int = 0
    doubt_until: datetime | None = None
    throttled: int = 0
    round: int = 0
    after: str | None = None
    plan_size: int | None = None
    reason: str | None = None
    last_error: str | None = None
    attempts_log: tuple[Attempt, ...] = ()
    started_at: datetime | None = None
    finished_at: datetime | None = None
    provider_id: str | None = None
    receipts: Mapping[int, Receipts] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    retry: Retries | None = None
    send_at: datetime | None = None
    """When its caller wants it sent; None: at once."""
    body_hash: str | None = None
    """Of the API's request that made it: another request with the same Idempotency-Key is a conflict."""
    turn_id: str | None = None
    """Of its contact at its sender: events with the same one are handled one at a time. None: it waits for none."""
    position: str | None = None
    """Where it is in its turn (shared.domain.turns)."""
    conversation: str | None = None
    """The id of its conversation: an event has it once it has ended, a message from the start."""
    joins_lane_later: bool = False
    """Whether it takes its place in its contact's lane only when it is due, because its caller wants it sent later."""
    bell: frozenset[str] = frozenset()
    """The records that wait for this one alone, each as `waiter` names it: they get a wake task when it has ended."""
    overtook: str | None = None
    """The key of the message before it that it no longer waited for."""
    expire_at: datetime | None = None
    version: int | None = field(default=None, compare=False)
    """The store's version of what was read; it refuses a write if another came between. Not part of the record."""

    @property
    def final(self) -> bool:
        return self.state in FINAL_STATES

    @property
    def waits_since(self) -> datetime:
        """When it was received; a message that its caller wants sent later counts as received then."""
        return self.send_at or self.received_at

    @property
    def current_receipts(self) -> Receipts:
        """The receipts of this round: the only ones that count."""
        return self.receipts.get(self.round, Receipts())

    @property
    def finished(self) -> bool:
        """Whether a successor may go: final, or known to be with the provider."""
        return self.final or self.current_receipts.any

    @property
    def tried(self) -> bool:
        """Whether an attempt of this round has a verdict."""
        return any(attempt.round == self.round for attempt in self.attempts_log)

    def leased_at(self, now: datetime) -> bool:
        """Whether an attempt holds it now."""
        return self.state is State.LEASED and self.lease_until is not None and now < self.lease_until

    def due(self, now: datetime) -> bool:
        return self.due_at is None or self.due_at <= now


@dataclass(frozen=True, slots=True)
class Task:
    """A reference to a record in a queue: never its content. `tenant` is empty if no tenant owns the sender, and in a
    task of an earlier version.

    `pair` decides in which queue it is made: the number of the tenant's pair of queues, None for the shared ones. It is
    not in the body. `slot` is when the sender's pace lets this task's message go; None: it has no slot yet.
    `alone_since`: since when the record has waited for the record before it and for nothing else. `place`: that of an
    event in its turn, as long as it was never tried. `wake`: the name of a wake task, which is not in the body either;
    its generation is WAKE.
    """

    key: str
    kind: Kind
    correlation_id: str
    generation: int
    hop: int = 0
    tenant: str = ""
    pair: int | None = None
    slot: datetime | None = None
    alone_since: datetime | None = None
    place: str | None = None
    wake: str | None = None

    @property
    def name(self) -> str:
        """Its name in the queue. It makes task creation idempotent."""
        return self.wake or task_name(self.key, self.generation, self.hop)

    @classmethod
    def of(cls, record: Delivery, pair: int | None = None, place: str | None = None) -> "Task":
        """The record's own task: its generation, hop 0."""
        return cls(
            record.key,
            record.kind,
            record.correlation_id,
            record.generation,
            tenant=record.tenant,
            pair=pair,
            place=place,
        )


def waiter(record: Delivery) -> str:
    """A record as the bell of another one names it."""
    return f"{record.key}.{record.correlation_id}"


def is_invalid(record: Delivery) -> bool:
    """Whether it is dead because the handler returned an invalid message, which can never be sent."""
    return record.state is State.DEAD and record.reason == INVALID


def is_cancelled(record: Delivery) -> bool:
    """Whether its caller took the message back. (A handler may drop an event with the same word.)"""
    return record.kind is Kind.OUTBOUND and record.state is State.DROPPED and record.reason == CANCELLED
