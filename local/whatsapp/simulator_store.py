"""The simulator's store: what survives a kill. The ledger, the calls, the message ids, and every undelivered webhook.

One connection, used only by the event loop. A commit in WAL mode with synchronous NORMAL is a write to the page cache,
which survives a killed process (but perhaps not a power cut). It costs some 50 µs, so commits are made at once and not
batched.
"""

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCHEMA = """
CREATE TABLE IF NOT EXISTS ledger (id INTEGER PRIMARY KEY AUTOINCREMENT, entry TEXT NOT NULL, answered TEXT);
CREATE TABLE IF NOT EXISTS calls (id INTEGER PRIMARY KEY, entry TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS messages (id BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS webhooks (
    id INTEGER PRIMARY KEY AUTOINCREMENT, due_at REAL NOT NULL, first_at REAL NOT NULL,
    attempts INTEGER NOT NULL, regroup INTEGER NOT NULL, facts TEXT NOT NULL, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS counts (name TEXT PRIMARY KEY, count INTEGER NOT NULL);
INSERT OR IGNORE INTO counts VALUES ('delivered', 0), ('failed', 0), ('given_up', 0);
"""


@dataclass(frozen=True, slots=True)
class QueuedWebhook:
    """One POST still to be delivered. `facts` are what faults match; `regroup`: redeliveries are split differently."""

    body: bytes
    facts: Mapping[str, str]
    due_at: float
    attempts: int = 0
    first_at: float = 0.0
    regroup: bool = False


class SimulatorStore:
    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.executescript(SCHEMA)

    def close(self) -> None:
        self._db.close()

    def accept(
        self, entry: Mapping[str, Any], webhooks: Iterable[QueuedWebhook], call: Mapping[str, Any]
    ) -> tuple[int, list[int]]:
        """Store a message, its receipts and the call, all or nothing; return the ledger's row and the webhooks' ids."""
        with self._db:
            self._db.execute("INSERT INTO calls (entry) VALUES (?)", (json.dumps(call),))
            self._remember([entry["wamid"]])
            row = self._db.execute("INSERT INTO ledger (entry) VALUES (?)", (json.dumps(entry),)).lastrowid
            return row or 0, [self._insert(webhook) for webhook in webhooks]

    def answered(self, row: int, at: str) -> None:
        with self._db:
            self._db.execute("UPDATE ledger SET answered = ? WHERE id = ?", (at, row))

    def note_call(self, call: Mapping[str, Any]) -> None:
        with self._db:
            self._db.execute("INSERT INTO calls (entry) VALUES (?)", (json.dumps(call),))

    def remember(self, ids: Iterable[str]) -> None:
        """Record these message ids as known. Clearing the ledger keeps them."""
        with self._db:
            self._remember(ids)

    def knows(self, id: str) -> bool:
        """Whether this message exists, in either direction."""
        return self._db.execute("SELECT 1 FROM messages WHERE id = ?", (_bytes(id),)).fetchone() is not None

    def ledger(self) -> list[dict[str, Any]]:
        rows = self._db.execute("SELECT entry, answered FROM ledger ORDER BY id")
        return [json.loads(entry) | {"answered": answered} for entry, answered in rows]

    def calls(self) -> list[dict[str, Any]]:
        return [json.loads(entry) for (entry,) in self._db.execute("SELECT entry FROM calls ORDER BY id")]

    def clear_ledger(self) -> None:
        with self._db:
            self._db.execute("DELETE FROM ledger")
            self._db.execute("DELETE FROM calls")

    def add(self, webhooks: Iterable[QueuedWebhook]) -> list[int]:
        with self._db:
            return [self._insert(webhook) for webhook in webhooks]

    def webhook(self, row: int) -> QueuedWebhook:
        found = self._db.execute(
            "SELECT body, facts, due_at, attempts, first_at, regroup FROM webhooks WHERE id = ?", (row,)
        ).fetchone()
        body, facts, due_at, attempts, first_at, regroup = found
        return QueuedWebhook(body, json.loads(facts), due_at, attempts, first_at, bool(regroup))

    def waiting(self) -> list[tuple[int, float, int]]:
        """Each undelivered webhook, when it is due, and how often it failed; read once, at the start."""
        return self._db.execute("SELECT id, due_at, attempts FROM webhooks ORDER BY due_at").fetchall()

    def delivered(self, row: int) -> None:
        with self._db:
            self._count("delivered")
            self._db.execute("DELETE FROM webhooks WHERE id = ?", (row,))

    def failed(self, row: int, due_at: float) -> None:
        with self._db:
            self._count("failed")
            self._db.execute("UPDATE webhooks SET attempts = attempts + 1, due_at = ? WHERE id = ?", (due_at, row))

    def failed_and_cut(self, row: int, webhooks: Iterable[QueuedWebhook]) -> list[int]:
        """Replace a failed webhook by these."""
        with self._db:
            self._count("failed")
            self._db.execute("DELETE FROM webhooks WHERE id = ?", (row,))
            return [self._insert(webhook) for webhook in webhooks]

    def given_up(self, row: int) -> None:
        with self._db:
            self._count("given_up")
            self._db.execute("DELETE FROM webhooks WHERE id = ?", (row,))

    def forget_webhooks(self) -> None:
        with self._db:
            self._db.execute("DELETE FROM webhooks")

    def counts(self) -> dict[str, int]:
        """How the attempts so far ended; each in one of three ways."""
        ends = dict(self._db.execute("SELECT name, count FROM counts").fetchall())
        return {"delivered": ends["delivered"], "given_up": ends["given_up"], "attempts": sum(ends.values())}

    def _insert(self, webhook: QueuedWebhook) -> int:
        cursor = self._db.execute(
            "INSERT INTO webhooks (due_at, first_at, attempts, regroup, facts, body) VALUES (?, ?, ?, ?, ?, ?)",
            (
                webhook.due_at,
                webhook.first_at or webhook.due_at,
                webhook.attempts,
                webhook.regroup,
                json.dumps(webhook.facts),
                webhook.body,
            ),
        )
        return cursor.lastrowid or 0

    def _remember(self, ids: Iterable[str]) -> None:
        self._db.executemany("INSERT OR IGNORE INTO messages VALUES (?)", [(_bytes(id),) for id in ids])

    def _count(self, name: str) -> None:
        self._db.execute("UPDATE counts SET count = count + 1 WHERE name = ?", (name,))


def _bytes(id: str) -> bytes:
    """SQLite accepts no text with a lone surrogate, which JSON may contain."""
    return id.encode("utf-8", "surrogatepass")
