"""Receipts in the SQLite file: into the round of a record, or by the provider's id, and what they say about a sender;
in the caller's transaction.
"""

import sqlite3
from datetime import datetime

from shared.domain.events import ReceiptBlock, ReceiptReceived
from shared.domain.identity import Echo
from shared.stores.codec import encode_mark, moment, to_json
from shared.stores.records import id_hash_of, new_version

_EARLIER = """
DO UPDATE SET at = excluded.at, code = excluded.code
WHERE (excluded.at, ifnull(excluded.code, -1)) < (at, ifnull(code, -1))
"""  # what Receipts.merged says
_NOTE = f"""
INSERT INTO receipts (key, round, kind, id_hash, at, code) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (key, round, kind, id_hash) {_EARLIER}
"""  # noqa: S608 — our own clause
_NOTE_UNECHOED = f"""
INSERT INTO unechoed (id_hash, kind, at, code, expire_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (id_hash, kind) {_EARLIER}
"""  # noqa: S608
_NOTE_BLOCK = """
INSERT INTO marks (id, version, body, receipt_block) VALUES (?, ?, '{}', ?)
ON CONFLICT (id) DO UPDATE SET version = excluded.version, receipt_block = excluded.receipt_block
"""


def note(db: sqlite3.Connection, echo: Echo, receipt: ReceiptReceived) -> bool:
    """Write a receipt into the record that its echo names. Returns whether that record exists."""
    if db.execute("SELECT 1 FROM records WHERE key = ?", (echo.key,)).fetchone() is None:
        return False
    row = (echo.key, echo.round, receipt.kind.value, id_hash_of(receipt), moment(receipt.at), receipt.code)
    db.execute(_NOTE, row)
    return True


def note_unechoed(db: sqlite3.Connection, receipt: ReceiptReceived, expire_at: datetime) -> bool:
    """Keep a receipt without our echo until `expire_at`. Always True: it names no record that could be missing."""
    row = (id_hash_of(receipt), receipt.kind.value, moment(receipt.at), receipt.code, moment(expire_at))
    db.execute(_NOTE_UNECHOED, row)
    return True


def note_receipt_block(db: sqlite3.Connection, id: str, noted: ReceiptBlock) -> None:
    db.execute(_NOTE_BLOCK, (id, new_version(), to_json(encode_mark(noted))))
