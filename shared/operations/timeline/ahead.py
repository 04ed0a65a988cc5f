"""Ahead: the delivery that another one waits for, in its contact's lane or turn."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from shared.domain.errors import UnknownState
from shared.domain.guards import predecessor_finished, renewed
from shared.domain.record import Delivery, Kind, State, Task
from shared.pipeline.lanes import not_passed_over
from shared.pipeline.ports import Store
from shared.pipeline.turns import ahead_in_turn


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
        ahead = ahead_in_turn(store, record, now) if is_event else _ahead_in_lane(store, record, now)
    except UnknownState:
        return Ahead(record.after) if record.after else None
    if not ahead:
        return None
    before, *behind = ahead
    if before.leased_at(now):
        return Ahead(before.key, before.lease_until)
    return Ahead(before.key, behind=behind[0] if behind else None)


def _ahead_in_lane(store: Store, message: Delivery, now: datetime) -> Sequence[Delivery]:
    """The message before it, if it has not ended, and the one that that one waits for, or waited for."""
    before = not_passed_over(store, message.after)
    if before is None or predecessor_finished(message, before):
        return ()
    behind = None if before.leased_at(now) else not_passed_over(store, before.after)
    return (before, behind) if behind else (before,)
