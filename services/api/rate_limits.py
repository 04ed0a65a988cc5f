"""Rate limits: how many requests a second one API key may make in this process."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from math import ceil

PER_SECOND, BURST = 50, 100
MOST = 10_000
"""Keys whose requests are counted. The one that was quiet longest makes room."""


class RateLimits:
    """A token bucket for each key. Safe in threads."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str) -> int:
        """Count one request. Returns 0 if it may go, else the seconds to wait."""
        now = self._monotonic()
        with self._lock:
            left, at = self._buckets.pop(key, (float(BURST), now))
            left = min(float(BURST), left + (now - at) * PER_SECOND)
            may_go = left >= 1
            self._buckets[key] = (left - may_go, now)
            if len(self._buckets) > MOST:
                self._buckets.popitem(last=False)
        return 0 if may_go else ceil((1 - left) / PER_SECOND)
