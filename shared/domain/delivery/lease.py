"""Lease: whether an attempt may begin now."""

from dataclasses import replace
from datetime import datetime
from typing import assert_never

from shared.domain.calls import is_call
from shared.domain.delivery.answers import (
    LEASE_EXPIRED,
    Answer,
    Ensure,
    EnsureReplies,
    Hop,
    Next,
    Run,
    Step,
    TaskResult,
    Token,
)
from shared.domain.delivery.bell import ringing
from shared.domain.delivery.changes import is_older, is_too_old, limits_of, reason_to_end, write
from shared.domain.delivery.lifecycle import begin_doubt, end
from shared.domain.guards import Elect, Go, Guard, Never, Wait
from shared.domain.limits import DoubtPolicy, Limits
from shared.domain.record import WAKE, Delivery, Kind, State, Task


def lease(record: Delivery | None, task: Task, token: Token, guard: Guard, limits: Limits, now: datetime) -> Step:
    """The step of a task that arrives. If only an elected attempt may go, it writes nothing and says what to claim."""
    if record is None:
        return Step(Answer(TaskResult.ACK, "gone"))
    if record.kind is Kind.INBOUND:
        return ringing(_lease_inbound(record, task, token, guard, limits, now), record)
    return ringing(_lease_outbound(record, task, token, guard, limits_of(record, limits), now), record)


def _lease_inbound(record: Delivery, task: Task, token: Token, guard: Guard, limits: Limits, now: datetime) -> Step:
    if record.state is State.DONE:
        return Step(Answer(TaskResult.ACK, "done"), next=EnsureReplies(record))
    if record.final:
        return Step(Answer(TaskResult.ACK, record.state))
    if record.leased_at(now):
        return _held(record, task, token)
    if reason := reason_to_end(record, limits, now):
        return write(end(record, State.DEAD, limits, now, reason=reason))
    if record.state is State.PENDING and not record.due(now + limits.early):
        return _wait_until_due(record, task)
    return _guarded(record, task, token, guard, now + limits.inbound_lease, limits, now)


def _lease_outbound(record: Delivery, task: Task, token: Token, guard: Guard, limits: Limits, now: datetime) -> Step:
    if record.final:
        return Step(Answer(TaskResult.ACK, record.state))
    if record.leased_at(now):
        return _held(record, task, token)
    if record.current_receipts.any:
        return write(end(record, State.DONE, limits, now))
    match record.state:
        case State.LEASED if not is_call(record.payload):
            doubtful = begin_doubt(record, limits, now)
            until = _doubt_hop(doubtful, task, limits, now)
            return _wait(doubtful, task, "in_doubt", until, LEASE_EXPIRED, write=doubtful)
        case State.IN_DOUBT:
            return _lease_doubtful(record, task, token, guard, limits, now)
        case _:
            return _lease_pending(record, task, token, guard, limits, now)


def _lease_doubtful(record: Delivery, task: Task, token: Token, guard: Guard, limits: Limits, now: datetime) -> Step:
    if record.doubt_until is not None and now + limits.early < record.doubt_until:
        return _wait(record, task, "in_doubt", _doubt_hop(record, task, limits, now))
    is_unclear = isinstance(guard, Wait | Elect) and guard.unclear
    hopeless = (
        limits.doubt_policy is DoubtPolicy.HOLD
        or record.doubts >= limits.max_doubts
        or record.attempt >= limits.max_attempts
        or isinstance(guard, Never)
    )
    if is_too_old(record, now) or (hopeless and not is_unclear):
        return write(end(record, State.DEAD, limits, now, reason="in_doubt"))
    return _guarded(record, task, token, guard, now + limits.outbound_lease, limits, now)


def _lease_pending(record: Delivery, task: Task, token: Token, guard: Guard, limits: Limits, now: datetime) -> Step:
    if is_too_old(record, now):
        return write(end(record, State.DEAD, limits, now, reason="waited"))
    if record.attempt >= limits.max_attempts:
        return write(end(record, State.DEAD, limits, now, reason="attempts"))
    if not record.due(now + limits.early):
        return _wait_until_due(record, task)
    return _guarded(record, task, token, guard, now + limits.outbound_lease, limits, now)


def _wait_until_due(record: Delivery, task: Task) -> Step:
    """The task was retried after a 503, or came too early: the cause of the last failure may persist."""
    assert record.due_at is not None
    why = record.attempts_log[-1].answer if record.attempts_log else None
    return _wait(record, task, "waiting", record.due_at, why)


def _guarded(
    record: Delivery, task: Task, token: Token, guard: Guard, lease_until: datetime, limits: Limits, now: datetime
) -> Step:
    """Apply the guards: the record ends, waits, asks for election, or is leased."""
    match guard:
        case Never(reason):
            state = State.DROPPED if reason == "opt_out" else State.DEAD
            return write(end(record, state, limits, now, reason=reason))
        case Wait(why, until):
            word = "in_doubt" if record.state is State.IN_DOUBT else "waiting"
            return _wait(record, task, word, until, why, slot=guard.slot, alone_since=guard.alone_since)
        case Elect():
            return Step(Answer(TaskResult.CONFLICT, record.state), next=guard)
        case Go(overtakes):
            return _leased(replace(record, overtook=overtakes or record.overtook), token, lease_until, now)
        case _:
            assert_never(guard)


def _leased(record: Delivery, token: Token, until: datetime, now: datetime) -> Step:
    resend = record.state is State.IN_DOUBT
    leased = replace(
        record, state=State.LEASED, attempt=record.attempt + 1, token=token, lease_until=until, started_at=now
    )
    return Step(Answer(TaskResult.ACK, leased.state), write=leased, next=Run(leased, resend))


def _held(record: Delivery, task: Task, token: Token) -> Step:
    """A live lease: ours, if our write succeeded but was reported refused; otherwise another attempt's. A wake task has
    nothing left to do then.
    """
    if record.token == token:
        return Step(Answer(TaskResult.ACK, record.state), next=Run(record, resend=record.doubt_until is not None))
    return Step(Answer(TaskResult.ACK if task.generation == WAKE else TaskResult.CONFLICT, record.state))


def _wait(
    record: Delivery,
    task: Task,
    word: str,
    until: datetime,
    why: str | None = None,
    write: Delivery | None = None,
    slot: datetime | None = None,
    alone_since: datetime | None = None,
) -> Step:
    """A current task hops; an older one only ensures the record's own task."""
    follows: Next = Ensure(record) if is_older(task, record) else Hop(record, until, slot, alone_since)
    return Step(Answer(TaskResult.ACK, word), write=write, next=follows, why=why)


def _doubt_hop(record: Delivery, task: Task, limits: Limits, now: datetime) -> datetime:
    until = now + limits.waits.doubt.after(task.hop)
    return min(until, record.doubt_until) if record.doubt_until else until
