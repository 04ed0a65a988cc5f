"""Notes: the receipts of one webhook as writes, one for all receipts of a message, one for a block of a sender."""

from dataclasses import dataclass
from datetime import datetime

from shared.domain.events import ReceiptBlock
from shared.pipeline.intake import NotedReceipt
from shared.stores.codec import Plain, encode_mark
from shared.stores.firestore.records import Write, name_of, noting, noting_together, noting_unechoed, value_of
from shared.stores.firestore.schema import MARKS
from shared.stores.records import id_hash_of

TOGETHER = 100
"""Receipts in one write; Firestore takes 500 transforms of a document
(https://cloud.google.com/firestore/quotas, 2026-11)."""


@dataclass(frozen=True, slots=True)
class Note:
    """One write, and the positions of its receipts in the input."""

    write: Write
    places: tuple[int, ...]


class Notes:
    """The receipts of one webhook as writes. It takes one receipt after the other, so that the caller can let other
    requests have their turn.
    """

    def __init__(self, expire_at: datetime) -> None:
        """`expire_at` is for receipts without an echo."""
        self._expire_at = expire_at
        self._by_name: dict[str, list[Note]] = {}

    def add(self, place: int, receipt: NotedReceipt) -> None:
        """One more receipt, and its position in the input."""
        write = _write(receipt, self._expire_at)
        notes = self._by_name.setdefault(name_of(write), [])
        if notes and len(notes[-1].places) < TOGETHER:
            notes[-1] = Note(noting_together(notes[-1].write, write), (*notes[-1].places, place))
        else:
            notes.append(Note(write, (place,)))

    def layers(self) -> list[list[Note]]:
        """All of them, in layers. Within a layer no document is written twice."""
        by_name = self._by_name.values()
        depth = max((len(notes) for notes in by_name), default=0)
        return [[notes[layer] for notes in by_name if len(notes) > layer] for layer in range(depth)]


def _write(noted: NotedReceipt, expire_at: datetime) -> Write:
    echo, receipt = noted
    if echo is None:
        return noting_unechoed(receipt.kind, receipt.at, receipt.code, id_hash_of(receipt), expire_at)
    return noting(echo.key, echo.round, receipt.kind, receipt.at, receipt.code, id_hash_of(receipt))


def marks_name(id: str) -> str:
    return f"{MARKS.name}/{id}"


def noting_block(id: str, noted: ReceiptBlock) -> Write:
    """The blind write of what a failed receipt says."""
    return writing_marks(id, {"receipt_block": encode_mark(noted)}, troubled=True)


def writing_marks(id: str, marks: dict[str, Plain | None], troubled: bool) -> Write:
    """A write of these marks alone; None removes one. `troubled`: whether all marks are, once it is made."""
    written = {**marks, "troubled": True if troubled else None}
    fields = {name: value_of(mark) for name, mark in written.items() if mark is not None}
    return {"update": {"name": marks_name(id), "fields": fields}, "update_mask": {"field_paths": [*written]}}
