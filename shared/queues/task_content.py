"""What a task of ours holds, and in which queue it goes: the same for every client of Cloud Tasks.

A task carries no identity. In a project its queue adds one and overrides the task's address
(infra/terraform/modules/tasks), so the service that makes tasks needs no permission to act as another account.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import orjson

from shared.domain.record import Kind, Task
from shared.domain.tasks import task_body, task_path

FURTHEST = timedelta(days=29)
"""The service refuses a time more than 30 days ahead by its own clock, which may be behind ours."""

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
    drain: str = ""
    """The queue of drains."""
    pairs: int = 0
    """How many numbered pairs of queues there are."""
    patterns: Mapping[Kind, str] = field(default_factory=dict)
    """The names of the numbered queues, with {n} for the number."""

    def name_of(self, task: Task) -> str:
        """The queue that a task goes to: its tenant's, or the shared one if the tenant has none."""
        if task.pair is None or not 0 <= task.pair < self.pairs:
            return self.queues[task.kind]
        return self.patterns[task.kind].format(n=task.pair)

    def path(self, queue: str) -> str:
        """The full name of a queue."""
        return f"projects/{self.project}/locations/{self.location}/queues/{queue}"

    def url(self, kind: Kind) -> str:
        """The address that tasks of this kind call."""
        return self.base_url + task_path(kind)

    @property
    def deadline(self) -> timedelta:
        """How long one dispatch of a task may take."""
        return max(self.dispatch_deadline, LEAST_DEADLINE)


def headers(settings: QueueSettings, correlation_id: str) -> dict[str, str]:
    """The headers of a task's call."""
    return {
        "Content-Type": "application/json",
        "X-Internal-Token": settings.token,
        "X-Correlation-Id": correlation_id,
    }


def body(task: Task) -> bytes:
    """The body of a task's call."""
    return orjson.dumps(task_body(task))


def schedule(at: datetime | None) -> datetime | None:
    """When a task is to run; None for now. One for later than the service takes runs before it is due, and then waits
    again.
    """
    now = datetime.now(UTC)
    return min(at, now + FURTHEST) if at is not None and at > now else None
