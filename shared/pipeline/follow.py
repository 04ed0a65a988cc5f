"""Follow: after the write, what the step says comes next. Write the record, then make its task."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from shared import logs
from shared.domain.delivery import Answer, Ensure, EnsureReplies, Hop, Step, TaskResult
from shared.domain.errors import QueueUnavailable
from shared.domain.identity import outbound_key
from shared.domain.limits import Limits
from shared.domain.record import Delivery, Kind, State, Task
from shared.pipeline import log_fields
from shared.pipeline.channels import Channels
from shared.pipeline.clock import Clock
from shared.pipeline.ports import Channel, Queue


@dataclass(frozen=True, slots=True)
class Follow:
    """Makes the tasks a step asks for. A queue that cannot be reached makes the task come back."""

    queue: Queue
    clock: Clock
    limits: Limits
    channels: Channels

    def __call__(self, step: Step, task: Task) -> Answer:
        """Do what comes next and say the answer."""
        for record in (step.write, *step.create):
            if record is not None and record.state is State.DEAD:
                log_dead(record, self.channels)
        try:
            match step.next:
                case Ensure(record):
                    self.ensure(record)
                case EnsureReplies(record, due_at):
                    self.ensure_replies(record, due_at)
                case Hop(until):
                    self.queue.ensure(replace(task, hop=task.hop + 1), until)
                case _:
                    pass
        except QueueUnavailable as error:
            logs.event("unexpected_error", severity="WARNING", delivery=task.key, reason=error.code, stage="enqueue")
            return Answer(TaskResult.NACK, step.answer.state)
        return step.answer

    def ensure(self, record: Delivery) -> None:
        """The record's own task, when it is due."""
        self.queue.ensure(Task.of(record), record.due_at)

    def ensure_replies(self, record: Delivery, due_at: Sequence[datetime | None] = ()) -> int:
        """The first task of each reply of a plan, when it is due; without times, each a little after the one before.
        One that fails does not stop the others. The event does not know which of them are invalid: their tasks find a
        final record, and do nothing.
        """
        failure: QueueUnavailable | None = None
        made = 0
        now, spacing = self.clock.now(), self.limits.waits.reply_spacing
        tasks = [first_task_of_reply(record, index) for index in range(record.plan_size or 0)]
        for index, task in enumerate(tasks):
            try:
                at = due_at[index] if due_at else now + spacing * index
                self.queue.ensure(task, at if at and at > now else None)
                made += 1
            except QueueUnavailable as error:
                failure = error
        if made or failure:
            logs.event(
                "outbound_enqueued",
                severity="WARNING" if failure else "INFO",
                **log_fields.of_record(record, self.channels),
                **log_fields.in_queue(tasks[0], self.queue),
                outbound_planned=record.plan_size,
                outbound_enqueued=made,
            )
        if failure:
            raise failure
        return made


def first_task_of_reply(record: Delivery, index: int) -> Task:
    """The task with which reply `index` (from 0) to an event begins."""
    return Task(outbound_key(record.key, index), Kind.OUTBOUND, record.correlation_id, generation=0)


def log_dead(record: Delivery, channels: Mapping[str, Channel]) -> None:
    """The alert: an error line that a monitor counts."""
    last = record.attempts_log[-1] if record.attempts_log else None
    logs.event(
        "dead_lettered",
        severity="ERROR",
        **{**log_fields.of_record(record, channels), "delivery": record.key},
        reason=record.reason,
        status="failed",
        attempt=record.attempt,
        code=last.code if last else None,
        **log_fields.of_failure(record),
    )
