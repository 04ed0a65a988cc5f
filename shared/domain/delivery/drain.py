"""Drain: a message that waited for its sender's credential is tried at once."""

from dataclasses import replace
from datetime import datetime

from shared.domain.delivery.answers import Answer, Ensure, Step, TaskResult
from shared.domain.delivery.lifecycle import schedule
from shared.domain.limits import Limits
from shared.domain.record import Delivery, Kind, State
from shared.domain.verdicts import Blocked, CredentialRefused

OF_SENDER = (CredentialRefused.label, Blocked.label)
"""The verdicts about the sender: a reconnect ends the wait after them. All other waits are kept, above all that of a
message for a later time."""


def drain(record: Delivery | None, limits: Limits, began: datetime) -> Step:
    """Give a waiting message another task, due at once. `began` is when the drain began: a record that this same drain
    has moved only gets its task once more, so a repeated page adds none.
    """
    if record is None or record.state is not State.PENDING or record.kind is not Kind.OUTBOUND:
        return Step(Answer(TaskResult.ACK, record.state if record else "gone"))
    if record.due_at == began:
        return Step(Answer(TaskResult.ACK, record.state), next=Ensure(record))
    if not (record.due(began) or _waits_for_sender(record)):
        return Step(Answer(TaskResult.ACK, record.state))
    woken = schedule(replace(record, generation=record.generation + 1), began, limits)
    return Step(Answer(TaskResult.ACK, woken.state), write=woken, next=Ensure(woken))


def _waits_for_sender(record: Delivery) -> bool:
    last = record.attempts_log[-1] if record.attempts_log else None
    return last is not None and last.round == record.round and last.answer in OF_SENDER
