"""A fair lock: one thread of this process at a time, in the order in which they asked.

A plain lock mostly goes back to the thread that just released it, so that of 64 threads some would wait for seconds.
Without a lock the threads would wait at the store instead, less fairly still.
"""

import threading
from collections import deque
from collections.abc import Callable

LOOK_EVERY = 0.1
"""Seconds after which one who waits asks anew whether there is time left."""


class FairLock:
    """Like a lock, in order of arrival. Each waiting thread holds a ticket that is released when its turn has come."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._taken = False
        self._waiting: deque[threading.Lock] = deque()

    def acquire(self, left: Callable[[], float]) -> bool:
        """Wait for the turn while there are seconds left. Whether it has come."""
        with self._guard:
            if not self._taken:
                self._taken = True
                return True
            ticket = threading.Lock()
            ticket.acquire()
            self._waiting.append(ticket)
        try:
            while not ticket.acquire(timeout=max(0, min(left(), LOOK_EVERY))):
                if left() <= 0:
                    return not self._withdrawn(ticket)
        except BaseException:  # a signal: the turn must not be left with one who is gone
            if not self._withdrawn(ticket):
                self.release()
            raise
        return True

    def release(self) -> None:
        """The turn of the next one, if anybody waits."""
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._taken = False

    def _withdrawn(self, ticket: threading.Lock) -> bool:
        """Whether the ticket could be taken back; else its turn has come at this very moment."""
        with self._guard:
            if ticket not in self._waiting:
                return False
            self._waiting.remove(ticket)
            return True
