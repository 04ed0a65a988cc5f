"""The proof that a run was rough enough to prove anything."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

WHOLE = 3000
"""Messages of a run of which all is asked; a shorter one has to show its share of it."""

LONG = 1000
"""Messages from which on chance brings every kind of trouble often enough."""

LEAST = 30
"""Messages that are enough to prove something: fewer are over before each kind of trouble has met one."""

KILLS, INTERRUPTED, IN_DOUBT, TWICE = 20, 200, 50, 100


def is_short(messages: int) -> bool:
    """Whether a run needs help to prove something, and is long enough for it."""
    return LEAST <= messages < LONG


@dataclass(frozen=True, slots=True)
class Need:
    """One number that a run has to reach."""

    what: str
    found: int
    least: int

    @property
    def met(self) -> bool:
        return self.found >= self.least


def share(number: int, messages: int) -> int:
    """What is asked of a run of so many messages where `number` is asked of a whole one."""
    return math.ceil(number * min(1.0, messages / WHOLE))


def needs(
    messages: int, kills: Mapping[str, int], interrupted: int, in_doubt: int, twice: int, outages: int
) -> Iterator[Need]:
    """`kills` has every process that the run kills."""
    for name, count in kills.items():
        yield Need(f"kills of {name}", count, share(KILLS, messages))
    yield Need("attempts interrupted", interrupted, share(INTERRUPTED, messages))
    yield Need("messages in doubt", in_doubt, share(IN_DOUBT, messages))
    yield Need("tasks delivered twice", twice, share(TWICE, messages))
    yield Need("outages longer than eight attempts", outages, 1)
