"""Group commit: what comes in during a call goes out with the next one."""

import asyncio
import math
import time
from collections.abc import Sequence

import pytest

from shared.domain.deadline import Deadline
from shared.domain.errors import StoreUnavailable
from shared.net.group_commit import FEW, GroupCommit, InFlight, Portion

AWAY = StoreUnavailable("away")
TOO_SLOW = StoreUnavailable("too slow")


class Store:
    """Calls that end when they are told to."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.gates: list[asyncio.Event] = []
        self.errors: dict[int, Exception] = {}
        """What a call raises, by its number."""

    async def write(self, items: Sequence[int]) -> list[int | Exception]:
        self.calls.append([*items])
        number = len(self.calls)
        gate = asyncio.Event()
        self.gates.append(gate)
        await gate.wait()
        if error := self.errors.get(number):
            raise error
        return [ValueError(str(item)) if item < 0 else AWAY if item == 99 else item * 10 for item in items]

    def end(self, number: int = -1) -> None:
        self.gates[number].set()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def commits(
    store: Store,
    most: int = 100,
    most_bytes: int | None = 1000,
    in_flight: int | InFlight = 1,
    longest: float = math.inf,
) -> GroupCommit[int, int]:
    return GroupCommit(
        store.write,
        Portion(most, most_bytes),
        lambda: TOO_SLOW,
        size_of=lambda item: 1 if item < 500 else item,
        in_flight=InFlight(in_flight) if isinstance(in_flight, int) else in_flight,
        longest=longest,
    )


def soon(healthy: float = 30.0, failing: float = 30.0) -> Deadline:
    now = time.monotonic()
    return Deadline(time.monotonic, now + healthy, now + failing)


Results = list[int | Exception]


async def submitted(
    group: GroupCommit[int, int], *callers: Sequence[int], deadline: Deadline | None = None
) -> list[asyncio.Task[Results]]:
    tasks = [asyncio.ensure_future(group.submit(items, deadline or soon())) for items in callers]
    await settle()
    return tasks


async def ended(store: Store) -> None:
    """End calls until no further one begins."""
    count = 0
    while count < len(store.calls):
        count = len(store.calls)
        store.end()
        await settle()


def test_first_item_goes_out_at_once_and_the_rest_with_the_next_call() -> None:
    async def run() -> None:
        store = Store()
        group = commits(store)
        tasks = await submitted(group, [1], [2], [3, 4])
        assert store.calls == [[1]]
        store.end()
        await settle()
        assert store.calls == [[1], [2, 3, 4]]
        store.end()
        assert await asyncio.gather(*tasks) == [[10], [20], [30, 40]]

    asyncio.run(run())


def test_nothing_is_submitted_without_a_call() -> None:
    store = Store()
    assert asyncio.run(commits(store).submit([], soon())) == []
    assert store.calls == []


def test_call_has_at_most_so_many_items_and_bytes() -> None:
    async def run() -> None:
        store = Store()
        group = commits(store, most=3)
        tasks = await submitted(group, [1], [2, 3, 4, 5], [600, 601, 5000])
        await ended(store)
        assert store.calls == [[1], [2, 3, 4], [5, 600], [601], [5000]]
        assert all(task.done() for task in tasks)

    asyncio.run(run())


def test_call_without_a_limit_of_bytes_takes_any_size() -> None:
    async def run() -> None:
        store = Store()
        await submitted(commits(store, most_bytes=None), [600, 5000, 70_000])
        assert store.calls == [[600, 5000, 70_000]]

    asyncio.run(run())


def test_small_caller_goes_before_a_large_one() -> None:
    async def run() -> None:
        store = Store()
        group = commits(store, most=20)
        large = [*range(100, 140)]
        await submitted(group, [1], large, [2], [3])
        store.end()
        await settle()
        assert len(large) > FEW
        assert store.calls[1] == [2, 3, *large[:18]]

    asyncio.run(run())


def test_large_callers_take_turns() -> None:
    async def run() -> None:
        store = Store()
        group = commits(store, most=5)
        first, second = [*range(100, 124)], [*range(200, 212)]
        tasks = await submitted(group, first, second)
        await ended(store)
        sent = [item for call in store.calls for item in call]
        assert sent == [*first[:10], *second[:10], *first[10:20], *second[10:], *first[20:]]
        assert await asyncio.gather(*tasks) == [[item * 10 for item in items] for items in (first, second)]

    asyncio.run(run())


def test_after_four_items_of_small_callers_one_of_a_large_caller_goes() -> None:
    async def run() -> None:
        store = Store()
        group = commits(store, most=1)
        large = [*range(100, 112)]
        await submitted(group, [0], large, *([number] for number in range(1, 9)))
        await ended(store)
        sent = [item for call in store.calls for item in call]
        assert sent == [0, 1, 2, 3, 100, 4, 5, 6, 7, 101, 8, *large[2:]]

    asyncio.run(run())


def test_small_callers_without_a_gap_do_not_stop_a_large_one() -> None:
    async def run() -> None:
        store = Store()
        group = commits(store, most=1)
        await submitted(group, [0])
        (large,) = await submitted(group, [*range(100, 112)])
        for number in range(1, 100):
            await submitted(group, [number])
            store.end()
            await settle()
        assert large.done()
        await ended(store)

    asyncio.run(run())


def test_several_calls_may_be_in_flight() -> None:
    async def run() -> None:
        store = Store()
        await submitted(commits(store, in_flight=2), [1], [2], [3])
        assert store.calls == [[1], [2]]

    asyncio.run(run())


def test_error_of_an_item_is_its_own_and_that_of_a_call_each_items() -> None:
    async def run() -> None:
        store = Store()
        store.errors = {2: OSError("broken")}
        group = commits(store)
        tasks = await submitted(group, [-1, 1])
        (more,) = await submitted(group, [2, 3])
        store.end()
        await settle()
        store.end()
        first, one = await tasks[0]
        assert isinstance(first, ValueError)
        assert one == 10
        assert [type(it) for it in await more] == [OSError, OSError]

    asyncio.run(run())


def test_next_call_goes_out_after_one_that_failed() -> None:
    async def run() -> None:
        store = Store()
        store.errors = {1: OSError("broken")}
        group = commits(store)
        await submitted(group, [1], [2])
        store.end()
        await settle()
        assert store.calls == [[1], [2]]

    asyncio.run(run())


def test_cancelled_caller_does_not_stop_the_call_of_the_others() -> None:
    async def run() -> None:
        store = Store()
        group = commits(store)
        gone, stays = await submitted(group, [1], [2])
        gone.cancel()
        store.end()
        await settle()
        store.end()
        assert await stays == [20]
        with pytest.raises(asyncio.CancelledError):
            await gone

    asyncio.run(run())


def test_wrong_number_of_results_is_an_error_of_each_item_and_frees_the_call() -> None:
    async def write(items: Sequence[int]) -> list[int | Exception]:
        return [1] * (len(items) if len(items) == 1 else 3)

    async def run() -> None:
        group: GroupCommit[int, int] = GroupCommit(write, Portion(10), lambda: TOO_SLOW)
        assert [type(it) for it in await group.submit([1, 2], soon())] == [RuntimeError] * 2
        assert await group.submit([1], soon()) == [1]

    asyncio.run(run())


def test_cancelled_call_is_too_slow_and_frees_the_call() -> None:
    async def run() -> None:
        store = Store()
        group = commits(store)
        tasks = await submitted(group, [1], [2])
        (call,) = group._calls
        call.cancel()
        assert await asyncio.gather(*tasks) == [[TOO_SLOW], [TOO_SLOW]]
        (later,) = await submitted(group, [3])
        store.end()
        assert await later == [30]

    asyncio.run(run())


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_new_event_loop_does_not_wait_for_the_calls_of_the_last_one(is_cancelled: bool) -> None:
    """asyncio.run cancels them at its end; another way to run a loop may not."""
    store = Store()
    group = commits(store)

    async def leave() -> list[asyncio.Task[Results]]:
        return await submitted(group, [1], [2], [*range(100, 120)])

    async def run() -> None:
        (task,) = await submitted(group, [3])
        store.end()
        assert await task == [30]

    old = asyncio.new_event_loop()
    left = old.run_until_complete(leave())
    calls = [*group._calls]
    if is_cancelled:
        for task in [*left, *calls]:
            task.cancel()
        old.run_until_complete(asyncio.gather(*left, *calls, return_exceptions=True))
        old.close()
    asyncio.run(run())
    assert store.calls == [[1], [3]]
    if not is_cancelled:
        store.end(0)
        old.run_until_complete(asyncio.gather(*calls))
        assert group._free == 1, "an old call frees no place of the new loop"
        for task in left:
            task.cancel()
        old.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        old.close()


# ---- calls that are late


LATE = InFlight(most=3, prompt=1, late=0.02)


async def late() -> None:
    """Long enough that all calls in flight are late, and those that begin meanwhile."""
    await asyncio.sleep(LATE.late * 5)
    await settle()


def test_next_call_does_not_wait_for_a_late_one() -> None:
    async def run() -> None:
        store = Store()
        group = commits(store, in_flight=LATE)
        tasks = await submitted(group, [1], [2], [3])
        assert store.calls == [[1]]
        await late()
        assert store.calls == [[1], [2, 3]]
        store.end(1)
        assert await asyncio.gather(*tasks[1:]) == [[20], [30]]
        store.end(0)
        assert await tasks[0] == [10]

    asyncio.run(run())


def test_late_calls_count_among_those_in_flight() -> None:
    async def run() -> None:
        store = Store()
        group = commits(store, most=1, in_flight=LATE)
        tasks = await submitted(group, [1], [2], [3], [4])
        assert store.calls == [[1]]
        await late()
        assert store.calls == [[1], [2], [3]]
        store.end(0)
        await settle()
        assert store.calls == [[1], [2], [3], [4]]
        for number in (1, 2, 3):
            store.end(number)
        assert await asyncio.gather(*tasks) == [[10], [20], [30], [40]]

    asyncio.run(run())


def test_after_late_calls_one_call_is_in_flight_again() -> None:
    async def run() -> None:
        store = Store()
        group = commits(store, most=1, in_flight=LATE)
        await submitted(group, [1], [2], [3])
        await late()
        assert len(store.calls) == 3
        for number in (0, 1, 2):
            store.end(number)
        await settle()
        tasks = await submitted(group, [4], [5])
        assert store.calls[3:] == [[4]], "a place that a late call gave back was given back again"
        await late()
        assert store.calls[3:] == [[4], [5]], "a place for a late call is missing"
        store.end(3)
        store.end(4)
        await asyncio.gather(*tasks)

    asyncio.run(run())


def test_call_that_ends_in_time_is_never_late() -> None:
    async def run() -> None:
        store = Store()
        group = commits(store, in_flight=LATE)
        await submitted(group, [1])
        store.end()
        await late()
        await submitted(group, [2], [3])
        assert store.calls == [[1], [2]]
        await ended(store)

    asyncio.run(run())


def test_timer_of_an_old_event_loop_makes_no_call_of_a_new_one_late() -> None:
    store = Store()
    group = commits(store, in_flight=LATE)
    old, new = asyncio.new_event_loop(), asyncio.new_event_loop()
    for loop, callers in ((old, [[1]]), (new, [[2], [3]])):
        loop.run_until_complete(submitted(group, *callers))
    old.run_until_complete(asyncio.sleep(LATE.late * 3))
    assert store.calls == [[1], [2]]
    for loop in (old, new):
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.close()


# ---- a caller that makes its call itself


def test_lone_item_takes_no_task_if_its_call_ends_in_time() -> None:
    async def run() -> None:
        store = Store()
        group = commits(store, longest=1)
        tasks = await submitted(group, [1])
        assert (store.calls, len(group._calls)) == ([[1]], 0)
        more = await submitted(group, [2], [3])
        assert store.calls == [[1]], "a call is in flight"
        store.end()
        await settle()
        assert (store.calls, len(group._calls)) == ([[1], [2, 3]], 1)
        store.end()
        assert await asyncio.gather(*tasks, *more) == [[10], [20], [30]]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("items", "healthy"), [([1, 2], 30), ([1], 0.9)], ids=["several items", "a deadline before the end of the call"]
)
def test_caller_that_cannot_wait_for_its_call_takes_a_task(items: list[int], healthy: float) -> None:
    async def run() -> None:
        store = Store()
        group = commits(store, longest=1)
        (task,) = await submitted(group, items, deadline=soon(healthy=healthy))
        assert len(group._calls) == 1
        store.end()
        assert await task == [item * 10 for item in items]

    asyncio.run(run())


def test_lone_item_does_not_pass_those_that_wait() -> None:
    async def run() -> None:
        store = Store()
        group = commits(store, most=1, longest=1)
        tasks = await submitted(group, [1], [2], [3])
        store.end()
        tasks += await submitted(group, [4])
        await ended(store)
        assert store.calls == [[1], [2], [3], [4]]
        await asyncio.gather(*tasks)

    asyncio.run(run())


def test_fault_of_a_lone_item_is_its_result_and_frees_the_call() -> None:
    async def run() -> None:
        store = Store()
        store.errors = {1: AWAY, 2: ValueError()}
        group = commits(store, longest=1)
        for expected in (AWAY, store.errors[2], 30):
            (task,) = await submitted(group, [3])
            waits = await submitted(group, [4]) if expected is AWAY else []
            store.end()
            assert await task == [expected]
            assert [await one for one in waits] == [[AWAY]] * len(waits)
        assert len(store.calls) == 3

    asyncio.run(run())


def test_cancelled_caller_frees_the_call_it_made_itself() -> None:
    async def run() -> None:
        store = Store()
        group = commits(store, longest=1)
        tasks = await submitted(group, [1], [2])
        tasks[0].cancel()
        assert await tasks[1] == [TOO_SLOW], "a cancelled call counts as an outage"
        (later,) = await submitted(group, [3])
        store.end()
        assert await later == [30]

    asyncio.run(run())


# ---- an outage


def test_outage_refuses_what_waits_and_nothing_of_it_is_sent() -> None:
    async def run() -> None:
        store = Store()
        store.errors = {1: AWAY}
        group = commits(store)
        tasks = await submitted(group, [1], [2], [*range(100, 120)])
        store.end()
        assert await asyncio.gather(*tasks) == [[AWAY], [AWAY], [AWAY] * 20]
        assert store.calls == [[1]]

    asyncio.run(run())


def test_outage_of_one_item_refuses_what_waits() -> None:
    async def run() -> None:
        store = Store()
        group = commits(store)
        tasks = await submitted(group, [1, 99], [2])
        store.end()
        assert await asyncio.gather(*tasks) == [[10, AWAY], [AWAY]]

    asyncio.run(run())


def test_fault_of_an_item_refuses_nothing_else() -> None:
    async def run() -> None:
        store = Store()
        tasks = await submitted(commits(store), [-1], [2])
        await ended(store)
        assert await tasks[1] == [20]

    asyncio.run(run())


def test_caller_that_comes_after_an_outage_gets_a_call() -> None:
    async def run() -> None:
        store = Store()
        store.errors = {1: AWAY}
        group = commits(store)
        await submitted(group, [1])
        store.end()
        await settle()
        (later,) = await submitted(group, [2])
        store.end()
        assert await later == [20]

    asyncio.run(run())


def test_after_an_outage_calls_in_flight_are_awaited_until_the_earlier_deadline() -> None:
    async def run() -> None:
        store = Store()
        store.errors = {1: AWAY}
        group = commits(store, most=1, in_flight=2)
        (task,) = await submitted(group, [1, 2, 3], deadline=soon(failing=0.05))
        store.end(0)
        began = time.monotonic()
        assert await task == [AWAY, TOO_SLOW, AWAY]
        assert time.monotonic() - began < 5
        store.end(1)
        await settle()

    asyncio.run(run())


# ---- the deadline


def test_items_without_a_result_at_the_deadline_are_too_slow() -> None:
    async def run() -> None:
        store = Store()
        group = commits(store, most=2)
        (task,) = await submitted(group, [1, 2, 3, 4, 5, 6], deadline=soon(healthy=0.1))
        store.end()
        assert await task == [10, 20, *[TOO_SLOW] * 4]

    asyncio.run(run())


def test_items_that_wait_at_the_deadline_are_not_sent() -> None:
    async def run() -> None:
        store = Store()
        group = commits(store)
        await submitted(group, [1])
        (slow,) = await submitted(group, [2], deadline=soon(healthy=0.01))
        (large,) = await submitted(group, [*range(100, 120)], deadline=soon(healthy=0.01))
        assert await slow == [TOO_SLOW]
        assert await large == [TOO_SLOW] * 20
        await submitted(group, [3])
        await ended(store)
        assert store.calls == [[1], [3]]

    asyncio.run(run())


def test_nothing_is_sent_after_the_deadline() -> None:
    store = Store()
    assert asyncio.run(commits(store).submit([1, 2], soon(healthy=0))) == [TOO_SLOW] * 2
    assert store.calls == []


def test_items_of_a_cancelled_caller_are_not_sent() -> None:
    async def run() -> None:
        store = Store()
        group = commits(store)
        _, gone = await submitted(group, [1], [2])
        gone.cancel()
        await settle()
        await ended(store)
        assert store.calls == [[1]]

    asyncio.run(run())
