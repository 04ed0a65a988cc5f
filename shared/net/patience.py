"""Patience: how long a call to a Google service is retried, and how long each try may take. It performs no call.

A connection may be dead without notice: the instance slept for an hour, or a firewall or a failover dropped it. So a
call that should take milliseconds first gets a short timeout, and then the rest of its patience on a new connection. If
the service itself is slow, it misses the short timeout. From then on each call gets all of the patience, until the
service answers quickly again.
"""

import random
import time

PATIENCE = 2.0
"""Seconds after which a service counts as unreachable, if it answered no operation of the process meanwhile. A healthy
call takes tens of milliseconds. One call to the store and one to the queue stay under the 5 s within which the webhook
has to answer.
"""

FIRST_TRY = 0.7
"""Timeout in seconds of a quick call's first try, if the last answer came as quickly."""

_PAUSE = 0.01
_LONGEST_PAUSE = 0.5
_LEAST = 0.05
"""Seconds. With less time left, no try begins."""


class OutOfPatience(Exception):
    """An operation's patience is over. The cause is its last failure."""


class Patience:
    """How long one operation is retried: until no answer came for PATIENCE seconds, and at most `longest` seconds."""

    __slots__ = ("_began", "_longest", "_pace", "_pauses")

    def __init__(self, pace: "ServicePace", longest: float = PATIENCE) -> None:
        self._began = time.monotonic()
        self._pace = pace
        self._longest = longest
        self._pauses = 0

    @property
    def left(self) -> float:
        """The seconds left; zero or negative when it is over."""
        last_sign = max(self._began, self._pace.answered)
        return min(self._began + self._longest, last_sign + PATIENCE) - time.monotonic()

    def next_pause(self, cause: Exception) -> float:
        """Seconds to wait before the next try: exponential backoff with jitter. Raises OutOfPatience at the end."""
        pause = random.uniform(0.2, 1) * min(_LONGEST_PAUSE, _PAUSE * 2.0**self._pauses)  # noqa: S311 — not a secret
        self._pauses += 1
        if self.left <= pause + _LEAST:
            raise OutOfPatience from cause
        return pause

    def pause(self, cause: Exception) -> None:
        """Wait before the next try. Raises OutOfPatience at the end."""
        time.sleep(self.next_pause(cause))


class ServicePace:
    """When a service last answered this process, and whether it answers quickly."""

    __slots__ = ("answered", "is_quick")

    def __init__(self) -> None:
        self.answered = 0.0
        self.is_quick = False

    def patience(self, longest: float = PATIENCE) -> Patience:
        """The patience of an operation that begins now."""
        return Patience(self, longest)

    def timeout(self, patience: Patience, quick: bool) -> float:
        """The seconds of the next try. A process's first call includes connecting, and so does a second try."""
        return min(FIRST_TRY, patience.left) if quick and self.is_quick else patience.left

    def heard(self, began: float) -> None:
        """An answer came to a call that began then."""
        self.answered = time.monotonic()
        self.is_quick = self.answered - began < FIRST_TRY

    def timed_out(self, began: float) -> bool:
        """No answer came in time to a call that began then. Returns whether no other call was answered since: then the
        connection may be dead.
        """
        self.is_quick = False
        return self.answered < began
