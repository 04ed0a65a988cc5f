"""The counters of processes in the SQLite file; in the caller's transaction."""

import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime

from shared.domain.counters import KEPT_FOR, ProcessCounters
from shared.domain.errors import UnknownState
from shared.stores.codec import as_moment, moment
from shared.stores.counters_codec import MOST_PROCESSES, decode, encode

Row = tuple[str, str, str]

_WRITE = "REPLACE INTO counters (process, flushed_at, counts) VALUES (?, ?, ?)"
_DELETE = "DELETE FROM counters WHERE flushed_at < ?"
_RECENT = "SELECT process, flushed_at, counts FROM counters WHERE flushed_at >= ? ORDER BY flushed_at DESC LIMIT ?"


def counters_row(counters: ProcessCounters) -> Row:
    return counters.process, moment(counters.flushed_at), encode(counters.counts)


def keep_counters(db: sqlite3.Connection, row: Row) -> None:
    """Also delete those that no longer matter: a file has no TTL, and few processes write it."""
    db.execute(_WRITE, row)
    db.execute(_DELETE, (moment(as_moment(row[1]) - 2 * KEPT_FOR),))


def recent_counters(db: sqlite3.Connection, since: datetime) -> Iterator[ProcessCounters]:
    """The newest first."""
    for process, flushed_at, counts in db.execute(_RECENT, (moment(since), MOST_PROCESSES)).fetchall():
        with suppress(UnknownState):
            yield ProcessCounters(process, as_moment(flushed_at), decode(counts))
