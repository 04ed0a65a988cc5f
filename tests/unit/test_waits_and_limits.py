"""How long we wait and how long things may take: the numbers of docs/protocol.md, and what must hold between them."""

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from shared.domain.limits import Backoff, Limits
from shared.domain.record import Kind
from shared.domain.retention import RAW_PAYLOAD_BYTES, UNKNOWN_SENDER_PAYLOAD_BYTES, retention
from shared.domain.verdicts import Limited, LimitScope, Retry
from shared.domain.waits import after_outage, asked_for, before_limited, before_retry, jittered, spread
from tests.support.builders import NOW

LIMITS = Limits()
WAITS = LIMITS.waits
SCALES = (1, 1.5, 2, 3, 5, 7, 10, 13, 20)
ROUNDING = timedelta(microseconds=5)
"""A scaled duration is rounded to a microsecond, and so is each that is added to it."""


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


# ---- waits


@pytest.mark.parametrize(("jitter", "share"), [(0, 0.8), (0.5, 1), (1, 1.2)])
@pytest.mark.parametrize(
    ("attempt", "wait"), [(1, 10), (2, 20), (3, 40), (4, 80), (5, 160), (6, 300), (7, 300), (90, 300)]
)
def test_retry_waits_grow_by_backoff(attempt: int, wait: float, jitter: float, share: float) -> None:
    assert before_retry(attempt, WAITS, jitter) == seconds(wait * share)


@pytest.mark.parametrize(("jitter", "share"), [(0, 0.8), (0.5, 1), (1, 1.2)])
@pytest.mark.parametrize(
    ("scope", "throttled", "wait"),
    [
        *((LimitScope.CONTACT, n, wait) for n, wait in enumerate((1, 4, 16, 64, 256, 256), start=1)),
        (LimitScope.CONTACT, 500, 256),
        *((LimitScope.ACCOUNT, n, wait) for n, wait in enumerate((60, 120, 240, 480, 960, 1920), start=1)),
    ],
)
def test_contact_and_account_limits_have_their_waits(
    scope: LimitScope, throttled: int, wait: float, jitter: float, share: float
) -> None:
    assert before_limited(Limited(scope, 1), throttled, WAITS, jitter) == seconds(wait * share)


@pytest.mark.parametrize("throttled", [1, 2, 9])
@pytest.mark.parametrize(("jitter", "wait"), [(0, 30), (0.5, 45), (1, 60)])
def test_maintenance_waits_the_same_each_time(jitter: float, wait: float, throttled: int) -> None:
    assert before_limited(Limited(LimitScope.MAINTENANCE, 1), throttled, WAITS, jitter) == seconds(wait)


@pytest.mark.parametrize(("jitter", "share"), [(0, 1), (0.5, 1.5), (1, 2)])
@pytest.mark.parametrize(("throttled", "wait"), [(1, 1), (2, 4), (3, 16), (4, 32), (5, 32), (500, 32)])
def test_a_sender_that_stays_limited_is_asked_less_and_less(
    throttled: int, wait: float, jitter: float, share: float
) -> None:
    limited = Limited(LimitScope.RATE, 130429)
    assert before_limited(limited, throttled, WAITS, jitter) == seconds(wait * share)


def test_a_limit_never_waits_for_ever() -> None:
    assert before_limited(Limited(LimitScope.ACCOUNT, 1), 100_000, WAITS, 0.5) <= timedelta(hours=24)


@pytest.mark.parametrize("scope", LimitScope)
@pytest.mark.parametrize("jitter", [0, 0.5, 1])
def test_a_retry_after_is_the_least_wait(scope: LimitScope, jitter: float) -> None:
    assert before_limited(Limited(scope, 1, seconds(4000)), 1, WAITS, jitter) == seconds(4000)
    ours = before_limited(Limited(scope, 1), 1, WAITS, jitter)
    assert before_limited(Limited(scope, 1, timedelta()), 1, WAITS, jitter) == ours


@pytest.mark.parametrize("scope", LimitScope)
def test_a_documented_wait_of_a_limit_is_the_least_wait_and_scaled_with_all_others(scope: LimitScope) -> None:
    assert before_limited(Limited(scope, 1, minutes=60), 1, WAITS, 0.5) == seconds(3600)
    assert before_limited(Limited(scope, 1, minutes=60), 1, LIMITS.scaled(20).waits, 0.5) == seconds(180)


