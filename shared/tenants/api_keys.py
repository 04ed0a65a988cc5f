"""API keys as callers present them: looked up in the registry, cached, and protected from a flood of guesses.

A key is 5 s old at most, so a revocation is in force after that. That a key does not exist is kept as long; and because
a caller may invent any number of ids, those that are new to this process are looked up 20 times a second at most. An id
that was right within the last hour is looked up outside that bound: a flood of guesses stops nobody who has a key.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from shared.domain.errors import PomboError, RegistryUnavailable, StoreUnavailable, UnknownState
from shared.domain.tenants import ApiKey
from shared.pipeline.registry import Registry
from shared.tenants.entries import key_name, read_key

FRESH_SECONDS = 5.0
VALID_SECONDS = 3600.0
LOOKS_PER_SECOND = 20
MOST = 10_000
"""Ids that a process keeps of each kind, about 0.5 KB each."""


V = TypeVar("V")


class TooManyLooks(PomboError):
    """Too many unknown API keys were presented. Wait a second and retry."""

    code = "too_many_unknown_keys"
    retryable = True


class ApiKeys:
    """The keys by their ids. Safe in threads."""

    def __init__(self, registry: Registry, monotonic: Callable[[], float]) -> None:
        self._registry = registry
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[float, ApiKey | None]] = OrderedDict()
        self._valid: OrderedDict[str, float] = OrderedDict()
        self._looks, self._filled_at = float(LOOKS_PER_SECOND), monotonic()

    def find(self, id: str) -> ApiKey | None:
        """The key with this id, revoked or not; None if there is none. Raises TooManyLooks and RegistryUnavailable."""
        now = self._monotonic()
        with self._lock:
            asked, key = self._kept.get(id, (-FRESH_SECONDS, None))
            if now - asked < FRESH_SECONDS and id in self._kept:
                return key
            if not self._was_valid(id, now) and not self._may_look(now):
                raise TooManyLooks
        key = self._look(id)
        with self._lock:
            _keep(self._kept, id, (now, key))
        return key

    def was_right(self, id: str) -> None:
        """A caller has proved that it has this key."""
        with self._lock:
            _keep(self._valid, id, self._monotonic())

    def _was_valid(self, id: str, now: float) -> bool:
        return id in self._valid and now - self._valid[id] < VALID_SECONDS

    def _may_look(self, now: float) -> bool:
        """Whether one more unknown id may be looked up now."""
        self._looks = min(float(LOOKS_PER_SECOND), self._looks + (now - self._filled_at) * LOOKS_PER_SECOND)
        self._filled_at = now
        if self._looks < 1:
            return False
        self._looks -= 1
        return True

    def _look(self, id: str) -> ApiKey | None:
        try:
            (entry,) = self._registry.entries([key_name(id)])
            return read_key(entry) if entry else None
        except (StoreUnavailable, UnknownState) as error:
            raise RegistryUnavailable from error


def _keep(kept: OrderedDict[str, V], id: str, value: V) -> None:
    """Keep a value as the newest. The one that was kept longest makes room."""
    kept.pop(id, None)
    kept[id] = value
    if len(kept) > MOST:
        kept.popitem(last=False)
