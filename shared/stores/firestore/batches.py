"""Batches of independent writes: one call makes or refuses each of them separately.

BatchWrite takes at most 500 writes, one per document, in any order (https://cloud.google.com/firestore/docs/reference
/rest/v1/projects.databases.documents/batchWrite, 2026-11). It answers with a status for each. If one write is
malformed, Firestore refuses the whole batch; its writes are then made one by one.
"""

import asyncio
from collections.abc import Sequence
from enum import Enum, auto

from shared.domain.errors import StoreUnavailable
from shared.stores.firestore.errors import CONTENTION, InvalidWrite, LostRace
from shared.stores.firestore.rest import FirestoreRest
from shared.stores.firestore.rest_json import JsonWrite


class Made(Enum):
    """The result of one write of a batch."""

    WRITTEN = auto()
    REFUSED = auto()  # its precondition does not hold: the document exists already, or does not exist
    TRY_AGAIN = auto()  # it failed transiently


_OK, _NOT_FOUND, _ALREADY_EXISTS, _FAILED_PRECONDITION = 0, 5, 6, 9
_TRANSIENT = (1, 2, 4, 8, 10, 13, 14)
"""CANCELLED, UNKNOWN, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, ABORTED, INTERNAL, UNAVAILABLE.
https://grpc.io/docs/guides/status-codes/
"""
_CODES = {
    _OK: Made.WRITTEN,
    **dict.fromkeys((_NOT_FOUND, _ALREADY_EXISTS, _FAILED_PRECONDITION), Made.REFUSED),
    **dict.fromkeys(_TRANSIENT, Made.TRY_AGAIN),
}


class NotStored(ValueError):
    """The database refuses this write permanently."""


async def write_each(rest: FirestoreRest, writes: Sequence[JsonWrite]) -> list[Made | Exception]:
    """The result of each write, which may be of the same document: NotStored if refused, StoreUnavailable if unknown.
    Raises StoreUnavailable if all are unknown.
    """
    if len({write.name for write in writes}) == len(writes):
        return await _batch(rest, writes)
    results: dict[int, Made | Exception] = {}
    while places := _first_of_each_document(writes, results):
        results |= zip(places, await _batch(rest, [writes[place] for place in places]), strict=True)
    return [results[place] for place in range(len(writes))]


def _first_of_each_document(writes: Sequence[JsonWrite], without: dict[int, Made | Exception]) -> list[int]:
    by_name: dict[str, int] = {}
    for place, write in enumerate(writes):
        if place not in without:
            by_name.setdefault(write.name, place)
    return [*by_name.values()]


async def _batch(rest: FirestoreRest, writes: Sequence[JsonWrite]) -> list[Made | Exception]:
    try:
        codes = await rest.batch(writes, rest.patience(CONTENTION))
    except InvalidWrite:
        return await asyncio.gather(*(_alone(rest, write) for write in writes))
    return [_CODES.get(code) or NotStored(f"Firestore refused a write (gRPC status {code}).") for code in codes]


async def _alone(rest: FirestoreRest, write: JsonWrite) -> Made | Exception:
    try:
        await rest.commit([write], rest.patience(CONTENTION))
    except LostRace:
        return Made.REFUSED
    except InvalidWrite:
        return NotStored("Firestore refused a write as invalid.")
    except StoreUnavailable as error:
        return error
    return Made.WRITTEN
