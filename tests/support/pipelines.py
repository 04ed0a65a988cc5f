# ruff: noqa: ARG002 - the methods of ports, which use what they need
"""What the pipelines are put together from in the unit tests: a clock that a test moves, a channel and a queue that do
as they are told, and a SQLite store that counts what it is asked.
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest

from shared.domain.drains import DrainTask
from shared.domain.errors import CredentialsUnavailable, ItemUnparsable, RegistryUnavailable
from shared.domain.identity import Echo
from shared.domain.marks import is_troubled
from shared.domain.messages import Contact, Message
from shared.domain.record import Delivery, Task
from shared.domain.send_errors import SendError
from shared.domain.state_changes import StateChange
from shared.domain.tenants import Sender, Tenant
from shared.stores.sqlite.store import SqliteStore
from tests.support.builders import LIMITS, NO_JITTER, NOW

IN_USE = "fingerprint-in-use"
SENDER, ADDRESS = "100000000000001", "a" * 40


@dataclass
class Clock:
    at: datetime = NOW
    seconds: float = 0.0
    tokens: int = 0

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.go(seconds)

    def go(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)
        self.seconds += seconds

    def jitter(self) -> float:
        return NO_JITTER

    def token(self) -> str:
        self.tokens += 1
        return f"token-{self.tokens}"


class Store(SqliteStore):
    """Counts the calls of its methods, and the writes of marks."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        super().__init__(directory / "pombo.sqlite", LIMITS, clock.now)
        self.asked: Counter[str] = Counter()
        self.marked: set[str] = set()

    def change_marks(self, id: str, *given: Any) -> Any:
        self.marked.add(id)
        return super().change_marks(id, *given)

    def troubled(self, after: str | None, limit: int) -> Sequence[str]:
        ids = [id for id in sorted(self.marked) if id > (after or "") and is_troubled(super(Store, self).marks(id))]
        return ids[:limit]

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if name in ("get", "change", "marks", "change_marks", "note_receipt_block"):
            self.asked[name] += 1
        return value


@dataclass
class Channel:
    """Sends and probes by the next answer of its list, an error or a provider's id; the last one stands."""

    provider: ClassVar[str] = "meta"
    has_public_sender_ids: bool = True

    sends: list[SendError | str] = field(default_factory=lambda: ["wamid.1"])
    probes: list[SendError | None] = field(default_factory=lambda: [None])
    calls: list[str] = field(default_factory=list)
    credentials: list[str] = field(default_factory=list)
    """The credential of each send and probe."""
    during: Callable[[str], None] = lambda _: None
    kind: str | None = "text"
    news: Sequence[StateChange] = ()

    def fingerprint(self, credential: str) -> str:
        return credential

    def send(self, record: Delivery, echo: Echo, credential: str) -> str | None:
        self.credentials.append(credential)
        return self._said("send", self.sends)

    def probe(self, sender: str, credential: str) -> None:
        self.credentials.append(credential)
        self._said("probe", self.probes)

    def _said(self, call: str, answers: list[Any]) -> Any:
        self.calls.append(call)
        self.during(call)
        said = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(said, SendError):
            raise said
        return said

    def read(self, record: Delivery) -> Message | None:
        if self.kind == "unparsable":
            raise ItemUnparsable
        if self.kind is None:
            return None
        return Message(self.kind, "hello", "wamid.in", Contact("c", phone="1555"), SENDER, "default", NOW)

    def address(self, message: Message) -> dict[str, str]:
        return {"to": "+1555"}

    def changes(self, record: Delivery) -> Sequence[StateChange]:
        return self.news


@dataclass
class Tenants:
    """A registry of senders and their tenants, none suspended; `down`: it cannot be reached."""

    senders: list[Sender] = field(default_factory=lambda: [Sender("default", "meta", SENDER)])
    known: dict[str, Tenant] = field(default_factory=lambda: {"default": Tenant("default")})
    named: Sequence[Sender] = ()
    down: bool = False

    def tenant(self, id: str) -> Tenant | None:
        if self.down:
            raise RegistryUnavailable
        return self.known.get(id)

    def sender(self, provider: str, provider_id: str) -> Sender | None:
        ids = (provider, provider_id)
        return next((sender for sender in self.senders if (sender.provider, sender.provider_id) == ids), None)

    def senders_with(self, ids: Sequence[str]) -> Sequence[Sender]:
        return [sender for sender in self.senders if sender.id in ids]

    def senders_of_environment(self) -> Sequence[Sender]:
        return self.named


@dataclass
class Credentials:
    """The credential in use, which is its own fingerprint here. `cached`: what this process has of it still."""

    used: str = IN_USE
    cached: str | None = None
    down: bool = False
    asked: Counter[str] = field(default_factory=Counter)

    def of(self, sender: Sender) -> str:
        self.asked["of"] += 1
        self._reach()
        return self.used if self.cached is None else self.cached

    def newest(self, sender: Sender) -> str:
        self.asked["newest"] += 1
        self._reach()
        self.cached = None
        return self.used

    def _reach(self) -> None:
        if self.down:
            raise CredentialsUnavailable


@dataclass
class Queue:
    """The tasks that were made, with the moment of each, and the drains."""

    made: list[tuple[Task, datetime | None]] = field(default_factory=list)
    drains: list[DrainTask] = field(default_factory=list)

    def ensure_drain(self, drain: DrainTask) -> None:
        self.drains.append(drain)

    def ensure(self, task: Task, at: datetime | None) -> None:
        self.made.append((task, at))

    def queue_of(self, task: Task) -> str:
        return task.kind


Lines = Callable[..., list[dict[str, Any]]]


def lines_of(caplog: pytest.LogCaptureFixture) -> Lines:
    """The events of these names that were logged so far."""
    caplog.set_level(logging.DEBUG, "pombo")

    def read(*names: str) -> list[dict[str, Any]]:
        events = [vars(record)["pombo"] for record in caplog.records if hasattr(record, "pombo")]
        return [{k: v for k, v in event.items() if v is not None} for event in events if event["event"] in names]

    return read
