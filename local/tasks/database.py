"""The database: one SQLite file with every queue, task and used name, so that a kill loses none of them.

One connection behind one lock. In WAL mode with synchronous=NORMAL a commit is a write without an fsync: it survives
the death of the process, which is promised, but not a power cut, which is not. A transaction takes a fraction of a
millisecond (measured 2026-11), so a group commit or a writer thread would save almost nothing.
"""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VERSION = 1

_SCHEMA = f"""
BEGIN;
CREATE TABLE queues (name TEXT PRIMARY KEY, message BLOB NOT NULL);
CREATE TABLE deleted_queues (name TEXT PRIMARY KEY, free_at REAL NOT NULL);
CREATE TABLE tasks (
    id INTEGER PRIMARY KEY AUTOINCREMENT,  -- never reused: a late answer must not meet another task
    queue TEXT NOT NULL,
    name TEXT NOT NULL UNIQUE,
    message BLOB NOT NULL,
    created_at REAL NOT NULL,
    schedule_at REAL NOT NULL,
    next_at REAL,
    dispatch_count INTEGER NOT NULL DEFAULT 0,
    response_count INTEGER NOT NULL DEFAULT 0,
    execution_count INTEGER NOT NULL DEFAULT 0,
    previous_response INTEGER,
    first_dispatch_at REAL,
    last_schedule_at REAL,
    last_dispatch_at REAL,
    last_response_at REAL
);
CREATE INDEX tasks_due ON tasks (queue, next_at) WHERE next_at IS NOT NULL;
CREATE INDEX tasks_of_queue ON tasks (queue);
CREATE TABLE used_names (name TEXT PRIMARY KEY, free_at REAL NOT NULL) WITHOUT ROWID;
PRAGMA user_version = {VERSION};
COMMIT;
"""


class CannotOpen(Exception):
    """The file belongs to another version or to another process."""


class Database:
    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(path, timeout=2, check_same_thread=False)
        try:
            self._open(path)
        except sqlite3.Error as error:
            raise CannotOpen(f"{path} cannot be opened ({error}); is another emulator using it?") from error

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Everything inside is committed together at the end, or not at all."""
        with self._lock, self._connection:
            yield self._connection

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _open(self, path: Path) -> None:
        # Exclusive: two emulators on one file would deliver everything twice. The lock ends with its process.
        self._connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        version = self._connection.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            self._connection.executescript(_SCHEMA)
        elif version != VERSION:
            raise CannotOpen(f"{path} has version {version}, this emulator reads {VERSION}: use another --data-dir.")
