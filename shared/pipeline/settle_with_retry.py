"""Settle with retry: stores an attempt's outcome, and retries while the store is down."""

from collections.abc import Callable

from shared.domain.delivery.answers import Step, Token
from shared.domain.delivery.settle import settle
from shared.domain.errors import StoreUnavailable
from shared.domain.limits import Limits
from shared.domain.record import Delivery
from shared.domain.verdicts import Verdict
from shared.pipeline.clock import Clock
from shared.pipeline.ports import Store

PAUSE_SECONDS = 0.25


def settle_with_retry(
    store: Store,
    leased: Delivery,
    token: Token,
    verdict: Verdict,
    limits: Limits,
    clock: Clock,
    until: float,
    stopping: Callable[[], bool],
) -> Step:
    """Settle an attempt. Retries while the store is unavailable, until the monotonic time `until` or the shutdown."""
    jitter = clock.jitter()
    while True:
        try:
            return store.change(
                leased.key, lambda now: settle(now, token, verdict, limits, clock.now(), jitter), leased
            )
        except StoreUnavailable:
            if stopping() or clock.monotonic() + PAUSE_SECONDS > until:
                raise
            clock.sleep(PAUSE_SECONDS)
