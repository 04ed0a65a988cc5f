"""A store backend as the contract suite sees it: clients of the same data, and a way to make it unreachable."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from local.faulty_proxy import FaultyProxy
from shared.pipeline.registry import EntryName
from shared.stores.threaded_intake import ThreadedIntake
from tests.support.blocking import WithIntake

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
    """Makes a store."""
    unreachable: Callable[[], AbstractContextManager[None]]
    """While it lasts, at least writes must fail."""
    expire: Callable[[Any, datetime], None]
    """`expire(client, then)` deletes what has expired by then, in the backend's own way; a day late is soon enough."""
    spoil: Callable[[EntryName, str], None]
    """Replaces the stored text of an entry's fields, without Pombo's code."""
    clock: Clock = field(default_factory=Clock)
    intake: Callable[[Any, Clock], Any] = lambda store, _: ThreadedIntake(store)
    """Makes an intake on the same data, given a store that may serve it."""
    counts_unechoed: bool = True
    """Whether the backlog counts a message whose only report is a failed receipt without an echo."""
    proxy: FaultyProxy | None = None
    """What is between its clients and the server; None if there is no server."""
    clients: list[Any] = field(default_factory=list)

    def client(self) -> Any:
        """A store with the methods of an intake."""
        store = self.make(self.clock)
        self.clients.append(WithIntake(store, self.intake(store, self.clock)))
        return self.clients[-1]
