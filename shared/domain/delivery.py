"""The delivery state machine: the tables of docs/protocol.md as five pure functions.

    pending --lease--> leased --settle--> done | dropped | dead | pending (again, generation + 1)
    inbound:   leased, expired --lease--> leased (next attempt)          no attempts left: dead
    outbound:  leased, expired, or answer lost --> in_doubt --receipt--> done
                                                   in_doubt --window over--> leased (resend, once) | dead, by policy
    read and typing calls may be repeated, so they are never in doubt: what is lost or expired of them is pending.

`create`, `lease`, `settle`, `replay` and `discard` are the only functions that return a record in another state.
In each the first row that matches, from the top, applies. They are called again from the new state when a write
was refused, so each recognises what this same attempt has already written by its token.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, assert_never

from shared.domain import waits
from shared.domain.calls import is_call
from shared.domain.dead_letters import (
    DISCARDED,
    DISCARDED_BECAUSE,
    HANDLER,
    HANDLER_SAID,
    INVALID,
    is_confirmed,
    is_discarded,
    is_invalid,
    is_letter,
    is_refused_later,
    why_never,
)
from shared.domain.guards import Elect, Go, Guard, Never, Wait
from shared.domain.identity import outbound_key
from shared.domain.limits import DoubtPolicy, Limits
from shared.domain.record import ATTEMPTS_KEPT, ERROR_KEPT, OPEN_STATES, Attempt, Delivery, Kind, State, Task
from shared.domain.retention import retention
from shared.domain.verdicts import (
    Accepted,
    BackendDown,
    Blocked,
    CredentialRefused,
    Dropped,
    HandlerFailed,
    Limited,
    Lost,
    Origin,
    ProviderDown,
    Refused,
    Released,
    Replied,
    Retry,
    StillUnknown,
    StillUnparsable,
    Verdict,
    of_repeatable,
)

Token = str
LEASE_EXPIRED = "lease_expired"
"""Why a doubt begins: the attempt that was sending did not come to its end."""

NOT_DEAD = "Only a dead letter can be discarded."

# ---- what a step says: one write, what follows it, the answer


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
    """A person asked for what the table has no row for. The sentence says why."""


# ---- create


def create(
    kind: Kind,
    key: str,
    *,
    provider: str,
    tenant: str,
    sender: str,
    contact: str,
    correlation_id: str,
    payload: Mapping[str, Any],
    limits: Limits,
    now: datetime,
    due_at: datetime | None = None,
    after: str | None = None,
    refused: str | None = None,
    error: str | None = None,
) -> Delivery:
    """A new record: pending, or final from the start where `refused` says unparsable, unknown_sender or invalid;
    `error` is the sentence to that.

    It is given up MESSAGE_MAX_AGE after its first attempt is due: a message for next week does not die of age that day.
    """
    first_due = due_at or now
    record = Delivery(
        key=key,
        kind=kind,
        tenant=tenant,
        sender=sender,
        contact=contact,
        correlation_id=correlation_id,
        state=State.PENDING,
        received_at=now,
        payload=payload,
        after=after,
        give_up_at=first_due + limits.message_max_age,
        last_error=error,
        provider=provider,
    )
    match refused:
        case None:
            return _scheduled(record, first_due, limits)
        case "unparsable" | "invalid":
            return _final(record, State.DEAD, limits, now, reason=refused)
        case _:
            return _final(record, State.DROPPED, limits, now, reason=refused)


def seen_again(record: Delivery) -> bool:
    """Whether a repeated webhook has to make sure of the task: the record is as it was created."""
    return record.state is State.PENDING and record.attempt == 0


# ---- lease: everything a task's arrival can do


def lease(record: Delivery | None, task: Task, token: Token, guard: Guard, limits: Limits, now: datetime) -> Step:
    """What a task finds and does. Where only an elected attempt may go, it writes nothing and says what to claim."""
    if record is None:
        return Step(Answer(TaskResult.ACK, "gone"))
    if record.kind is Kind.INBOUND:
        return _lease_inbound(record, task, token, guard, limits, now)
    return _lease_outbound(record, task, token, guard, limits, now)


def _lease_inbound(record: Delivery, task: Task, token: Token, guard: Guard, limits: Limits, now: datetime) -> Step:
    if record.state is State.DONE:
        return Step(Answer(TaskResult.ACK, "done"), next=EnsureReplies(record))
    if record.final:
        return Step(Answer(TaskResult.ACK, record.state))
    if record.leased_at(now):
        return _held(record, token)
    if record.attempt >= limits.max_attempts:
        return _written(_final(record, State.DEAD, limits, now, reason="attempts"))
    if _too_old(record, now):
        return _written(_final(record, State.DEAD, limits, now, reason="waited"))
    if record.state is State.PENDING and not record.due(now + limits.early):
        return _wait_until_due(record, task)
    return _guarded(record, task, token, guard, now + limits.inbound_lease, limits, now)


def _lease_outbound(record: Delivery, task: Task, token: Token, guard: Guard, limits: Limits, now: datetime) -> Step:
    if record.final:
        return Step(Answer(TaskResult.ACK, record.state))
    if record.leased_at(now):
        return _held(record, token)
    if record.word.any:
        return _written(_final(record, State.DONE, limits, now))
    match record.state:
        case State.LEASED if not is_call(record.payload):
            doubtful = _doubtful(record, limits, now)
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
    if _too_old(record, now) or (hopeless and not is_unclear):
        return _written(_final(record, State.DEAD, limits, now, reason="in_doubt"))
    return _guarded(record, task, token, guard, now + limits.outbound_lease, limits, now)


def _lease_pending(record: Delivery, task: Task, token: Token, guard: Guard, limits: Limits, now: datetime) -> Step:
    if _too_old(record, now):
        return _written(_final(record, State.DEAD, limits, now, reason="waited"))
    if record.attempt >= limits.max_attempts:
        return _written(_final(record, State.DEAD, limits, now, reason="attempts"))
    if not record.due(now + limits.early):
        return _wait_until_due(record, task)
    return _guarded(record, task, token, guard, now + limits.outbound_lease, limits, now)


def _wait_until_due(record: Delivery, task: Task) -> Step:
    """It came back from a 503, or too early: what the last attempt met may not have passed."""
    assert record.due_at is not None
    why = record.attempts_log[-1].answer if record.attempts_log else None
    return _wait(record, task, "waiting", record.due_at, why)


def _guarded(
    record: Delivery, task: Task, token: Token, guard: Guard, lease_until: datetime, limits: Limits, now: datetime
) -> Step:
    """What the guards say: it ends, it waits, it asks to be elected, or it is leased."""
    match guard:
        case Never(reason):
            state = State.DROPPED if reason == "opt_out" else State.DEAD
            return _written(_final(record, state, limits, now, reason=reason))
        case Wait(why, until):
            return _wait(record, task, "in_doubt" if record.state is State.IN_DOUBT else "waiting", until, why)
        case Elect():
            return Step(Answer(TaskResult.CONFLICT, record.state), next=guard)
        case Go():
            return _leased(record, token, lease_until, now)
        case _:
            assert_never(guard)


def _leased(record: Delivery, token: Token, until: datetime, now: datetime) -> Step:
    resend = record.state is State.IN_DOUBT
    leased = replace(
        record, state=State.LEASED, attempt=record.attempt + 1, token=token, lease_until=until, started_at=now
    )
    return Step(Answer(TaskResult.ACK, leased.state), write=leased, next=Run(leased, resend))


def _held(record: Delivery, token: Token) -> Step:
    """A live lease: ours, if our own write was reported refused; else somebody is at work."""
    if record.token == token:
        return Step(Answer(TaskResult.ACK, record.state), next=Run(record, resend=record.doubt_until is not None))
    return Step(Answer(TaskResult.CONFLICT, record.state))


def _wait(
    record: Delivery, task: Task, word: str, until: datetime, why: str | None = None, write: Delivery | None = None
) -> Step:
    """A current task hops; an older one only makes sure of the record's own."""
    follows: Next = Ensure(record) if _older(task, record) else Hop(record, until)
    return Step(Answer(TaskResult.ACK, word), write=write, next=follows, why=why)


