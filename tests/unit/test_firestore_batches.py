"""Batches: an invalid write, one document twice, and several in flight; what a closed connection raises: without
Firestore.
"""

import asyncio
import time
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from shared.domain.deadline import FAILURE_SECONDS, Deadline
from shared.domain.errors import StoreUnavailable
from shared.domain.events import ReceiptBlock, ReceiptReceived
from shared.domain.identity import Echo
from shared.domain.limits import Limits
from shared.domain.record import ReceiptKind
from shared.net.patience import Patience
from shared.pipeline.intake import Created
from shared.stores.firestore.batches import HALVES_AT_ONCE, Made, NotStored, write_each
from shared.stores.firestore.connection import FirestoreRpc
from shared.stores.firestore.errors import InvalidWrite
from shared.stores.firestore.intake import FirestoreIntake
from shared.stores.firestore.receipts import Notes
from shared.stores.firestore.records import noting
from shared.stores.firestore.rest_json import JsonWrite
from tests.support.builders import NOW, pending


class Rest:
    """Answers batches with these codes or errors. Without any it refuses a batch that has one of the invalid documents
    and makes the writes of any other.
    """

    def __init__(self, *answers: Sequence[int] | Exception, invalid: Collection[str] = ()) -> None:
        self.answers = list(answers)
        self.invalid = frozenset(invalid)
        self.batches: list[list[str]] = []
        self.patiences = 0
        self.open = self.most = 0

    def patience(self, _: float) -> None:
        self.patiences += 1

    async def batch(self, writes: Sequence[JsonWrite], _: Any) -> Sequence[int]:
        names = [write.name for write in writes]
        self.batches.append(names)
        self.open += 1
        self.most = max(self.most, self.open)
        await asyncio.sleep(0)
        self.open -= 1
        if self.invalid:
            if self.invalid & {*names}:
                raise InvalidWrite
            return [0] * len(names)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def written(rest: Any, *names: str) -> list[Made | Exception]:
    return asyncio.run(write_each(rest, [JsonWrite(name, b"{}") for name in names]))


def test_batch_with_one_invalid_write_is_bisected() -> None:
    names = [str(number) for number in range(500)]
    rest = Rest(invalid=["7"])
    made = written(rest, *names)
    assert isinstance(made[7], NotStored)
    assert [*made[:7], *made[8:]] == [Made.WRITTEN] * 499
    assert len(rest.batches) <= 19
    assert rest.patiences == 1


def test_many_invalid_writes_take_a_few_connections_at_a_time() -> None:
    names = [str(number) for number in range(100)]
    rest = Rest(invalid=names[::2])
    made = written(rest, *names)
    assert [isinstance(one, NotStored) for one in made] == [True, False] * 50
    assert made[1::2] == [Made.WRITTEN] * 50
    assert rest.most == HALVES_AT_ONCE


def test_parts_of_a_refused_batch_keep_their_own_results() -> None:
    away = StoreUnavailable()
    made = written(Rest(InvalidWrite(), away, InvalidWrite(), [6], InvalidWrite()), *"abcd")
    assert made[:3] == [away, away, Made.REFUSED]
    assert isinstance(made[3], NotStored)


def test_no_batch_has_one_document_twice() -> None:
    rest = Rest([0, 0], [6, 14], [5])
    assert written(rest, *"abaab") == [Made.WRITTEN, Made.WRITTEN, Made.REFUSED, Made.REFUSED, Made.TRY_AGAIN]
    assert rest.batches == [["a", "b"], ["a", "b"], ["a"]]
    assert rest.patiences == 1, "their place is taken until the last of them has its answer"


def test_outage_of_a_later_round_keeps_the_results_of_the_earlier_ones() -> None:
    away = StoreUnavailable()
    rest = Rest([0, 14], away)
    assert written(rest, *"abaab") == [Made.WRITTEN, Made.TRY_AGAIN, away, away, away]
    assert len(rest.batches) == 2


@pytest.mark.parametrize("code", [1, 2, 4, 8, 10, 13, 14])
def test_transient_code_means_that_the_write_is_tried_again(code: int) -> None:
    assert written(Rest([code]), "a") == [Made.TRY_AGAIN]


