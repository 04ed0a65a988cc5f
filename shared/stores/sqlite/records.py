"""One record in the SQLite file: read with its receipts, and created; in the caller's transaction."""

import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from shared.domain.identity import provider_id_hash
from shared.domain.record import Delivery, Receipts
from shared.stores.codec import as_moment, decode, encode, from_json, moment_or_none, to_json
from shared.stores.records import new_version, receipts_of, with_receipts

COLUMNS = (
    "key", "version", "state", "tenant", "correlation_id", "id_hash", "received_at", "sweep_at", "expire_at", "body"
)  # fmt: skip
_INSERT = f"""
INSERT INTO records ({", ".join(COLUMNS)}) VALUES ({", ".join(f":{name}" for name in COLUMNS)})
ON CONFLICT (key) DO NOTHING
"""  # noqa: S608 — our own names
_JOIN = "INSERT OR IGNORE INTO of_conversation (id, received_at, key) VALUES (:conversation, :received_at, :key)"
_LEAVE = "DELETE FROM of_conversation WHERE id = ? AND received_at = ? AND key = ?"
_ECHOED = "SELECT round, kind, at, code, id_hash FROM receipts WHERE key = ?"
_UNECHOED = "SELECT kind, at, code, id_hash FROM unechoed WHERE id_hash = ?"

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A record as found, and everything stored of it, including what only a newer version knows."""

    record: Delivery
    plain: Mapping[str, Any]


def find(db: sqlite3.Connection, key: str) -> StoredRow | None:
    """The record with its receipts. Raises UnknownState."""
    row = db.execute("SELECT body, version FROM records WHERE key = ?", (key,)).fetchone()
    if row is None:
        return None
    plain = from_json(row[0])
    return StoredRow(joined(db, decode(plain, version=row[1])), plain)


def new_row(record: Delivery) -> Row:
    """The row of a new record. Raises TypeError or ValueError for what cannot be stored."""
    return row_of(record, new_version())


def insert(db: sqlite3.Connection, row: Row) -> bool:
    """Insert the row unless its key exists. Returns whether it is new."""
    is_new = db.execute(_INSERT, row).rowcount > 0
    if is_new:
        join_conversation(db, row)
    return is_new


def join_conversation(db: sqlite3.Connection, row: Row, before: str | None = None) -> None:
    """List the row among the records of its conversation, if it is in one, and no more among those of `before`."""
    if row["conversation"] == before:
        return
    if before is not None:
        leave_conversation(db, [(before, row["received_at"], row["key"])])
    if row["conversation"] is not None:
        db.execute(_JOIN, row)


def leave_conversation(db: sqlite3.Connection, listed: Iterable[tuple[str, str, str]]) -> None:
    """List these no more: each the id of a conversation, and when its record was received, and its key."""
    db.executemany(_LEAVE, listed)


def joined(db: sqlite3.Connection, record: Delivery) -> Delivery:
    echoed = [(round_, _receipts(*rest)) for round_, *rest in db.execute(_ECHOED, (record.key,)).fetchall()]
    unechoed = [_receipts(*row) for row in db.execute(_UNECHOED, (_id_hash(record),)).fetchall()]
    return with_receipts(record, echoed, unechoed)


def row_of(record: Delivery, version: int, over: Mapping[str, Any] | None = None) -> Row:
    plain = encode(record, over)
    return {
        "key": record.key,
        "version": version,
        "state": plain["state"],
        "tenant": record.tenant,
        "correlation_id": record.correlation_id,
        "id_hash": _id_hash(record),
        "conversation": record.conversation,
        "received_at": plain["received_at"],
        "sweep_at": moment_or_none(record.sweep_at),
        "expire_at": moment_or_none(record.expire_at),
        "body": to_json(plain),
    }


def _id_hash(record: Delivery) -> str | None:
    return provider_id_hash(record.provider, record.provider_id) if record.provider_id else None


def _receipts(kind: str, at: str, code: int | None, id_hash: str) -> Receipts:
    return receipts_of(kind, as_moment(at), code, id_hash)
