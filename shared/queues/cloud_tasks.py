"""Cloud Tasks: the only dispatcher, to the real service or, with an emulator's address, to a local one.

Based on these facts (google-cloud-tasks 2.26, https://cloud.google.com/tasks/docs/reference/rpc, 2026-09): create_task
has a default timeout of 20 s and no retry. Only because our tasks are named may it be retried: AlreadyExists, for a
live or a used name, means that the task was made. There is no call that makes several tasks.

A task whose numbered queue is missing goes to the shared one (shared.queues.missing_queues). If both get it, because
the queue came back meanwhile, the second is answered like any task that comes twice.
"""

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import orjson

from shared.domain.drains import DRAIN_PATH, DrainTask, drain_body
from shared.domain.errors import QueueUnavailable
from shared.domain.record import Task
from shared.net.grpc_client import GrpcClient
from shared.net.patience import OutOfPatience
from shared.queues import task_content
from shared.queues.missing_queues import REFUSALS, MissingQueues
from shared.queues.task_content import QueueSettings

if TYPE_CHECKING:
    from google.cloud.tasks_v2 import CloudTasksClient

T = TypeVar("T")


class _Call(NamedTuple):
    """What a task calls."""

    url: str
    correlation_id: str


class CloudTasksQueue:
    """The queue port on google-cloud-tasks."""

    def __init__(self, settings: QueueSettings) -> None:
        self._settings = settings
        self._client = GrpcClient(_load, settings.emulator)
        self._missing = MissingQueues()

    def ensure(self, task: Task, at: datetime | None) -> None:
        """Make the task, to run at `at` or now. An existing one of that name is success. Raises QueueUnavailable."""
        queue = self.queue_of(task)
        made = self._task(queue, task, at)
        shared = self._settings.queues[task.kind]
        try:
            self._create(queue, made)
        except QueueUnavailable as error:
            code = _code_of(error.__cause__)
            if queue == shared or code not in REFUSALS:
                raise
            self._missing.add(queue, code, shared)
            self._create(shared, self._task(shared, task, at))

    def ensure_drain(self, drain: DrainTask) -> None:
        """As `ensure`, for a drain, to run at its `since`."""
        queue, call = self._settings.drain, _Call(self._settings.base_url + DRAIN_PATH, drain.correlation_id)
        self._create(queue, self._request(queue, drain.name, call, orjson.dumps(drain_body(drain)), drain.since))

    def queue_of(self, task: Task) -> str:
        """The name of the queue that the task goes to."""
        name = self._settings.name_of(task)
        return self._settings.queues[task.kind] if name in self._missing else name

    def ping(self) -> None:
        """Raise QueueUnavailable unless both shared queues answer."""
        for name in self._settings.queues.values():
            self._call(partial(_get_queue, self._settings.path(name)))

    def ping_drain(self) -> None:
        """As `ping`, for the queue of drains, without which no service is less ready: waiting messages go later."""
        self._call(partial(_get_queue, self._settings.path(self._settings.drain)))

    def _task(self, queue: str, task: Task, at: datetime | None) -> dict[str, Any]:
        call = _Call(self._settings.url(task.kind), task.correlation_id)
        return self._request(queue, task.name, call, task_content.body(task), at)

    def _request(self, queue: str, name: str, call: _Call, body: bytes, at: datetime | None) -> dict[str, Any]:
        settings = self._settings
        made: dict[str, Any] = {
            "name": f"{settings.path(queue)}/tasks/{name}",
            "http_request": {
                "url": call.url,
                "http_method": "POST",
                "headers": task_content.headers(settings, call.correlation_id),
                "body": body,
            },
            "dispatch_deadline": settings.deadline,
        }
        if schedule := task_content.schedule(at):
            made["schedule_time"] = schedule
        return made

    def _create(self, queue: str, task: dict[str, Any]) -> None:
        """Raises QueueUnavailable."""
        from google.api_core.exceptions import AlreadyExists

        request = {"parent": self._settings.path(queue), "task": task}
        with suppress(AlreadyExists):
            self._call(lambda client, seconds: client.create_task(request=request, retry=None, timeout=seconds))

    def _call(self, work: Callable[["CloudTasksClient", float], T]) -> T:
        """Raises QueueUnavailable, and AlreadyExists."""
        from google.api_core.exceptions import AlreadyExists, GoogleAPIError
        from google.auth.exceptions import GoogleAuthError

        try:
            return self._client.call(work, self._client.patience())
        except AlreadyExists:
            raise
        except (OutOfPatience, GoogleAPIError, GoogleAuthError, OSError) as error:
            raise QueueUnavailable from (error.__cause__ if isinstance(error, OutOfPatience) else error)


def _code_of(error: BaseException | None) -> str:
    """Google's name of an error; empty if the service did not answer with one."""
    from google.api_core.exceptions import GoogleAPICallError

    code = error.grpc_status_code if isinstance(error, GoogleAPICallError) else None
    return code.name if code is not None else ""


def _get_queue(name: str, client: "CloudTasksClient", seconds: float) -> Any:
    return client.get_queue(name=name, retry=None, timeout=seconds)


def _load() -> tuple[type["CloudTasksClient"], Any]:
    from google.cloud.tasks_v2 import CloudTasksClient
    from google.cloud.tasks_v2.services.cloud_tasks.transports import CloudTasksGrpcTransport

    return CloudTasksClient, CloudTasksGrpcTransport
