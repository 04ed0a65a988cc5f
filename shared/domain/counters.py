"""Counters: how many messages were sent and how long webhooks and sends took, in windows of ten minutes, for each
tenant and for the whole deployment. Pure: every process counts for itself, and a reader merges what all have counted.

Times are kept in a histogram of fixed buckets, four for each doubling, from 1 ms to 70 min. A percentile is the middle
of its bucket, so it is at most 9 % off (2^(1/8)).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from math import ceil, log2
from typing import NamedTuple

WHOLE = ""
"""The tenant under which everything is counted once more, for the whole deployment."""

_WINDOW_SECONDS = 600
WINDOW = timedelta(seconds=_WINDOW_SECONDS)
WINDOWS = 7
"""Windows that count: the current one and the six before it. "The last hour" is so the last 60 to 70 minutes."""

KEPT_FOR = WINDOW * WINDOWS
"""How long counters matter after they were written."""

PER_DOUBLING = 4
LAST_BUCKET = 22 * PER_DOUBLING
"""2^22 ms are 70 minutes. Longer times count as that, shorter ones than 1 ms as that."""

P95 = 0.95


class Measure(StrEnum):
    """What is counted. The value is its name in the stores."""

    SENT = "sent"  # messages that the provider has accepted
    FAILED = "failed"  # messages that became dead letters
    SEND_TIME = "send_time"  # from when a message is accepted, or due if that is later, to the provider's acceptance
    WEBHOOK_TIME = "webhook_time"  # from the head of a webhook's request to its answer


class Cell(NamedTuple):
    """One counter. `bucket` is 0 for what has no time; `tenant` may be WHOLE."""

    window: int
    tenant: str
    measure: Measure
    bucket: int = 0


Counts = Mapping[Cell, int]


@dataclass(frozen=True, slots=True)
class ProcessCounters:
    """What one process has counted within the windows that matter. It replaces what the process wrote before."""

    process: str
    flushed_at: datetime
    counts: Counts


@dataclass(frozen=True, slots=True)
class Figures:
    """The last hour in figures: of one tenant, or of the whole deployment. None: nothing was counted."""

    sent: int
    failed: int
    send_success_rate: float | None
    send_p95_ms: float | None
    webhook_p95_ms: float | None


def window_of(at: datetime) -> int:
    """The window of a moment: windows are numbered, and the same in all processes."""
    return int(at.timestamp()) // _WINDOW_SECONDS


def bucket_of(seconds: float) -> int:
    """The bucket of a time."""
    return 0 if seconds <= 0.001 else min(LAST_BUCKET, round(PER_DOUBLING * log2(seconds * 1000)))


def milliseconds_of(bucket: int) -> float:
    """The middle of a bucket."""
    return round(float(2 ** (bucket / PER_DOUBLING)), 1)


def percentile(histogram: Mapping[int, int], share: float) -> float | None:
    """The time in milliseconds within which this share of what was counted lies; None if nothing was counted."""
    rank, seen = ceil(share * sum(histogram.values())), 0
    for bucket in sorted(histogram):
        seen += histogram[bucket]
        if rank and seen >= rank:
            return milliseconds_of(bucket)
    return None


def oldest_window(now: datetime) -> int:
    """The first window that matters now."""
    return window_of(now) - WINDOWS + 1


def recent(counts: Counts, now: datetime) -> dict[Cell, int]:
    """The counts of the windows that matter now. A window ahead of now is another machine's clock, and counts."""
    oldest = oldest_window(now)
    return {cell: count for cell, count in counts.items() if cell.window >= oldest}


def merged(all: Iterable[Counts]) -> dict[Cell, int]:
    """The sum of what several processes have counted."""
    total: Counter[Cell] = Counter()
    for counts in all:
        total.update(counts)
    return dict(total)


def figures(counts: Counts, now: datetime) -> dict[str, Figures]:
    """The figures of the last hour by tenant. WHOLE is always among them."""
    found: dict[str, dict[Measure, Counter[int]]] = {WHOLE: {}}
    for cell, count in recent(counts, now).items():
        found.setdefault(cell.tenant, {}).setdefault(cell.measure, Counter())[cell.bucket] += count
    return {tenant: _figures(measures) for tenant, measures in found.items()}


def _figures(measures: Mapping[Measure, Mapping[int, int]]) -> Figures:
    sent, failed = (sum(measures.get(measure, {}).values()) for measure in (Measure.SENT, Measure.FAILED))
    ended = sent + failed
    return Figures(
        sent=sent,
        failed=failed,
        send_success_rate=round(sent / ended, 4) if ended else None,
        send_p95_ms=percentile(measures.get(Measure.SEND_TIME, {}), P95),
        webhook_p95_ms=percentile(measures.get(Measure.WEBHOOK_TIME, {}), P95),
    )
