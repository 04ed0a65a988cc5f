"""The changes of a record's state that are shared by the rows of several tables: when it is due, and how it ends."""

from dataclasses import replace
from datetime import datetime, timedelta

from shared.domain.limits import Limits
from shared.domain.record import Delivery, State
from shared.domain.retention import retention


def schedule(record: Delivery, due_at: datetime, limits: Limits) -> Delivery:
    return replace(record, due_at=due_at, sweep_at=due_at + limits.sweep_after, sweeps=0)


def sweep_wait(sweeps: int, limits: Limits) -> timedelta:
    """The wait before a record is swept that was swept so often before: it doubles each time."""
    wait: timedelta = limits.sweep_after * 2 ** min(sweeps, 30)
    return min(limits.sweep_longest, wait)


def begin_doubt(record: Delivery, limits: Limits, now: datetime) -> Delivery:
    doubt_until = now + limits.doubt_window
    return replace(
        record,
        state=State.IN_DOUBT,
        lease_until=None,
        doubts=record.doubts + 1,
        doubt_until=doubt_until,
        sweep_at=doubt_until + limits.sweep_after,
        sweeps=0,
    )


def reopen(record: Delivery, state: State, generation: int | None = None) -> Delivery:
    """Make the record wait again, without a lease or a doubt."""
    return replace(
        record,
        state=state,
        generation=record.generation if generation is None else generation,
        lease_until=None,
        doubt_until=None,
    )


def end(record: Delivery, state: State, limits: Limits, now: datetime, reason: str | None = None) -> Delivery:
    """End the record. Done and dropped ones expire; dead ones wait for an operator."""
    expire_at = None if state is State.DEAD else now + retention(record.kind, limits)
    return replace(
        record,
        state=state,
        reason=reason,
        lease_until=None,
        doubt_until=None,
        sweep_at=None,
        finished_at=now,
        expire_at=expire_at,
    )
