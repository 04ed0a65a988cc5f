"""One SQLite file, shared by threads and processes: connections, schema, transactions and their timeouts.

A write waits first for its turn among the threads of its process, then for the file among the processes. SQLite's own
wait sleeps up to 100 ms between two tries, so a busy process would starve an idle one. Ours tries every 2 ms.
"""

import os
import random
import sqlite3
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from shared.domain.errors import StoreUnavailable
from shared.stores.sqlite.fair_lock import FairLock
from shared.stores.sqlite.schema import prepare

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

PATIENCE = 1.8
"""Seconds without progress after which the file counts as unreachable: as long as a remote call may take."""

CONTENTION = 10.0
"""Seconds that a write may wait in a moving queue: 64 attempts at one record must all get an answer, and a webhook of a
thousand events must not be refused because its threads wait for each other.
"""

_LOOK_EVERY = 0.002
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_PROTOCOL})  # PROTOCOL: many lost races for the log's locks


class SqliteFile:
    """Transactions on the file at `path`. It connects on first use, and lends a connection to one thread at a time.

    It is safe across a fork if no other thread is inside a method at that moment: idle connections are closed before
    the fork (https://www.sqlite.org/howtocorrupt.html, 2.6, a connection carried over a fork). Otherwise the child
    refuses.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._idle: list[sqlite3.Connection] = []
        self._open: set[sqlite3.Connection] = set()
        self._identity: tuple[int, int] | None = None
        self._closed = False
        self._pid = os.getpid()
        self._turn = FairLock()
        self._progress = 0.0
        forget = weakref.WeakMethod(self._close_idle)
        os.register_at_fork(before=lambda: (close := forget()) and close())

    def read(self, work: Work[T]) -> T:
        """The result of `work`, which only reads: what was stored at one moment. A writer does not block it."""
        with self._translated():
            return self._patiently(lambda db: _transaction(db, work, "BEGIN"), self._bound(PATIENCE))

    def write(self, work: Work[T]) -> T:
        """The result of `work`, committed and on the disk. Waits up to CONTENTION seconds behind other threads."""
        left = self._bound(CONTENTION)
        with self._translated(), self._in_turn(left):
            result = self._patiently(lambda db: _transaction(db, work, "BEGIN IMMEDIATE"), left)
            self._progress = time.monotonic()
            return result

    def close(self) -> None:
        """Close all connections for good; those in use as soon as they are given back."""
        self._closed = True
        self._close_idle()

    # ---- patience

    def _bound(self, longest: float) -> Callable[[], float]:
        """A function that returns the seconds left. The patience restarts whenever a thread of ours got through."""
        started = time.monotonic()
        return lambda: min(started + longest, max(started, self._progress) + PATIENCE) - time.monotonic()

    @contextmanager
    def _in_turn(self, left: Callable[[], float]) -> Iterator[None]:
        self._mind_fork()
        turn = self._turn
        if not turn.acquire(left):
            raise StoreUnavailable("The store is busy.")
        try:
            yield
        finally:
            turn.release()

    def _patiently(self, work: Work[T], left: Callable[[], float]) -> T:
        """Retry while another process holds the file. `work` may run several times, rolled back in between."""
        while True:
            try:
                with self._lent() as db:
                    return work(db)
            except sqlite3.Error as error:
                if not _busy(error) or left() <= 0:
                    raise
            time.sleep(random.uniform(0.5, 1.5) * _LOOK_EVERY)  # noqa: S311 — a pause, not a secret

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            what = getattr(error, "sqlite_errorname", type(error).__name__)  # never str(error): it may hold a path
            raise StoreUnavailable(f"The store cannot be reached: {what}.") from error

    # ---- connections

    @contextmanager
    def _lent(self) -> Iterator[sqlite3.Connection]:
        db = self._take()
        sound = False
        try:
            yield db
            sound = True
        except Exception as error:
            sound = not isinstance(error, sqlite3.Error) or _busy(error)
            raise
        finally:
            if sound and not self._closed:
                self._idle.append(db)
            else:
                self._drop(db)

    def _take(self) -> sqlite3.Connection:
        if self._closed:
            raise StoreUnavailable("The store is closed.")
        self._mind_fork()
        self._mind_moved()
        with suppress(IndexError):
            return self._idle.pop()
        return self._connect()

    def _connect(self) -> sqlite3.Connection:
        if self._identity is None:
            _create_private(self._path)
        address = f"{self._path.resolve().as_uri()}?mode=rw"  # rw: a file that was removed is not created again
        db = sqlite3.connect(address, uri=True, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            prepare(db)
            self._identity = self._identity or _identity(self._path)
        except BaseException:
            db.close()
            raise
        self._open.add(db)
        return db

    def _mind_moved(self) -> None:
        """SQLite would go on writing to a deleted or replaced file, and those writes would be lost."""
        if self._identity is not None and _identity(self._path) != self._identity:
            raise StoreUnavailable("The store's file was replaced; restart to use the new one.")

    def _mind_fork(self) -> None:
        if self._pid == os.getpid():
            return
        if self._open:
            raise StoreUnavailable("This process was forked while the store was in use; restart it.")
        self._pid = os.getpid()
        self._turn = FairLock()

    def _close_idle(self) -> None:
        with suppress(IndexError):
            while True:
                self._drop(self._idle.pop())

    def _drop(self, db: sqlite3.Connection) -> None:
        self._open.discard(db)
        with suppress(sqlite3.Error):
            db.close()


def _transaction(db: sqlite3.Connection, work: Work[T], begin: str) -> T:
    db.execute(begin)
    try:
        result = work(db)
        db.execute("COMMIT")
        return result
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _busy(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _BUSY


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def _create_private(path: Path) -> None:
    """Create an empty file that only its owner can read. An existing file is not opened: closing it would drop our
    locks.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
