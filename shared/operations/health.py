"""Health: how much waits, what is dead, which numbers are connected, and the last hour in figures; of one tenant, or of
the whole deployment.

A deployment counts as connected while the numbers that its environment names are: with hundreds of tenants, one of them
is always in trouble, and that is the tenant's health.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from heapq import nlargest
from itertools import islice

from shared.domain.counters import KEPT_FOR, WHOLE, Figures, figures, merged
from shared.domain.dead_letters import DeadLetter, dead_letter
from shared.domain.errors import UnknownState
from shared.domain.guards import PROVIDER_DOWN, disconnected, is_down
from shared.domain.limits import Limits
from shared.domain.listings import Listing
from shared.domain.marks import is_refused
from shared.domain.record import OPEN_STATES, State
from shared.domain.tenants import Sender
from shared.operations.dead_letters import pages
from shared.operations.registry import values_of
from shared.pipeline.clock import Clock, age
from shared.pipeline.ports import Load, Store, Tenants
from shared.pipeline.reconnects import troubled
from shared.pipeline.registry import EntryKind, Registry

HIGH_WATER_MARK, CRITICAL_MARK = 100, 1000
"""Open records above which a queue is degraded, and unhealthy."""

MOST_SENDERS = 100
"""Numbers whose marks are read for one answer."""

PAGES_OF_LETTERS = 10
"""Pages of dead letters that are read for one answer, of 100 records each."""


class Status(StrEnum):
    """Health in one word."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"  # more than HIGH_WATER_MARK wait, or it is disconnected
    UNHEALTHY = "unhealthy"  # more than CRITICAL_MARK wait, or the store cannot be reached


@dataclass(frozen=True, slots=True)
class SenderHealth:
    """Whether a number can send, as far as past answers tell: `reason` is why not, None if nothing is known."""

    sender: Sender
    reason: str | None


@dataclass(frozen=True, slots=True)
class QueueHealth:
    """What waits, without messages that their callers want sent later, and what is dead."""

    load: Load
    senders: Sequence[SenderHealth]
    connected: bool
    oldest_pending_seconds: float

    @property
    def depth(self) -> int:
        return events_waiting(self.load) + messages_waiting(self.load) - self.load.scheduled

    @property
    def dead(self) -> int:
        return dead_records(self.load)

    @property
    def status(self) -> Status:
        if self.depth > CRITICAL_MARK:
            return Status.UNHEALTHY
        return Status.DEGRADED if self.depth > HIGH_WATER_MARK or not self.connected else Status.HEALTHY


@dataclass(frozen=True, slots=True)
class Statistics:
    """The load, and the figures of the last hour: all told, and by tenant."""

    load: Load
    figures: Figures
    by_tenant: dict[str, Figures]
    oldest_pending_seconds: float


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """How many there are, and the newest of them."""

    depth: int
    newest: Sequence[DeadLetter]


def dead_records(load: Load) -> int:
    """The records that wait for an operator."""
    return load.events.get(State.DEAD, 0) + load.messages.get(State.DEAD, 0)


def events_waiting(load: Load) -> int:
    """The events that have not been handled."""
    return sum(load.events.get(state, 0) for state in OPEN_STATES)


def messages_waiting(load: Load) -> int:
    """The messages whose outcome is open, also those for later."""
    return sum(load.messages.get(state, 0) for state in OPEN_STATES)


@dataclass(frozen=True, slots=True)
class Health:
    """Reads the health. `tenant` None: of the whole deployment. All methods raise StoreUnavailable and
    RegistryUnavailable.
    """

    store: Store
    registry: Registry
    tenants: Tenants
    limits: Limits
    clock: Clock

    def of_deployment(self) -> QueueHealth:
        """The cheapest answer: the marks of the environment's numbers alone are read."""
        return self._of(None, self.tenants.senders_of_environment())

    def of(self, tenant: str | None) -> QueueHealth:
        """With the tenant's numbers; of the whole deployment with those in trouble."""
        named = self.tenants.senders_of_environment()
        if tenant is not None:
            registered = islice(values_of(self.registry, EntryKind.SENDER, tenant), MOST_SENDERS)
            its = [*(one for one in named if one.tenant == tenant), *registered]
            return self._of(tenant, [one for one in its if one])  # without those that cannot be read
        known = {sender.id for sender in named}
        ids = [id for id in troubled(self.store, self.clock, MOST_SENDERS) if id not in known]
        others = self.tenants.senders_with(ids) if ids else ()
        found = self._of(None, named)
        return QueueHealth(
            found.load, [*found.senders, *map(self._sender, others)], found.connected, found.oldest_pending_seconds
        )

    def statistics(self, tenant: str | None) -> Statistics:
        """Counts as of now; figures as of the processes' last flushes."""
        now = self.clock.now()
        load = self.store.load(tenant, now)
        counted = merged(one.counts for one in self.store.recent_counters(now - KEPT_FOR))
        found = figures(counted, now)
        nothing = figures({}, now)[WHOLE]
        by_tenant = {id: its for id, its in sorted(found.items()) if id != WHOLE and tenant in (None, id)}
        of_all = found[WHOLE] if tenant is None else by_tenant.get(tenant, nothing)
        return Statistics(load, of_all, by_tenant, age(load.oldest_pending, now))

    def dead_letters(self, tenant: str | None, most: int) -> DeadLetters:
        """The newest dead letters. If there are more than a thousand, the newest of a thousand of them."""
        newest = nlargest(most, self._letters(tenant), key=lambda letter: (letter.at, letter.key))
        return DeadLetters(dead_records(self.store.load(tenant, self.clock.now())), newest)

    def _letters(self, tenant: str | None) -> Iterator[DeadLetter]:
        for page in islice(pages(self.store, Listing.DEAD, tenant), PAGES_OF_LETTERS):
            for record in page.records:
                if letter := dead_letter(record):
                    yield letter

    def _of(self, tenant: str | None, senders: Sequence[Sender]) -> QueueHealth:
        now = self.clock.now()
        load = self.store.load(tenant, now)
        found = [self._sender(sender) for sender in senders]
        is_connected = bool(found) and all(one.reason is None for one in found)
        return QueueHealth(load, found, is_connected, age(load.oldest_pending, now))

    def _sender(self, sender: Sender) -> SenderHealth:
        """By the marks alone: no access token is read. Marks that only a newer version can read tell nothing."""
        try:
            marks = self.store.marks(sender.id)
        except UnknownState:
            return SenderHealth(sender, None)
        is_away = is_down(marks, self.limits, self.clock.now())
        return SenderHealth(sender, disconnected(marks, is_refused(marks)) or (PROVIDER_DOWN if is_away else None))
