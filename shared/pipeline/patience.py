"""Patience: the outcome of an effect must be written down, so a store that is away for a moment is asked again."""

from collections.abc import Callable

from shared.domain.delivery import Step
from shared.domain.errors import StoreUnavailable
from shared.domain.record import Delivery
from shared.pipeline.clock import Clock
from shared.pipeline.ports import Decide, Store

PAUSE_SECONDS = 0.25


def change_patiently(
    store: Store, seen: Delivery, decide: Decide, clock: Clock, until: float, stopping: Callable[[], bool]
) -> Step:
    """`store.change`, again while the store is unavailable, until the monotonic time `until` or the shutdown."""
    while True:
        try:
            return store.change(seen.key, decide, seen)
        except StoreUnavailable:
            if stopping() or clock.monotonic() + PAUSE_SECONDS > until:
                raise
            clock.sleep(PAUSE_SECONDS)
