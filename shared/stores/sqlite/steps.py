"""Steps in the SQLite file: a record is written with all that it creates, in the caller's transaction."""

import sqlite3

from shared.domain.delivery.answers import Step
from shared.stores.records import new_version
from shared.stores.sqlite.conversations import commit_entries
from shared.stores.sqlite.records import COLUMNS, StoredRow, insert, join_conversation, new_row, row_of
from shared.stores.steps import written

_UPDATE = f"UPDATE records SET {', '.join(f'{name} = :{name}' for name in COLUMNS[1:])} WHERE key = :key"  # noqa: S608


def commit(db: sqlite3.Connection, key: str, found: StoredRow | None, step: Step) -> Step:
    """The step, stored. `found` is what is stored now. Raises ConversationChanged."""
    if step.write is None and not step.create:
        return step
    commit_entries(db, step.entries)
    for record in step.create:
        insert(db, new_row(record))
    if step.write is None:
        return step
    if step.write.key != key:
        raise ValueError("A change writes the record that it was asked to change.")
    version = new_version()
    if found is None:
        insert(db, row_of(step.write, version))
    else:
        row = row_of(step.write, version, over=found.plain)
        db.execute(_UPDATE, row)
        join_conversation(db, row, found.record.conversation)
    return written(step, version)
