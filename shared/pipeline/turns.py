"""Turns: finds the event that another one of its contact waits for, and what that one waits for itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from shared.domain.delivery.bell import enter, may_enter
from shared.domain.guards import Guard, with_patience
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
        its bell and looks again, because that one may have ended, or emptied its bell, meanwhile.
        """
        ahead = self._ahead(event, around)
        while ahead and may_enter(ahead[0], event):
            self.store.change(ahead[0].key, lambda found: enter(found, event), seen=ahead[0])
            ahead = self._ahead(event)
        return turn_guard(ahead, with_patience(task, event), self.limits, self.clock.now())

    def is_contested(self, leased: Delivery) -> bool:
        """Whether another event of the contact is being handled although this one has its lease. Two that looked at the
        same time both saw nobody; of two that look after their leases, at least one sees the other.
        """
        return bool(self._ahead(leased))

    def _ahead(self, event: Delivery, around: Sequence[Delivery] | None = None) -> Sequence[Delivery]:
        return ahead_in_turn(self.store, event, self.clock.now(), around)


def ahead_in_turn(
    store: Store, event: Delivery, now: datetime, around: Sequence[Delivery] | None = None
) -> Sequence[Delivery]:
    """The events that are in this one's way, the nearest one first, by what was found `around` it, or else by a query.
    Raises StoreUnavailable and UnknownState.
    """
    if event.turn_id is None:
        return ()
    found = store.in_turn(*places_in_the_way(event, now)) if around is None else around
    return in_the_way(event, found, now)
