"""A run over many letters: several at once, each once, and what was begun is counted."""

import threading
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from cli.dead import replay_and_discard
from cli.dead.run import AT_ONCE, Tally, in_parallel
from shared.operations.dead_letters import Done


def test_each_item_is_processed_once_and_its_result_collected() -> None:
    taken: list[int] = []
    in_parallel(lambda number: -number, range(1000), taken.append)
    assert sorted(taken) == sorted(-number for number in range(1000))


def test_the_first_that_raises_stops_the_rest() -> None:
    begun: list[int] = []

    def act(number: int) -> None:
        begun.append(number)
        if number == 3:
            raise LookupError("the store is away")

    with pytest.raises(LookupError):
        in_parallel(act, range(10_000), lambda _: None)
    assert len(begun) < 10_000


@pytest.mark.parametrize("started", [1, AT_ONCE // 2, AT_ONCE])
def test_running_items_are_collected_when_ctrl_c_interrupts_a_thread_start(
    started: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pool does not wait for a thread that it could not write down."""
    is_interrupted, acted, taken = threading.Event(), set[int](), set[int]()

    def act(number: int) -> int:
        acted.add(number)
        assert is_interrupted.wait(10)
        return number

    monkeypatch.setattr(threading.Thread, "start", interrupted_at(started, threading.Thread.start, is_interrupted))
    with pytest.raises(KeyboardInterrupt):
        in_parallel(act, range(1000), taken.add)
    assert taken == acted
    assert acted


def interrupted_at(
    number: int, start: Callable[[threading.Thread], None], is_interrupted: threading.Event
) -> Callable[[threading.Thread], None]:
    """Thread.start, in which Ctrl-C comes once, when that many have begun."""
    count = 0

    def started(thread: threading.Thread) -> None:
        nonlocal count
        start(thread)
        count += 1
        if count == number:
            start(threading.Timer(0.2, is_interrupted.set))
            raise KeyboardInterrupt

    return started


def test_ensured_tasks_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    parts: Any = Mock()
    again = Mock(ensure=Mock(return_value=None))
    monkeypatch.setattr(replay_and_discard, "untried", lambda _: range(3))
    tally = Tally(Done.REPLAYED)
    replay_and_discard._ensure(parts, again, 3, tally)
    assert again.ensure.call_count == 3
    assert tally.as_dict(is_whole=True)["ensured"] == 3
