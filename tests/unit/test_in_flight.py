"""Calls in flight: what a batch gives back when calls fail, hang, or take too long, and the deadline of a webhook."""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from shared.domain.deadline import Deadline
from shared.domain.errors import StoreUnavailable
from shared.net.in_flight import CallsInFlight

TOO_SLOW = StoreUnavailable("too slow")


@dataclass
class Clock:
    """Time that a test moves."""

    seconds: float = 100.0

    def __call__(self) -> float:
        return self.seconds


def soon(healthy: float = 30.0, failing: float = 30.0) -> Deadline:
    now = time.monotonic()
    return Deadline(time.monotonic, now + healthy, now + failing)


def each(
    call: Callable[[int], int], count: int, most: int = 4, deadline: Deadline | None = None
) -> list[int | Exception]:
    in_flight = CallsInFlight(most, "test")
    try:
        return in_flight.each(call, range(count), deadline or soon(), TOO_SLOW)
    finally:
        in_flight.close()


@pytest.mark.parametrize("count", [0, 1, 3, 500])
def test_results_come_in_the_order_of_the_items(count: int) -> None:
    assert each(lambda item: item * 2, count) == [item * 2 for item in range(count)]


def test_an_items_own_fault_is_its_result_and_stops_no_other() -> None:
    fault = ValueError()

    def call(item: int) -> int:
        if item in (3, 7):
            raise fault
        return item

    assert each(call, 20) == [fault if item in (3, 7) else item for item in range(20)]


def test_after_an_outage_no_item_starts_and_the_rest_get_its_error() -> None:
    outage = StoreUnavailable("away")
    begun: list[int] = []

    def call(item: int) -> int:
        begun.append(item)
        if item == 2:
            raise outage
        time.sleep(0.02)
        return item

    results = each(call, 100)
    assert len(begun) <= 8
    assert [results[item] for item in (2, 98, 99)] == [outage] * 3
    assert {results[item] for item in begun if item != 2} <= set(range(100))


def test_after_an_outage_a_hanging_call_is_awaited_only_briefly() -> None:
    """It goes on, and its late result is thrown away: it is not known whether the item was done."""
    hangs, released = threading.Event(), threading.Event()
    outage = StoreUnavailable("away")

    def call(item: int) -> int:
        if item == 0:
            assert hangs.wait(10)
            raise outage
        hangs.set()
        assert released.wait(10)
        return item

    began = time.monotonic()
    try:
        results = each(call, 2, most=2, deadline=soon(healthy=30, failing=0.3))
        assert 0.2 < time.monotonic() - began < 5
        assert results == [outage, outage]
    finally:
        released.set()


def test_outage_fails_every_waiting_batch() -> None:
    """Or each of many POSTs would take its own two seconds to learn of a dead queue, one after another."""
    in_flight = CallsInFlight(2, "test")
    outage = StoreUnavailable("away")

    def away(_: int) -> int:
        time.sleep(0.3)
        raise outage

    results: list[list[int | Exception]] = []
    threads = [
        threading.Thread(target=lambda: results.append(in_flight.each(away, range(2), soon(), TOO_SLOW)))
        for _ in range(8)
    ]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - began < 1.2, "one after another they take 2.4 s"
    assert results == [[outage, outage]] * 8
    assert in_flight.each(lambda item: item, range(4), soon(), TOO_SLOW) == [0, 1, 2, 3], "a later one tries for itself"
    in_flight.close()


def test_a_batch_of_a_closed_client_ends_at_once() -> None:
    in_flight = CallsInFlight(2, "test")

    def call(item: int) -> int:
        in_flight.close()
        time.sleep(0.05)
        return item

    began = time.monotonic()
    results = in_flight.each(call, range(50), soon(), TOO_SLOW)
    assert time.monotonic() - began < 5
    assert results[-1] is TOO_SLOW


def test_calls_without_an_answer_by_the_deadline_are_too_slow_and_never_done() -> None:
    released = threading.Event()

    def call(item: int) -> int:
        if item:
            assert released.wait(10)
        return item

    try:
        results = each(call, 3, most=3, deadline=soon(healthy=0.3, failing=0.3))
        assert 0 not in [result for result in results[1:] if not isinstance(result, Exception)]
        assert results.count(TOO_SLOW) >= 1
        assert not any(isinstance(result, int) and result > 0 for result in results)
    finally:
        released.set()


def test_nothing_begins_once_the_deadline_has_passed() -> None:
    clock = Clock()
    begun: list[int] = []

    def call(item: int) -> int:
        begun.append(item)
        clock.seconds += 4
        return item

    deadline = Deadline(clock, healthy=109.5, failing=104.5)
    assert each(call, 10, most=1, deadline=deadline) == [0, 1, 2, *[TOO_SLOW] * 7]
    assert begun == [0, 1, 2]


def test_no_more_calls_than_allowed_are_in_flight() -> None:
    lock = threading.Lock()
    open_, most = 0, 0

    def call(item: int) -> int:
        nonlocal open_, most
        with lock:
            open_ += 1
            most = max(most, open_)
        time.sleep(0.005)
        with lock:
            open_ -= 1
        return item

    each(call, 60, most=5)
    assert most == 5


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
def test_forked_process_starts_its_own_threads() -> None:
    """A child has none of its parent's."""
    in_flight = CallsInFlight(2, "test")
    assert in_flight.each(lambda item: item, range(4), soon(), TOO_SLOW) == [0, 1, 2, 3]
    child = os.fork()
    if child == 0:
        done = in_flight.each(lambda item: item, range(4), soon(healthy=5, failing=5), TOO_SLOW) == [0, 1, 2, 3]
        os._exit(0 if done else 1)
    assert os.waitpid(child, 0)[1] == 0
    in_flight.close()


def test_webhook_deadline_is_9_5_seconds_and_4_5_after_a_failure() -> None:
    """Under the 10 s of a healthy large POST and the 5 s of one that meets a dead store or queue."""
    clock = Clock()
    deadline = Deadline.of_webhook(clock)
    assert (deadline.left(), deadline.left(has_failed=True), deadline.has_passed) == (9.5, 4.5, False)
    clock.seconds += 9.5
    assert (deadline.left(), deadline.has_passed) == (0.0, True)
