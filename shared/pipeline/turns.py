"""Turns: finds the event that another one of its contact waits for, and looks one further before that one is
overtaken.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from shared.domain.delivery.bell import enter, may_enter
from shared.domain.guards import Go, Guard, with_patience
from shared.domain.limits import Limits
from shared.domain.record import Delivery, Task
from shared.domain.turn_guard import turn_guard
from shared.domain.turns import in_the_way, places_in_the_way, places_up_to
from shared.pipeline.clock import Clock
from shared.pipeline.ports import Store


@dataclass(frozen=True, slots=True)
class Turns:
    """Looks along turns. Raises StoreUnavailable and UnknownState."""

    store: Store
    limits: Limits
    clock: Clock

    def look(self, task: Task) -> tuple[Delivery | None, Sequence[Delivery] | None]:
        """The record, and what is around it in its turn if one query found both, which is so while it was never
        tried.
        """
        if task.place is None:
            return self.store.get(task.key), None
        around = self.store.in_turn(*places_up_to(task.place, self.clock.now()))
        own = next((record for record in around if record.key == task.key), None)
        return (own, around) if own else (self.store.get(task.key), None)

    def guard(self, event: Delivery, task: Task, around: Sequence[Delivery] | None) -> Guard:
        """Whether another event of the contact is in the way; `around` as `look` found it. If one is, this event enters
        its bell and looks again, because that one may have ended, or emptied its bell, meanwhile. Before it overtakes
        one, it looks one further: while something is in the way of that one too, its patience begins anew.
        """
        blocker = self._blocker(event, around)
        while blocker is not None and may_enter(blocker, event):
            self.store.change(blocker.key, lambda found: enter(found, event), seen=blocker)
            blocker = self._blocker(event)
        now, task = self.clock.now(), with_patience(task, event)
        guard = turn_guard(blocker, task, self.limits, now)
        if blocker is not None and isinstance(guard, Go) and self._blocker(blocker) is not None:
            return turn_guard(blocker, replace(task, alone_since=None), self.limits, now)
        return guard

    def is_contested(self, leased: Delivery) -> bool:
        """Whether another event of the contact is being handled although this one has its lease. Two that looked at the
        same time both saw nobody; of two that look after their leases, at least one sees the other.
        """
        return self._blocker(leased) is not None

    def _blocker(self, event: Delivery, around: Sequence[Delivery] | None = None) -> Delivery | None:
        return blocker_of(self.store, event, self.clock.now(), around)


def blocker_of(
    store: Store, event: Delivery, now: datetime, around: Sequence[Delivery] | None = None
) -> Delivery | None:
    """The event that is in this one's way, by what was found `around` it, or else by a query. Raises StoreUnavailable
    and UnknownState.
    """
    if event.turn_id is None:
        return None
    found = store.in_turn(*places_in_the_way(event, now)) if around is None else around
    return in_the_way(event, found, now)
