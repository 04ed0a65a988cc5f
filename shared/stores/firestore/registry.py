"""The registry in the Firestore database, without transactions: a commit whose preconditions hold, or none of it.

Each commit stores a random `write_id` in its documents. If an answer was lost and the commit is sent again, Firestore
refuses it, and the documents tell whether the first one was applied.
"""

import secrets
from collections.abc import Sequence

from shared.net.patience import Patience
from shared.pipeline.registry import Entry, EntryKind, EntryName, EntryWrite
from shared.stores.entries import encoded, is_storable
from shared.stores.firestore.connection import FirestoreRpc
from shared.stores.firestore.entries import entry_in, entry_name
from shared.stores.firestore.errors import LostRace
from shared.stores.firestore.queries import entry_page
from shared.stores.firestore.records import Write, document_of, unless_changed, value_of
from shared.stores.firestore.schema import ENTRIES


class FirestoreRegistry:
    """The `Registry` port on one Firestore database."""

    _rpc: FirestoreRpc

    def entries(self, names: Sequence[EntryName]) -> Sequence[Entry | None]:
        """One call for all of them."""
        asked = {name: entry_name(name) for name in names if is_storable(name)}
        documents = self._rpc.read([*asked.values()], self._rpc.patience()) if asked else {}
        found = {
            name: entry_in(name, document_of(documents[path])) for name, path in asked.items() if path in documents
        }
        return [found.get(name) for name in names]

    def entry_page(self, kind: EntryKind, tenant: str | None, after: str | None, limit: int) -> Sequence[Entry]:
        """One query."""
        last = self._rpc.reference(entry_name(EntryName(kind, after))) if after else None
        query = entry_page(ENTRIES[kind].name, tenant, last, limit)
        documents = map(document_of, self._rpc.query(query, self._rpc.patience()))
        return [entry_in(EntryName(kind, document.name.rpartition("/")[2]), document) for document in documents]

    def commit_entries(self, writes: Sequence[EntryWrite]) -> bool:
        """One commit. If it was sent again and only deletes, it also counts as made if another call deleted the entries
        meanwhile: nothing is left that could tell whose deletion it was.
        """
        if not writes:
            return True
        write_id = secrets.token_hex(16)
        made = [_write(write, text, write_id) for write, text in zip(writes, encoded(writes), strict=True)]
        patience = self._rpc.patience()
        try:
            self._rpc.commit(made, patience)
        except LostRace as lost:
            return lost.is_repeated and self._was_made(writes, write_id, patience)
        return True

    def _was_made(self, writes: Sequence[EntryWrite], write_id: str, patience: Patience) -> bool:
        documents = self._rpc.read([entry_name(write.name) for write in writes], patience)
        if all(write.fields is None for write in writes):
            return not documents
        return any(document.fields["write_id"].string_value == write_id for document in documents.values())


def _write(write: EntryWrite, text: str | None, write_id: str) -> Write:
    """One write of a commit, refused unless the entry has the expected version."""
    name, condition = entry_name(write.name), {"current_document": unless_changed(write.expected)}
    if text is None:
        return {"delete": name, **condition}
    fields = {"tenant": write.tenant, "fields": text, "write_id": write_id}
    document = {"name": name, "fields": {field: value_of(value) for field, value in fields.items()}}
    return {"update": document, "update_mask": {"field_paths": [*fields]}, **condition}
