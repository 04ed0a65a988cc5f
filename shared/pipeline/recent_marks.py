"""Recent marks: the marks of senders as this process read them a few seconds ago, so that a message costs no read."""

import threading
from datetime import timedelta

from shared.domain.marks import Marks
from shared.pipeline.clock import Clock
from shared.pipeline.ports import Store

MOST = 10_000
"""Senders whose marks are kept, about 1 KB each."""


class RecentMarks:
    """The marks of each sender, at most `age` old. Safe in threads. Raises StoreUnavailable and UnknownState."""

    def __init__(self, store: Store, age: timedelta, clock: Clock) -> None:
        self._store = store
        self._age = age.total_seconds()
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[float, Marks]] = {}

    def __call__(self, id: str) -> Marks:
        """The marks, perhaps those of a few seconds ago."""
        with self._lock:
            read_at, marks = self._kept.get(id, (None, Marks()))
        if read_at is not None and self._clock.monotonic() - read_at < self._age:
            return marks
        return self.newest(id)

    def newest(self, id: str) -> Marks:
        """The marks, read now."""
        asked = self._clock.monotonic()
        marks = self._store.marks(id)
        with self._lock:
            self._kept.pop(id, None)
            self._kept[id] = (asked, marks)
            if len(self._kept) > MOST:
                del self._kept[next(iter(self._kept))]
        return marks
