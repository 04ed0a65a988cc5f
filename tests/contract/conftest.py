"""The back ends that the contract suite runs over, and the records it tries them with."""

import itertools
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from shared.domain.limits import Limits
from shared.domain.record import Delivery, Kind, State
from shared.pipeline.registry import EntryName
from shared.stores.sqlite.store import SqliteStore
from tests.support import firestore_backend, redis_backend
from tests.support.backends import NOW, Backend, Clock


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

    def purge(store: SqliteStore, then: datetime) -> None:
        store.purge(then, 10_000)

    def spoil(name: EntryName, text: str) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("UPDATE registry SET fields = ? WHERE kind = ? AND id = ?", (text, *name))

    return Backend(lambda clock: SqliteStore(path, Limits(), clock), locked, purge, spoil)


BACKENDS: dict[str, Callable[[Path], Backend]] = {
    "sqlite": sqlite_backend,
    "firestore": firestore_backend.backend,
    "redis": redis_backend.backend,
}


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
