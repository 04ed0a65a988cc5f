"""The schema of the Firestore store: its collections, which fields are indexed in each, and which one expires it.

Firestore indexes every field unless told otherwise, and each index makes every write slower; an index on a time takes
about 500 writes a second (https://cloud.google.com/firestore/docs/best-practices, 2026-09). So all is exempt but what a
query asks for, and the times are there only while a record is open or dead. The deployment is tested against this
table.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Collection:
    """One collection. What is not named here has no index."""

    name: str
    indexed: tuple[str, ...] = ()
    """Fields with an ascending index of their own."""
    composite: tuple[tuple[str, ...], ...] = ()
    """Ascending indexes over several fields."""
    ttl: str | None = None
    """The field of the TTL policy: Firestore deletes a document up to a day after this time."""


RECORDS = Collection(
    "records",
    indexed=("sweep_at", "correlation_id", "id_hash", "pending_since", "dead_since"),
    composite=(("state", "tenant"), ("mark", "tenant")),
    ttl="expire_at",
)
"""One document per record; its id is the key. Few of them have a `mark`."""

RECEIPTS = Collection("receipts", indexed=("mark",), ttl="expire_at")
"""Receipts without an echo: one document per provider id, named by its hash. Those with a failed one have a `mark`."""

MARKS = Collection("marks")
"""What answers taught us about a sender or a backend: one document each, by its id."""

COLLECTIONS = (RECORDS, RECEIPTS, MARKS)
