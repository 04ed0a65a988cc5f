"""Counters as values: buckets of times, percentiles, windows, and the sum of many processes."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from math import ceil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.domain.counters import (
    KEPT_FOR,
    LAST_BUCKET,
    P95,
    WHOLE,
    WINDOW,
    Cell,
    Figures,
    Measure,
    bucket_of,
    figures,
    merged,
    milliseconds_of,
    percentile,
    recent,
    window_of,
)
from shared.domain.errors import UnknownState
from shared.stores.counters_codec import decode, encode

NOW = datetime(2026, 3, 1, 12, 5, tzinfo=UTC)
OFF = 2 ** (1 / 8) - 1 + 0.001
"""How far a percentile may be off: half a bucket, and its rounding."""

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
times = st.lists(st.floats(0.01, 4000), min_size=1, max_size=60)
cells = st.builds(
    Cell,
    st.integers(-9, 0).map(lambda ago: window_of(NOW) + ago),
    st.sampled_from([WHOLE, "a", "b"]),
    st.sampled_from(Measure),
    st.integers(0, LAST_BUCKET),
)
counts = st.dictionaries(cells, st.integers(1, 10**9), max_size=12)


def histogram(seconds: list[float]) -> Counter[int]:
    return Counter(map(bucket_of, seconds))


@patient
@given(times, st.sampled_from([0.5, 0.95, 0.99, 1.0]))
def test_percentile_is_at_most_nine_percent_off(seconds: list[float], share: float) -> None:
    exact = sorted(seconds)[ceil(share * len(seconds)) - 1] * 1000
    assert percentile(histogram(seconds), share) == pytest.approx(exact, rel=OFF)


def test_p95_of_injected_latencies() -> None:
    assert P95 == 0.95, "the share of the figures"
    assert percentile(histogram([0.2] * 94 + [1.0] * 6), 0.95) == pytest.approx(1000, rel=OFF)
    assert percentile(histogram([0.2] * 95 + [1.0] * 5), 0.95) == pytest.approx(200, rel=OFF)


def test_percentile_of_nothing_is_none() -> None:
    assert percentile({}, 0.95) is None
    assert percentile({3: 0}, 0.95) is None


@patient
@given(st.floats(-1, 10**7), st.floats(-1, 10**7))
def test_longer_times_have_no_lower_bucket(one: float, other: float) -> None:
    first, second = sorted((one, other))
    assert 0 <= bucket_of(first) <= bucket_of(second) <= LAST_BUCKET


@pytest.mark.parametrize(
    ("seconds", "milliseconds"), [(-5, 1), (0, 1), (0.001, 1), (2**22 / 1000, 2**22), (10**6, 2**22)]
)
def test_times_out_of_bounds_count_as_the_nearest(seconds: float, milliseconds: float) -> None:
    assert milliseconds_of(bucket_of(seconds)) == milliseconds


@patient
@given(st.lists(counts, max_size=4))
def test_counters_of_processes_add_up_in_any_order(many: list[dict[Cell, int]]) -> None:
    total = merged(many)
    assert total == merged(reversed(many))
    assert sum(total.values()) == sum(sum(one.values()) for one in many)
    assert total == merged([merged(many[:2]), merged(many[2:])])


@patient
@given(counts)
def test_figures_count_only_the_last_hour_and_each_tenant_apart(given_: dict[Cell, int]) -> None:
    found = figures(given_, NOW)
    assert found.keys() == {WHOLE} | {cell.tenant for cell in recent(given_, NOW)}
    for tenant, its in found.items():
        of_tenant = {cell: count for cell, count in given_.items() if cell.tenant == tenant}
        assert its == figures({cell._replace(tenant=WHOLE): n for cell, n in of_tenant.items()}, NOW)[WHOLE]
        assert its.sent == sum(
            count
            for cell, count in of_tenant.items()
            if cell.measure is Measure.SENT and cell.window > window_of(NOW) - 7
        )


def test_rate_is_of_the_messages_that_ended() -> None:
    window = window_of(NOW)
    found = figures({Cell(window, WHOLE, Measure.SENT): 2, Cell(window - 1, WHOLE, Measure.FAILED): 1}, NOW)
    assert found[WHOLE] == Figures(2, 1, 0.6667, None, None)
    assert figures({}, NOW) == {WHOLE: Figures(0, 0, None, None, None)}
    assert figures({Cell(window, WHOLE, Measure.FAILED): 1}, NOW)[WHOLE].send_success_rate == 0


def test_last_hour_is_the_last_60_to_70_minutes() -> None:
    for minutes, count in ((0, 1), (60, 1), (64.9, 1), (70, 0), (-1, 1)):
        then = NOW - timedelta(minutes=minutes)
        found = figures({Cell(window_of(then), WHOLE, Measure.SENT): 1}, NOW)
        assert found[WHOLE].sent == count, minutes
    assert KEPT_FOR == 7 * WINDOW == timedelta(minutes=70)


@patient
@given(counts)
def test_counts_survive_a_round_trip(given_: dict[Cell, int]) -> None:
    assert decode(encode(given_)) == given_


def test_measure_of_a_newer_version_is_left_out() -> None:
    text = '{"7":{"a":{"sent":[0,3],"praised":[0,9]}}}'
    assert decode(text) == {Cell(7, "a", Measure.SENT): 3}


@pytest.mark.parametrize(
    "text", ["", "[]", "7", '{"x":{}}'.replace("{}", '{"a":{"sent":[0,1]}}'), '{"7":{"a":{"sent":[0]}}}']
)
def test_damaged_counts_are_an_unknown_state(text: str) -> None:
    with pytest.raises(UnknownState):
        decode(text)
