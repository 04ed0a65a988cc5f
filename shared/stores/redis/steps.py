"""Steps in the form of the Redis store's scripts: a record is written with all that it creates."""

from datetime import datetime

from shared.domain.delivery.answers import Step
from shared.domain.record import Delivery
from shared.stores.redis.conversations import entry_rows
from shared.stores.redis.records import StoredRecord, Value, is_newer, row_of
from shared.stores.steps import written

_UNREAD = "unread"
"""A version that no record has: a write based on it is refused and gets what is stored."""


def seen_before(record: Delivery) -> StoredRecord:
    """The record as a caller has seen it. It has a version only if writing `plain` would lose nothing."""
    return StoredRecord(record, {}, _UNREAD if record.version is None else str(record.version))


def commit(key: str, before: StoredRecord | None, step: Step, version: int, now: datetime) -> list[Value]:
    """The arguments of a commit. Raises TypeError or ValueError for what cannot be stored."""
    rows = [row_of(record, now) for record in step.create]
    if step.write is not None:
        if step.write.key != key:
            raise ValueError("A change writes the record that it was asked to change.")
        rows = [row_of(step.write, now, before.plain if before else None), *rows]
    flat = (value for row in rows for value in row)
    expected = before.version if before else ""
    return [key, expected, version, int(step.write is not None), len(rows), *flat, *entry_rows(step.entries)]


def handed_on(step: Step, before: StoredRecord | None, version: int, joins: bool) -> Step:
    """The step once it is stored. Its record is current for the next change, unless the store has more than the step
    knows: receipts that waited for this provider's id, or fields of a newer version.
    """
    if step.write is None:
        return step
    if before is None:
        return written(step, None if joins else version)
    was, now = before.record, step.write
    joined = joins and (was.provider_id, was.round) != (now.provider_id, now.round)
    knows_all = not joined and was.receipts == now.receipts and not is_newer(before.plain)
    return written(step, version if knows_all else None)
