"""The document of the marks of one sender or backend: a map for each mark, and the writes that change them."""

from typing import Any

from shared.domain.marks import Marks, ReceiptBlock
from shared.stores.firestore.records import Write, plain_of, unless_changed, value_of, version_of
from shared.stores.firestore.schema import MARKS
from shared.stores.marks_codec import KINDS, Plain, changes, decode, encode


def marks_name(id: str) -> str:
    return f"{MARKS.name}/{id}"


def marks_of(document: Any) -> Marks:
    """The marks in a document. Raises UnknownState."""
    plain = {name: plain_of(document.fields[name]) for name in KINDS if name in document.fields}
    return decode(plain, version_of(document.update_time))


def changing_marks(id: str, before: Marks, after: Marks) -> Write:
    """The write of the marks that differ. Firestore refuses it unless the stored marks are `before`."""
    return _writing(id, changes(before, after)) | {"current_document": unless_changed(before.version)}


def noting_block(id: str, noted: ReceiptBlock) -> Write:
    """The blind write of what a failed receipt says."""
    return _writing(id, {"receipt_block": encode(noted)})


def _writing(id: str, marks: dict[str, Plain | None]) -> Write:
    fields = {name: value_of(mark) for name, mark in marks.items() if mark is not None}
    return {"update": {"name": marks_name(id), "fields": fields}, "update_mask": {"field_paths": [*marks]}}
