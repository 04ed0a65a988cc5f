"""The arithmetic of the isolation runs: which growth of a tenant's p95 is a fault."""

import math

import pytest

from tests.outages.isolation_runs import EVENT, OTHERS, REPLY, Samples, faults_of, quantile, row, written_by


def samples(event: float = 0.1, reply: float = 0.2, **events: float) -> Samples:
    """A hundred equal times of each tenant; `events`: those of one tenant."""
    found = {(EVENT, name): [events.get(name.replace("-", "_"), event)] * 100 for name in OTHERS}
    return {**found, **{(REPLY, name): [reply] * 100 for name in OTHERS}}


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50), (0.95, 95), (0.99, 99), (0.0, 1), (1.0, 100)])
def test_quantile_is_the_smallest_value_that_the_share_does_not_exceed(share: float, expected: int) -> None:
    assert quantile(list(range(100, 0, -1)), share) == expected


def test_equal_phases_show_no_fault() -> None:
    assert faults_of(samples(), samples(), 1.5) == []


def test_single_delayed_tenant_is_a_fault_although_the_others_are_not() -> None:
    assert faults_of(samples(), samples(tenant_c=0.16), 1.5) == [
        "message to handler of tenant-c: p95 is 1.60 times as long"
    ]


def test_slower_replies_are_a_fault_for_each_tenant() -> None:
    assert len(faults_of(samples(), samples(reply=0.31), 1.5)) == 3


def test_message_without_an_accepted_reply_is_a_fault() -> None:
    lost = {**samples(), (REPLY, "tenant-b"): [0.2] * 90 + [math.inf] * 10}
    assert len(faults_of(samples(), lost, 1.5)) == 1


def test_row_has_both_phases_in_milliseconds_and_the_worst_growth() -> None:
    line = row("redis", "limited", EVENT, samples(), samples(tenant_d=0.12))
    assert line == "| redis | limited | message to handler | 100 | 100 | 100 | 120 | 1.20 |"


@pytest.mark.parametrize(("name", "written"), [("limited", 1150), ("token", 1150), ("flooding", 4500), ("down", 150)])
def test_first_phase_has_as_many_messages_in_the_store_as_the_second(name: str, written: int) -> None:
    assert written_by(name, 300) == written
