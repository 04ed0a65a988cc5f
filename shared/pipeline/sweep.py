"""sweep: gives overdue records another task. Bounded, fair, re-entrant; it decides nothing else."""

from collections import Counter
from dataclasses import asdict, dataclass
from enum import Enum, auto

from shared import logs
from shared.domain.delivery.answers import Ensure
from shared.domain.delivery.sweep import sweep as sweep_record
from shared.domain.errors import QueueUnavailable, RegistryUnavailable, RegistryUnreadable, UnknownState
from shared.domain.limits import Limits
from shared.domain.record import State
from shared.pipeline.clock import Clock, age
from shared.pipeline.dispatch import TaskDispatch
from shared.pipeline.ports import Store
from shared.pipeline.reconnects import Reconnects
from shared.pipeline.sender_health import Senders

PAGE = 200
PURGE_AT_MOST = 5_000
PASSED_AT_MOST = 5_000
"""If more records than this are readable only by a newer version, the sweep is left to that version."""

MISSED_AT_MOST = 3
"""Tasks that could not be made. One record's fault does not stop the others. This many in a sweep mean that the queue
is down: each further try would take seconds and delay one more record for nothing."""

Failure = QueueUnavailable | RegistryUnavailable
"""Why a task could not be made."""


class SweepOutcome(Enum):
    """What a sweep did with one record that it found overdue."""

    ENQUEUED = auto()  # it has another task
    HELD = auto()  # an attempt is working on it: it is checked again later
    MISSED = auto()  # its task could not be made: it is overdue again after its doubled wait
    PASSED = auto()  # there was nothing left to do, or it or its tenant's entry cannot be read


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep did, and how much is open. Cloud Tasks has no metric for the age of the oldest task."""

    selected: int
    enqueued: int
    pending: int
    leased: int
    in_doubt: int
    dead: int
    receipts_failed: int
    oldest_pending_seconds: float
    oldest_dead_seconds: float


@dataclass(frozen=True, slots=True)
class Sweep:
    """The scheduler's call."""

    store: Store
    senders: Senders
    reconnects: Reconnects
    dispatch: TaskDispatch
    limits: Limits
    clock: Clock

    def __call__(self) -> Swept:
        """Sweep pages of the longest overdue records until none is left or the budget is spent.

        Raises StoreUnavailable. If a task could not be made, it goes on with the others, up to MISSED_AT_MOST, reports
        the backlog, which matters most then, and raises QueueUnavailable or RegistryUnavailable. The senders come last:
        raises RegistryUnavailable if only they could not be checked.
        """
        found: Counter[SweepOutcome] = Counter()
        failure = self._give_tasks(found)
        self.store.purge(self.clock.now(), PURGE_AT_MOST)
        swept = self._report(found)
        self.reconnects()
        self.senders.report()
        if failure:
            raise failure
        return swept

    def _give_tasks(self, found: Counter[SweepOutcome]) -> Failure | None:
        """Count what was done with each record. Returns the last failure to make a task, if any."""
        ends = self.clock.monotonic() + self.limits.sweep_budget.total_seconds()
        failure: Failure | None = None
        passed: set[str] = set()
        while len(passed) <= PASSED_AT_MOST:
            # A record that cannot be moved stays the longest overdue: a page of them would starve all the others.
            page = [key for key in self.store.overdue(self.clock.now(), PAGE + len(passed)) if key not in passed]
            for key in page:
                if self.clock.monotonic() >= ends or found[SweepOutcome.MISSED] == MISSED_AT_MOST:
                    return failure
                try:
                    outcome = self._sweep(key)
                except (QueueUnavailable, RegistryUnavailable) as error:
                    outcome, failure = SweepOutcome.MISSED, error
                found[outcome] += 1
                if outcome is SweepOutcome.PASSED:
                    passed.add(key)
            if not page:
                break
        return failure

    def _sweep(self, key: str) -> SweepOutcome:
        """Move one record, then make its task. Raises StoreUnavailable, and what TaskDispatch raises."""
        try:
            step = self.store.change(key, lambda record: sweep_record(record, self.limits, self.clock.now()))
        except UnknownState:
            logs.event("state_unknown", severity="WARNING", delivery=key)
            return SweepOutcome.PASSED
        if isinstance(step.next, Ensure):
            try:
                self.dispatch.ensure(step.next.record)
            except RegistryUnreadable:  # of one tenant: the others' records have their turn
                return SweepOutcome.PASSED
            return SweepOutcome.ENQUEUED
        return SweepOutcome.PASSED if step.write is None else SweepOutcome.HELD

    def _report(self, found: Counter[SweepOutcome]) -> Swept:
        backlog = self.store.backlog()
        counts, now = backlog.counts, self.clock.now()
        swept = Swept(
            selected=found.total() - found[SweepOutcome.PASSED],
            enqueued=found[SweepOutcome.ENQUEUED],
            pending=counts.get(State.PENDING, 0),
            leased=counts.get(State.LEASED, 0),
            in_doubt=counts.get(State.IN_DOUBT, 0),
            dead=counts.get(State.DEAD, 0),
            receipts_failed=backlog.receipts_failed,
            oldest_pending_seconds=age(backlog.oldest_pending, now),
            oldest_dead_seconds=age(backlog.oldest_dead, now),
        )
        missed = found[SweepOutcome.MISSED]
        outages = self.senders.outages()
        logs.event(
            "swept",
            severity="WARNING" if missed else "INFO",
            **asdict(swept),
            **asdict(outages),
            missed=missed or None,
        )
        return swept
