"""One record in the SQLite file: read with its receipts, written with all it creates; in the caller's transaction."""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shared.domain.delivery.answers import Step
from shared.domain.identity import provider_id_hash
from shared.domain.record import Delivery, Receipts
from shared.stores.codec import as_moment, decode, encode, from_json, moment_or_none, to_json
from shared.stores.records import new_version, receipts_of, with_receipts, written

_COLUMNS = (
    "key", "version", "state", "tenant", "correlation_id", "id_hash", "received_at", "sweep_at", "expire_at", "body"
)  # fmt: skip
_INSERT = f"""
INSERT INTO records ({", ".join(_COLUMNS)}) VALUES ({", ".join(f":{name}" for name in _COLUMNS)})
ON CONFLICT (key) DO NOTHING
"""  # noqa: S608 — our own names
_UPDATE = f"UPDATE records SET {', '.join(f'{name} = :{name}' for name in _COLUMNS[1:])} WHERE key = :key"  # noqa: S608
_LEAN = "SELECT iif(json_valid(body), json_remove(body, '$.payload'), NULL) FROM records WHERE key = ?"
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
    return StoredRow(_joined(db, decode(plain, version=row[1])), plain)


def find_lean(db: sqlite3.Connection, key: str) -> Delivery | None:
    """The record without its payload, which may be 256 KiB. Raises UnknownState."""
    row = db.execute(_LEAN, (key,)).fetchone()
    if row is None:
        return None
    return _joined(db, decode({**from_json(row[0]), "payload": {}}))


def new_row(record: Delivery) -> Row:
    """The row of a new record. Raises TypeError or ValueError for what cannot be stored."""
    return _row(record, new_version())


def insert(db: sqlite3.Connection, row: Row) -> bool:
    """Insert the row unless its key exists. Returns whether it is new."""
    return db.execute(_INSERT, row).rowcount > 0


def commit(db: sqlite3.Connection, key: str, found: StoredRow | None, step: Step) -> Step:
    """The step, stored. `found` is what is stored now."""
    for record in step.create:
        insert(db, new_row(record))
    if step.write is None:
        return step
    if step.write.key != key:
        raise ValueError("A change writes the record that it was asked to change.")
    version = new_version()
    if found is None:
        db.execute(_INSERT, _row(step.write, version))
    else:
        db.execute(_UPDATE, _row(step.write, version, over=found.plain))
    return written(step, version)


def _joined(db: sqlite3.Connection, record: Delivery) -> Delivery:
    echoed = [(round_, _receipts(*rest)) for round_, *rest in db.execute(_ECHOED, (record.key,)).fetchall()]
    unechoed = [_receipts(*row) for row in db.execute(_UNECHOED, (_id_hash(record),)).fetchall()]
    return with_receipts(record, echoed, unechoed)


def _row(record: Delivery, version: int, over: Mapping[str, Any] | None = None) -> Row:
    plain = encode(record, over)
    return {
        "key": record.key,
        "version": version,
        "state": plain["state"],
        "tenant": record.tenant,
        "correlation_id": record.correlation_id,
        "id_hash": _id_hash(record),
        "received_at": plain["received_at"],
        "sweep_at": moment_or_none(record.sweep_at),
        "expire_at": moment_or_none(record.expire_at),
        "body": to_json(plain),
    }


def _id_hash(record: Delivery) -> str | None:
    return provider_id_hash(record.provider, record.provider_id) if record.provider_id else None


def _receipts(kind: str, at: str, code: int | None, id_hash: str) -> Receipts:
    return receipts_of(kind, as_moment(at), code, id_hash)