def _doubt_hop(record: Delivery, task: Task, limits: Limits, now: datetime) -> datetime:
    until = now + limits.waits.doubt.after(task.hop)
    return min(until, record.doubt_until) if record.doubt_until else until


# ---- settle


def settle(
    record: Delivery | None,
    token: Token,
    verdict: Verdict,
    limits: Limits,
    now: datetime,
    jitter: float,
) -> Step:
    """Apply one attempt's verdict. An attempt whose token no longer stands writes nothing: 409."""
    if record is None:
        return Step(Answer(TaskResult.CONFLICT, "gone"))
    if record.token != token:
        return Step(Answer(TaskResult.CONFLICT, record.state))
    if record.kind is Kind.INBOUND:
        return _settle_inbound(record, verdict, limits, now, jitter)
    return _settle_outbound(record, verdict, limits, now, jitter)


def _settle_inbound(record: Delivery, verdict: Verdict, limits: Limits, now: datetime, jitter: float) -> Step:
    if record.state is State.DONE:
        return Step(Answer(TaskResult.ACK, "done"), next=EnsureReplies(record))
    if record.state is not State.LEASED:
        return Step(Answer(TaskResult.CONFLICT, record.state))
    match verdict:
        case Released():
            return _released(record, State.PENDING)
        case Replied(payloads, contact, invalid):
            event = replace(record, contact=record.contact or contact or "")
            logged = _logged(event, verdict.word, now)
            done = _final(replace(logged, plan_size=len(payloads)), State.DONE, limits, now)
            plan = _plan(event, payloads, invalid, limits, now)
            return Step(
                Answer(TaskResult.ACK, "done"), done, plan, EnsureReplies(done, tuple(reply.due_at for reply in plan))
            )
        case Dropped(said):
            told = replace(record, metadata={**record.metadata, HANDLER_SAID: said})
            return _written(_final(_logged(told, verdict.word, now), State.DROPPED, limits, now, reason=HANDLER))
        case StillUnparsable():
            return _written(_final(_logged(record, verdict.word, now), State.DEAD, limits, now, reason=verdict.word))
        case StillUnknown():
            return _written(_final(_logged(record, verdict.word, now), State.DROPPED, limits, now, reason=verdict.word))
        case HandlerFailed(error, origin):
            failed = _because(replace(_logged(record, verdict.word, now), throttled=0), error, origin)
            if record.attempt >= limits.max_attempts:
                return _written(_final(failed, State.DEAD, limits, now, reason="error"))
            return _again(failed, now + waits.before_retry(record.attempt, limits.waits, jitter), limits)
        case BackendDown(error, until, retry_after):
            waiting = _because(_put_off(record, verdict.word, None, now), error, Origin())
            return _again(
                waiting, waits.after_outage(record.throttled, until, retry_after, limits.waits, now, jitter), limits
            )
        case _:
            raise TypeError(f"{type(verdict).__name__} is no verdict on an event")


