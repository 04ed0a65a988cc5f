"""Progress of a chaos run: print a line every few seconds, and fewer while nothing changes."""

import time
from collections.abc import Callable

TELL_EVERY = 5.0
"""Seconds between two lines."""

UNCHANGED_EVERY = 60.0
"""Seconds between two equal lines: they show the operator that the run goes on."""


class Progress:
    """Passes new lines on to `say`. `clock` is in seconds."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say, self._clock = say, clock
        self._last, self._since = "", clock()
        self._told_at = self._since

    def tell(self, sentence: str) -> None:
        now = self._clock()
        is_new = sentence != self._last
        if now - self._told_at < (TELL_EVERY if is_new else UNCHANGED_EVERY):
            return
        if is_new:
            self._last, self._since = sentence, now
        self._told_at = now
        self._say(sentence if is_new else f"{sentence}, unchanged for {now - self._since:.0f} s")
