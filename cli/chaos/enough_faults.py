"""The proof that a run met enough faults to prove anything."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

WHOLE = 3000
"""Messages of a run that must reach every number in full; a shorter run must reach its share."""

LONG = 1000
"""From this many messages on, chance brings enough faults of every kind."""

LEAST = 30
"""The fewest messages that prove something: a shorter run ends before each kind of fault has hit one."""

KILLS, INTERRUPTED, IN_DOUBT, TWICE = 20, 200, 50, 100


def is_short(messages: int) -> bool:
    """Whether a run is long enough to prove something, but too short for random faults alone to be enough."""
    return LEAST <= messages < LONG


@dataclass(frozen=True, slots=True)
class Need:
    """A number that a run must reach."""

    what: str
    found: int
    least: int

    @property
    def met(self) -> bool:
        return self.found >= self.least


def share(number: int, messages: int) -> int:
    """The part of a full run's target `number` that a run of this many messages must reach."""
    return math.ceil(number * min(1.0, messages / WHOLE))


def needs(
    messages: int, kills: Mapping[str, int], interrupted: int, in_doubt: int, twice: int, outages: int
) -> Iterator[Need]:
    """`kills` holds every process that the run kills."""
    for name, count in kills.items():
        yield Need(f"kills of {name}", count, share(KILLS, messages))
    yield Need("attempts interrupted", interrupted, share(INTERRUPTED, messages))
    yield Need("messages in doubt", in_doubt, share(IN_DOUBT, messages))
    yield Need("tasks delivered twice", twice, share(TWICE, messages))
    yield Need("outages longer than eight attempts", outages, 1)
