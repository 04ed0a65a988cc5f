"""The dispatcher of one queue: it starts an attempt for each due task, as fast as the queue's limits allow.

One thread per queue, so that no queue waits for another. The file is the only list of tasks: a pump asks its index for
due tasks, so a tick costs what it delivers and not what is waiting, and nothing has to be loaded after a kill.
"""

import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from local.grpc_methods import ProtoMessage
from local.tasks.attempt import Attempts
from local.tasks.queue_config import pace
from local.tasks.retry_and_rate import Bucket
from local.tasks.task_table import StoredTask, TaskTable

BATCH = 50
"""Tasks taken up in one transaction: enough to make its cost small, few enough that a kill repeats few."""


class QueueDispatcher:
    """Every method may be called from any thread."""

    def __init__(
        self,
        queue: ProtoMessage,
        tasks: TaskTable,
        attempts: Attempts,
        workers: ThreadPoolExecutor,
        clock: Callable[[], float],
    ) -> None:
        self._name: str = queue.name
        self._queue = queue
        self._tasks = tasks
        self._attempts = attempts
        self._workers = workers
        self._clock = clock
        self._pace = pace(queue, attempts.scale)
        self._bucket = Bucket.full(self._pace.rate, self._pace.burst, clock())
        self._changed = threading.Condition()
        self._in_flight = 0
        self._asleep_until = 0.0
        self._is_stopped = False

    def start(self) -> None:
        threading.Thread(target=self._run, daemon=True, name=f"pump {self._name}").start()

    def stop(self) -> None:
        """Take up no more tasks; attempts under way continue."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify()

    def configure(self, queue: ProtoMessage) -> None:
        """Apply this configuration; after the return, a paused queue takes nothing up."""
        with self._changed:
            self._queue = queue
            self._pace = pace(queue, self._attempts.scale)
            self._bucket = self._bucket.at_time(self._clock()).with_limits(self._pace.rate, self._pace.burst)
            self._changed.notify()

    def wake(self, due_at: float) -> None:
        """A task became due at this time."""
        with self._changed:
            if due_at < self._asleep_until:
                self._changed.notify()

    def run_now(self, task: StoredTask) -> None:
        """Make an attempt outside the queue's limits (RunTask); its retry is counted from the time of the request."""
        self._workers.submit(self._run_now, task)

    @property
    def in_flight(self) -> int:
        with self._changed:
            return self._in_flight

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._is_stopped:
                    return
                taken = self._take_up()
                if not taken:
                    self._changed.wait(_seconds_until(self._asleep_until, self._clock()))
            for task in taken:
                self._workers.submit(self._attempt, task)

    def _take_up(self) -> list[StoredTask]:
        """The due tasks that the limits allow now; if there are none, `_asleep_until` says when to look again."""
        now = self._clock()
        self._bucket = self._bucket.at_time(now)
        room = min(self._pace.concurrent - self._in_flight, BATCH)
        if self._pace.is_paused or room <= 0:
            self._asleep_until = math.inf  # a resume, or an attempt's end, notifies
            return []
        if self._bucket.tokens < 1:
            self._asleep_until = now + self._bucket.seconds_to_a_token()
            return []
        taken = self._tasks.take_up_due(self._name, min(room, int(self._bucket.tokens)), now)
        self._bucket = self._bucket.take(len(taken))
        self._in_flight += len(taken)
        if not taken:
            self._asleep_until = self._tasks.next_due(self._name) or math.inf
        return taken

    def _attempt(self, task: StoredTask) -> None:
        due: float | None = None
        try:
            due = self._attempts.make(task, self._queue)
        finally:
            with self._changed:
                was_full = self._in_flight >= self._pace.concurrent
                self._in_flight -= 1
                if was_full or due is not None:
                    self._changed.notify()

    def _run_now(self, task: StoredTask) -> None:
        due = self._attempts.make(task, self._queue, retried_from=task.last_dispatch_at)
        if due is not None:
            self.wake(due)


def _seconds_until(at: float, now: float) -> float | None:
    return None if at == math.inf else max(0.0, min(at - now, threading.TIMEOUT_MAX))
