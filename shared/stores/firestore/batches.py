"""Batches of independent writes: one call makes or refuses each of them separately.

BatchWrite takes at most 500 writes, one per document, in any order (https://cloud.google.com/firestore/docs/reference
/rpc/google.firestore.v1#batchwriterequest, 2026-11). It answers with a status for each. If one write is malformed,
Firestore refuses the whole batch; its writes are then made one by one.
"""

from collections.abc import Sequence
from enum import Enum, auto

from shared.domain.errors import StoreUnavailable
from shared.net.grpc_client import Patience
from shared.stores.firestore.connection import FirestoreRpc, InvalidWrite, LostRace, pause
from shared.stores.firestore.records import Write

PORTION = 100
"""Writes in one call: a fifth of what Firestore takes, so that several calls share the work of a large POST."""

PORTION_BYTES = 3 * 1024 * 1024
"""A request may have 10 MiB; the emulator's server takes 4."""


class Made(Enum):
    """The result of one write of a batch."""

    WRITTEN = auto()
    REFUSED = auto()  # its precondition does not hold: the document exists already, or does not exist


_OK, _NOT_FOUND, _ALREADY_EXISTS, _FAILED_PRECONDITION = 0, 5, 6, 9
_CODES = {_OK: Made.WRITTEN, **dict.fromkeys((_NOT_FOUND, _ALREADY_EXISTS, _FAILED_PRECONDITION), Made.REFUSED)}
_PASSING = frozenset({1, 2, 4, 8, 10, 13, 14})
"""Retried: CANCELLED, UNKNOWN, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, ABORTED, INTERNAL, UNAVAILABLE.
https://grpc.io/docs/guides/status-codes/
"""


class NotStored(ValueError):
    """The database refuses this write permanently."""


class _Passing(Exception):
    """Some writes of a batch failed transiently."""


def write_each(rpc: FirestoreRpc, writes: Sequence[Write], patience: Patience) -> list[Made | Exception]:
    """The result of each write: NotStored if refused, StoreUnavailable if unknown. Raises StoreUnavailable if all are
    unknown.
    """
    made: dict[int, Made | Exception] = {}
    while places := [place for place in range(len(writes)) if place not in made]:
        try:
            codes = rpc.batch([writes[place] for place in places], patience)
        except InvalidWrite:
            made |= {place: _alone(rpc, writes[place], patience) for place in places}
            break
        made |= {place: _of(code) for place, code in zip(places, codes, strict=True) if code not in _PASSING}
        if len(made) < len(writes):
            pause(patience, _Passing())
    return [made[place] for place in range(len(writes))]


def _of(code: int) -> Made | Exception:
    return _CODES.get(code) or NotStored(f"Firestore refused a write (gRPC status {code}).")


def _alone(rpc: FirestoreRpc, write: Write, patience: Patience) -> Made | Exception:
    try:
        rpc.commit([write], patience)
    except LostRace:
        return Made.REFUSED
    except InvalidWrite:
        return NotStored("Firestore refused a write as invalid.")
    except StoreUnavailable as error:
        return error
    return Made.WRITTEN
