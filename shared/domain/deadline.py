"""A deadline: when the work on one webhook must end, and when it must end once something has failed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

HEALTHY_SECONDS = 9.5
"""A healthy large POST may take 10 s; the rest is left to the redelivery."""

FAILURE_SECONDS = 4.5
"""If the store or the queue is down, a POST is answered within 5 s, even with calls in flight."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """`healthy` and `failing` are times of the clock `monotonic`, in seconds."""

    monotonic: Callable[[], float]
    healthy: float
    failing: float

    @classmethod
    def of_webhook(cls, monotonic: Callable[[], float]) -> Self:
        """The deadline of a POST that arrives now."""
        now = monotonic()
        return cls(monotonic, now + HEALTHY_SECONDS, now + FAILURE_SECONDS)

    def left(self, has_failed: bool = False) -> float:
        """Seconds left; zero or negative once it has passed."""
        return (self.failing if has_failed else self.healthy) - self.monotonic()

    @property
    def spent(self) -> float:
        """Seconds since the POST arrived."""
        return self.monotonic() - (self.healthy - HEALTHY_SECONDS)

    @property
    def has_passed(self) -> bool:
        return self.left() <= 0
