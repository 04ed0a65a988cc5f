"""The hunt: every target is tried with a few hundred inputs, always the same, and by `make test-all` with many more."""

import time
from collections.abc import Callable
from typing import Any, Protocol

import hypothesis
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy

LONG_EXAMPLES, LONG_SECONDS = 50_000, 120.0
"""A long hunt is over when it has had as many, or gone on for as long."""

ROUND = 2500
QUIETLY: dict[str, Any] = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}


class Hunt(Protocol):
    def __call__(self, check: Callable[[Any], None], inputs: SearchStrategy[Any], quick: int) -> None:
        """Call `check` with inputs: `quick` of them, or, in a long hunt, as many as it takes."""
        ...


def hunt_quick(name: str, check: Callable[[Any], None], inputs: SearchStrategy[Any], quick: int) -> None:
    settings(max_examples=quick, derandomize=True, **QUIETLY)(_test(name, check, inputs))()


def hunt_long(name: str, check: Callable[[Any], None], inputs: SearchStrategy[Any], quick: int) -> None:
    began, examples = time.monotonic(), 0
    while examples < LONG_EXAMPLES and time.monotonic() - began < LONG_SECONDS:
        test = hypothesis.seed(time.time_ns())(_test(name, check, inputs))
        settings(max_examples=ROUND, print_blob=True, **QUIETLY)(test)()
        examples += ROUND
    print(f"{name}: {examples:,} inputs in {time.monotonic() - began:.0f} s")


def _test(name: str, check: Callable[[Any], None], inputs: SearchStrategy[Any]) -> Callable[[], None]:
    def test(one: Any) -> None:
        check(one)

    test.__name__ = test.__qualname__ = name  # by which hypothesis finds the same inputs again
    return given(inputs)(test)
