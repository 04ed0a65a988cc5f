"""Notes: the receipts of one webhook as writes, one write for all receipts of a message."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from shared.pipeline.ports import NotedReceipt
from shared.stores.firestore.records import Write, name_of, noting, noting_together, noting_unechoed
from shared.stores.records import id_hash_of

TOGETHER = 100
"""Receipts in one write; Firestore takes 500 transforms of a document
(https://cloud.google.com/firestore/quotas, 2026-11)."""


@dataclass(frozen=True, slots=True)
class Note:
    """One write, and the positions of its receipts in the input."""

    write: Write
    places: tuple[int, ...]


def notes_of(receipts: Sequence[NotedReceipt], expire_at: datetime) -> list[list[Note]]:
    """The receipts as writes, in layers. Within a layer no document is written twice. `expire_at` is for receipts
    without an echo.
    """
    by_name: dict[str, list[Note]] = {}
    for place, receipt in enumerate(receipts):
        write = _write(receipt, expire_at)
        notes = by_name.setdefault(name_of(write), [])
        if notes and len(notes[-1].places) < TOGETHER:
            notes[-1] = Note(noting_together(notes[-1].write, write), (*notes[-1].places, place))
        else:
            notes.append(Note(write, (place,)))
    depth = max((len(notes) for notes in by_name.values()), default=0)
    return [[notes[layer] for notes in by_name.values() if len(notes) > layer] for layer in range(depth)]


def _write(noted: NotedReceipt, expire_at: datetime) -> Write:
    echo, receipt = noted
    if echo is None:
        return noting_unechoed(receipt.kind, receipt.at, receipt.code, id_hash_of(receipt), expire_at)
    return noting(echo.key, echo.round, receipt.kind, receipt.at, receipt.code, id_hash_of(receipt))
