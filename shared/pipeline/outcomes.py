"""Outcomes: what came of each of several things, errors included, and which error answers for all of them."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from shared.domain.errors import PomboError

R = TypeVar("R")


def outcome_of(call: Callable[..., R], *given: object) -> R | Exception:
    """The result, or what was raised: one event's own fault never stops the others."""
    try:
        return call(*given)
    except Exception as error:  # noqa: BLE001 - it is the outcome, and whoever has all of them raises it
        return error


def faults_in(outcomes: Iterable[object]) -> list[Exception]:
    """What went wrong. Raises an outage: nothing more is begun, and it is the answer even beside an event's own fault,
    since it can be mended by itself.
    """
    faults = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    for fault in faults:
        if isinstance(fault, PomboError) and fault.retryable:
            raise fault
    return faults
