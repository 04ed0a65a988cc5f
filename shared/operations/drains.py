"""Starting drains: what waits of senders is sent once every process knows that they may send."""

from collections.abc import Iterable
from datetime import timedelta

from shared.domain.drains import DrainTask
from shared.pipeline.clock import Clock
from shared.pipeline.ports import Queue, Store

KNOWN_EVERYWHERE = timedelta(seconds=6)
"""Every service uses a change of the registry within 5 s: a message that is woken sooner would wait again."""


def start_drains(queue: Queue, store: Store, clock: Clock, senders: Iterable[str], reason: str) -> None:
    """Begin a drain for each of these senders (`Sender.id`), which may send for this reason. Its time is by the store's
    clock: that of an operator's machine may be wrong. Raises QueueUnavailable and StoreUnavailable.
    """
    since = store.time() + KNOWN_EVERYWHERE
    for sender in senders:
        queue.ensure_drain(DrainTask(sender, since, clock.token(), reason=reason))
