"""The clock: time as a port, so that a test can control it."""

import os
import random
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Time and random numbers."""

    def now(self) -> datetime:
        """The time, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never jump; only differences are meaningful."""
        ...

    def sleep(self, seconds: float) -> None: ...

    def jitter(self) -> float:
        """A number from 0 to 1."""
        ...

    def token(self) -> str:
        """A fresh random token."""
        ...


@dataclass(frozen=True, slots=True)
class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    monotonic = staticmethod(time.monotonic)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def jitter(self) -> float:
        return random.random()  # noqa: S311 - spreading retries needs no cryptography

    def token(self) -> str:
        return os.urandom(16).hex()


def age(since: datetime | None, now: datetime) -> float:
    """Seconds, to the millisecond; 0 for None, and for a time that is still ahead."""
    return max(0.0, round((now - since).total_seconds(), 3)) if since else 0.0
