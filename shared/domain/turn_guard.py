"""The guard of turns: how long an event waits for the one in its way."""

from datetime import datetime

from shared.domain.guards import TURN, Go, Guard, Wait
from shared.domain.limits import Limits
from shared.domain.record import Delivery, Task


def turn_guard(blocker: Delivery | None, task: Task, limits: Limits, now: datetime) -> Guard:
    """Whether an event may be handled now, with this event in its way. It waits for one that was never tried until its
    patience is over, and for one that is handled as long as that takes.
    """
    if blocker is None:
        return Go()
    alone_since = task.alone_since or now
    patient_until = alone_since + limits.order_patience
    until = now + limits.waits.turn.after(task.hop)
    if blocker.leased_at(now):
        return Wait(TURN, until, alone_since=alone_since)
    if now + limits.early < patient_until:
        return Wait(TURN, min(until, patient_until), alone_since=alone_since)
    return Go(overtakes=blocker.key)
