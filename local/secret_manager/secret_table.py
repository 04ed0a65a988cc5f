"""The secrets and their versions, in a SQLite file that only its owner may read."""

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

SCHEMA = """
CREATE TABLE IF NOT EXISTS secrets (name TEXT PRIMARY KEY, secret BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS versions (
    name TEXT NOT NULL, number INTEGER NOT NULL, state INTEGER NOT NULL, data BLOB, PRIMARY KEY (name, number)
) WITHOUT ROWID;
"""


class State(IntEnum):
    """A version's state, numbered as in SecretVersion.State."""

    ENABLED = 1
    DISABLED = 2
    DESTROYED = 3


@dataclass(frozen=True, slots=True)
class Version:
    """One version. A destroyed one has no data."""

    number: int
    state: State
    data: bytes = field(repr=False)


class SecretTable:
    """All methods are for any thread; each is one transaction. `name` is projects/P/secrets/S."""

    def __init__(self, path: Path) -> None:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, check_same_thread=False)
        self._db.executescript(SCHEMA)

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def create(self, name: str, secret: bytes) -> bool:
        """Whether it was created, and not there already."""
        with self._transaction() as db:
            return db.execute("INSERT OR IGNORE INTO secrets VALUES (?, ?)", (name, secret)).rowcount == 1

    def secret(self, name: str) -> bytes | None:
        with self._transaction() as db:
            row = db.execute("SELECT secret FROM secrets WHERE name = ?", (name,)).fetchone()
            return row[0] if row else None

    def delete(self, name: str) -> bool:
        """Delete it with its versions. Returns whether it was there."""
        with self._transaction() as db:
            db.execute("DELETE FROM versions WHERE name = ?", (name,))
            return db.execute("DELETE FROM secrets WHERE name = ?", (name,)).rowcount == 1

    def add(self, name: str, data: bytes) -> Version | None:
        """Add the next version; None if there is no such secret."""
        with self._transaction() as db:
            if db.execute("SELECT 1 FROM secrets WHERE name = ?", (name,)).fetchone() is None:
                return None
            (number,) = db.execute(
                "SELECT coalesce(max(number), 0) + 1 FROM versions WHERE name = ?", (name,)
            ).fetchone()
            db.execute("INSERT INTO versions VALUES (?, ?, ?, ?)", (name, number, State.ENABLED, data))
            return Version(number, State.ENABLED, data)

    def versions(self, name: str) -> list[Version]:
        """All versions, newest first."""
        with self._transaction() as db:
            rows = db.execute(
                "SELECT number, state, data FROM versions WHERE name = ? ORDER BY number DESC", (name,)
            ).fetchall()
        return [Version(number, State(state), data or b"") for number, state, data in rows]

    def change(self, name: str, number: int, state: State) -> None:
        """Give a version a state; destroying it deletes its data."""
        with self._transaction() as db:
            db.execute("UPDATE versions SET state = ? WHERE name = ? AND number = ?", (state, name, number))
            if state is State.DESTROYED:
                db.execute("UPDATE versions SET data = NULL WHERE name = ? AND number = ?", (name, number))

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._db:
            yield self._db
