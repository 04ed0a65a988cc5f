"""A person's decisions on a record: replay or discard a dead letter, cancel a message that waits."""

from dataclasses import replace
from datetime import datetime

from shared.domain.dead_letters import (
    DISCARDED,
    DISCARDED_BECAUSE,
    is_confirmed,
    is_discarded,
    is_letter,
    is_refused_later,
    why_never,
)
from shared.domain.delivery.answers import NOT_DEAD, Answer, Ensure, NotAllowed, Step, TaskResult
from shared.domain.delivery.bell import ringing
from shared.domain.delivery.changes import write
from shared.domain.delivery.lifecycle import end, reopen, schedule
from shared.domain.limits import Limits
from shared.domain.record import CANCELLED, OPEN_STATES, Delivery, Kind, State, is_cancelled, is_invalid


def replay(record: Delivery, limits: Limits, now: datetime, may_double: bool = False) -> Step:
    """Retry a dead letter, or a message that a receipt refused later, in a new round.

    If a write was reported refused, a second call with the same `now` returns the same and writes no more. Raises
    NotAllowed if the table has no row, or if a copy may have arrived and `may_double` is not given.
    """
    if record.state in OPEN_STATES:
        return Step(Answer(TaskResult.ACK, record.state), next=Ensure(record))
    if is_invalid(record):
        raise NotAllowed(why_never(record))
    if is_confirmed(record):
        return write(end(record, State.DONE, limits, now))
    if _was_confirmed(record, now):
        return Step(Answer(TaskResult.ACK, record.state))
    if not is_letter(record):
        raise NotAllowed(
            "Only a dead letter, a message that a receipt refused, or an event of an unknown sender can be replayed."
        )
    if record.doubts and not may_double:
        raise NotAllowed("A copy may have arrived: give --may-double to replay it.")
    fresh = replace(
        reopen(record, State.PENDING, generation=record.generation + 1),
        attempt=0,
        doubts=0,
        throttled=0,
        round=record.round + 1,
        give_up_at=now + limits.message_max_age,
        provider_id=None,
        bell=frozenset(),
        overtook=None,
        expire_at=None,
        reason=None,
        finished_at=None,
    )
    waiting = schedule(fresh, now, limits)
    return Step(Answer(TaskResult.ACK, waiting.state), write=waiting, next=Ensure(waiting))


def _was_confirmed(record: Delivery, now: datetime) -> bool:
    """Whether a receipt made it done: in this same replay (beside a failed receipt), or in an earlier one."""
    is_own = record.finished_at == now
    return record.state is State.DONE and record.current_receipts.positive and (is_own or not is_refused_later(record))


def discard(record: Delivery, limits: Limits, now: datetime, because: str | None = None) -> Step:
    """An operator gives up a dead letter; the reason, if given, is kept with the record. A record that is already
    discarded stays as it is. Raises NotAllowed for any other record.
    """
    if is_discarded(record):
        return Step(Answer(TaskResult.ACK, record.state))
    if record.state is not State.DEAD:
        raise NotAllowed(NOT_DEAD)
    metadata = {**record.metadata, DISCARDED_BECAUSE: because} if because else record.metadata
    return write(end(replace(record, metadata=metadata), State.DROPPED, limits, now, reason=DISCARDED))


def cancel(record: Delivery, limits: Limits, now: datetime) -> Step:
    """Take back a message that certainly was not handed to the provider. One that is cancelled already stays as it is.
    Raises NotAllowed for any other record.
    """
    if is_cancelled(record):
        return ringing(Step(Answer(TaskResult.ACK, record.state)), record)
    if record.kind is not Kind.OUTBOUND:
        raise NotAllowed("Only a message to a customer can be cancelled.")
    if record.state is not State.PENDING or record.doubts or record.current_receipts.any:
        raise NotAllowed("The message is being sent, or has ended: only one that waits can be cancelled.")
    return ringing(write(end(record, State.DROPPED, limits, now, reason=CANCELLED)), record)
