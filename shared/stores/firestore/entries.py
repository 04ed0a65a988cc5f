"""The documents of the registry: the owner is a field, which an index finds; what an entry holds is JSON text."""

from shared.pipeline.registry import Entry, EntryName
from shared.stores.entries import StoredEntry, entry_of
from shared.stores.firestore.records import Document
from shared.stores.firestore.schema import ENTRIES


def entry_name(name: EntryName) -> str:
    """The document's name."""
    return f"{ENTRIES[name.kind].name}/{name.id}"


def entry_in(name: EntryName, document: Document) -> Entry:
    """The entry in its document."""
    stored = StoredEntry(name, document.fields.get("tenant"), document.fields.get("fields"), document.version)
    return entry_of(stored)
