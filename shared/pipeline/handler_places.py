"""Handler places: how many of this process's request threads the handler of one tenant may hold at once."""

import threading
from collections import Counter
from collections.abc import Callable

SHARE = 4
"""One tenant's handler holds at most a quarter of the threads. So three tenants whose handlers hang at once still leave
a quarter to the others, and of the usual 16 threads a tenant has four calls at once in each process.
"""


class HandlerPlaces:
    """Counts the calls of each tenant's handler in this process.

    A call holds its place until its request has ended. `hung` says how many threads of a tenant's handler go on after
    their request gave up: each of them keeps a place until it ends.
    """

    def __init__(self, threads: int, hung: Callable[[str], int] = lambda _: 0) -> None:
        self._most = max(1, threads // SHARE)
        self._hung = hung
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()

    def take(self, tenant: str, is_shared: bool) -> bool:
        """Take a place for a call of this tenant's handler, to be given back once. False: none is free. Where the
        process is not shared with other tenants there is no limit.
        """
        with self._lock:
            if is_shared and self._taken[tenant] + self._hung(tenant) >= self._most:
                return False
            self._taken[tenant] += 1
            return True

    def give_back(self, tenant: str) -> None:
        """Free the place of a call that has ended."""
        with self._lock:
            self._taken[tenant] -= 1
            if not self._taken[tenant]:
                del self._taken[tenant]  # ten thousand tenants leave nothing behind
