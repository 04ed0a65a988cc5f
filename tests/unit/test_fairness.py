"""Fairness: work on many items of one POST gives other requests their turn."""

import asyncio

import pytest

from shared.pipeline.fairness import in_turns


def test_another_request_has_its_turn_after_each_fifty_items() -> None:
    done: list[str] = []

    async def large() -> None:
        async for item in in_turns(range(101)):
            done.append(str(item))

    async def small() -> None:
        done.append("small")
        await asyncio.sleep(0)
        done.append("small again")

    async def both() -> None:
        await asyncio.gather(large(), small())

    asyncio.run(both())
    assert (done.index("small"), done.index("small again")) == (50, 101)
    assert [item for item in done if not item.startswith("small")] == [str(item) for item in range(101)]


def test_few_items_take_no_turn() -> None:
    async def few() -> list[int]:
        return [item async for item in in_turns([1, 2, 3])]

    with pytest.raises(StopIteration) as ended:
        few().send(None)
    assert ended.value.value == [1, 2, 3]