def _plan(
    event: Delivery,
    payloads: tuple[Mapping[str, Any], ...],
    invalid: Mapping[int, str],
    limits: Limits,
    now: datetime,
) -> tuple[Delivery, ...]:
    """The replies as records. A message waits for the message before it, a call (read, typing) for whatever stands
    before it, so that calls keep their order too; nothing waits for what cannot be sent, which is dead from the start.

    Each is first tried once the messages before it have had their time. Calls take none.
    """
    replies: list[Delivery] = []
    last_message: str | None = None
    last: str | None = None
    messages = 0
    for index, payload in enumerate(payloads):
        key = outbound_key(event.key, index)
        reply = create(
            Kind.OUTBOUND,
            key,
            tenant=event.tenant,
            sender=event.sender,
            contact=event.contact,
            correlation_id=event.correlation_id,
            payload=payload,
            limits=limits,
            now=now,
            due_at=now + limits.waits.reply_spacing * messages,
            after=last if is_call(payload) else last_message,
            provider=event.provider,
            refused=INVALID if index in invalid else None,
            error=invalid.get(index),
        )
        replies.append(reply)
        if index in invalid:
            continue
        last = key
        if not is_call(payload):
            last_message, messages = key, messages + 1
    return tuple(replies)


def _settle_outbound(record: Delivery, verdict: Verdict, limits: Limits, now: datetime, jitter: float) -> Step:
    if record.state is State.DONE:
        return _settle_done(record, verdict, now)
    if record.state not in (State.LEASED, State.IN_DOUBT):
        return Step(Answer(TaskResult.CONFLICT, record.state))
    if isinstance(verdict, Lost) and is_call(record.payload):
        verdict = of_repeatable(verdict)
    if isinstance(verdict, Lost):
        return _settle_lost(record, verdict, limits, now)
    if isinstance(verdict, Accepted):
        logged = _logged(record, verdict.word, now, provider_id=verdict.provider_id)
        done = _final(replace(logged, provider_id=verdict.provider_id, throttled=0), State.DONE, limits, now)
        return _written(done)
    return _settle_not_accepted(record, verdict, limits, now, jitter)


