"""A store backend as the contract suite sees it: clients of the same data, and a way to make it unreachable."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass
class Clock:
    """A clock that a test sets."""

    now: datetime = NOW

    def __call__(self) -> datetime:
        return self.now


@dataclass
class Backend:
    """One store backend with empty data. `client` makes another client of it, as another process would have."""

    make: Callable[[Clock], Any]
    unreachable: Callable[[], AbstractContextManager[None]]
    """While it lasts, at least writes must fail."""
    expire: Callable[[Any, datetime], None]
    """`expire(client, then)` deletes what has expired by then, in the backend's own way; a day late is soon enough."""
    clock: Clock = field(default_factory=Clock)
    counts_unechoed: bool = True
    """Whether the backlog counts a message whose only report is a failed receipt without an echo."""
    clients: list[Any] = field(default_factory=list)

    def client(self) -> Any:
        self.clients.append(self.make(self.clock))
        return self.clients[-1]
