"""Ahead: the delivery that another one waits for, in its contact's lane or turn."""

from dataclasses import dataclass
from datetime import datetime

from shared.domain.errors import UnknownState
from shared.domain.guards import predecessor_finished, renewed
from shared.domain.record import Delivery, Kind, State, Task
from shared.pipeline.lanes import not_passed_over
from shared.pipeline.ports import Store
from shared.pipeline.turns import blocker_of


@dataclass(frozen=True, slots=True)
class Ahead:
    """What a delivery waits for. `leased_until`: how long an attempt may work on that one, which is waited for in any
    case. `behind`: what that one waits for itself, or waited for.
    """

    key: str
    leased_until: datetime | None = None
    behind: Delivery | None = None

    def patient_since(self, task: Task, now: datetime) -> datetime | None:
        """From when the patience of this task counts; None while the one ahead waits itself: that is not overtaken."""
        return renewed(task, self.behind, now).alone_since


def ahead_of(store: Store, record: Delivery, now: datetime) -> Ahead | None:
    """What this delivery waits for in its lane or turn; None if nothing is ahead of it. It may wait for something else
    too. Raises StoreUnavailable.
    """
    if record.state is not State.PENDING:
        return None
    try:
        is_event = record.kind is Kind.INBOUND
        before = blocker_of(store, record, now) if is_event else _in_lane(store, record)
        if before is None:
            return None
        if before.leased_at(now):
            return Ahead(before.key, before.lease_until)
        behind = blocker_of(store, before, now) if is_event else not_passed_over(store, before.after)
    except UnknownState:
        return Ahead(record.after) if record.after else None
    return Ahead(before.key, behind=behind)


def _in_lane(store: Store, message: Delivery) -> Delivery | None:
    before = not_passed_over(store, message.after)
    return None if predecessor_finished(message, before) else before
