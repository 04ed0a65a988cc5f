"""What the cases of the stores' contract share: moments, decisions, receipts and records."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from shared.domain.counters import Cell, Measure, ProcessCounters
from shared.domain.delivery.answers import Answer, Step, TaskResult
from shared.domain.delivery.lease import lease
from shared.domain.events import ReceiptBlock, ReceiptReceived
from shared.domain.guards import Go
from shared.domain.identity import Echo
from shared.domain.limits import Limits
from shared.domain.listings import Listing
from shared.domain.record import (
    Attempt,
    Delivery,
    Kind,
    ReceiptKind,
    State,
    Task,
)
from shared.pipeline.ports import DecideMarks
from tests.support.receipts import note_receipt

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LIMITS = Limits()
OK = Answer(TaskResult.ACK, "ok")
THREADS = 64
ID, OTHER_ID = "a" * 40, "b" * 40
"""Of marks."""
A_DAY = 86_400
"""Seconds that a back end may be late in deleting what has expired."""
TEXTS = [
    "",
    "👩‍👩‍👧‍👦 🏳️‍🌈",
    "مرحبا \u202eشكرا\u202c",
    "\ufffd\ufeff\u200b",
    'a "quoted" \\ back',
    "line\nbreak\ttab\r",
    "a\u0000b",
    "ção 漢字",
]

many = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
keys = (f"{number:040x}" for number in itertools.count(1 << 40))
"""Fresh ones: the examples of one test share a store."""


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def writing(**changes: Any) -> Callable[[Delivery | None], Step]:
    """A decision that changes these fields, whatever it finds."""
    return lambda record: Step(OK, write=replace(record, **changes))


def of_unknown_state(record: Delivery) -> Delivery:
    """As a newer version would have written it."""
    state: Any = "parked"
    return replace(record, state=state)


def lease_with(token: str, now: datetime = NOW) -> Callable[[Delivery | None], Step]:
    def decide(record: Delivery | None) -> Step:
        return lease(record, Task("", Kind.OUTBOUND, "", record.generation if record else 0), token, Go(), LIMITS, now)

    return decide


def receipt(
    kind: ReceiptKind, seconds: float = 0, provider_id: str = "wamid.1", code: int | None = None
) -> ReceiptReceived:
    return ReceiptReceived("meta", "100000000000001", provider_id, kind, at(seconds), code)


def echo_of(record: Delivery, round_: int = 0) -> Echo:
    return Echo(record.key, round_, record.correlation_id)


moments = st.timedeltas(timedelta(days=-20_000), timedelta(days=60_000)).map(lambda ago: NOW + ago)


words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(TEXTS)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)


counts = st.integers(0, 1000)


attempts = st.builds(
    Attempt,
    at=moments,
    attempt=counts,
    answer=words,
    code=st.none() | counts,
    round=counts,
    **dict.fromkeys(["provider_id", "error", "error_type", "place", "function"], st.none() | words),
)


receipts = st.builds(
    receipt,
    st.sampled_from(ReceiptKind),
    st.integers(-3, 3),
    st.sampled_from(["wamid.1", "wamid.2"]),
    st.none() | st.sampled_from([0, 131026]),
)


def counters(process: str = "p1", seconds: float = 0, **counts: int) -> ProcessCounters:
    """Sends of these tenants."""
    cells = {Cell(7, tenant, Measure.SENT): count for tenant, count in counts.items()}
    return ProcessCounters(process, at(seconds), cells)


def all_of(store: Any, listing: Listing, tenant: str | None = None, limit: int = 100) -> list[Delivery]:
    """Every record of a listing, page by page; no page holds more than was asked for."""
    found, after = [], None
    while True:
        page = store.listed(listing, tenant, after, limit)
        assert len(page.records) <= limit
        found += page.records
        if page.ends_at is None:
            return found
        after = page.ends_at


def a_refused(store: Any, a_record: Callable[..., Delivery], **changes: Any) -> Delivery:
    record = a_record(**{"state": State.DONE, "expire_at": at(9 * A_DAY)} | changes)
    store.create(record)
    note_receipt(store, echo_of(record, record.round), receipt(ReceiptKind.FAILED, 1, code=131026))
    return record


NOTED = ReceiptBlock(131031, at(0.000001), "c" * 40)


def setting(**marks: Any) -> DecideMarks:
    """A decision that sets these marks, whatever it finds."""
    return lambda current: replace(current, **marks)


codes = st.integers(0, 2**53)
