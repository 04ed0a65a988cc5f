"""The schema of the SQLite store, and the settings that every connection needs."""

import sqlite3
from collections.abc import Mapping

VERSION = 3
"""The number in the file: of the last layout that dropped or changed something. A Pombo refuses a file with a number
that it does not know. So a layout that only adds (`_ADDED`) leaves the number, and an older Pombo can use the file too,
beside this one or after a rollback.
"""

_SINCE_2 = (
    "CREATE INDEX IF NOT EXISTS receipts_failed ON receipts (key) WHERE kind = 'failed'",
    "CREATE INDEX IF NOT EXISTS unechoed_failed ON unechoed (id_hash) WHERE kind = 'failed'",
)
_SINCE_3 = (
    "DROP TABLE IF EXISTS credentials",
    "DROP TABLE IF EXISTS blocks",
    """
    CREATE TABLE IF NOT EXISTS marks (
        id TEXT PRIMARY KEY,       -- of a sender or a backend
        version INTEGER NOT NULL,  -- random, new with every write
        body TEXT NOT NULL,        -- all marks but the next one, as the codec wrote them
        receipt_block TEXT         -- written blind
    ) WITHOUT ROWID
    """,
)
"""Adds what files of layouts 1 and 2 lack and drops what layout 3 does not use; their old marks are lost. IF (NOT)
EXISTS: an older Pombo that still runs on the file may set its layout number again.
"""

TROUBLED = """
(receipt_block IS NOT NULL OR iif(json_valid(body), json_extract(body, '$.refused') IS NOT NULL
    OR json_extract(body, '$.block') IS NOT NULL OR json_extract(body, '$.disconnected') IS NOT NULL, 0))
"""
"""Whether marks are troubled. An index over an expression is right whichever Pombo wrote the row."""

_UNTRIED = "json_extract(body, '$.attempt') = 0 AND json_extract(body, '$.round') = 0"
PLACE = f"""
iif(json_valid(body), CASE state
    WHEN 'leased' THEN json_extract(body, '$.turn_id') || '/0/' || json_extract(body, '$.lease_until')
    WHEN 'pending'
    THEN iif({_UNTRIED}, json_extract(body, '$.turn_id') || '/1/' || json_extract(body, '$.position'), NULL)
END, NULL)
"""
"""The place of a record in the index of turns, as shared.domain.turns.place has it; NULL for none."""
HAS_PLACE = "state IN ('leased', 'pending')"
"""No other record has a place. By the column, so that a write of any other record evaluates no JSON."""

_ADDED: Mapping[str, str] = {
    "registry": """
    CREATE TABLE IF NOT EXISTS registry (
        kind TEXT NOT NULL,        -- of an entry
        id TEXT NOT NULL,          -- within the kind
        tenant TEXT NOT NULL,      -- its owner, '' for none
        version INTEGER NOT NULL,  -- random, new with every write
        fields TEXT NOT NULL,      -- JSON
        PRIMARY KEY (kind, id)
    ) WITHOUT ROWID
    """,
    "registry_by_tenant": "CREATE INDEX IF NOT EXISTS registry_by_tenant ON registry (kind, tenant, id)",
    "records_by_age": "CREATE INDEX IF NOT EXISTS records_by_age ON records (tenant, received_at, key)",
    "counters": """
    CREATE TABLE IF NOT EXISTS counters (
        process TEXT PRIMARY KEY,
        flushed_at TEXT NOT NULL,
        counts TEXT NOT NULL       -- JSON
    ) WITHOUT ROWID
    """,
    "conversations": """
    CREATE TABLE IF NOT EXISTS conversations (
        id TEXT PRIMARY KEY,       -- of a conversation, of an alias, or of the sender of a lane
        version INTEGER NOT NULL,  -- random, new with every write
        tenant TEXT,               -- of a conversation
        last_message_at TEXT,      -- of a conversation
        body TEXT NOT NULL         -- JSON
    ) WITHOUT ROWID
    """,
    "conversations_by_age": """
    CREATE INDEX IF NOT EXISTS conversations_by_age ON conversations (tenant, last_message_at, id)
    WHERE tenant IS NOT NULL
    """,
    "of_conversation": """
    CREATE TABLE IF NOT EXISTS of_conversation (
        id TEXT NOT NULL,          -- of a conversation
        received_at TEXT NOT NULL,
        key TEXT NOT NULL,         -- of a record
        PRIMARY KEY (id, received_at, key)
    ) WITHOUT ROWID
    """,
    "records_by_place": f"CREATE INDEX IF NOT EXISTS records_by_place ON records ({PLACE}) WHERE {HAS_PLACE}",
    "marks_troubled": f"CREATE INDEX IF NOT EXISTS marks_troubled ON marks (id) WHERE {TROUBLED}",
}
"""Adds what files of layout 3 may lack (layout 4), by name."""
_COUNT_ADDED = f"SELECT count(*) FROM sqlite_master WHERE name IN ({', '.join(map(repr, _ADDED))})"  # noqa: S608 — ours
_NUMBER = f"PRAGMA user_version = {VERSION}"

