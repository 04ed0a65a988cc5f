"""Batches of independent writes: one call makes or refuses each of them separately.

BatchWrite takes at most 500 writes, one per document, in any order (https://cloud.google.com/firestore/docs/reference
/rest/v1/projects.databases.documents/batchWrite, 2026-11). It answers with a status for each. If one write is
malformed, Firestore refuses the whole batch, which is then bisected: one malformed write of 500 costs 19 calls.
"""

import asyncio
from collections.abc import Sequence
from enum import Enum, auto

from shared.domain.deadline import FAILURE_SECONDS
from shared.domain.errors import StoreUnavailable
from shared.net.patience import Patience
from shared.stores.firestore.errors import InvalidWrite
from shared.stores.firestore.rest import FirestoreRest
from shared.stores.firestore.rest_json import JsonWrite

BATCH_SECONDS = FAILURE_SECONDS
"""How long the calls of one `write_each` may take together, even if Firestore answers each of them with ABORTED: few
batches are in flight at once, and a POST that waits for the place of one must be answered in time.
"""

HALVES_AT_ONCE = 4
"""Parts of a bisected batch in flight: the other half of the connections stays free for other batches."""


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
    Raises nothing. After an outage, what was not sent yet is not sent.
    """
    results: dict[int, Made | Exception] = {}
    patience, free = rest.patience(BATCH_SECONDS), asyncio.Semaphore(HALVES_AT_ONCE)
    while places := _first_of_each_document(writes, results):
        made = await _bisected(rest, [writes[place] for place in places], patience, free)
        results |= zip(places, made, strict=True)
        outage = next((one for one in made if isinstance(one, StoreUnavailable)), None)
        if outage:
            return [results.get(place, outage) for place in range(len(writes))]
    return [results[place] for place in range(len(writes))]


def _first_of_each_document(writes: Sequence[JsonWrite], without: dict[int, Made | Exception]) -> list[int]:
    by_name: dict[str, int] = {}
    for place, write in enumerate(writes):
        if place not in without:
            by_name.setdefault(write.name, place)
    return [*by_name.values()]


async def _bisected(
    rest: FirestoreRest, writes: Sequence[JsonWrite], patience: Patience, free: asyncio.Semaphore
) -> list[Made | Exception]:
    """The result of each write. All parts share one patience, so a batch with many invalid writes ends with it."""
    try:
        async with free:
            codes = await rest.batch(writes, patience)
    except InvalidWrite:
        if len(writes) == 1:
            return [NotStored("Firestore refused a write as invalid.")]
        middle = len(writes) // 2
        halves = [_bisected(rest, half, patience, free) for half in (writes[:middle], writes[middle:])]
        first, second = await asyncio.gather(*halves)
        return first + second
    except StoreUnavailable as error:
        return [error] * len(writes)
    return [_CODES.get(code) or NotStored(f"Firestore refused a write (gRPC status {code}).") for code in codes]
