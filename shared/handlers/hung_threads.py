"""Hung threads: the handler calls that go on after their request has given up. All handlers of a process share one."""

import threading
from collections import Counter


class HungThreads:
    """Counts hung handler threads by tenant. `threads`: how many request threads the process has."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._lock = threading.Lock()
        self._of: Counter[str] = Counter()
        self._all = 0

    @property
    def exhausted(self) -> bool:
        """Whether as many threads hang, of whatever handler, as there are request threads."""
        return self._all >= self._threads

    def of(self, tenant: str) -> int:
        """How many threads of this tenant's calls hang now."""
        with self._lock:
            return self._of[tenant]

    def begin(self, tenant: str) -> None:
        """A call was given up, and its thread goes on."""
        self._add(tenant, 1)

    def end(self, tenant: str) -> None:
        """Such a thread has ended; it may say so before `begin`."""
        self._add(tenant, -1)

    def _add(self, tenant: str, number: int) -> None:
        with self._lock:
            self._all += number
            self._of[tenant] += number
            if not self._of[tenant]:
                del self._of[tenant]
