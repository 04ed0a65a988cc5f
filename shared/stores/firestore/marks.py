"""The document of the marks of one sender or backend: a map for each mark, and the writes that change them."""

from typing import Any

from shared.domain.marks import Marks, is_troubled
from shared.stores.firestore.receipts import writing_marks
from shared.stores.firestore.records import Write, plain_of, unless_changed, version_of
from shared.stores.marks_codec import KINDS, changes, decode


def marks_of(document: Any) -> Marks:
    """The marks in a document. Raises UnknownState."""
    plain = {name: plain_of(document.fields[name]) for name in KINDS if name in document.fields}
    return decode(plain, version_of(document.update_time))


def changing_marks(id: str, before: Marks, after: Marks) -> Write:
    """The write of the marks that differ. Firestore refuses it unless the stored marks are `before`."""
    write = writing_marks(id, changes(before, after), is_troubled(after))
    return write | {"current_document": unless_changed(before.version)}
