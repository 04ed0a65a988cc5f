"""A tenant in trouble delays no other tenant."""

from pathlib import Path

import pytest

from tests.outages.isolation_runs import EVENT, OTHERS, REPLY, TROUBLES, make_stack, quantile, run
from tests.support.stack import need_server_of

MESSAGES = 12
"""Of each tenant and phase. docs/reliability.md has runs with 300."""

SHORT = {"limited"}
"""The trouble that CI runs; the others are slow tests."""

LEAST = 0.1
"""Seconds. On a busy machine a p95 below this is noise."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "trouble", [pytest.param(name, marks=[] if name in SHORT else pytest.mark.slow) for name in sorted(TROUBLES)]
)
def test_tenant_in_trouble_delays_no_other_tenant(trouble: str, tmp_path: Path) -> None:
    """The promise is 1.5 times the others' p95; twice that is asserted, for the machine has other work."""
    need_server_of("sqlite")
    with make_stack(tmp_path / "data", "sqlite") as stack:
        ((_, before, during),) = run(stack, [[trouble]], MESSAGES)
    slow = {
        (what, name): f"{quantile(during[what, name], 0.95):.3f} s, {quantile(before[what, name], 0.95):.3f} s before"
        for what in (EVENT, REPLY)
        for name in OTHERS
        if quantile(during[what, name], 0.95) > 3 * max(quantile(before[what, name], 0.95), LEAST)
    }
    assert slow == {}
