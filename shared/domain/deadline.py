"""A deadline: until when the work on one webhook may go on, and until when once something has failed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

HEALTHY_SECONDS = 9.5
"""A healthy large POST may take 10 s; what is not done by then is left to the redelivery."""

FAILURE_SECONDS = 4.5
"""A POST that meets a dead store or queue is answered within 5 s, whatever is still in flight."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """`healthy` and `failing` are moments of the clock `monotonic`, in its seconds."""

    monotonic: Callable[[], float]
    healthy: float
    failing: float

    @classmethod
    def of_webhook(cls, monotonic: Callable[[], float]) -> Self:
        """The deadline of a POST that arrives now."""
        now = monotonic()
        return cls(monotonic, now + HEALTHY_SECONDS, now + FAILURE_SECONDS)

    def left(self, has_failed: bool = False) -> float:
        """Seconds until it, none or less once it has passed."""
        return (self.failing if has_failed else self.healthy) - self.monotonic()

    @property
    def has_passed(self) -> bool:
        return self.left() <= 0