def _settle_done(record: Delivery, verdict: Verdict, now: datetime) -> Step:
    """Done by a receipt meanwhile, or by this same settle: all that is left to add is the provider's id."""
    news = isinstance(verdict, Accepted) and verdict.provider_id and verdict.provider_id != record.provider_id
    if not (isinstance(verdict, Accepted) and news):
        return Step(Answer(TaskResult.ACK, "done"))
    logged = _logged(record, verdict.word, now, provider_id=verdict.provider_id)
    return Step(Answer(TaskResult.ACK, "done"), write=replace(logged, provider_id=verdict.provider_id))


def _settle_lost(record: Delivery, verdict: Lost, limits: Limits, now: datetime) -> Step:
    if record.state is State.IN_DOUBT:
        return Step(Answer(TaskResult.NACK, record.state))
    logged = replace(_logged(record, verdict.word, now, code=verdict.code), throttled=0)
    return Step(Answer(TaskResult.NACK, State.IN_DOUBT), write=_doubtful(logged, limits, now))


def _settle_not_accepted(record: Delivery, verdict: Verdict, limits: Limits, now: datetime, jitter: float) -> Step:
    """The provider certainly did not take it: a doubt that arose meanwhile was unfounded."""
    record = replace(record, doubts=record.doubts - (record.state is State.IN_DOUBT))
    match verdict:
        case Released(resend):
            return _released(record, State.IN_DOUBT if resend else State.PENDING)
        case ProviderDown(code, retry_after, until):
            due_at = waits.after_outage(record.throttled, until, retry_after, limits.waits, now, jitter)
            waiting = _scheduled(_open(_put_off(record, verdict.word, code, now), State.PENDING), due_at, limits)
            return Step(Answer(TaskResult.NACK, waiting.state), write=waiting)
        case Retry(code):
            tried = replace(_logged(record, verdict.word, now, code=code), throttled=0)
            if record.attempt >= limits.max_attempts:
                return _dead(tried, "attempts", limits, now)
            wait = max(waits.before_retry(record.attempt, limits.waits, jitter), waits.asked_for(verdict, limits.waits))
            return _again(tried, now + wait, limits)
        case Limited(code=code):
            waiting = _put_off(record, verdict.word, code, now)
            wait = waits.before_limited(verdict, waiting.throttled, limits.waits, jitter)
            return _again(waiting, now + wait, limits)
        case CredentialRefused(code):
            wait = max(limits.waits.credential, verdict.retry_after or timedelta())
            return _again(_given_back(record, verdict.word, code, now), now + wait, limits)
        case Blocked(_, code, until):
            until = max(until or now + limits.waits.block.first, now + (verdict.retry_after or timedelta()))
            return _again(_given_back(record, verdict.word, code, now), until, limits)
        case Refused(code, on_fault):
            refused = replace(_logged(record, verdict.word, now, code=code), throttled=0)
            result = TaskResult.REFUSED_ON_FAULT if on_fault else TaskResult.REFUSED
            answer = Answer(result, State.DEAD, code)
            return _dead(refused, "permanent", limits, now, answer)
        case _:
            raise TypeError(f"{type(verdict).__name__} is no verdict on a message")