@pytest.mark.parametrize("code", [3, 7, 11, 12, 15, 16, 99])
def test_any_other_code_is_a_permanent_refusal(code: int) -> None:
    (found,) = written(Rest([code]), "a")
    assert isinstance(found, NotStored)


def test_write_of_many_receipts_has_no_more_transforms_than_firestore_takes() -> None:
    notes, echo = Notes(NOW), Echo("a" * 40, 0, "corr_0001")
    for place in range(1200):
        notes.add(place, (echo, ReceiptReceived("meta", "s", f"wamid.{place}", ReceiptKind.SENT, NOW)))
    written = [note for layer in notes.layers() for note in layer]
    assert max(len(note.write["update_transforms"]) for note in written) <= 500
    assert [place for note in written for place in note.places] == [*range(1200)]


# ---- batches of several POSTs


class Gate:
    """Batches that end when it opens."""

    def __init__(self) -> None:
        self.intake = FirestoreIntake("a-project", "pombo", Limits(), lambda: NOW, emulator="127.0.0.1:1")
        self.intake._rest.batch = self.batch  # type: ignore[method-assign]
        self.opened = asyncio.Event()
        self.batches = 0

    async def batch(self, writes: Sequence[JsonWrite], _: Any) -> list[int]:
        self.batches += 1
        await self.opened.wait()
        return [0] * len(writes)

    async def create(self, number: int, seconds: float = 30) -> Any:
        ends = time.monotonic() + seconds
        return await self.intake.create_all([pending(key=f"{number:040}")], Deadline(time.monotonic, ends, ends))


def test_slow_batches_hold_up_no_other_until_four_are_in_flight() -> None:
    async def run() -> None:
        gate, posts = Gate(), []
        for in_flight in (1, 2, 3, 4, 4, 4):
            posts.append(asyncio.ensure_future(gate.create(len(posts))))
            await asyncio.sleep(0.15)  # it is late after 0.1 s
            assert gate.batches == in_flight
        gate.opened.set()
        assert await asyncio.gather(*posts) == [[Created()]] * 6
        assert gate.batches == 5

    asyncio.run(run())


def test_post_whose_batch_outlasts_its_deadline_is_too_slow() -> None:
    async def run() -> None:
        async with asyncio.timeout(5):
            (made,) = await Gate().create(1, seconds=0.1)
        assert str(made) == "The store is too slow."

    asyncio.run(run())


def test_block_of_a_sender_ends_in_time_although_firestore_answers_each_try() -> None:
    """A POST waits for it: the patience with a lost race, 10 s, would be too long."""
    left: list[float] = []

    async def commit(_: JsonWrite, patience: Patience) -> None:
        patience._pace.answered = time.monotonic() + 60
        left.append(patience.left)

    intake = Gate().intake
    intake._rest.commit = commit  # type: ignore[method-assign]
    asyncio.run(intake.note_receipt_block("a" * 40, ReceiptBlock(131031, NOW)))
    assert 0 < left[0] <= FAILURE_SECONDS


# ---- what a closed connection raises, and paths


@pytest.mark.parametrize("is_closed", [False, True])
def test_value_error_is_an_outage_only_after_the_connection_was_closed(is_closed: bool) -> None:
    """grpc raises it for a channel that was closed; any other is a mistake of ours."""
    rpc = FirestoreRpc("a-project", "pombo", "127.0.0.1:1")

    def call() -> None:
        if is_closed:
            rpc.close()
        raise ValueError("wrong")

    with pytest.raises(StoreUnavailable if is_closed else ValueError) as raised:
        rpc._guarded(call)
    assert isinstance(raised.value, StoreUnavailable) is is_closed


def test_path_of_a_receipt_is_quoted_and_needs_no_escapes() -> None:
    write = noting("a" * 40, 0, ReceiptKind.FAILED, datetime(2026, 3, 1, tzinfo=UTC), 131026, "b" * 40)
    (transform,) = write["update_transforms"]
    assert transform["field_path"] == f"receipts.`0`.`failed.{'b' * 40}.131026`"
