"""Lanes: finds the message that another one waits for, and looks one further before that one is overtaken."""

from dataclasses import dataclass
from datetime import datetime
from functools import partial

from shared.domain.delivery.conversation import moved_up
from shared.domain.guards import is_patience_over, predecessor_finished, renewed, was_passed_over, with_patience
from shared.domain.limits import Limits
from shared.domain.record import Delivery, Task
from shared.pipeline.ports import Store

MOST_PASSED_OVER = 20
"""How many cancelled messages in a row are looked behind before the place that was reached is written; each costs a
read. So a lane of any length is crossed once, even by tasks that are killed."""


@dataclass(frozen=True, slots=True)
class InLane:
    """A message, the one `before` it that it waits for, if any, and its task, whose patience may begin anew."""

    record: Delivery
    before: Delivery | None
    task: Task


@dataclass(frozen=True, slots=True)
class Lanes:
    """Looks along lanes. Raises StoreUnavailable and UnknownState."""

    store: Store
    limits: Limits

    def look(self, record: Delivery, task: Task, now: datetime) -> InLane:
        """The message in its lane: one read, and one more if its patience is over and it could overtake."""
        record, before = self._before(record)
        if before is None or predecessor_finished(record, before) or before.leased_at(now):
            return InLane(record, before, task)
        task = with_patience(task, record)
        if is_patience_over(task, self.limits, now):
            task = renewed(task, not_passed_over(self.store, before.after), now)
        return InLane(record, before, task)

    def _before(self, record: Delivery) -> tuple[Delivery, Delivery | None]:
        """The message that this one waits for: the one before it that did not end before its own turn came."""
        while (before := not_passed_over(self.store, record.after)) and was_passed_over(before):
            step = self.store.change(record.key, partial(moved_up, after=before.after), seen=record)
            if step.write is None:
                break
            record = step.write
        return record, before


def not_passed_over(store: Store, key: str | None) -> Delivery | None:
    """The first message from this one on that was not passed over; the last one looked at if all were. Raises
    StoreUnavailable and UnknownState.
    """
    found = None
    for _ in range(MOST_PASSED_OVER):
        found = store.get(key, unechoed=False) if key else None
        if found is None or not was_passed_over(found):
            break
        key = found.after
    return found
