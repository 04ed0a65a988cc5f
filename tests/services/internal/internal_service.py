"""The private service in one process, on tapped ports, with a handler and a provider that do what a test says."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import parts
import pytest
from flask.testing import FlaskClient
from parts import TOKEN, InternalParts
from werkzeug.test import TestResponse

from shared.domain.identity import Echo
from shared.domain.record import Delivery, ReceiptKind, State, Task
from shared.domain.tasks import task_body
from shared.handlers import Message

PLUS = timedelta(seconds=1)
T0, OLDER = 0, -1
LAST = 8
FINAL = (State.DONE, State.DROPPED, State.DEAD)


@dataclass
class Service:
    """The app on tapped ports, with one handler and one provider that do what a test says."""

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

    def process(self, task: Task, **headers: str) -> tuple[int, Any]:
        answer = self.post(task, **headers)
        return answer.status_code, answer.json

    def arrive(self, record: Delivery, age: int = T0, hop: int = 0) -> tuple[int, Any]:
        """A task for this record comes, of its generation or of one before."""
        return self.process(replace(Task.of(record), generation=record.generation + age, hop=hop))

    @property
    def made(self) -> list[tuple[Task, datetime | None]]:
        return self.internal.queue.asked("ensure")

    def hopped(self, record: Delivery) -> bool:
        """Whether the running task made its next one, and nothing else."""
        return [task for task, _ in self.made] == [replace(Task.of(record), hop=1)]


@dataclass
class Handler:
    """The team's code: notes whom it was called for."""

    answer: Callable[[Message], Any] = lambda _: None
    called: list[Message] = field(default_factory=list)

    def __call__(self, message: Message) -> Any:
        self.called.append(message)
        return self.answer(message)


Make = Callable[..., Service]


def said(capfd: pytest.CaptureFixture[str], event: str) -> dict[str, Any]:
    """The one line of this event."""
    (line,) = [line for line in parts.lines(capfd.readouterr().out) if line["event"] == event]
    return line


def note(service: Service, record: Delivery, kind: ReceiptKind = ReceiptKind.DELIVERED) -> None:
    receipt = parts.a_receipt("wamid.receipt", kind)
    assert service.internal.store.port.note_receipt(Echo(record.key, record.round, record.correlation_id), receipt)
