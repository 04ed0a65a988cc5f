"""Cloud Tasks: the only dispatcher, to the real service or, with an emulator's address, to a local one.

Based on these facts (google-cloud-tasks 2.26, https://cloud.google.com/tasks/docs/reference/rpc, 2026-09): create_task
has a default timeout of 20 s and no retry. Only because our tasks are named may it be retried: AlreadyExists, for a
live or a used name, means that the task was made. There is no call that makes several tasks.
"""

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from shared.domain.errors import QueueUnavailable
from shared.domain.record import Task
from shared.net.grpc_client import GrpcClient
from shared.net.patience import OutOfPatience
from shared.queues import task_content
from shared.queues.task_content import QueueSettings

if TYPE_CHECKING:
    from google.cloud.tasks_v2 import CloudTasksClient

T = TypeVar("T")


class CloudTasksQueue:
    """The queue port on google-cloud-tasks."""

    def __init__(self, settings: QueueSettings) -> None:
        self._settings = settings
        self._client = GrpcClient(_load, settings.emulator)

    def ensure(self, task: Task, at: datetime | None) -> None:
        """Make the task, to run at `at` or now. An existing one of that name is success. Raises QueueUnavailable."""
        from google.api_core.exceptions import AlreadyExists

        request = {"parent": self._settings.path(self.queue_of(task)), "task": self._task(task, at)}
        with suppress(AlreadyExists):
            self._call(lambda client, seconds: client.create_task(request=request, retry=None, timeout=seconds))

    def queue_of(self, task: Task) -> str:
        """The configured name of the queue that the task goes to."""
        return self._settings.name_of(task)

    def ping(self) -> None:
        """Raise QueueUnavailable unless both shared queues answer."""
        for name in self._settings.queues.values():
            self._call(partial(_get_queue, self._settings.path(name)))

    def _task(self, task: Task, at: datetime | None) -> dict[str, Any]:
        settings = self._settings
        made: dict[str, Any] = {
            "name": f"{settings.path(self.queue_of(task))}/tasks/{task.name}",
            "http_request": {
                "url": settings.url(task.kind),
                "http_method": "POST",
                "headers": task_content.headers(settings, task.correlation_id),
                "body": task_content.body(task),
            },
            "dispatch_deadline": settings.deadline,
        }
        if schedule := task_content.schedule(at):
            made["schedule_time"] = schedule
        return made

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


def _get_queue(name: str, client: "CloudTasksClient", seconds: float) -> Any:
    return client.get_queue(name=name, retry=None, timeout=seconds)


def _load() -> tuple[type["CloudTasksClient"], Any]:
    from google.cloud.tasks_v2 import CloudTasksClient
    from google.cloud.tasks_v2.services.cloud_tasks.transports import CloudTasksGrpcTransport

    return CloudTasksClient, CloudTasksGrpcTransport
