"""The part of the SQLite store that the webhook service needs."""

import sqlite3
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from shared.domain.counters import ProcessCounters
from shared.domain.deadline import Deadline
from shared.domain.errors import UnknownState
from shared.domain.events import ReceiptBlock, ReceiptReceived
from shared.domain.identity import Echo
from shared.domain.limits import Limits
from shared.domain.record import Delivery
from shared.pipeline.intake import Created, Exists, NotedReceipt
from shared.pipeline.registry import EntryName
from shared.stores.entries import StoredEntry
from shared.stores.records import each_storable, one_after_another
from shared.stores.sqlite.connection import SqliteFile
from shared.stores.sqlite.counters import counters_row, keep_counters
from shared.stores.sqlite.receipts import note, note_receipt_block, note_unechoed
from shared.stores.sqlite.records import Row, find, insert, new_row
from shared.stores.sqlite.registry import find_entries
from shared.stores.sqlite.schema import VERSION

PORTION = 200
"""Records or receipts in one transaction. It takes some 10 ms, while others wait for their turn."""


class SqliteIntake:
    """The calls of the `IntakeStore` port, blocking, on one file, which is created on first use. Raises UnknownVersion
    on a file of another layout; `ping` does so at the start. Every call ends within about 2 s, a write in a moving
    queue within 10.
    """

    def __init__(self, path: Path, limits: Limits, clock: Callable[[], datetime]) -> None:
        self._file = SqliteFile(path)
        self._limits = limits
        self._clock = clock

    def close(self) -> None:
        """Close every connection; no other call may follow."""
        self._file.close()

    def create_all(self, records: Sequence[Delivery], deadline: Deadline) -> Sequence[Created | Exists | Exception]:
        """A transaction for each portion, so that a single message does not wait long for its turn."""

        def write(rows: list[Row]) -> list[Created | Exists]:
            return self._file.write(lambda db: [created(db, row) for row in rows])

        return one_after_another(records, PORTION, lambda portion: each_storable(portion, new_row, write), deadline)

    def note_receipts(self, receipts: Sequence[NotedReceipt], deadline: Deadline) -> Sequence[bool | Exception]:
        """As `create_all`. A receipt that SQLite cannot hold stops none of the others in its transaction."""
        expire_at = self._clock() + self._limits.receipt_retention

        def note_one(db: sqlite3.Connection, echo: Echo | None, receipt: ReceiptReceived) -> bool | Exception:
            try:
                return note(db, echo, receipt) if echo else note_unechoed(db, receipt, expire_at)
            except (TypeError, ValueError, OverflowError) as error:  # its one INSERT did not run
                return error

        def write(portion: list[NotedReceipt]) -> list[bool | Exception]:
            return self._file.write(lambda db: [note_one(db, *each) for each in portion])

        return one_after_another(receipts, PORTION, write, deadline)

    def note_receipt_block(self, id: str, noted: ReceiptBlock) -> None:
        self._file.write(lambda db: note_receipt_block(db, id, noted))

    def keep_counters(self, counters: ProcessCounters) -> None:
        row = counters_row(counters)
        self._file.write(lambda db: keep_counters(db, row))

    def stored_entries(self, names: Sequence[EntryName]) -> Sequence[StoredEntry | None]:
        """All of one moment."""
        return find_entries(self._file, names)

    def ping(self) -> None:
        """Writes, since a read-only store can take no message (a full disk, a locked file)."""
        self._file.write(lambda db: db.execute(f"PRAGMA user_version = {VERSION}"))


def created(db: sqlite3.Connection, row: Row) -> Created | Exists:
    if insert(db, row):
        return Created()
    try:
        found = find(db, row["key"])
    except UnknownState:
        return Exists(None)
    return Exists(found.record if found else None)
