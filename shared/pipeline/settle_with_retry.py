"""Settle with retry: stores an attempt's outcome, and retries while the store is down."""

from collections.abc import Callable
from functools import partial

from shared.domain.delivery.answers import Step, Token
from shared.domain.delivery.settle import settle
from shared.domain.errors import ConversationChanged, StoreUnavailable
from shared.domain.limits import Limits
from shared.domain.record import Delivery
from shared.domain.verdicts import Verdict
from shared.pipeline.clock import Clock
from shared.pipeline.conversations import LONGEST_PAUSE
from shared.pipeline.ports import Store

PAUSE_SECONDS = 0.25


Joining = Callable[[], Callable[[Step], Step]]
"""Reads a conversation and returns how a step joins it."""


def as_it_is() -> Callable[[Step], Step]:
    """A step that joins no conversation."""
    return lambda step: step


def settle_with_retry(
    store: Store,
    leased: Delivery,
    token: Token,
    verdict: Verdict,
    limits: Limits,
    clock: Clock,
    until: float,
    stopping: Callable[[], bool],
    joining: Joining = as_it_is,
) -> Step:
    """Settle an attempt. Retries while the store is unavailable, until the monotonic time `until` or the shutdown.
    `joining` is called again if the conversation has changed.
    """
    jitter = clock.jitter()

    def settled(found: Delivery | None, joined: Callable[[Step], Step]) -> Step:
        return joined(settle(found, token, verdict, limits, clock.now(), jitter))

    while True:
        try:
            return store.change(leased.key, partial(settled, joined=joining()), leased)
        except ConversationChanged as error:
            if clock.monotonic() > until:
                raise StoreUnavailable("The store is busy.") from error
            clock.sleep(LONGEST_PAUSE * clock.jitter())
        except StoreUnavailable:
            if stopping() or clock.monotonic() + PAUSE_SECONDS > until:
                raise
            clock.sleep(PAUSE_SECONDS)
