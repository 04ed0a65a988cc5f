"""Counting: the counters of a process, what the webhook service counts, and how counters get into the store.

Counting is in memory. A process writes all its counters as one document, at most once a minute, within a request, and
when it ends: so they are a minute old at most, or as old as the last request of an idle process. A write that fails
costs nothing: the next one has all of it.
"""

import asyncio
import threading
from collections.abc import Collection
from contextlib import suppress
from datetime import timedelta
from typing import Protocol

from shared.domain.counters import WHOLE, Cell, Measure, ProcessCounters, bucket_of, oldest_window, window_of
from shared.domain.deadline import Deadline
from shared.domain.errors import StoreUnavailable
from shared.pipeline.clock import Clock
from shared.pipeline.intake import IntakeStore

MOST_TENANTS = 200
"""Tenants that a process counts apart within an hour, so that its document stays below Firestore's 1 MiB. Further ones
count for the whole deployment only.
"""

_MEASURES = {measure.value: measure for measure in Measure}

LAST_FLUSH_SECONDS = 1.5
"""How long the end of a process waits for its last flush."""


class WebhookCounting(Protocol):
    """What `Accept` tells of each POST."""

    def begin(self) -> None:
        """A POST begins."""
        ...

    def answered(self, tenants: Collection[str], deadline: Deadline) -> None:
        """A signed POST with events of these tenants is answered now."""
        ...


class NoCounting:
    """Counts nothing."""

    def begin(self) -> None: ...
    def answered(self, tenants: Collection[str], deadline: Deadline) -> None: ...


NO_COUNTING = NoCounting()


class Counters:
    """The counters of this process. Safe in threads. `every`: how far two flushes are apart at least."""

    def __init__(self, clock: Clock, every: timedelta) -> None:
        self._clock = clock
        self._every = every.total_seconds()
        self._lock = threading.Lock()
        self._counts: dict[tuple[int, str, str, int], int] = {}
        """By the values of a Cell: to hash its Measure would cost more than all else."""
        self._tenants: set[str] = set()
        self._is_changed = False
        self._flushed_at = clock.monotonic()
        self._process = ""

    def add(self, measure: Measure, tenants: Collection[str], seconds: float | None = None) -> None:
        """Count one for the whole deployment, and one for each of these distinct tenants; "" is none."""
        window, bucket = window_of(self._clock.now()), 0 if seconds is None else bucket_of(seconds)
        name = measure._value_
        with self._lock:
            self._is_changed = True
            for tenant in (WHOLE, *filter(self._has_place, tenants)):
                cell = (window, tenant, name, bucket)
                self._counts[cell] = self._counts.get(cell, 0) + 1

    def due(self) -> ProcessCounters | None:
        """What to write now; None if it is too early, or nothing has been counted since. One caller gets it."""
        with self._lock:
            if self._clock.monotonic() - self._flushed_at < self._every:
                return None
            return self._taken()

    def left(self) -> ProcessCounters | None:
        """What has been counted since the last flush; None if nothing has."""
        with self._lock:
            return self._taken()

    def not_written(self) -> None:
        """What was taken last could not be written: it is left until the next flush."""
        with self._lock:
            self._is_changed = True

    def _taken(self) -> ProcessCounters | None:
        if not self._is_changed:
            return None
        now = self._clock.now()
        self._is_changed, self._flushed_at = False, self._clock.monotonic()
        oldest = oldest_window(now)
        self._counts = {cell: count for cell, count in self._counts.items() if cell[0] >= oldest}
        self._tenants = {tenant for _, tenant, _, _ in self._counts} - {WHOLE}
        self._process = self._process or self._clock.token()  # only now: a server forks after this was made
        counts = self._counts.items()
        cells = {Cell(window, tenant, _MEASURES[name], bucket): n for (window, tenant, name, bucket), n in counts}
        return ProcessCounters(self._process, now, cells)

    def _has_place(self, tenant: str) -> bool:
        """Whether the tenant is counted apart; it takes a place if one is free."""
        if tenant and len(self._tenants) < MOST_TENANTS:
            self._tenants.add(tenant)
        return tenant in self._tenants


class IntakeCounting:
    """Counts webhooks. A flush runs beside the POST that begins it: the POST does not wait for it."""

    def __init__(self, counters: Counters, store: IntakeStore) -> None:
        self._counters = counters
        self._store = store
        self._flushing: set[asyncio.Task[None]] = set()

    def begin(self) -> None:
        if counters := self._counters.due():
            task = asyncio.create_task(self._flush(counters))
            self._flushing.add(task)  # the event loop holds no reference of its own
            task.add_done_callback(self._flushing.discard)

    def answered(self, tenants: Collection[str], deadline: Deadline) -> None:
        self._counters.add(Measure.WEBHOOK_TIME, tenants, deadline.spent)

    async def finish(self) -> None:
        """Write what is left, within LAST_FLUSH_SECONDS. Raises nothing."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_FLUSH_SECONDS):
                await asyncio.gather(*self._flushing)  # it must not overwrite what follows
                if counters := self._counters.left():
                    await self._flush(counters)

    async def _flush(self, counters: ProcessCounters) -> None:
        try:
            await self._store.keep_counters(counters)
        except StoreUnavailable:
            self._counters.not_written()
