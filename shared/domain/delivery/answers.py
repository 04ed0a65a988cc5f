"""What one step of a delivery says: at most one write, what follows it, and the answer."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from shared.domain.guards import Elect
from shared.domain.record import Delivery

Token = str
LEASE_EXPIRED = "lease_expired"
"""Why a doubt begins: the attempt that was sending did not come to its end."""
NOT_DEAD = "Only a dead letter can be discarded."


class TaskResult(StrEnum):
    """What became of a task, for the queue that brought it. In which words it is answered, the service knows."""

    ACK = "ack"  # it has done its part, and does not come back
    CONFLICT = "conflict"  # another attempt holds the record, or this one came too late: it comes back
    NACK = "nack"  # something that it needs is away: it comes back
    REFUSED = "refused"  # the provider refused the message for good: it comes back once, and finds that
    REFUSED_ON_FAULT = "refused_on_fault"  # the same, where the provider answered as for a fault of its own


@dataclass(frozen=True, slots=True)
class Answer:
    """What the caller is told: what became of the task, a word for the state, and the provider's code of a refusal."""

    result: TaskResult
    state: str
    code: int | None = None


@dataclass(frozen=True, slots=True)
class Ensure:
    """The record's own task must exist."""

    record: Delivery


@dataclass(frozen=True, slots=True)
class EnsureReplies:
    """The first task of each reply of this plan must exist. `due_at`: when each is first tried, where that is known; a
    redelivery knows only how many there are.
    """

    record: Delivery
    due_at: tuple[datetime | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Hop:
    """The running task makes its next one, in the queue of the record's tenant."""

    record: Delivery
    until: datetime


@dataclass(frozen=True, slots=True)
class Run:
    """The lease is taken: do the work. `resend`: it was taken out of doubt."""

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
    """Why it waits, in a word for the log and the timeline."""


class NotAllowed(Exception):
    """An operator asked for what the table has no row for. The sentence says why."""
