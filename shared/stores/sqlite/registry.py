"""The registry in the SQLite file: one table for all kinds of entries."""

import sqlite3
from collections.abc import Sequence

from shared.pipeline.registry import Entry, EntryKind, EntryName, EntryWrite
from shared.stores.entries import StoredEntry, encoded, entries_of, entry_of, is_storable
from shared.stores.records import new_version
from shared.stores.sqlite.connection import SqliteFile

_FIND = "SELECT tenant, fields, version FROM registry WHERE kind = ? AND id = ?"
_VERSION = "SELECT version FROM registry WHERE kind = ? AND id = ?"
_PAGE = """
SELECT id, tenant, fields, version FROM registry WHERE kind = :kind AND id > :after ORDER BY id LIMIT :limit
"""
_PAGE_OF_TENANT = """
SELECT id, tenant, fields, version FROM registry INDEXED BY registry_by_tenant
WHERE kind = :kind AND tenant = :tenant AND id > :after ORDER BY id LIMIT :limit
"""
"""INDEXED BY: without statistics SQLite would search the primary key, and read the entries of all tenants."""
_WRITE = "REPLACE INTO registry (kind, id, tenant, version, fields) VALUES (?, ?, ?, ?, ?)"
_DELETE = "DELETE FROM registry WHERE kind = ? AND id = ?"


def find_entries(file: SqliteFile, names: Sequence[EntryName]) -> list[StoredEntry | None]:
    """What is stored of each, in order. Raises StoreUnavailable."""
    asked = [name for name in names if is_storable(name)]
    found = file.read(lambda db: {name: _find(db, name) for name in asked}) if asked else {}
    return [found.get(name) for name in names]


class SqliteRegistry:
    """The `Registry` port on one file."""

    _file: SqliteFile

    def entries(self, names: Sequence[EntryName]) -> Sequence[Entry | None]:
        """All of one moment."""
        return entries_of(find_entries(self._file, names))

    def entry_page(self, kind: EntryKind, tenant: str | None, after: str | None, limit: int) -> Sequence[Entry]:
        """By the primary key, or by the index over the tenants."""
        query = _PAGE if tenant is None else _PAGE_OF_TENANT
        given = {"kind": kind, "tenant": tenant, "after": after or "", "limit": limit}
        rows = self._file.read(lambda db: db.execute(query, given).fetchall())
        return [entry_of(StoredEntry(EntryName(kind, id), *rest)) for id, *rest in rows]

    def commit_entries(self, writes: Sequence[EntryWrite]) -> bool:
        """One transaction. It is never repeated once it may have been committed, so no answer is ever lost."""
        texts = encoded(writes)

        def work(db: sqlite3.Connection) -> bool:
            if any(_version(db, write.name) != write.expected for write in writes):
                return False
            for write, text in zip(writes, texts, strict=True):
                _apply(db, write, text)
            return True

        return self._file.write(work) if writes else True


def _find(db: sqlite3.Connection, name: EntryName) -> StoredEntry | None:
    row = db.execute(_FIND, name).fetchone()
    return None if row is None else StoredEntry(name, *row)


def _version(db: sqlite3.Connection, name: EntryName) -> int | None:
    row = db.execute(_VERSION, name).fetchone()
    return None if row is None else row[0]


def _apply(db: sqlite3.Connection, write: EntryWrite, text: str | None) -> None:
    if text is None:
        db.execute(_DELETE, write.name)
    else:
        db.execute(_WRITE, (*write.name, write.tenant, new_version(), text))
