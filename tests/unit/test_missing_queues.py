"""Missing queues: how long one is remembered, and how often it is logged."""

import logging
from typing import Any

import pytest

from shared.queues.missing_queues import MissingQueues
from tests.support.pipelines import Lines, lines_of

QUEUE = "outbound-t007"


class Time:
    """A clock that a test sets."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def missing(time: Time) -> MissingQueues:
    return MissingQueues(time)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    return lines_of(caplog)


def test_a_missing_queue_is_remembered_for_a_minute(missing: MissingQueues, time: Time) -> None:
    assert QUEUE not in missing
    missing.add(QUEUE, "NOT_FOUND", "outbound")
    time.now += 59.9
    assert QUEUE in missing
    assert "outbound-t008" not in missing
    time.now += 0.2
    assert QUEUE not in missing


def test_a_missing_queue_is_logged_once_an_hour(
    missing: MissingQueues, time: Time, lines: Lines, caplog: pytest.LogCaptureFixture
) -> None:
    def logged() -> list[dict[str, Any]]:
        missing.add(QUEUE, "NOT_FOUND", "outbound")
        return lines("queue_missing")

    (line,) = logged()
    assert (line["queue"], line["reason"], line["instead"]) == (QUEUE, "NOT_FOUND", "outbound")
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    time.now += 3599
    assert len(logged()) == 1
    assert QUEUE in missing, "remembered again, though not logged"
    time.now += 2
    assert len(logged()) == 2


def test_each_missing_queue_has_its_own_line(missing: MissingQueues, lines: Lines) -> None:
    for name in (QUEUE, "inbound-t007", QUEUE):
        missing.add(name, "NOT_FOUND", "a shared one")
    assert [line["queue"] for line in lines("queue_missing")] == [QUEUE, "inbound-t007"]
