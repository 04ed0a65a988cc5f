"""The private service in one process, on tapped ports, with a handler and a provider that a test controls."""

import heapq
import itertools
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from shared.domain.drains import DRAIN_PATH, DrainTask, drain_body
from shared.domain.identity import Echo
from shared.domain.marks import Credential, Marks
from shared.domain.record import Delivery, ReceiptKind, State, Task
from shared.domain.tasks import task_body
from shared.handlers import Message
from tests.support import parts
from tests.support.parts import NOW, TOKEN, InternalParts
from tests.support.receipts import note_receipt

T = TypeVar("T")
PLUS = timedelta(seconds=1)
QUEUE_RETRY = timedelta(seconds=1)
T0, OLDER = 0, -1
LAST = 8
FINAL = (State.DONE, State.DROPPED, State.DEAD)


@dataclass
class Service:
    """The app on tapped ports, with one handler and one provider that a test controls."""

    client: FlaskClient
    internal: InternalParts
    handler: "Handler"

    def put(self, record: Delivery) -> Delivery:
        self.internal.store.port.create(record)
        return record

    def get(self, record: Delivery) -> Delivery:
        found = self.internal.store.port.get(record.key)
        assert found is not None
        return found

    def post(self, task: Task, **headers: str) -> TestResponse:
        return self.client.post(
            f"/internal/process_{task.kind}", json=task_body(task), headers={"X-Internal-Token": TOKEN, **headers}
        )

    def drain(self, task: DrainTask) -> int:
        """The HTTP status of one page of a drain."""
        body = json.loads(json.dumps(drain_body(task)))
        return self.client.post(DRAIN_PATH, json=body, headers={"X-Internal-Token": TOKEN}).status_code

    def process(self, task: Task, **headers: str) -> tuple[int, Any]:
        answer = self.post(task, **headers)
        return answer.status_code, answer.json

    def arrive(self, record: Delivery, age: int = T0, hop: int = 0) -> tuple[int, Any]:
        """Process a task for this record, of its generation or of an earlier one."""
        return self.process(replace(Task.of(record), generation=record.generation + age, hop=hop))

    def use_credential(self) -> None:
        """Record the credential in use, as the first send with it does."""
        parts.put_marks(self.internal.store.port, credential=Credential(self.in_use, NOW - timedelta(days=1)))

    @property
    def in_use(self) -> str:
        """The fingerprint of the credential in use."""
        outbound = self.internal.parts.process_outbound
        (sender,) = outbound.tenants.senders_of_environment()
        return outbound.channels["meta"].fingerprint(outbound.credentials.of(sender))

    @property
    def marks(self) -> Marks:
        """The sender's marks."""
        return parts.marks_of(self.internal.store.port)

    @staticmethod
    def asked_of(provider: parts.Provider) -> list[str]:
        """The calls of the provider: "probe", or the type of the message that was sent."""
        return [
            "probe" if asked == PROBE else str(asked.get("type", asked.get("status"))) for asked in provider.requests
        ]

    @property
    def made(self) -> list[tuple[Task, datetime | None]]:
        return self.internal.queue.asked("ensure")

    def hopped(self, record: Delivery) -> bool:
        """Whether the running task made its next one, and nothing else."""
        return [task for task, _ in self.made] == [replace(Task.of(record), hop=1)]


@dataclass
class Handler:
    """The team's code: records whom it was called for."""

    answer: Callable[[Message], Any] = lambda _: None
    called: list[Message] = field(default_factory=list)

    def __call__(self, message: Message) -> Any:
        self.called.append(message)
        return self.answer(message)


@dataclass
class TaskRun:
    """A queue that a test runs in the order of time, which it advances. As in the real one, a name is accepted once,
    and a task that is not answered 2xx is retried.
    """

    waiting: list[tuple[datetime, int, Task | DrainTask]] = field(default_factory=list)
    now: Callable[[], datetime] = lambda: NOW
    names: set[str] = field(default_factory=set)
    order: Iterator[int] = field(default_factory=itertools.count)

    def ensure(self, task: Task, at: datetime | None) -> None:
        if task.name not in self.names:
            self.names.add(task.name)
            self._put(task, at or NOW)

    def ensure_drain(self, drain: DrainTask) -> None:
        if drain.name not in self.names:
            self.names.add(drain.name)
            self._put(drain, self.now())

    def queue_of(self, task: Task) -> str:
        return task.kind

    def ping(self) -> None:
        pass

    def work(self, service: Service, until: datetime) -> None:
        """Run all tasks that are due by then."""
        clock = service.internal.clock
        while self.waiting and self.waiting[0][0] <= until:
            at, _, task = heapq.heappop(self.waiting)
            clock.go(max(0.0, (at - clock.at).total_seconds()))
            status = service.drain(task) if isinstance(task, DrainTask) else service.process(task)[0]
            if not 200 <= status < 300:
                self._put(task, clock.at + QUEUE_RETRY)
        clock.go((until - clock.at).total_seconds())

    def _put(self, task: Task | DrainTask, at: datetime) -> None:
        heapq.heappush(self.waiting, (at, next(self.order), task))


def at_once(calls: Sequence[Callable[[], T]]) -> list[T]:
    """The results of these calls, each made in a separate thread."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


def meet(internal: InternalParts, method: str, count: int) -> None:
    """Make this many threads leave their first call of this store method together."""
    barrier, seen = threading.Barrier(count, timeout=30), set[int]()

    def wait_for_the_others(name: str, *_: Any) -> None:
        if name == method and threading.get_ident() not in seen:
            seen.add(threading.get_ident())
            barrier.wait()

    internal.store.after = wait_for_the_others


PROBE = {"messaging_product": "whatsapp", "status": "read", "message_id": "wamid.pombo-probe"}
"""A probe's request: to mark a message as read that does not exist."""

Make = Callable[..., Service]


def told(capfd: pytest.CaptureFixture[str], *events: str) -> list[dict[str, Any]]:
    """The lines of these events."""
    return [line for line in parts.lines(capfd.readouterr().out) if line["event"] in events]


def said(capfd: pytest.CaptureFixture[str], event: str) -> dict[str, Any]:
    """The one line of this event."""
    (line,) = [line for line in parts.lines(capfd.readouterr().out) if line["event"] == event]
    return line


def note(service: Service, record: Delivery, kind: ReceiptKind = ReceiptKind.DELIVERED) -> None:
    receipt = parts.a_receipt("wamid.receipt", kind)
    assert note_receipt(service.internal.store.port, Echo(record.key, record.round, record.correlation_id), receipt)
