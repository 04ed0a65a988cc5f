"""Sweep: an overdue record keeps its state and gets another task."""

from dataclasses import replace
from datetime import datetime

from shared.domain.delivery.answers import Answer, Ensure, Step, TaskResult
from shared.domain.delivery.lifecycle import sweep_wait
from shared.domain.limits import Limits
from shared.domain.record import Delivery


def sweep(record: Delivery | None, limits: Limits, now: datetime) -> Step:
    """Give an overdue record a new task, and double the wait before the next sweep."""
    if record is None or record.final or record.sweep_at is None or record.sweep_at > now:
        return Step(Answer(TaskResult.ACK, record.state if record else "gone"))
    sweeps = record.sweeps + 1
    moved = replace(record, sweeps=sweeps, sweep_at=now + sweep_wait(sweeps, limits))
    if record.leased_at(now):
        return Step(Answer(TaskResult.ACK, record.state), write=moved)
    moved = replace(moved, generation=record.generation + 1, due_at=now)
    return Step(Answer(TaskResult.ACK, record.state), write=moved, next=Ensure(moved))
