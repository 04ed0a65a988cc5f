"""Cloud Tasks: the only dispatcher, to the real service or, with an emulator's address, to a local one.

Based on these facts (google-cloud-tasks 2.26, https://cloud.google.com/tasks/docs/reference/rpc, 2026-09): create_task
has a default timeout of 20 s and no retry. Only because our tasks are named may it be retried: AlreadyExists, for a
live or a used name, means that the task was made. There is no call that makes several tasks.

A task carries no identity. In a project its queue adds one and overrides the task's address
(infra/terraform/modules/tasks), so the service that makes tasks needs no permission to act as another account.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from shared.domain.deadline import Deadline
from shared.domain.errors import QueueUnavailable
from shared.domain.record import Kind, Task
from shared.domain.tasks import DueTask, task_body, task_path
from shared.net.grpc_client import GrpcClient, OutOfPatience
from shared.net.in_flight import CallsInFlight

if TYPE_CHECKING:
    from google.cloud.tasks_v2 import CloudTasksClient

T = TypeVar("T")

IN_FLIGHT = 64
"""Concurrent creations for all large POSTs of a process: at 150 ms each, 2,000 take 5 s."""

QUICK = 10
"""Up to this many tasks together are made within milliseconds."""

REMEMBERED_SECONDS = 900.0
REMEMBERED = 20_000
"""How long, and how many, tasks of large POSTs are cached as made. If the redelivery of an unfinished POST comes to the
same process, it then continues where it stopped. In another process, or later, all of its tasks are requested again,
which is harmless.
"""

LEAST_DEADLINE = timedelta(seconds=15)
"""The service refuses a shorter dispatch_deadline, and a time scale can make ours shorter."""


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Where the queues are, and what their tasks carry."""

    project: str
    location: str
    queues: Mapping[Kind, str]
    base_url: str
    token: str = field(repr=False)
    dispatch_deadline: timedelta
    emulator: str | None = None
    tenant_queues: Mapping[tuple[Kind, str], str] = field(default_factory=dict)
    """The queues of tenants that have separate ones. All other tasks, also those without a tenant, go to `queues`."""

    def name_of(self, task: Task) -> str:
        """The queue that a task goes to."""
        return self.tenant_queues.get((task.kind, task.tenant)) or self.queues[task.kind]


class CloudTasksQueue:
    """The queue port on google-cloud-tasks."""

    def __init__(self, settings: QueueSettings) -> None:
        self._settings = settings
        self._client = GrpcClient(_load, settings.emulator)
        self._in_flight = CallsInFlight(IN_FLIGHT, "pombo-tasks")
        self._made = _Remembered(REMEMBERED, REMEMBERED_SECONDS)

    def ensure(self, task: Task, at: datetime | None) -> None:
        """Make the task, to run at `at` or now. An existing one of that name is success. Raises QueueUnavailable."""
        self._ensure(task, at, quick=True)

    def ensure_all(self, tasks: Sequence[DueTask], deadline: Deadline) -> Sequence[Exception | None]:
        """As `ensure`, many at a time and in this order. Returns each outcome: None if made. Raises nothing."""
        too_slow = QueueUnavailable("The task queue is too slow.")
        missing = [due for due in tasks if due[0].name not in self._made]
        ensure = partial(self._ensure_one_of_many, quick=len(missing) <= QUICK)
        made = self._in_flight.each(ensure, missing, deadline, too_slow)
        faults = {task.name: one for (task, _), one in zip(missing, made, strict=True) if isinstance(one, Exception)}
        return [faults.get(task.name) for task, _ in tasks]

    def queue_of(self, task: Task) -> str:
        """The configured name of the queue that the task goes to."""
        return self._settings.name_of(task)

    def ping(self) -> None:
        """Raise QueueUnavailable unless both shared queues answer."""
        for name in self._settings.queues.values():
            self._call(partial(_get_queue, self._path(name)))

    def _ensure_one_of_many(self, due: DueTask, quick: bool) -> None:
        self._ensure(*due, quick)
        self._made.add(due[0].name)

    def _ensure(self, task: Task, at: datetime | None, quick: bool) -> None:
        from google.api_core.exceptions import AlreadyExists

        request = {"parent": self._path(self.queue_of(task)), "task": self._task(task, at)}
        with suppress(AlreadyExists):
            self._call(lambda client, seconds: client.create_task(request=request, retry=None, timeout=seconds), quick)

    def _path(self, queue: str) -> str:
        return f"projects/{self._settings.project}/locations/{self._settings.location}/queues/{queue}"

    def _task(self, task: Task, at: datetime | None) -> dict[str, Any]:
        settings = self._settings
        request: dict[str, Any] = {
            "url": settings.base_url + task_path(task.kind),
            "http_method": "POST",
            "headers": {
                "Content-Type": "application/json",
                "X-Internal-Token": settings.token,
                "X-Correlation-Id": task.correlation_id,
            },
            "body": json.dumps(task_body(task)).encode(),
        }
        made: dict[str, Any] = {
            "name": f"{self._path(self.queue_of(task))}/tasks/{task.name}",
            "http_request": request,
            "dispatch_deadline": max(settings.dispatch_deadline, LEAST_DEADLINE),
        }
        if at is not None and at > datetime.now(UTC):
            made["schedule_time"] = at
        return made

    def _call(self, work: Callable[["CloudTasksClient", float], T], quick: bool = True) -> T:
        """Raises QueueUnavailable, and AlreadyExists."""
        from google.api_core.exceptions import AlreadyExists, GoogleAPIError
        from google.auth.exceptions import GoogleAuthError

        try:
            return self._client.call(work, self._client.patience(), quick)
        except AlreadyExists:
            raise
        except (OutOfPatience, GoogleAPIError, GoogleAuthError, OSError) as error:
            raise QueueUnavailable from (error.__cause__ if isinstance(error, OutOfPatience) else error)


class _Remembered:
    """A cache of the newest names, for a limited time."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most = most
        self._seconds = seconds
        self._lock = threading.Lock()
        self._until: dict[str, float] = {}

    def __contains__(self, name: str) -> bool:
        return self._until.get(name, 0.0) > time.monotonic()

    def add(self, name: str) -> None:
        with self._lock:
            self._until[name] = time.monotonic() + self._seconds
            while len(self._until) > self._most:
                del self._until[next(iter(self._until))]


def _get_queue(name: str, client: "CloudTasksClient", seconds: float) -> Any:
    return client.get_queue(name=name, retry=None, timeout=seconds)


def _load() -> tuple[type["CloudTasksClient"], Any]:
    from google.cloud.tasks_v2 import CloudTasksClient
    from google.cloud.tasks_v2.services.cloud_tasks.transports import CloudTasksGrpcTransport

    return CloudTasksClient, CloudTasksGrpcTransport
