"""Cloud Tasks: the only dispatcher, to the real service or, by an emulator's address, to a local one.

Facts this rests on (google-cloud-tasks 2.26, https://cloud.google.com/tasks/docs/reference/rpc, 2026-09):
create_task has a default timeout of 20 s and no retry; it may be retried only because our tasks are named, where
AlreadyExists, of a live or of a used name, means that it was made.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from shared.domain.errors import QueueUnavailable
from shared.domain.record import Kind, Task
from shared.domain.tasks import task_body
from shared.wire.grpc_client import GrpcClient

if TYPE_CHECKING:
    from google.cloud.tasks_v2 import CloudTasksClient

CALL_SECONDS = 1.5
"""One try. A healthy call takes tens of milliseconds."""

ENSURE_SECONDS = 2.2
"""All tries of one task. With the store's 2 s this keeps the webhook's answer under 5 s."""

LEAST_DEADLINE = timedelta(seconds=15)
"""The service refuses a shorter dispatch_deadline, and a time scale can make ours shorter."""


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Where the queues are and how their tasks call back."""

    project: str
    location: str
    queues: dict[Kind, str]
    base_url: str
    token: str = field(repr=False)
    dispatch_deadline: timedelta
    service_account: str | None = None
    emulator: str | None = None


class CloudTasksQueue:
    """The queue port on google-cloud-tasks."""

    def __init__(self, settings: QueueSettings) -> None:
        self._settings = settings
        self._client = GrpcClient(_load, settings.emulator)

    def ensure(self, task: Task, at: datetime | None) -> None:
        """Make the task, to run at `at` or now; one of that name is success. Raises QueueUnavailable."""
        from google.api_core import exceptions, retry

        attempts = retry.Retry(
            predicate=retry.if_exception_type(
                exceptions.ServiceUnavailable,
                exceptions.DeadlineExceeded,
                exceptions.InternalServerError,
                exceptions.Aborted,
                exceptions.ResourceExhausted,
            ),
            initial=0.05,
            maximum=0.5,
            timeout=ENSURE_SECONDS,
        )
        with self._calling() as client, suppress(exceptions.AlreadyExists):
            client.create_task(
                request={"parent": self._parent(task.kind), "task": self._task(task, at)},
                retry=attempts,
                timeout=CALL_SECONDS,
            )

    def ping(self) -> None:
        """Raise QueueUnavailable unless both queues answer."""
        with self._calling() as client:
            for kind in self._settings.queues:
                client.get_queue(name=self._parent(kind), retry=None, timeout=CALL_SECONDS)

    def _parent(self, kind: Kind) -> str:
        settings = self._settings
        return f"projects/{settings.project}/locations/{settings.location}/queues/{settings.queues[kind]}"

    def _task(self, task: Task, at: datetime | None) -> dict[str, Any]:
        settings = self._settings
        request: dict[str, Any] = {
            "url": f"{settings.base_url}/internal/process_{task.kind}",
            "http_method": "POST",
            "headers": {
                "Content-Type": "application/json",
                "X-Internal-Token": settings.token,
                "X-Correlation-Id": task.correlation_id,
            },
            "body": json.dumps(task_body(task)).encode(),
        }
        if settings.service_account:
            request["oidc_token"] = {
                "service_account_email": settings.service_account,
                "audience": settings.base_url,
            }
        made: dict[str, Any] = {
            "name": f"{self._parent(task.kind)}/tasks/{task.name}",
            "http_request": request,
            "dispatch_deadline": max(settings.dispatch_deadline, LEAST_DEADLINE),
        }
        if at is not None and at > datetime.now(UTC):
            made["schedule_time"] = at
        return made

    @contextmanager
    def _calling(self) -> Iterator["CloudTasksClient"]:
        """The client for one call; what the call raises becomes QueueUnavailable."""
        from google.api_core import exceptions
        from google.auth.exceptions import GoogleAuthError

        client = None
        try:
            client = self._client.get()
            yield client
        except (exceptions.DeadlineExceeded, exceptions.RetryError) as error:
            self._client.leave(client)
            raise QueueUnavailable from error
        except (exceptions.GoogleAPIError, GoogleAuthError, OSError) as error:
            raise QueueUnavailable from error


def _load() -> tuple[type["CloudTasksClient"], Any]:
    from google.cloud.tasks_v2 import CloudTasksClient
    from google.cloud.tasks_v2.services.cloud_tasks.transports import CloudTasksGrpcTransport

    return CloudTasksClient, CloudTasksGrpcTransport
