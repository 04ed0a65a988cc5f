"""The intake port on Cloud Tasks, over REST: many tasks at once, each by its own call, because no call makes several.

https://cloud.google.com/tasks/docs/reference/rest/v2/projects.locations.queues.tasks/create (2026-11): only because our
tasks are named may a call be retried. ALREADY_EXISTS, for a live or a used name, means that the task was made.
A task whose numbered queue is missing goes to the shared one (shared.queues.missing_queues).
"""

import time
from binascii import b2a_base64
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import orjson

from shared.domain.deadline import Deadline
from shared.domain.errors import QueueUnavailable
from shared.domain.record import Kind, Task
from shared.domain.tasks import DueTask
from shared.net.async_http import CallFailed
from shared.net.group_commit import GroupCommit, InFlight, Portion
from shared.net.patience import PATIENCE, OutOfPatience, Patience
from shared.net.rest_client import NoToken, Refused, RestClient, Token
from shared.queues import task_content
from shared.queues.missing_queues import REFUSALS, MissingQueues
from shared.queues.task_content import QueueSettings

HOST = "cloudtasks.googleapis.com"

IN_FLIGHT = 64
"""Concurrent creations of a process: at 150 ms each, 2,000 take 5 s."""

QUICK = 10
"""Up to this many tasks together are made within milliseconds."""

REMEMBERED_SECONDS = 900.0
REMEMBERED = 20_000
"""How long, and how many, tasks of large POSTs are cached as made. If the redelivery of an unfinished POST comes to the
same process, it then continues where it stopped. In another process, or later, all of its tasks are requested again,
which is harmless.
"""

_ONE = Portion(items=1)

_INVALID = frozenset({400, 413})
"""HTTP statuses that concern the task alone: invalid, too large."""


