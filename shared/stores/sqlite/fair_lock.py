"""A fair lock: it admits the threads of this process one at a time, in the order in which they asked.

A plain lock mostly goes back to the thread that just released it, so some of 64 threads would wait for seconds.
Without a lock the threads would wait at the store instead, less fairly still.
"""

import threading
from collections import deque
from collections.abc import Callable

LOOK_EVERY = 0.1
"""Seconds after which a waiting thread checks again whether it has time left."""


class FairLock:
    """A lock in order of arrival. Each waiting thread holds a ticket, which is released when its turn comes."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._taken = False
        self._waiting: deque[threading.Lock] = deque()

    def acquire(self, left: Callable[[], float]) -> bool:
        """Wait for the turn while there are seconds left. Returns whether it came."""
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
        except BaseException:  # a signal: the turn must not stay with a thread that has left
            if not self._withdrawn(ticket):
                self.release()
            raise
        return True

    def release(self) -> None:
        """Give the turn to the next waiting thread, if any."""
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._taken = False

    def _withdrawn(self, ticket: threading.Lock) -> bool:
        """Whether the ticket could be taken back. If not, its turn has come at this moment."""
        with self._guard:
            if ticket not in self._waiting:
                return False
            self._waiting.remove(ticket)
            return True