@pytest.mark.parametrize("verdict", [Retry(minutes=5), Limited(LimitScope.RATE, 1, minutes=5)])
def test_the_longer_of_the_two_waits_that_a_provider_asks_for_counts(verdict: Retry | Limited) -> None:
    for asked, wait in ((None, 300), (seconds(299), 300), (seconds(301), 301)):
        assert asked_for(replace(verdict, retry_after=asked), WAITS) == seconds(wait)


@pytest.mark.parametrize(
    ("throttled", "until", "asked", "jitter", "wait"),
    [
        *((n, None, None, 0.5, wait) for n, wait in enumerate((10, 20, 40, 80, 160, 300, 300))),
        (100_000, None, None, 0.5, 300),
        (0, None, None, 0, 8),
        (0, None, None, 1, 12),
        (0, 9, 5, 0, 9),
        (0, 5, 9, 0, 9),
        (0, 5, 5, 1, 12),
        (0, -5, 0, 0, 8),
    ],
)
def test_an_outage_is_waited_out_until_the_latest_of_its_ends(
    throttled: int, until: float | None, asked: float | None, jitter: float, wait: float
) -> None:
    ends = None if until is None else NOW + seconds(until)
    least = None if asked is None else seconds(asked)
    assert after_outage(throttled, ends, least, WAITS, NOW, jitter) == NOW + seconds(wait)


@pytest.mark.parametrize(("jitter", "wait"), [(0, 80), (0.25, 90), (0.5, 100), (0.75, 110), (1, 120)])
def test_jitter_spreads_a_wait_by_a_fifth(jitter: float, wait: float) -> None:
    assert jittered(seconds(100), jitter) == seconds(wait)


@pytest.mark.parametrize(("jitter", "wait"), [(0, 50), (0.25, 75), (0.5, 100), (0.75, 125), (1, 150)])
def test_wait_of_a_thousand_is_spread_by_a_half(jitter: float, wait: float) -> None:
    assert spread(seconds(100), jitter) == seconds(wait)


@pytest.mark.parametrize(
    ("backoff", "waits"),
    [
        pytest.param(WAITS.predecessor, (0.3, 0.6, 1.2, 2.4, 4.8, 9.6, 19.2, 38.4, 38.4), id="predecessor: 0.3 s, k 7"),
        pytest.param(WAITS.outage, (10, 20, 40, 80, 160, 300, 300), id="outage: 10 s doubling to 5 min"),
        pytest.param(WAITS.limited, (60, 200, 200), id="limited: 60 s, times 4, to 200 s"),
        pytest.param(WAITS.doubt, (15, 30, 60, 120, 240, 240), id="doubt: 15 s, k 4"),
        pytest.param(WAITS.block, (600, 1200, 2400, 4800, 9600, 19200, 21600), id="blocked: 10 min doubling to 6 h"),
    ],
)
def test_backoff_grows_to_its_cap(backoff: Backoff, waits: tuple[int, ...]) -> None:
    assert [backoff.after(times) for times in range(len(waits))] == [seconds(wait) for wait in waits]
    assert backoff.after(100_000) == seconds(waits[-1])


# ---- limits


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (lambda limits: limits.max_attempts, 8),
        (lambda limits: limits.max_doubts, 2),
        (lambda limits: limits.max_replies, 30),
        (lambda limits: limits.post.connect, seconds(3)),
        (lambda limits: limits.post.write, seconds(3)),
        (lambda limits: limits.post.read, seconds(6)),
        (lambda limits: limits.post.total, seconds(20)),
        (lambda limits: limits.post.longest, seconds(26)),
        (lambda limits: limits.outbound_lease, seconds(60)),
        (lambda limits: limits.begin_within, seconds(30)),
        (lambda limits: limits.inbound_lease, seconds(90)),
        (lambda limits: limits.request_timeout, seconds(120)),
        (lambda limits: limits.dispatch_deadline, seconds(135)),
        (lambda limits: limits.clock_margin, seconds(4)),
        (lambda limits: limits.request_budget, seconds(90)),
        (lambda limits: limits.doubt_window, seconds(300)),
        (lambda limits: limits.message_max_age, timedelta(hours=24)),
        (lambda limits: limits.sweep_after, seconds(600)),
        (lambda limits: limits.sweep_longest, timedelta(hours=6)),
        (lambda limits: limits.inbound_retention, timedelta(days=8)),
        (lambda limits: limits.outbound_retention, timedelta(days=35)),
        (lambda limits: limits.receipt_retention, timedelta(days=35)),
        (lambda limits: limits.waits.credential, timedelta(minutes=10)),
        (lambda limits: limits.waits.reply_spacing, seconds(1)),
        (lambda limits: limits.order_patience, seconds(600)),
        (lambda limits: limits.claim, seconds(90)),
        (lambda limits: limits.marks_age, seconds(5)),
        (lambda limits: limits.waits.claimed, seconds(15)),
        (lambda limits: limits.waits.doubtful_trial, seconds(60)),
        (lambda limits: limits.waits.confirmation, seconds(60)),
        (lambda limits: limits.waits.credential_probe, timedelta(hours=2)),
    ],
)
def test_limits_have_the_numbers_of_the_protocol(read: Callable[[Limits], Any], value: Any) -> None:
    assert read(LIMITS) == value