class TaskRefused(QueueUnavailable):
    """The task queue refused the task as invalid."""

    code = "queue_refused_task"
    retryable = False  # no outage: it concerns no other task


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A task to be made. `quick`: it is one of few."""

    task: Task
    name: str
    at: datetime | None
    quick: bool


@dataclass(frozen=True, slots=True)
class _Route:
    """What all tasks of one kind in one queue have in common: the start of the call, and the parts of its body."""

    start: bytes
    before_name: bytes
    before_correlation: bytes
    before_body: bytes
    end: bytes


class CloudTasksIntake:
    """The `IntakeQueue` port. It connects on first use."""

    def __init__(self, settings: QueueSettings, token: Token | None = None) -> None:
        self._settings = settings
        credential = NoToken() if settings.emulator or token is None else token
        self._client = RestClient(HOST, settings.emulator, credential, IN_FLIGHT)
        self._calls: GroupCommit[_Wanted, None] = GroupCommit(
            self._ensure_one, _ONE, too_slow, in_flight=InFlight(IN_FLIGHT), longest=PATIENCE
        )
        self._routes: dict[tuple[str, Kind], _Route] = {}
        self._made = _Remembered(REMEMBERED, REMEMBERED_SECONDS)
        self._missing = MissingQueues()

    async def ensure_all(self, tasks: Sequence[DueTask], deadline: Deadline) -> Sequence[Exception | None]:
        """At most 64 calls of the process are in flight. Large POSTs take turns, and small ones go before them. A task
        that is refused as invalid gets TaskRefused, which stops no other.
        """
        quick = len(tasks) <= QUICK
        wanted = [_Wanted(task, task.name, at, quick) for task, at in tasks]
        missing = [one for one in wanted if one.name not in self._made]
        results = await self._calls.submit(missing, deadline)
        if not quick:
            self._made.add([one.name for one, result in zip(missing, results, strict=True) if result is None])
        if len(missing) == len(tasks):
            return results
        faults = {one.name: result for one, result in zip(missing, results, strict=True)}
        return [faults.get(one.name) for one in wanted]

    def queue_of(self, task: Task) -> str:
        """The name of the queue that the task goes to."""
        name = self._settings.name_of(task)
        return self._settings.queues[task.kind] if name in self._missing else name

    async def ping(self) -> None:
        """Raise QueueUnavailable unless both shared queues answer."""
        for name in self._settings.queues.values():
            start = self._client.get(f"/v2/{self._settings.path(name)}")
            try:
                await self._client.call(start, b"", self._client.patience())
            except (OutOfPatience, CallFailed, Refused) as error:
                raise QueueUnavailable from _cause(error)

    def close(self) -> None:
        """No other call may follow."""
        self._client.close()

    async def _ensure_one(self, portion: Sequence[_Wanted]) -> Sequence[None]:
        """Raises QueueUnavailable, without a sentence of the client's, which may name anything; TaskRefused if only
        this task is concerned.
        """
        (wanted,) = portion
        queue, shared = self.queue_of(wanted.task), self._settings.queues[wanted.task.kind]
        patience = self._client.patience()
        try:
            code = await self._create(queue, wanted, patience)
            if code is not None:
                self._missing.add(queue, code, shared)
                await self._create(shared, wanted, patience)
        except Refused as error:
            raise _refusal(error) from error
        except (OutOfPatience, CallFailed) as error:
            raise QueueUnavailable from _cause(error)
        return [None]

    async def _create(self, queue: str, wanted: _Wanted, patience: Patience) -> str | None:
        """None if the task is made; Google's name of the error if the queue is a numbered one that is missing. Raises
        as RestClient does.
        """
        route = self._route(queue, wanted.task.kind)
        try:
            await self._client.call(route.start, _body(route, wanted), patience, wanted.quick)
        except Refused as error:
            if error.code in REFUSALS and queue != self._settings.queues[wanted.task.kind]:
                return error.code
            if error.code != "ALREADY_EXISTS":
                raise
        return None

    def _route(self, queue: str, kind: Kind) -> _Route:
        route = self._routes.get((queue, kind))
        if route is None:
            route = self._routes[queue, kind] = self._new_route(queue, kind)
        return route

    def _new_route(self, queue: str, kind: Kind) -> _Route:
        """The values of a task go between these parts. Its correlation id is the last of the headers."""
        settings = self._settings
        path = settings.path(queue)
        headers = orjson.dumps(task_content.headers(settings, "")).removesuffix(b'"}')
        return _Route(
            self._client.post(f"/v2/{path}/tasks"),
            before_name=b'{"task":{"name":%b' % orjson.dumps(f"{path}/tasks/")[:-1],
            before_correlation=b'","httpRequest":{"url":%b,"httpMethod":"POST","headers":%b'
            % (orjson.dumps(settings.url(kind)), headers),
            before_body=b'"},"body":"',
            end=b'"},"dispatchDeadline":"%.6fs"' % settings.deadline.total_seconds(),
        )


def too_slow() -> QueueUnavailable:
    """The error for the remaining tasks once a deadline has passed."""
    return QueueUnavailable("The task queue is too slow.")


def _refusal(error: Refused) -> QueueUnavailable:
    """FAILED_PRECONDITION, a 400 too, concerns the queue."""
    is_tasks_own = error.status in _INVALID and error.code != "FAILED_PRECONDITION"
    return TaskRefused() if is_tasks_own else QueueUnavailable()


def _cause(error: Exception) -> BaseException | None:
    return error.__cause__ if isinstance(error, OutOfPatience) else error


def _body(route: _Route, wanted: _Wanted) -> bytes:
    """The request to create a task, in JSON."""
    at = task_content.schedule(wanted.at)
    return b"".join(
        (
            route.before_name,
            wanted.name.encode(),
            route.before_correlation,
            orjson.dumps(wanted.task.correlation_id)[1:-1],
            route.before_body,
            b2a_base64(task_content.body(wanted.task), newline=False),
            route.end,
            b',"scheduleTime":"%b"}}' % at.astimezone(UTC).isoformat().encode() if at else b"}}",
        )
    )


class _Remembered:
    """A cache of the newest names, for a limited time."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most = most
        self._seconds = seconds
        self._until: dict[str, float] = {}

    def __contains__(self, name: str) -> bool:
        until = self._until.get(name)
        return until is not None and until > time.monotonic()

    def add(self, names: Sequence[str]) -> None:
        until = time.monotonic() + self._seconds
        self._until |= dict.fromkeys(names, until)
        while len(self._until) > self._most:
            del self._until[next(iter(self._until))]
