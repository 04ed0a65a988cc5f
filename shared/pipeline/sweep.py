"""sweep: whatever is overdue gets another task. Bounded, fair, re-entrant; it decides nothing else."""

from dataclasses import dataclass

from shared import logs
from shared.domain import delivery
from shared.domain.delivery import Ensure
from shared.domain.errors import UnknownState
from shared.domain.limits import Limits
from shared.domain.record import State
from shared.pipeline.clock import Clock
from shared.pipeline.follow import Follow
from shared.pipeline.ports import Store

PAGE = 200
PURGE_AT_MOST = 5_000
PASSED_AT_MOST = 5_000
"""Records that a newer version wrote and only it can read: more of them than this, and the sweep is its business."""


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep did, and how much is open. Cloud Tasks has no metric for the age of the oldest."""

    selected: int
    enqueued: int
    pending: int
    leased: int
    in_doubt: int
    dead: int
    oldest_pending_seconds: float


@dataclass(frozen=True, slots=True)
class Sweep:
    """The scheduler's call."""

    store: Store
    follow: Follow
    limits: Limits
    clock: Clock

    def __call__(self) -> Swept:
        """Pages of the longest overdue until none is left or the budget is spent. Raises StoreUnavailable, and
        QueueUnavailable: what was not enqueued is overdue again after its doubled wait.
        """
        ends = self.clock.monotonic() + self.limits.sweep_budget.total_seconds()
        selected = enqueued = 0
        passed: set[str] = set()
        while self.clock.monotonic() < ends:
            page = [key for key in self.store.overdue(self.clock.now(), PAGE + len(passed)) if key not in passed]
            moved = {key: self._sweep(key) for key in page}
            selected += sum(outcome is not None for outcome in moved.values())
            enqueued += sum(outcome is True for outcome in moved.values())
            # What cannot be moved stays the longest overdue: without this a page of it would starve all the others.
            passed |= {key for key, outcome in moved.items() if outcome is None}
            if not page or len(passed) > PASSED_AT_MOST:
                break
        self.store.purge(self.clock.now(), PURGE_AT_MOST)
        return self._report(selected, enqueued)

    def _sweep(self, key: str) -> bool | None:
        """Whether the record got a task; None where there was nothing to do any more."""
        try:
            step = self.store.change(key, lambda record: delivery.sweep(record, self.limits, self.clock.now()))
        except UnknownState:
            logs.event("state_unknown", severity="WARNING", delivery=key)
            return None
        if isinstance(step.next, Ensure):
            self.follow.ensure(step.next.record)
            return True
        return None if step.write is None else False

    def _report(self, selected: int, enqueued: int) -> Swept:
        backlog = self.store.backlog()
        counts = backlog.counts
        oldest = backlog.oldest_pending
        age = (self.clock.now() - oldest).total_seconds() if oldest else 0.0
        swept = Swept(
            selected=selected,
            enqueued=enqueued,
            pending=counts.get(State.PENDING, 0),
            leased=counts.get(State.LEASED, 0),
            in_doubt=counts.get(State.IN_DOUBT, 0),
            dead=counts.get(State.DEAD, 0),
            oldest_pending_seconds=round(age, 3),
        )
        logs.event(
            "swept",
            selected=selected,
            enqueued=enqueued,
            pending=swept.pending,
            leased=swept.leased,
            in_doubt=swept.in_doubt,
            dead=swept.dead,
            oldest_pending_seconds=swept.oldest_pending_seconds,
        )
        return swept