@pytest.mark.parametrize("timeout", [1, 30, 60, 1700])
def test_the_dispatch_deadline_outlasts_the_request_and_the_request_the_lease(timeout: float) -> None:
    limits = Limits(handler_timeout=seconds(timeout))
    longest = max(seconds(timeout + 30), limits.outbound_lease, limits.request_budget)
    assert limits.inbound_lease == seconds(timeout + 30)
    assert limits.request_timeout == longest + seconds(30)
    assert limits.dispatch_deadline == longest + seconds(30) + seconds(15)


def test_retention_depends_on_the_kind() -> None:
    limits = Limits(inbound_retention=timedelta(days=9), outbound_retention=timedelta(days=36))
    assert retention(Kind.INBOUND, limits) == timedelta(days=9)
    assert retention(Kind.OUTBOUND, limits) == timedelta(days=36)
    assert UNKNOWN_SENDER_PAYLOAD_BYTES == 16 * 1024
    assert RAW_PAYLOAD_BYTES == 256 * 1024


# ---- TIME_SCALE


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every field, however deep, with its path."""
    if is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from leaves(getattr(value, field.name), f"{path}.{field.name}")
    else:
        yield path, value


def test_nested_limits_are_found() -> None:
    paths = dict(leaves(LIMITS))
    assert {".outbound_lease", ".post.read", ".waits.retry.longest", ".waits.retry.factor"} <= set(paths)


@pytest.mark.parametrize("scale", SCALES)
def test_a_scale_divides_every_duration_and_nothing_else(scale: float) -> None:
    scaled = dict(leaves(LIMITS.scaled(scale)))
    for path, value in leaves(LIMITS):
        assert scaled[path] == (value / scale if isinstance(value, timedelta) else value), path


@pytest.mark.parametrize("scale", SCALES)
def test_a_scale_divides_what_is_derived_too(scale: float) -> None:
    scaled = LIMITS.scaled(scale)
    for derived in ("inbound_lease", "request_timeout", "dispatch_deadline"):
        assert abs(getattr(scaled, derived) - getattr(LIMITS, derived) / scale) <= ROUNDING
    assert abs(scaled.post.longest - LIMITS.post.longest / scale) <= ROUNDING


def test_a_scale_of_one_changes_nothing() -> None:
    assert LIMITS.scaled(1) == LIMITS


@pytest.mark.parametrize("scale", SCALES)
class TestSafetyAtEveryScale:
    def test_a_send_that_begins_in_time_is_over_before_its_lease(self, scale: float) -> None:
        limits = LIMITS.scaled(scale)
        margin = limits.outbound_lease - limits.begin_within - limits.post.longest
        assert margin >= seconds(4 / scale) - ROUNDING

    def test_a_claim_outlasts_the_probe_and_the_trial(self, scale: float) -> None:
        limits = LIMITS.scaled(scale)
        assert limits.claim >= limits.post.longest * 2 + limits.begin_within - ROUNDING

    def test_a_doubt_outlives_the_worker_that_left_it(self, scale: float) -> None:
        limits = LIMITS.scaled(scale)
        assert limits.doubt_window >= limits.request_budget + seconds(30 / scale)
        assert limits.request_budget >= limits.outbound_lease

    def test_an_event_is_held_until_its_handler_is_over(self, scale: float) -> None:
        limits = LIMITS.scaled(scale)
        assert limits.inbound_lease > limits.handler_timeout

    def test_the_queue_waits_for_the_longest_lease(self, scale: float) -> None:
        limits = LIMITS.scaled(scale)
        assert limits.dispatch_deadline > max(limits.inbound_lease, limits.outbound_lease, limits.request_budget)

    def test_sweep_starts_after_the_longest_lease(self, scale: float) -> None:
        limits = LIMITS.scaled(scale)
        assert limits.sweep_after > max(limits.inbound_lease, limits.outbound_lease)
        assert limits.sweep_after <= limits.sweep_longest

    def test_an_event_is_remembered_longer_than_it_is_redelivered(self, scale: float) -> None:
        assert LIMITS.scaled(scale).inbound_retention > timedelta(days=7) / scale
