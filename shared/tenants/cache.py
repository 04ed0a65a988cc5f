"""The cache of the registry: what a process read in the last seconds. That something does not exist is never kept."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from shared import logs
from shared.domain.errors import UnknownState
from shared.pipeline.registry import Entry, EntryName
from shared.tenants.entries import READERS, Account, is_gone

FRESH_SECONDS = 5.0
"""How old an answer of the registry may be: a suspended tenant, a moved number and a changed handler count after it."""

MOST = 10_000
"""Entries that a process keeps, about 1 KB each: the numbers and tenants of 5,000 businesses that all write within
five seconds.
"""

Value = Any
"""What is in an entry: a value of shared.domain.tenants, or an Account."""


class RegistryCache:
    """The values that were read at most FRESH_SECONDS ago, by the names of their entries. Safe in threads."""

    def __init__(self, monotonic: Callable[[], float], most: int = MOST) -> None:
        self._monotonic = monotonic
        self._most = most
        self._lock = threading.Lock()
        self._kept: dict[EntryName, tuple[float, Value]] = {}

    def begin(self) -> float:
        """The time to give to `keep`: an answer is as old as its question."""
        return self._monotonic()

    def fresh(self, names: Iterable[EntryName], seconds: float = FRESH_SECONDS) -> dict[EntryName, Value]:
        """The values of those that are kept, and were asked for less than `seconds` ago."""
        since = self._monotonic() - seconds
        with self._lock:
            kept = {name: self._kept[name] for name in names if name in self._kept}
        return {name: value for name, (asked, value) in kept.items() if asked > since}

    def forget(self, names: Iterable[EntryName]) -> None:
        """Drop what is kept of these: the next look is at the store itself."""
        with self._lock:
            for name in names:
                self._kept.pop(name, None)

    def keep(
        self, names: Sequence[EntryName], entries: Sequence[Entry | None], asked: float
    ) -> Mapping[EntryName, Value | UnknownState | None]:
        """The values in entries that were asked for at `asked`; None for one that does not exist. Keeps those that
        exist and can be read; of another one a line in the log says which it is.
        """
        found = {name: _value(entry) for name, entry in zip(names, entries, strict=True)}
        for name, value in found.items():
            if value is not None and not isinstance(value, UnknownState) and not _may_be_claimed(value):
                self.put(name, value, asked)
        return found

    def put(self, name: EntryName, value: Value, asked: float) -> None:
        """Keep a value, unless a later one is there. The one that was put first makes room."""
        with self._lock:
            if name in self._kept and self._kept[name][0] > asked:
                return
            self._kept.pop(name, None)
            self._kept[name] = (asked, value)
            if len(self._kept) > self._most:
                del self._kept[next(iter(self._kept))]


def _may_be_claimed(value: Value) -> bool:
    """Whether another tenant may have it at any moment: an account whose last number is removed."""
    return isinstance(value, Account) and not value.senders


def _value(entry: Entry | None) -> Value | UnknownState | None:
    if entry is None or is_gone(entry):
        return None
    try:
        return READERS[entry.name.kind](entry)
    except UnknownState as error:
        logs.event("state_unknown", severity="WARNING", reason="registry", entry="/".join(entry.name))
        return error
