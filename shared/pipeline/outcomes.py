"""Outcomes: the result or error of each of several calls, and which error counts for all of them."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from shared.domain.errors import PomboError

R = TypeVar("R")


def outcome_of(call: Callable[..., R], *given: object) -> R | Exception:
    """The result, or the exception raised: a fault in one event never stops the others."""
    try:
        return call(*given)
    except Exception as error:  # noqa: BLE001 - it is the outcome; the caller that collects all of them raises it
        return error


def faults_in(outcomes: Iterable[object]) -> list[Exception]:
    """The exceptions among the outcomes. Raises one that is retryable (an outage) instead: it may end by itself, so the
    caller must retry.
    """
    faults: list[Exception] = []
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            if isinstance(outcome, PomboError) and outcome.retryable:
                raise outcome
            faults.append(outcome)
    return faults
