"""Turns of a process's threads at one document: they would make each other lose the race."""

from collections.abc import Iterator
from contextlib import contextmanager

from shared.domain.errors import StoreUnavailable
from shared.net.patience import Patience
from shared.stores.sqlite.fair_lock import FairLock

_LOCKS = 64
"""Ids share these locks by hash. There are more locks than threads, so two ids seldom wait for each other."""


class Turns:
    """One lock for each id, given in the order in which the threads came."""

    def __init__(self) -> None:
        self._locks = tuple(FairLock() for _ in range(_LOCKS))

    @contextmanager
    def of(self, id: str, patience: Patience) -> Iterator[None]:
        """Hold the lock of this id. Raises StoreUnavailable if the patience ends before."""
        lock = self._locks[hash(id) % len(self._locks)]
        if not lock.acquire(lambda: patience.left):
            raise StoreUnavailable("The store is busy.")
        try:
            yield
        finally:
            lock.release()
