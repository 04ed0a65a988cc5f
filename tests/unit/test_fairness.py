"""Fairness: work on many items of one POST gives other requests their turn."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from shared.domain.deadline import Deadline
from shared.domain.identity import Echo
from shared.domain.limits import Limits
from shared.pipeline.fairness import in_turns
from shared.stores.firestore import intake as firestore_intake
from shared.stores.firestore import receipts as firestore_receipts
from shared.stores.firestore.batches import Made
from shared.stores.firestore.intake import AT_A_TIME, FirestoreIntake
from tests.support.receipts import NOW, receipt


def test_another_request_has_its_turn_after_each_fifty_items() -> None:
    done: list[str] = []

    async def large() -> None:
        await in_turns(lambda item: done.append(str(item)), range(101))

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
        return await in_turns(lambda item: item, [1, 2, 3])

    with pytest.raises(StopIteration) as ended:
        few().send(None)
    assert ended.value.value == [1, 2, 3]


@pytest.mark.parametrize(
    ("module", "name"),
    [(firestore_receipts, "noting"), (firestore_intake.rest_json, "write_of")],
    ids=["merged", "encoded"],
)
def test_large_post_of_receipts_gives_others_their_turn_at_each_step(
    module: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For Firestore: while the receipts become writes, and while the writes become JSON."""
    turn, in_turn, work = 0, Counter[int](), getattr(module, name)

    def counted(*given: Any) -> Any:
        in_turn[turn] += 1
        return work(*given)

    async def write(writes: Sequence[Any]) -> list[Made]:
        return [Made.WRITTEN] * len(writes)

    async def post_and_take_turns() -> Sequence[bool | Exception]:
        nonlocal turn
        intake = FirestoreIntake("p", "(default)", Limits(), lambda: NOW, emulator="127.0.0.1:9")
        intake._writes._write = write
        post = asyncio.ensure_future(intake.note_receipts(noted, Deadline.of_webhook(lambda: 0.0)))
        while not post.done():
            await asyncio.sleep(0)
            turn += 1
        return post.result()

    noted = [(Echo(f"{number:040x}", 0, "corr_0001"), receipt()) for number in range(2000)]
    monkeypatch.setattr(module, name, counted)
    assert asyncio.run(post_and_take_turns()) == [True] * 2000
    assert in_turn.total() == 2000
    assert max(in_turn.values()) == AT_A_TIME
