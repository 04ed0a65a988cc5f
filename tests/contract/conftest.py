"""What the contract suite needs of each back end: clients of the same data, and a way to make it unreachable."""

import itertools
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from shared.domain.limits import Limits
from shared.domain.record import Delivery, Kind, State
from shared.stores.sqlite import SqliteStore

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass
class Clock:
    """A clock that a test sets."""

    now: datetime = NOW

    def __call__(self) -> datetime:
        return self.now


@dataclass
class Backend:
    """One back end with empty data. `client` makes another client of it, as another process would have one."""

    make: Callable[[Clock], Any]
    unreachable: Callable[[], AbstractContextManager[None]]
    """While it lasts, writes at least must fail."""
    clock: Clock = field(default_factory=Clock)
    clients: list[Any] = field(default_factory=list)

    def client(self) -> Any:
        self.clients.append(self.make(self.clock))
        return self.clients[-1]


def sqlite_backend(tmp_path: Path) -> Backend:
    path = tmp_path / "pombo.sqlite"

    @contextmanager
    def locked() -> Iterator[None]:
        db = sqlite3.connect(path, isolation_level=None)
        try:
            db.execute("BEGIN EXCLUSIVE")
            yield
        finally:
            db.close()

    return Backend(lambda clock: SqliteStore(path, Limits(), clock), locked)


BACKENDS: dict[str, Callable[[Path], Backend]] = {"sqlite": sqlite_backend}


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    backend = BACKENDS[request.param](tmp_path)
    yield backend
    for client in backend.clients:
        client.close()


@pytest.fixture
def clock(backend: Backend) -> Clock:
    return backend.clock


@pytest.fixture
def store(backend: Backend) -> Any:
    return backend.client()


@pytest.fixture
def a_record() -> Callable[..., Delivery]:
    """Makes pending records, each with a key of its own unless one is given."""
    numbers = itertools.count(1)

    def make(**changes: Any) -> Delivery:
        number = next(numbers)
        fields: dict[str, Any] = {
            "key": f"{number:040x}",
            "kind": Kind.OUTBOUND,
            "provider": "meta",
            "tenant": "default",
            "sender": "100000000000001",
            "contact": "15550002222",
            "correlation_id": f"correlation-{number}",
            "state": State.PENDING,
            "received_at": NOW,
            "payload": {"body": "hello"},
            "due_at": NOW,
        }
        return Delivery(**fields | changes)

    return make
