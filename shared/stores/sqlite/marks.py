"""The marks of one sender or backend in the SQLite file; in the caller's transaction.

The block from a failed receipt has a separate column, so that it can be written without reading the rest.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shared.domain.errors import UnknownState
from shared.domain.marks import Marks
from shared.stores.codec import from_json, to_json
from shared.stores.marks_codec import changes, decode
from shared.stores.records import new_version
from shared.stores.sqlite.schema import TROUBLED

_FIND = "SELECT version, body, receipt_block FROM marks WHERE id = ?"
_TROUBLED = f"""
SELECT id FROM marks INDEXED BY marks_troubled WHERE {TROUBLED} AND id > ? ORDER BY id LIMIT ?
"""  # noqa: S608 — our own words
_WRITE = "REPLACE INTO marks (id, version, body, receipt_block) VALUES (?, ?, ?, ?)"


@dataclass(frozen=True, slots=True)
class StoredMarks:
    """Marks as found, and everything stored of them, including what only a newer version knows."""

    marks: Marks
    plain: Mapping[str, Any]


def find_marks(db: sqlite3.Connection, id: str) -> StoredMarks:
    """The marks; empty ones if none are stored. Raises UnknownState."""
    row = db.execute(_FIND, (id,)).fetchone()
    if row is None:
        return StoredMarks(Marks(), {})
    version, body, receipt_block = row
    plain = from_json(body)
    if not isinstance(plain, dict):
        raise UnknownState
    if receipt_block is not None:
        plain["receipt_block"] = from_json(receipt_block)
    return StoredMarks(decode(plain, version), plain)


def commit_marks(db: sqlite3.Connection, id: str, found: StoredMarks, after: Marks) -> Marks:
    """Store `after` and return the marks. `found` is what is stored now."""
    version = new_version()
    plain = {**found.plain, **changes(found.marks, after)}
    receipt_block = plain.pop("receipt_block", None)
    body = {name: mark for name, mark in plain.items() if mark is not None}
    db.execute(_WRITE, (id, version, to_json(body), None if receipt_block is None else to_json(receipt_block)))
    return replace(after, version=version)


def troubled_ids(db: sqlite3.Connection, after: str, limit: int) -> Sequence[str]:
    """The first ids of troubled marks after this one."""
    return [id for (id,) in db.execute(_TROUBLED, (after, limit)).fetchall()]
