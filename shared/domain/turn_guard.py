"""The guard of turns: how long an event waits for the one in its way."""

from collections.abc import Sequence
from datetime import datetime

from shared.domain.guards import TURN, Go, Guard, Wait
from shared.domain.limits import Limits
from shared.domain.record import Delivery, Task


def turn_guard(ahead: Sequence[Delivery], task: Task, limits: Limits, now: datetime) -> Guard:
    """Whether an event may be handled now, with these in its way, the nearest one first. It waits for one that is
    handled as long as that takes, and for one that was never tried until its patience is over. Patience begins once
    that one no longer waits for its own turn: else a contact whose events take longer together would be answered in no
    order.
    """
    if not ahead:
        return Go()
    blocker, *behind = ahead
    until = now + limits.waits.turn.after(task.hop)
    alone_since = task.alone_since or now
    if blocker.leased_at(now):
        return Wait(TURN, until, alone_since=alone_since)
    if behind:
        return Wait(TURN, until)
    patient_until = alone_since + limits.order_patience
    if now + limits.early < patient_until:
        return Wait(TURN, min(until, patient_until), alone_since=alone_since)
    return Go(overtakes=blocker.key)
