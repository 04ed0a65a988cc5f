"""Dispatch: creates the tasks that a step asks for, after its record is written."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from shared import logs
from shared.domain.delivery.answers import Answer, Ensure, EnsureReplies, Hop, Step, TaskResult
from shared.domain.drains import RECONNECTED, DrainTask
from shared.domain.errors import QueueUnavailable, RegistryUnavailable, RegistryUnreadable
from shared.domain.limits import Limits
from shared.domain.record import Delivery, State, Task
from shared.domain.tasks import next_hop, own_task, reply_task, wake_tasks
from shared.pipeline import log_fields
from shared.pipeline.channels import Channels
from shared.pipeline.clock import Clock
from shared.pipeline.ports import Channel, Queue, Tenants


@dataclass(frozen=True, slots=True)
class TaskDispatch:
    """Makes the tasks that a step asks for, each in its tenant's queue. If the queue or the registry is down, the
    current task is retried.
    """

    queue: Queue
    clock: Clock
    limits: Limits
    channels: Channels[Channel]
    tenants: Tenants

    def __call__(self, step: Step, task: Task, ring_at: datetime | None = None) -> Answer:
        """Make the step's tasks and return the answer. The bell is rung first: who waits has waited longest. `ring_at`:
        when the wake tasks run; None: now.
        """
        if step.write is not None and step.write.state is State.DEAD:
            log_fields.log_dead(step.write, self.channels)
        for number, reply in enumerate(step.create, start=1):
            if reply.state is State.DEAD:
                log_fields.log_dead(reply, self.channels, number)
        self.ring(step, ring_at)
        try:
            match step.next:
                case Ensure(record):
                    self.ensure(record)
                case EnsureReplies(record, times):
                    self.ensure_replies(record, times)
                case Hop(record, until, slot, alone_since):
                    pair = pair_of(record, self.tenants)
                    self.queue.ensure(*next_hop(record, task, until, pair, slot, alone_since))
                case _:
                    pass
        except (QueueUnavailable, RegistryUnavailable) as error:
            logs.event("unexpected_error", severity="WARNING", delivery=task.key, reason=error.code, stage="enqueue")
            is_tenants = isinstance(error, RegistryUnreadable)  # and no outage, which slows down a whole queue
            return Answer(TaskResult.CONFLICT if is_tenants else TaskResult.NACK, step.answer.state)
        return step.answer

    def ensure(self, record: Delivery) -> None:
        """Make the record's task, for when it is due. Raises QueueUnavailable and RegistryUnavailable."""
        self.queue.ensure(*own_task(record, pair_of(record, self.tenants)))

    def start_drain(self, sender: str, reason: str = RECONNECTED) -> None:
        """Wake the waiting messages of a sender (`Sender.id`) that may send again. `reason` is why it may. It only
        hurries: each message also hops by itself, so a queue that is down is only logged.
        """
        try:
            self.queue.ensure_drain(DrainTask(sender, self.clock.now(), self.clock.token(), reason=reason))
        except QueueUnavailable as error:
            logs.event("unexpected_error", severity="WARNING", reason=error.code, stage="drain")

    def ring(self, step: Step, at: datetime | None = None) -> None:
        """Wake those that wait for the record that the step has ended, now or at a later time. It only hurries: each
        also hops by itself, so a queue that is down is only logged.
        """
        if step.rings is None:
            return
        try:
            for task in wake_tasks(step.rings, pair_of(step.rings, self.tenants)):
                self.queue.ensure(task, at)
        except (QueueUnavailable, RegistryUnavailable) as error:
            logs.event("unexpected_error", severity="WARNING", delivery=step.rings.key, reason=error.code, stage="wake")

    def ensure_replies(self, record: Delivery, times: Sequence[datetime] = ()) -> int:
        """Make the first task of each reply of a plan, for its time; without times, each a little after the one
        before. A failure does not stop the others. The event does not know which replies are invalid: their tasks find
        a final record and do nothing. Raises QueueUnavailable and RegistryUnavailable.
        """
        failure: QueueUnavailable | None = None
        made = 0
        now, spacing = self.clock.now(), self.limits.waits.reply_spacing
        times = times or [now + spacing * index for index in range(record.plan_size or 0)]
        pair = pair_of(record, self.tenants)
        tasks = [reply_task(record, index, at, pair) for index, at in enumerate(times)]
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


def pair_of(record: Delivery, tenants: Tenants) -> int | None:
    """The number of the pair of queues of the record's tenant; None for the shared queues. Raises
    RegistryUnavailable.
    """
    tenant = tenants.tenant(record.tenant) if record.tenant else None
    return tenant.queue if tenant else None
