"""A tenant in trouble delays no other tenant."""

from pathlib import Path

import pytest

from tests.outages import isolation_runs
from tests.outages.isolation_runs import (
    EVENT,
    OTHERS,
    REPLY,
    TROUBLES,
    in_trouble,
    make_stack,
    measured,
    phase,
    prepare,
    quantile,
)
from tests.support.stack import need_server_of

MESSAGES = 8
"""Of each tenant and phase. docs/reliability.md has runs with 300."""

QUEUED = 300
"""Messages of the tenant in trouble that wait. The runs have a thousand."""

SHORT = ("guessing", "limited")
"""The troubles that CI runs, at once; each alone is a slow test."""

LEAST = 0.1
"""Seconds. On a busy machine a p95 below this is noise."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "troubles", [SHORT, *(pytest.param((name,), marks=pytest.mark.slow) for name in sorted(TROUBLES))], ids=" ".join
)
def test_tenant_in_trouble_delays_no_other_tenant(
    troubles: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The promise is 1.5 times the others' p95; twice that is asserted, for the machine has other work."""
    need_server_of("sqlite")
    monkeypatch.setattr(isolation_runs, "TENANTS", (*OTHERS, *troubles))
    monkeypatch.setattr(isolation_runs, "QUEUED", QUEUED)
    with make_stack(tmp_path / "data", "sqlite", is_forked=True) as stack:
        prepare(stack)
        before = measured(stack, phase(stack, MESSAGES))
        during = in_trouble(stack, troubles, MESSAGES)
    slow = {
        (what, name): f"{quantile(during[what, name], 0.95):.3f} s, {quantile(before[what, name], 0.95):.3f} s before"
        for what in (EVENT, REPLY)
        for name in OTHERS
        if quantile(during[what, name], 0.95) > 3 * max(quantile(before[what, name], 0.95), LEAST)
    }
    assert slow == {}
