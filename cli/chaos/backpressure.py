"""Backpressure: load generator and fault injector pause while too many records are open."""

import threading

OPEN_AT_MOST = 1000
"""Records and webhooks. With more of them waiting for a worker, every kill finds less work done."""

OPEN_AGAIN = 300

LONGEST = 180.0
"""Seconds. What is open after that is stuck: the run goes on without it, and the audit finds it at the end."""


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
        """Take in a count of open work; None (the store did not answer) changes nothing. `now` is in seconds."""
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
        """Wait until the pause ends, at most `seconds`; return whether it has ended."""
        return self._may_go_on.wait(seconds)