def _dead(record: Delivery, reason: str, limits: Limits, now: datetime, answer: Answer | None = None) -> Step:
    """Dead, unless a receipt of this round says that the provider has it after all."""
    if record.word.any:
        return _written(_final(record, State.DONE, limits, now))
    dead = _final(record, State.DEAD, limits, now, reason=reason)
    return Step(answer or Answer(TaskResult.ACK, dead.state), write=dead)


def _again(record: Delivery, due_at: datetime, limits: Limits) -> Step:
    """The next attempt is a new generation, when it is due."""
    waiting = _scheduled(_open(record, State.PENDING, generation=record.generation + 1), due_at, limits)
    return Step(Answer(TaskResult.ACK, "rescheduled"), write=waiting, next=Ensure(waiting))


def _released(record: Delivery, state: State) -> Step:
    """As it was when the lease was taken. The token goes: this attempt has no more to say."""
    doubt_until = record.doubt_until if state is State.IN_DOUBT else None
    released = replace(
        record, state=state, attempt=record.attempt - 1, token=None, lease_until=None, doubt_until=doubt_until
    )
    return Step(Answer(TaskResult.CONFLICT, released.state), write=released)


def _given_back(record: Delivery, word: str, code: int | None, now: datetime, throttled: int = 0) -> Delivery:
    """The attempt does not count: it was no fault of this message."""
    return replace(_logged(record, word, now, code=code), attempt=record.attempt - 1, throttled=throttled)


def _put_off(record: Delivery, word: str, code: int | None, now: datetime) -> Delivery:
    """The same, once more in a row: the wait grows with each."""
    return _given_back(record, word, code, now, throttled=record.throttled + 1)


# ---- sweep: no other state, only another task


def sweep(record: Delivery | None, limits: Limits, now: datetime) -> Step:
    """Give an overdue record a new task, and wait twice as long before the next time."""
    if record is None or record.final or record.sweep_at is None or record.sweep_at > now:
        return Step(Answer(TaskResult.ACK, record.state if record else "gone"))
    sweeps = record.sweeps + 1
    wait = min(limits.sweep_longest, limits.sweep_after * 2 ** min(sweeps, 30))
    moved = replace(record, sweeps=sweeps, sweep_at=now + wait)
    if record.leased_at(now):
        return Step(Answer(TaskResult.ACK, record.state), write=moved)
    moved = replace(moved, generation=record.generation + 1, due_at=now)
    return Step(Answer(TaskResult.ACK, record.state), write=moved, next=Ensure(moved))


# ---- people: replay and discard


