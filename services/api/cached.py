"""A value that is read at most once in so many seconds."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Cached(Generic[T]):
    """A value that is read again when it is `seconds` old. Callers at the same time share one reading."""

    def __init__(self, read: Callable[[], T], seconds: float, monotonic: Callable[[], float]) -> None:
        self._read = read
        self._seconds = seconds
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._kept: tuple[float, T] | None = None

    def __call__(self) -> T:
        """The value, at most `seconds` old. If it cannot be read, the next caller tries again."""
        with self._lock:
            if self._kept is None or self._monotonic() - self._kept[0] >= self._seconds:
                value = self._read()
                self._kept = (self._monotonic(), value)
            return self._kept[1]
