"""Stores that are filled in bulk, in the form that their own code gives everything, and count what a call costs.

Each counts what its server is paid for or occupied by: documents of Firestore at the wire, commands of Redis and the
values that they answer with, steps of SQLite's virtual machine.
"""

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import patch

import grpc
from google.cloud.firestore_v1 import types

from shared.domain.conversations import ConversationEntry
from shared.domain.record import Delivery
from shared.net import patience
from shared.stores.firestore import connection
from shared.stores.firestore.conversations import writing_entry
from shared.stores.firestore.records import Write, creating
from shared.stores.firestore.store import FirestoreStore
from shared.stores.records import new_version
from shared.stores.redis.conversations import entry_rows
from shared.stores.redis.records import row_of
from shared.stores.redis.scripts import COMMIT, IS_MADE
from shared.stores.redis.store import RedisStore
from shared.stores.sqlite.conversations import commit_entries
from shared.stores.sqlite.records import insert, new_row
from shared.stores.sqlite.store import SqliteStore
from tests.support.builders import LIMITS, NOW
from tests.support.firestore_backend import DATABASE, fresh_project, shared_emulator
from tests.support.firestore_middleman import Middleman
from tests.support.redis_backend import RedisServer

Cost = Mapping[str, int]
"""What a call costs, by what is counted."""

MEBIBYTE = 2**20


class CountedStore(Protocol):
    """`store` is the store; `at_once`: how many entries and records together `fill` takes best."""

    store: Any
    at_once: int

    def fill(self, entries: Sequence[ConversationEntry], records: Sequence[Delivery]) -> None:
        """Store these; none of them is there yet."""
        ...

    def cost(self, call: Callable[[], object]) -> Cost: ...

    def size(self) -> int:
        """Bytes that it takes now."""
        ...


# ---- SQLite


@dataclass
class CountedSqlite:
    store: SqliteStore
    at_once = 20_000

    def fill(self, entries: Sequence[ConversationEntry], records: Sequence[Delivery]) -> None:
        rows = [new_row(record) for record in records]

        def work(db: Any) -> None:
            commit_entries(db, entries)
            assert sum(insert(db, row) for row in rows) == len(rows)

        self.store._file.write(work)

    def cost(self, call: Callable[[], object]) -> Cost:
        ((db,), steps) = self.store._file._idle, itertools.count()
        db.set_progress_handler(lambda: next(steps) and None, 1)
        call()
        db.set_progress_handler(None, 1)
        return {"steps": next(steps)}

    def size(self) -> int:
        """Of the file, with what is in its log still."""
        return self.store._file.read(lambda db: math.prod(db.execute(f"PRAGMA {it}").fetchone()[0] for it in _PAGES))


_PAGES = ("page_size", "page_count")


@contextmanager
def sqlite(directory: Path) -> Iterator[CountedSqlite]:
    store = SqliteStore(directory / "pombo.sqlite", LIMITS, lambda: NOW)
    store.ping()
    yield CountedSqlite(store)
    store.close()


# ---- Redis

_READS = frozenset({"zrange", "zrevrange", "zrangebylex", "zrevrangebylex", "zrangebyscore", "zrevrangebyscore"})
_READS |= {"zrandmember", "hgetall", "hmget", "smembers", "lrange", "keys", "scan", "sscan", "zscan"}
"""The commands that may answer with many values."""

_WORD = re.compile(r'"((?:[^"\\]|\\.)*)"')


@dataclass
class CountedRedis:
    store: RedisStore
    server: RedisServer
    at_once = 500

    def fill(self, entries: Sequence[ConversationEntry], records: Sequence[Delivery]) -> None:
        """One commit of them all, which changes no record."""
        rows = [value for record in records for value in row_of(record, NOW)]
        changes_none = ["nothing", "", new_version(), 0, len(records)]
        made, _ = self.server.raw.eval(COMMIT, 0, *changes_none, *rows, *entry_rows(entries))
        assert made == IS_MADE

    def cost(self, call: Callable[[], object]) -> Cost:
        """The commands in its scripts, and how many values those that may answer with many answer with: each is asked
        again after the call. PEXPIRE is left out: a set that was written in the same millisecond needs none.
        """
        ran = self._ran(call)
        values = [self.server.raw.execute_command(*words) for words in ran if words[0].lower() in _READS]
        return {"commands": len(ran), "values": sum(map(len, values))}

    def size(self) -> int:
        used: int = self.server.raw.info("memory")["used_memory"]
        return used

    def _ran(self, call: Callable[[], object]) -> Sequence[Sequence[str]]:
        with self.server.raw.monitor() as monitor:
            call()
            self.server.raw.echo("that is all")
            lines = iter(lambda: str(monitor.connection.read_response()), None)
            ran = [_WORD.findall(line) for line in itertools.takewhile(lambda line: "that is all" not in line, lines)]
        return [words for words in ran if words[0].lower() not in ("info", "evalsha", "eval", "pexpire")]


@contextmanager
def redis(directory: Path) -> Iterator[CountedRedis]:
    with RedisServer(directory, ("--appendonly", "no")) as server:
        store = RedisStore(server.url, LIMITS, lambda: NOW)
        yield CountedRedis(store, server)
        store.close()


# ---- Firestore


@dataclass
class CountedFirestore:
    store: FirestoreStore
    middleman: Middleman
    bulk: Any
    process: int
    at_once = 500

    def fill(self, entries: Sequence[ConversationEntry], records: Sequence[Delivery]) -> None:
        """One BatchWrite, which takes 500 writes at most."""
        writes = [*map(self._absolute, map(writing_entry, entries)), *map(self._absolute, map(creating, records))]
        request = types.BatchWriteRequest.pb()(database=self.store._rpc._database, writes=writes)
        answer = self.bulk(request.SerializeToString(), metadata=[("authorization", "Bearer owner")])
        assert not any(status.code for status in types.BatchWriteResponse.deserialize(answer).status)

    def cost(self, call: Callable[[], object]) -> Cost:
        self.middleman.calls.clear()
        self.middleman.found = 0
        call()
        made = self.middleman.calls
        reads = sum(it.reads for it in made) + self.middleman.found
        return {"calls": len(made), "reads": reads, "writes": sum(it.writes for it in made)}

    def size(self) -> int:
        """Of the emulator's process, for its data is there."""
        status = Path(f"/proc/{self.process}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]

    def _absolute(self, write: Write) -> Write:
        return self.store._rpc._absolute(write)


@contextmanager
def firestore(_: Path) -> Iterator[CountedFirestore]:
    """A second try would be counted too, so the calls wait as long as an emulator takes that is full."""
    with patch.multiple(patience, PATIENCE=LONG, FIRST_TRY=LONG), patch.object(connection, "CONTENTION", LONG):
        yield from _firestore()


LONG = 600.0
"""Seconds. An emulator with some 250,000 contacts took more than 20 for a page, on a busy machine (2026-11-30)."""


def _firestore() -> Iterator[CountedFirestore]:
    emulator, _ = shared_emulator()
    assert emulator.process
    with Middleman(emulator.address, timeout=LONG) as middleman, grpc.insecure_channel(emulator.address) as channel:
        store = FirestoreStore(fresh_project(), DATABASE, emulator=middleman.address)
        store.ping()
        bulk = channel.unary_unary("/google.firestore.v1.Firestore/BatchWrite")
        yield CountedFirestore(store, middleman, bulk, emulator.process.pid)
        store.close()


STORES: Mapping[str, Callable[[Path], Any]] = {"sqlite": sqlite, "redis": redis, "firestore": firestore}
"""Each store by its name: an empty one, in a context."""
