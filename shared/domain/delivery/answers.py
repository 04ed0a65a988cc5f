"""The result of one step of a delivery: at most one write, what follows it, and the answer."""

from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto

from shared.domain.conversations import ConversationEntry
from shared.domain.guards import Elect
from shared.domain.record import Delivery

Token = str
LEASE_EXPIRED = "lease_expired"
"""Why a doubt begins: the lease of an attempt that was sending expired."""
NOT_DEAD = "Only a dead letter can be discarded."


class TaskResult(Enum):
    """The result of a task, for its queue. The service maps it to an HTTP status."""

    ACK = auto()  # the task is finished: no retry
    CONFLICT = auto()  # another attempt holds the record, or this one came too late: the queue retries
    NACK = auto()  # a dependency is down: the queue retries
    REFUSED = auto()  # the provider refused the message permanently: the queue retries once, and finds it final
    REFUSED_ON_FAULT = auto()  # the same, but the provider answered as for a fault of its own


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to the caller: the task's result, the state, and the provider's code of a refusal."""

    result: TaskResult
    state: str
    code: int | None = None


@dataclass(frozen=True, slots=True)
class Ensure:
    """The record's own task must exist."""

    record: Delivery


@dataclass(frozen=True, slots=True)
class EnsureReplies:
    """The first task of each reply of this plan must exist. `times`: when each runs, if known; a redelivery knows only
    their number.
    """

    record: Delivery
    times: tuple[datetime, ...] = ()


@dataclass(frozen=True, slots=True)
class Hop:
    """The running task makes the next one, in the queue of the record's tenant. `slot`: the time that is reserved for
    the message in its sender's pace. `alone_since`: since when it has waited for the record before it and nothing else.
    """

    record: Delivery
    until: datetime
    slot: datetime | None = None
    alone_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """The lease is taken: do the work. `resend`: it was leased out of a doubt."""

    record: Delivery
    resend: bool = False


Next = Ensure | EnsureReplies | Hop | Run | Elect | None


@dataclass(frozen=True, slots=True)
class Step:
    """One row of a table: at most one write (with the records it creates), what follows, and the answer."""

    answer: Answer
    write: Delivery | None = None
    create: tuple[Delivery, ...] = ()
    next: Next = None
    why: str | None = None
    """Why it waits, as a code for the log and the timeline."""
    rings: Delivery | None = None
    """A record that has ended, as it is stored: who is in its bell gets a wake task."""
    entries: tuple[ConversationEntry, ...] = ()
    """What is written in the same commit of the contact's conversation, each only if it is still as it was read."""


class NotAllowed(Exception):
    """The operator's request is not allowed in this state. The sentence says why."""
