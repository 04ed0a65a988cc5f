"""The schema of the Firestore store: its collections, which fields are indexed in each, and which one expires it.

By default Firestore indexes every field. Each index makes every write slower, and an index on a time takes about 500
writes a second (https://cloud.google.com/firestore/docs/best-practices, 2026-09). So only fields that a query uses are
indexed, and the times exist only while a record is open or dead. A test compares the deployment with this table.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from shared.pipeline.registry import EntryKind


@dataclass(frozen=True, slots=True)
class Collection:
    """One collection. Fields that are not named here have no index."""

    name: str
    indexed: tuple[str, ...] = ()
    """Fields with a single-field index, ascending, or descending where the name begins with -."""
    composite: tuple[tuple[str, ...], ...] = ()
    """Indexes over several fields, ascending, or descending where a field's name begins with -."""
    ttl: str | None = None
    """The field of the TTL policy: Firestore deletes a document up to a day after this time."""


RECORDS = Collection(
    "records",
    indexed=("sweep_at", "correlation_id", "id_hash", "pending_since", "dead_since", "-turn"),
    composite=(
        ("state", "tenant"),
        ("mark", "tenant"),
        ("tenant", "-received_at"),
        ("state", "kind", "tenant"),
        ("tenant", "pending_since"),
        ("conversation", "-received_at"),
    ),
    ttl="expire_at",
)
"""One document per record; its id is the key. Few have a `mark`."""

RECEIPTS = Collection("receipts", indexed=("mark",), ttl="expire_at")
"""Receipts without an echo: one document per provider id, named by its hash. Those with a failed one have a `mark`."""

MARKS = Collection("marks", indexed=("troubled",))
"""The marks: one document per sender or backend, by its id. Those of a troubled sender have `troubled`."""

COUNTERS = Collection("counters", indexed=("flushed_at",), ttl="expire_at")
"""What processes have counted: one document per process."""

CONVERSATIONS = Collection("conversations", composite=(("tenant", "-last_message_at"),))
"""One document per conversation, alias or lane, by its id. Only conversations have a `tenant`."""

ENTRIES: Mapping[EntryKind, Collection] = {
    kind: Collection(f"registry_{kind}", indexed=("tenant",)) for kind in EntryKind
}
"""The registry: one document per entry, by its id. Not just `tenants`: an early version kept marks by that name."""

COLLECTIONS = (RECORDS, RECEIPTS, MARKS, COUNTERS, CONVERSATIONS, *ENTRIES.values())
