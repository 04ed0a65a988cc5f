"""Backpressure: load generator and fault injector pause while too many records are open."""

import threading

OPEN_AT_MOST = 1000
"""Records and webhooks. More are in nobody's hands, and with every kill the next one finds less done."""

OPEN_AGAIN = 300

LONGEST = 180.0
"""Seconds. What is open after that is stuck. The account finds it at the end, and the run goes on without it."""


class Backpressure:
    """The watcher of the backlog sets and clears it; the load generator and the fault injector wait while it is set."""

    def __init__(self) -> None:
        self._may_go_on = threading.Event()
        self._may_go_on.set()
        self._since = 0.0
        self._stuck = 0

    @property
    def is_paused(self) -> bool:
        return not self._may_go_on.is_set()

    def look(self, still_open: int | None, now: float) -> None:
        """So many are open; None, while the store cannot be asked, changes nothing. `now` in seconds."""
        if self.is_paused and now - self._since > LONGEST:
            self._stuck = still_open or self._stuck
            self._may_go_on.set()
        elif still_open is None:
            return
        elif still_open - self._stuck > OPEN_AT_MOST and not self.is_paused:
            self._may_go_on.clear()
            self._since = now
        elif still_open - self._stuck < OPEN_AGAIN:
            self._may_go_on.set()

    def wait(self, seconds: float) -> bool:
        """For its end, so long at most; whether it is over."""
        return self._may_go_on.wait(seconds)