def replay(record: Delivery, limits: Limits, now: datetime, may_double: bool = False) -> Step:
    """Try a dead letter, or one that a receipt later refused, once more in a new round.

    Asked again, with the same `now` where the write before was reported refused, it says the same and writes no more.
    Raises NotAllowed where the table has no row, and where a copy may have arrived and `may_double` is not given.
    """
    if record.state in OPEN_STATES:
        return Step(Answer(TaskResult.ACK, record.state), next=Ensure(record))
    if is_invalid(record):
        raise NotAllowed(why_never(record))
    if is_confirmed(record):
        return _written(_final(record, State.DONE, limits, now))
    if _was_confirmed(record, now):
        return Step(Answer(TaskResult.ACK, record.state))
    if not is_letter(record):
        raise NotAllowed("Only a dead letter, a refused one, or one from an unknown sender can be replayed.")
    if record.doubts and not may_double:
        raise NotAllowed("A copy of it may have arrived: replay it with --may-double only.")
    fresh = replace(
        _open(record, State.PENDING, generation=record.generation + 1),
        attempt=0,
        doubts=0,
        throttled=0,
        round=record.round + 1,
        give_up_at=now + limits.message_max_age,
        provider_id=None,
        expire_at=None,
        reason=None,
        finished_at=None,
    )
    waiting = _scheduled(fresh, now, limits)
    return Step(Answer(TaskResult.ACK, waiting.state), write=waiting, next=Ensure(waiting))


def _was_confirmed(record: Delivery, now: datetime) -> bool:
    """Done by a receipt: by this very replay (a failed receipt may stand beside it), or by another one before."""
    is_own = record.finished_at == now
    return record.state is State.DONE and record.word.positive and (is_own or not is_refused_later(record))


def discard(record: Delivery, limits: Limits, now: datetime, because: str | None = None) -> Step:
    """A person gives a dead letter up, and may say why: it is kept with the record. Raises NotAllowed for any other
    record but one that was discarded already, which stays as it is.
    """
    if is_discarded(record):
        return Step(Answer(TaskResult.ACK, record.state))
    if record.state is not State.DEAD:
        raise NotAllowed(NOT_DEAD)
    metadata = {**record.metadata, DISCARDED_BECAUSE: because} if because else record.metadata
    return _written(_final(replace(record, metadata=metadata), State.DROPPED, limits, now, reason=DISCARDED))


# ---- the small changes that rows share


def _older(task: Task, record: Delivery) -> bool:
    return task.generation < record.generation


def _too_old(record: Delivery, now: datetime) -> bool:
    return record.give_up_at is not None and record.give_up_at <= now


def _written(record: Delivery) -> Step:
    return Step(Answer(TaskResult.ACK, record.state), write=record)


def _scheduled(record: Delivery, due_at: datetime, limits: Limits) -> Delivery:
    return replace(record, due_at=due_at, sweep_at=due_at + limits.sweep_after, sweeps=0)


def _doubtful(record: Delivery, limits: Limits, now: datetime) -> Delivery:
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


def _open(record: Delivery, state: State, generation: int | None = None) -> Delivery:
    """Waiting again, held by nobody and doubted by nobody."""
    return replace(
        record,
        state=state,
        generation=record.generation if generation is None else generation,
        lease_until=None,
        doubt_until=None,
    )


def _final(record: Delivery, state: State, limits: Limits, now: datetime, reason: str | None = None) -> Delivery:
    """An end. Done and dropped are deleted some day; dead waits for a person."""
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


def _logged(
    record: Delivery, answer: str, now: datetime, code: int | None = None, provider_id: str | None = None
) -> Delivery:
    attempt = Attempt(now, record.attempt, answer, code, provider_id, record.round)
    return replace(record, attempts_log=(*record.attempts_log, attempt)[-ATTEMPTS_KEPT:])


def _because(record: Delivery, error: str, origin: Origin) -> Delivery:
    """Why the last attempt failed: the whole of it until the next failure, the beginning as long as the attempt is
    remembered.
    """
    *earlier, last = record.attempts_log
    room = ERROR_KEPT - sum(len(part or "") for part in (origin.type, origin.place, origin.function))
    short = error if len(error) <= room else error[: max(0, room - 1)] + "…"
    failed = replace(last, error=short, error_type=origin.type, place=origin.place, function=origin.function)
    return replace(record, last_error=error, attempts_log=(*earlier, failed))
