"""Waits: how long until the next attempt. The caller passes the jitter, a number from 0 to 1."""

from datetime import datetime, timedelta
from typing import assert_never

from shared.domain.limits import Waits
from shared.domain.verdicts import Limited, LimitScope, Retry

SPREAD = 0.2


def jittered(wait: timedelta, jitter: float) -> timedelta:
    """The wait, 20 % shorter at jitter 0 and 20 % longer at 1."""
    return wait * (1 - SPREAD + 2 * SPREAD * jitter)


def spread(wait: timedelta, jitter: float) -> timedelta:
    """Half of the wait at jitter 0 and one and a half at 1, for a thousand that began to wait at once: each second an
    equal part of them is due.
    """
    return wait * (0.5 + jitter)


def before_retry(attempt: int, waits: Waits, jitter: float) -> timedelta:
    """After attempt n: min(300, 5 * 2^n) s, which is 10, 20, 40 and so on."""
    return jittered(waits.retry.after(attempt - 1), jitter)


def asked_for(verdict: Retry | Limited, waits: Waits) -> timedelta:
    """The minimum wait that the provider asks for, in its answer or in its documentation."""
    return max(verdict.retry_after or timedelta(), verdict.minutes * waits.minute)


def after_outage(
    throttled: int,
    until: datetime | None,
    retry_after: timedelta | None,
    waits: Waits,
    now: datetime,
    jitter: float,
) -> datetime:
    """When an attempt that met an outage, after `throttled` others in a row, is due again: the latest of the breaker's
    end, a backoff from 10 s to 5 min, and the wait that the provider asks for.
    """
    grown = now + jittered(waits.outage.after(throttled), jitter)
    asked = now + (retry_after or timedelta())
    return max(grown, asked, until or now)


def before_limited(verdict: Limited, throttled: int, waits: Waits, jitter: float) -> timedelta:
    """The wait after a limit was met `throttled` times in a row, by its scope; at least what the provider asked for."""
    match verdict.scope:
        case LimitScope.RATE:
            wait = waits.throughput.after(throttled - 1) * (1 + jitter)
        case LimitScope.CONTACT:
            wait = jittered(waits.pair.after(throttled - 1), jitter)
        case LimitScope.MAINTENANCE:
            wait = waits.maintenance * (1 + jitter)
        case LimitScope.ACCOUNT:
            wait = jittered(waits.account.after(throttled - 1), jitter)
        case _:
            assert_never(verdict.scope)
    return max(wait, asked_for(verdict, waits))
