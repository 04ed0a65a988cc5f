"""The counters of processes in the form of the Redis store's scripts."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import timedelta

from shared.domain.counters import KEPT_FOR, ProcessCounters
from shared.domain.errors import UnknownState
from shared.stores.counters_codec import decode, encode
from shared.stores.redis.records import Value, as_time, microseconds

_LIFE = 2 * KEPT_FOR


def kept(counters: ProcessCounters) -> list[Value]:
    """The arguments of a write. Raises TypeError or ValueError for what cannot be stored."""
    at = counters.flushed_at
    life = _LIFE // timedelta(milliseconds=1)
    return [counters.process, microseconds(at), encode(counters.counts), life, microseconds(at - _LIFE)]


def as_counters(answers: Sequence[Sequence[str]]) -> Iterator[ProcessCounters]:
    """The counters from a script's answer."""
    for process, flushed_at, counts in answers:
        with suppress(UnknownState):
            yield ProcessCounters(process, as_time(flushed_at), decode(counts))
