"""The attempts that a record keeps: as many as a round may have, whatever MAX_ATTEMPTS says."""

from dataclasses import replace
from datetime import timedelta

import pytest

from shared.config import INTERNAL, ConfigError, load
from shared.domain.delivery.answers import Run
from shared.domain.delivery.lease import lease
from shared.domain.delivery.operator import replay
from shared.domain.delivery.settle import settle
from shared.domain.guards import Go
from shared.domain.limits import Limits
from shared.domain.record import ATTEMPTS_KEPT, Delivery, Kind, State, Task
from shared.domain.verdicts import HandlerFailed, Retry
from shared.operations.timeline.records import moments
from tests.support.builders import NO_JITTER, NOW, pending

MOST = load({"MAX_ATTEMPTS": str(ATTEMPTS_KEPT)}, INTERNAL).limits
A_LONG_TIME = timedelta(minutes=10)


def exhausted(record: Delivery, limits: Limits, cut_off: int | None = None) -> Delivery:
    """The record after one round of attempts that all fail; of number `cut_off` the worker is killed."""
    now = NOW
    while not record.final:
        now += A_LONG_TIME
        step = lease(record, Task.of(record), f"token-{now}", Go(), limits, now)
        if not isinstance(step.next, Run):
            assert step.write is not None
            return step.write
        record = step.next.record
        if record.attempt != cut_off:
            failed = HandlerFailed("no") if record.kind is Kind.INBOUND else Retry(131000)
            settled = settle(record, f"token-{now}", failed, limits, now, NO_JITTER)
            assert settled.write is not None
            record = settled.write
    return record


def numbers_shown(record: Delivery) -> list[int]:
    """Of the tries that failed or were cut off, as the timeline tells them."""
    told = [
        one for one in moments(record, "", lambda *_: None, (), {}, None) if one.what in ("handler_failed", "retry")
    ]
    return [int(one.sentence.rpartition("attempt ")[2].split(",")[0].rstrip(")")) for one in told]


def test_every_attempt_up_to_the_largest_max_attempts_is_stored() -> None:
    assert MOST.max_attempts == ATTEMPTS_KEPT == 50
    with pytest.raises(ConfigError):
        load({"MAX_ATTEMPTS": str(ATTEMPTS_KEPT + 1)}, INTERNAL)


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("limits", [Limits(), MOST], ids=["by default", "at most"])
def test_the_timeline_shows_every_attempt_of_a_round(kind: Kind, limits: Limits) -> None:
    record = exhausted(replace(pending(kind), give_up_at=None), limits)
    assert (record.state, len(record.attempts_log)) == (State.DEAD, limits.max_attempts)
    assert numbers_shown(record) == list(range(1, limits.max_attempts + 1))


@pytest.mark.parametrize("limits", [Limits(), MOST], ids=["by default", "at most"])
def test_the_timeline_shows_that_the_first_of_many_attempts_was_cut_off(limits: Limits) -> None:
    record = exhausted(replace(pending(Kind.INBOUND), give_up_at=None), limits, cut_off=1)
    told = list(moments(record, "", lambda *_: None, (), {}, None))
    assert [one.what for one in told[:3]] == ["received", "cut_off", "handler_failed"]
    assert numbers_shown(record) == list(range(2, limits.max_attempts + 1))


def test_newest_attempts_survive_when_the_log_is_full() -> None:
    first = exhausted(replace(pending(Kind.INBOUND), give_up_at=None), MOST)
    again = replay(first, MOST, NOW).write
    assert again is not None
    second = exhausted(replace(again, give_up_at=None), MOST)
    assert {attempt.round for attempt in second.attempts_log} == {1}
    assert numbers_shown(second) == list(range(1, ATTEMPTS_KEPT + 1))
