"""The dispatcher: a pump for every queue, and the threads that make the attempts."""

import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from local.grpc_methods import ProtoMessage
from local.tasks.attempt import Attempts, labels, take_fault
from local.tasks.protobuf import Queue, Task
from local.tasks.queue_dispatcher import QueueDispatcher
from local.tasks.queue_table import QueueTable
from local.tasks.task_table import StoredTask, TaskTable

ATTEMPTS_AT_ONCE = 2000
"""In all queues together. Threads, because an attempt mostly waits for its target, up to 30 minutes; they are started
as needed. If this many requests hang, the machine has worse problems than a waiting queue.
"""
LOOK_FOR_EARLY = 0.1
"""Seconds between two checks for tasks that a fault delivers early."""
EARLY_AT_A_LOOK = 1000
TIDY_EVERY = 3600.0


class Dispatcher:
    def __init__(self, queues: QueueTable, tasks: TaskTable, attempts: Attempts, clock: Callable[[], float]) -> None:
        self._queues = queues
        self._tasks = tasks
        self._attempts = attempts
        self._clock = clock
        self._workers = ThreadPoolExecutor(ATTEMPTS_AT_ONCE, thread_name_prefix="attempt")
        self._lock = threading.Lock()
        self._pumps: dict[str, QueueDispatcher] = {}

    def start(self) -> None:
        for message in self._queues.page(prefix="", after="", limit=-1):
            self.configure(Queue.FromString(message))
        threading.Thread(target=self._keep_house, daemon=True, name="housekeeping").start()

    def configure(self, queue: ProtoMessage) -> None:
        """Dispatch a queue with this configuration, new or changed."""
        with self._lock:
            pump = self._pumps.get(queue.name)
            if pump is None:
                pump = QueueDispatcher(queue, self._tasks, self._attempts, self._workers, self._clock)
                self._pumps[queue.name] = pump
                pump.start()
        pump.configure(queue)

    def forget(self, queue: str) -> None:
        with self._lock:
            pump = self._pumps.pop(queue, None)
        if pump is not None:
            pump.stop()

    def wake(self, queue: str, due_at: float) -> None:
        """A task of this queue became due at this time."""
        pump = self._pumps.get(queue)
        if pump is not None:
            pump.wake(due_at)

    def run_now(self, task: StoredTask) -> None:
        pump = self._pumps.get(task.queue)
        if pump is not None:
            pump.run_now(task)

    def stop(self, patience: float) -> None:
        """Take up no more tasks, and give attempts under way `patience` seconds to end and be settled."""
        self._attempts.stopping.set()
        with self._lock:
            pumps = list(self._pumps.values())
        for pump in pumps:
            pump.stop()
        deadline = time.monotonic() + patience
        while any(pump.in_flight for pump in pumps) and time.monotonic() < deadline:
            time.sleep(0.02)

    def _keep_house(self) -> None:
        tidied_at = 0.0
        while not self._attempts.stopping.wait(LOOK_FOR_EARLY):
            now = self._clock()
            if now - tidied_at > TIDY_EVERY:
                self._tasks.tidy(now)
                tidied_at = now
            try:
                self._deliver_early(now)
            except sqlite3.Error as error:  # another process uses the fault file too, and may lock it for a while
                self._attempts.log.write("faults_unreadable", error=str(error))

    def _deliver_early(self, now: float) -> None:
        """Make waiting tasks due before their schedule_time; not retries, whose wait the queue decides."""
        if not any(fault.on == "task" and fault.kind == "early" for fault in self._attempts.faults.active()):
            return
        for stored in self._tasks.waiting_for_their_first_attempt(EARLY_AT_A_LOOK, now):
            fault = take_fault(self._attempts.faults, Task.FromString(stored.message), "early")
            if fault is not None:
                self._attempts.log.write("fault_made", kind="early", **labels(stored))
                self._tasks.hasten(stored, now)
                self.wake(stored.queue, now)
