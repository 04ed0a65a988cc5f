"""Dispatch: creates the tasks that a step asks for, after its record is written."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from shared import logs
from shared.domain.delivery.answers import Answer, Ensure, EnsureReplies, Hop, Step, TaskResult
from shared.domain.errors import QueueUnavailable
from shared.domain.limits import Limits
from shared.domain.record import Delivery, State, Task
from shared.domain.tasks import next_hop, own_task, reply_task
from shared.pipeline import log_fields
from shared.pipeline.channels import Channels
from shared.pipeline.clock import Clock
from shared.pipeline.ports import Channel, Queue


@dataclass(frozen=True, slots=True)
class TaskDispatch:
    """Makes the tasks that a step asks for. If the queue is down, the current task is retried."""

    queue: Queue
    clock: Clock
    limits: Limits
    channels: Channels[Channel]

    def __call__(self, step: Step, task: Task) -> Answer:
        """Make the step's tasks and return the answer."""
        if step.write is not None and step.write.state is State.DEAD:
            log_fields.log_dead(step.write, self.channels)
        for number, reply in enumerate(step.create, start=1):
            if reply.state is State.DEAD:
                log_fields.log_dead(reply, self.channels, number)
        try:
            match step.next:
                case Ensure(record):
                    self.ensure(record)
                case EnsureReplies(record, due_at):
                    self.ensure_replies(record, due_at)
                case Hop(record, until):
                    self.queue.ensure(*next_hop(record, task, until))
                case _:
                    pass
        except QueueUnavailable as error:
            logs.event("unexpected_error", severity="WARNING", delivery=task.key, reason=error.code, stage="enqueue")
            return Answer(TaskResult.NACK, step.answer.state)
        return step.answer

    def ensure(self, record: Delivery) -> None:
        """Make the record's task, for when it is due."""
        self.queue.ensure(*own_task(record))

    def ensure_replies(self, record: Delivery, due_at: Sequence[datetime | None] = ()) -> int:
        """Make the first task of each reply of a plan, for when it is due; without times, each a little after the one
        before. A failure does not stop the others. The event does not know which replies are invalid: their tasks find
        a final record and do nothing.
        """
        failure: QueueUnavailable | None = None
        made = 0
        now, spacing = self.clock.now(), self.limits.waits.reply_spacing
        times = due_at or [now + spacing * index for index in range(record.plan_size or 0)]
        tasks = [reply_task(record, index, at) for index, at in enumerate(times)]
        for task in tasks:
            try:
                self.queue.ensure(*task)
                made += 1
            except QueueUnavailable as error:
                failure = error
        if made or failure:
            logs.event(
                "outbound_enqueued",
                severity="WARNING" if failure else "INFO",
                **log_fields.of_record(record, self.channels),
                **log_fields.in_queue(tasks[0][0], self.queue),
                outbound_planned=record.plan_size,
                outbound_enqueued=made,
            )
        if failure:
            raise failure
        return made
