"""Group commit: what comes in during a call goes out with the next one."""

import asyncio
from collections.abc import Sequence

import pytest

from shared.net.group_commit import FEW, GroupCommit


class Store:
    """Calls that end when they are told to."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.gates: list[asyncio.Event] = []
        self.fails: set[int] = set()

    async def write(self, items: Sequence[int]) -> list[int | Exception]:
        self.calls.append([*items])
        gate = asyncio.Event()
        self.gates.append(gate)
        await gate.wait()
        if len(self.calls) in self.fails:
            raise OSError("away")
        return [ValueError(str(item)) if item < 0 else item * 10 for item in items]

    def end(self) -> None:
        self.gates[-1].set()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def commits(store: Store, most: int = 100, most_bytes: int = 1000, in_flight: int = 1) -> GroupCommit[int, int]:
    return GroupCommit(
        store.write, most, most_bytes, size_of=lambda item: 1 if item < 500 else item, in_flight=in_flight
    )


async def submitted(group: GroupCommit[int, int], *callers: Sequence[int]) -> list[asyncio.Task[list[int | Exception]]]:
    tasks = [asyncio.ensure_future(group.submit(items)) for items in callers]
    await settle()
    return tasks


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


def test_call_has_at_most_so_many_items_and_bytes() -> None:
    async def run() -> None:
        store = Store()
        group = commits(store, most=3)
        tasks = await submitted(group, [1], [2, 3, 4, 5], [600, 601, 5000])
        for _ in range(6):
            store.end()
            await settle()
        assert store.calls == [[1], [2, 3, 4], [5, 600], [601], [5000]]
        assert all(task.done() for task in tasks)

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


def test_several_calls_may_be_in_flight() -> None:
    async def run() -> None:
        store = Store()
        await submitted(commits(store, in_flight=2), [1], [2], [3])
        assert store.calls == [[1], [2]]

    asyncio.run(run())


def test_error_of_an_item_is_its_own_and_that_of_a_call_each_items() -> None:
    async def run() -> None:
        store = Store()
        store.fails = {2}
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
        store.fails = {1}
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
