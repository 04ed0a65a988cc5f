"""Interim."""

import asyncio
from collections.abc import Sequence

from shared.domain.deadline import Deadline
from shared.domain.record import Task
from shared.domain.tasks import DueTask
from shared.pipeline.ports import Queue


class ThreadedQueue:
    """The `IntakeQueue` port."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    async def ensure_all(self, tasks: Sequence[DueTask], deadline: Deadline) -> Sequence[Exception | None]:
        return await asyncio.to_thread(self._queue.ensure_all, tasks, deadline)

    def queue_of(self, task: Task) -> str:
        return self._queue.queue_of(task)

    async def ping(self) -> None:
        await asyncio.to_thread(self._queue.ping)
