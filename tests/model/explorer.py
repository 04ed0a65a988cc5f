"""The explorer: one setting, all of it, and what is to be told of it."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tests.model.engine import explore
from tests.model.moves import Model
from tests.model.setting import Setting


@dataclass(frozen=True, slots=True)
class Report:
    """What was found in a setting: which invariant is broken, the shortest way there, and where everything stands."""

    setting: str
    states: int
    ends: int
    seconds: float
    broken: str | None
    trace: Sequence[str]
    last: Sequence[str]

    def __str__(self) -> str:
        size = f"{self.setting}: {self.states:,} states, {self.ends} ends, {self.seconds:.1f} s"
        if self.broken is None:
            return f"{size}: every invariant holds."
        steps = [f"{number:4} {label}" for number, label in enumerate(self.trace, start=1)]
        return "\n".join([f"{size}: {self.broken}", *steps, "Then:", *(f"     {line}" for line in self.last)])


def report(setting: Setting, at_most: int) -> Report:
    """Explore it. Raises TooLarge beyond `at_most` states."""
    model = Model(setting)
    with _quiet():
        found = explore(model.start(), model.moves, model.broken, model.final, at_most)
    last = model.told(found.last) if found.last else ()
    return Report(setting.name, found.states, found.ends, found.seconds, found.broken, found.trace, last)


@contextmanager
def _quiet() -> Iterator[None]:
    """The code logs what it does, thousands of times over."""
    logger = logging.getLogger("pombo")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