_SCHEMA = (
    """
    CREATE TABLE records (
        key TEXT PRIMARY KEY,
        version INTEGER NOT NULL,  -- random: a key that was deleted and came back is no earlier version of itself
        state TEXT NOT NULL,
        tenant TEXT NOT NULL,
        correlation_id TEXT NOT NULL,
        id_hash TEXT,              -- of the provider's id
        received_at TEXT NOT NULL,
        sweep_at TEXT,
        expire_at TEXT,
        body TEXT NOT NULL         -- all of it, as the codec wrote it; the columns are for finding it
    )
    """,
    "CREATE INDEX records_by_state ON records (state, tenant, received_at)",
    "CREATE INDEX records_by_sweep ON records (sweep_at) WHERE sweep_at IS NOT NULL",
    "CREATE INDEX records_by_expiry ON records (expire_at) WHERE expire_at IS NOT NULL",
    "CREATE INDEX records_by_correlation ON records (correlation_id)",
    "CREATE INDEX records_by_id_hash ON records (id_hash) WHERE id_hash IS NOT NULL",
    """
    CREATE TABLE receipts (
        key TEXT NOT NULL,
        round INTEGER NOT NULL,
        kind TEXT NOT NULL,
        id_hash TEXT NOT NULL,     -- a resend has another id: at most two a round
        at TEXT NOT NULL,
        code INTEGER,
        PRIMARY KEY (key, round, kind, id_hash)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE unechoed (
        id_hash TEXT NOT NULL,
        kind TEXT NOT NULL,
        at TEXT NOT NULL,
        code INTEGER,
        expire_at TEXT NOT NULL,
        PRIMARY KEY (id_hash, kind)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX unechoed_by_expiry ON unechoed (expire_at)",
    *_SINCE_2,
    *_SINCE_3,
    _NUMBER,
)
_FROM: Mapping[int, tuple[str, ...]] = {
    0: _SCHEMA,
    1: (*_SINCE_2, *_SINCE_3, _NUMBER),
    2: (*_SINCE_3, _NUMBER),
    VERSION: (),
}
"""The statements that migrate a file of each known layout to this one."""


class UnknownVersion(Exception):
    """The file has the layout of an unknown version of Pombo. The process does not start."""

    def __init__(self, found: int) -> None:
        super().__init__(
            f"The SQLite file has layout {found} and this Pombo reads {VERSION}; use the Pombo that made it."
        )


def prepare(db: sqlite3.Connection) -> None:
    """Prepare a new connection. The first one on a file creates its tables, or migrates an older layout. Raises
    UnknownVersion.
    """
    # FULL: a commit is on the disk before it returns and survives a power cut. It costs one fsync a commit: 0.3 ms
    # instead of 0.1 ms on a quiet disk, 3.4 ms instead of 0.2 ms on a busy one.
    db.execute("PRAGMA synchronous = FULL")
    if _version(db) == VERSION and _has_added(db):
        return
    db.execute("PRAGMA journal_mode = WAL")  # stays with the file; readers and the writer do not wait for each other
    db.execute("BEGIN IMMEDIATE")
    try:
        for statement in (*_FROM[_version(db)], *_ADDED.values()):  # another process may have been quicker
            db.execute(statement)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _version(db: sqlite3.Connection) -> int:
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    if version not in _FROM:
        raise UnknownVersion(version)
    return version


def _has_added(db: sqlite3.Connection) -> bool:
    count: int = db.execute(_COUNT_ADDED).fetchone()[0]
    return count == len(_ADDED)
