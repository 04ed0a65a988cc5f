"""Small changes to a record and the steps that write them, shared by the rows of several tables."""

from dataclasses import replace
from datetime import datetime

from shared.domain.delivery.answers import Answer, Ensure, Step, TaskResult
from shared.domain.delivery.lifecycle import end, reopen, schedule
from shared.domain.limits import Limits
from shared.domain.record import ATTEMPTS_KEPT, ERROR_KEPT, Attempt, Delivery, State, Task
from shared.domain.verdicts import Origin


def end_dead(record: Delivery, reason: str, limits: Limits, now: datetime, answer: Answer | None = None) -> Step:
    """Dead, unless a receipt of this round shows that the provider has it."""
    if record.current_receipts.any:
        return write(end(record, State.DONE, limits, now))
    dead = end(record, State.DEAD, limits, now, reason=reason)
    return Step(answer or Answer(TaskResult.ACK, dead.state), write=dead)


def reschedule(record: Delivery, due_at: datetime, limits: Limits) -> Step:
    """Schedule the next attempt, as a new generation."""
    waiting = schedule(reopen(record, State.PENDING, generation=record.generation + 1), due_at, limits)
    return Step(Answer(TaskResult.ACK, "rescheduled"), write=waiting, next=Ensure(waiting))


def release(record: Delivery, state: State) -> Step:
    """Restore the state from before the lease. The token is removed, so this attempt can write no more."""
    doubt_until = record.doubt_until if state is State.IN_DOUBT else None
    released = replace(
        record, state=state, attempt=record.attempt - 1, token=None, lease_until=None, doubt_until=doubt_until
    )
    return Step(Answer(TaskResult.CONFLICT, released.state), write=released)


def give_back(record: Delivery, word: str, code: int | None, now: datetime, throttled: int = 0) -> Delivery:
    """Do not count the attempt: the failure was not this message's fault."""
    return replace(log_attempt(record, word, now, code=code), attempt=record.attempt - 1, throttled=throttled)


def postpone(record: Delivery, word: str, code: int | None, now: datetime) -> Delivery:
    """As `give_back`, and count it as one more in a row, so that the wait grows."""
    return give_back(record, word, code, now, throttled=record.throttled + 1)


def is_older(task: Task, record: Delivery) -> bool:
    return task.generation < record.generation


def is_too_old(record: Delivery, now: datetime) -> bool:
    return record.give_up_at is not None and record.give_up_at <= now


def reason_to_end(event: Delivery, limits: Limits, now: datetime) -> str | None:
    """Why the next task ends an event that nobody handles, without an attempt; None if it does not."""
    if event.attempt >= limits.max_attempts:
        return "attempts"
    return "waited" if is_too_old(event, now) else None


def write(record: Delivery) -> Step:
    return Step(Answer(TaskResult.ACK, record.state), write=record)


def log_attempt(
    record: Delivery, answer: str, now: datetime, code: int | None = None, provider_id: str | None = None
) -> Delivery:
    attempt = Attempt(now, record.attempt, answer, code, provider_id, record.round)
    return replace(record, attempts_log=(*record.attempts_log, attempt)[-ATTEMPTS_KEPT:])


def log_error(record: Delivery, error: str, origin: Origin) -> Delivery:
    """Store why the last attempt failed: in full in `last_error`, shortened in the attempt's entry of the log."""
    *earlier, last = record.attempts_log
    room = ERROR_KEPT - sum(len(part or "") for part in (origin.type, origin.place, origin.function))
    short = error if len(error) <= room else error[: max(0, room - 1)] + "…"
    failed = replace(last, error=short, error_type=origin.type, place=origin.place, function=origin.function)
    return replace(record, last_error=error, attempts_log=(*earlier, failed))


def limits_of(record: Delivery, limits: Limits) -> Limits:
    """The limits that hold for this record: a caller's own retries come before ours."""
    return limits if record.retry is None else limits.with_retries(record.retry.attempts, record.retry.wait)
