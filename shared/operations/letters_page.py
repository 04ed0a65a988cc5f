"""Pages of dead letters: those that match a filter, the newest first, behind the end of the page before.

A store lists them in an order of its own, so the newest are known only when all that match are read. The first page
reads them; the pages behind it are of the same reading, as long as it is recent.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from shared.domain.dead_letters import DeadLetter, DeadLetterFilter
from shared.operations.dead_letters import find
from shared.pipeline.ports import Store

MOST_READ = 10_000
"""Letters that one reading holds at most."""

KEPT_SECONDS = 60.0
"""How old a reading may be for a page that is not the first."""

READINGS = 4
"""Filters whose readings are kept; of all letters one holds some 10 MB."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The letters that matched a filter, the newest first. `is_whole`: there were no more than it holds."""

    letters: Sequence[DeadLetter]
    is_whole: bool


@dataclass(frozen=True, slots=True)
class LettersPage:
    """Some letters, the newest first. `ends_at` is where the next page begins, None if this is the last; `is_whole` is
    as of the reading.
    """

    letters: Sequence[DeadLetter]
    ends_at: tuple[str, str] | None
    is_whole: bool


class LetterPages:
    """Reads pages, and keeps what it has read for those that follow. For several threads."""

    def __init__(self, store: Store, monotonic: Callable[[], float]) -> None:
        self._store = store
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._kept: OrderedDict[DeadLetterFilter, tuple[float, Reading]] = OrderedDict()

    def page(self, wanted: DeadLetterFilter, after: tuple[str, str] | None, limit: int) -> LettersPage:
        """The newest letters behind the time and key of `after`. Without it they are as of now; behind it a letter that
        was decided about within KEPT_SECONDS may still be listed. Raises StoreUnavailable.
        """
        reading = (self._recent(wanted) if after else None) or self._read(wanted)
        behind = (one for one in reading.letters if after is None or position(one) < after)
        found = list(islice(behind, limit + 1))
        ends_at = position(found[limit - 1]) if len(found) > limit else None
        return LettersPage(found[:limit], ends_at, reading.is_whole)

    def _recent(self, wanted: DeadLetterFilter) -> Reading | None:
        with self._lock:
            read_at, reading = self._kept.get(wanted, (0.0, None))
            return reading if reading and self._monotonic() - read_at < KEPT_SECONDS else None

    def _read(self, wanted: DeadLetterFilter) -> Reading:
        began = self._monotonic()
        found = list(islice(distinct(self._store, wanted), MOST_READ + 1))
        newest = sorted(found[:MOST_READ], key=position, reverse=True)
        reading = Reading(newest, is_whole=len(found) <= MOST_READ)
        with self._lock:
            self._kept[wanted] = began, reading
            self._kept.move_to_end(wanted)
            while len(self._kept) > READINGS:
                self._kept.popitem(last=False)
        return reading


def distinct(store: Store, wanted: DeadLetterFilter) -> Iterator[DeadLetter]:
    """The matching letters, in no order. One that dies again meanwhile comes once. Raises StoreUnavailable."""
    seen: set[str] = set()
    for page in find(store, wanted):
        for letter in page.letters:
            if letter.key not in seen:
                seen.add(letter.key)
                yield letter


def position(letter: DeadLetter) -> tuple[str, str]:
    """Its time, as text of fixed width in UTC, and its key. The positions sort like the letters."""
    return letter.at.isoformat(timespec="microseconds"), letter.key
