"""Conversations, aliases and lanes in the SQLite file: one table for all; in the caller's transaction."""

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import suppress

from shared.domain.conversations import Conversation, ConversationEntry
from shared.domain.errors import ConversationChanged, UnknownState
from shared.pipeline.ports import ConversationPage, Cursor
from shared.stores.codec import from_json, moment_or_none, to_json
from shared.stores.conversation_codec import decode, encode
from shared.stores.records import new_version

_FIND = "SELECT version, body FROM conversations WHERE id = ?"
_VERSION = "SELECT version FROM conversations WHERE id = ?"
_WRITE = "REPLACE INTO conversations (id, version, tenant, last_message_at, body) VALUES (?, ?, ?, ?, ?)"
_PAGE = """
SELECT last_message_at, id, version, body FROM conversations
WHERE tenant = :tenant AND last_message_at <= :after_at AND (last_message_at, id) < (:after_at, :after_id)
ORDER BY last_message_at DESC, id DESC LIMIT :limit
"""
_LATEST = "~"
"""It sorts after every time."""


def find_entries(db: sqlite3.Connection, ids: Sequence[str]) -> Mapping[str, ConversationEntry]:
    """Those of the entries that exist. Raises UnknownState."""
    found: dict[str, ConversationEntry] = {}
    for id in ids:
        row = db.execute(_FIND, (id,)).fetchone()
        if row is not None:
            version, body = row
            found[id] = decode(id, from_json(body), version)
    return found


def commit_entries(db: sqlite3.Connection, entries: Sequence[ConversationEntry]) -> None:
    """Write all, or raise ConversationChanged if one of them is not as it was read."""
    for entry in entries:
        row = db.execute(_VERSION, (entry.id,)).fetchone()
        if (row[0] if row else None) != entry.version:
            raise ConversationChanged
        of = entry if isinstance(entry, Conversation) else None
        at = moment_or_none(of.last_message_at) if of else None
        db.execute(_WRITE, (entry.id, new_version(), of.tenant if of else None, at, to_json(encode(entry))))


def conversation_page(db: sqlite3.Connection, tenant: str, after: Cursor | None, limit: int) -> ConversationPage:
    """A page of a tenant's conversations, as the port specifies it."""
    after_at, after_id = after or (_LATEST, "")
    given = {"tenant": tenant, "after_at": after_at, "after_id": after_id, "limit": limit}
    rows = db.execute(_PAGE, given).fetchall()
    found: list[Conversation] = []
    for _, id, version, body in rows:
        with suppress(UnknownState):
            entry = decode(id, from_json(body), version)
            found += [entry] if isinstance(entry, Conversation) else []
    return ConversationPage(found, len(rows) - len(found), tuple(rows[-1][:2]) if len(rows) == limit else None)
