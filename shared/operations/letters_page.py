"""A page of dead letters: those that match a filter, the newest first, behind the end of the page before."""

import heapq
from collections.abc import Iterator

from shared.domain.dead_letters import DeadLetter, DeadLetterFilter
from shared.operations.dead_letters import find
from shared.pipeline.ports import Store


def distinct(store: Store, wanted: DeadLetterFilter) -> Iterator[DeadLetter]:
    """The matching letters, in no order. One that dies again meanwhile comes once. Raises StoreUnavailable."""
    seen: set[str] = set()
    for page in find(store, wanted):
        for letter in page.letters:
            if letter.key not in seen:
                seen.add(letter.key)
                yield letter


def newest(store: Store, wanted: DeadLetterFilter, after: tuple[str, str] | None, limit: int) -> list[DeadLetter]:
    """The newest letters behind the time and key of `after`. It reads all that match: there are few, or an alert.
    Raises StoreUnavailable.
    """
    behind = (one for one in distinct(store, wanted) if after is None or position(one) < after)
    return heapq.nlargest(limit, behind, key=position)


def position(letter: DeadLetter) -> tuple[str, str]:
    """Its time, as text of fixed width in UTC, and its key. The positions sort like the letters."""
    return letter.at.isoformat(timespec="microseconds"), letter.key
