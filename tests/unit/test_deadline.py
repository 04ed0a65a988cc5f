"""A deadline has passed when no time is left, and no sooner."""

import pytest

from shared.domain.deadline import FAILURE_SECONDS, HEALTHY_SECONDS, Deadline


@pytest.mark.parametrize(
    ("seconds", "passed"),
    [(0.0, False), (HEALTHY_SECONDS - 0.5, False), (HEALTHY_SECONDS, True), (HEALTHY_SECONDS + 1, True)],
)
def test_a_deadline_passes_at_its_moment(seconds: float, passed: bool) -> None:
    now = [100.0]
    deadline = Deadline.of_webhook(lambda: now[0])
    now[0] += seconds
    assert deadline.has_passed is passed
    assert deadline.left() == pytest.approx(HEALTHY_SECONDS - seconds)
    assert deadline.left(has_failed=True) == pytest.approx(FAILURE_SECONDS - seconds)
