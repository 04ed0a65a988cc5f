"""An intake on a store whose calls block: threads for records, for receipts, and for what is rare."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from pytest_mock import MockerFixture

from shared.domain.deadline import Deadline
from shared.domain.errors import StoreUnavailable
from shared.domain.events import ReceiptBlock
from shared.pipeline.intake import Created
from shared.pipeline.registry import Entry, EntryKind, EntryName
from shared.stores.entries import StoredEntry
from shared.stores.redis import intake as redis_intake
from shared.stores.sqlite import intake as sqlite_intake
from shared.stores.threaded_intake import PORTION, RARE_SECONDS, ThreadedIntake

A, BROKEN = EntryName(EntryKind.SENDER, "a"), EntryName(EntryKind.SENDER, "broken")
NOTED: Any = None
"""A block; the store only counts its calls."""


class Store:
    """Its calls take until `gate` opens. `begun` names them."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.counts: list[int] = []
        self.gate = threading.Event()

    def create_all(self, records: Sequence[Any], _: Deadline) -> Sequence[Created]:
        self._call("create")
        self.counts.append(len(records))
        return [Created() for _ in records]

    def note_receipts(self, receipts: Sequence[Any], _: Deadline) -> Sequence[bool]:
        self._call("note")
        return [True for _ in receipts]

    def note_receipt_block(self, id: str, noted: ReceiptBlock) -> None:  # noqa: ARG002 - the port's
        self._call("block")

    def ping(self) -> None:
        self._call("ping")

    def stored_entries(self, names: Sequence[EntryName]) -> Sequence[StoredEntry | None]:
        self._call("entries")
        self.counts.append(len(names))
        return [StoredEntry(name, "acme", '{"n":1}' if name.id == "a" else "{", 1) for name in names]

    def close(self) -> None:
        self.begun.append("close")

    def _call(self, name: str) -> None:
        self.begun.append(name)
        self.gate.wait(20)


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store()
    yield store
    store.gate.set()


@pytest.fixture
def intake(store: Store) -> Iterator[ThreadedIntake]:
    intake = ThreadedIntake(store)
    yield intake
    intake.close()


def soon() -> Deadline:
    return Deadline.of_webhook(time.monotonic)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


def some(count: int) -> Any:
    return [object() for _ in range(count)]


def test_many_records_are_one_call(store: Store, intake: ThreadedIntake) -> None:
    store.gate.set()
    assert asyncio.run(intake.create_all(some(450), soon())) == [Created()] * 450
    assert store.counts == [200, 200, 50]


def test_call_is_one_portion_of_each_store() -> None:
    assert {PORTION.items, sqlite_intake.PORTION, redis_intake.PORTION} == {200}


def test_records_and_receipts_do_not_wait_for_each_other(store: Store, intake: ThreadedIntake) -> None:
    async def run() -> None:
        calls = [
            asyncio.ensure_future(intake.create_all(some(1), soon())),
            asyncio.ensure_future(intake.note_receipts(some(1), soon())),
        ]
        await until(lambda: {*store.begun} == {"create", "note"})
        store.gate.set()
        assert await asyncio.gather(*calls) == [[Created()], [True]]

    asyncio.run(run())


def test_entries_wait_neither_for_records_nor_for_receipts(store: Store, intake: ThreadedIntake) -> None:
    async def run() -> None:
        calls = [
            asyncio.ensure_future(intake.create_all(some(1), soon())),
            asyncio.ensure_future(intake.note_receipts(some(1), soon())),
        ]
        await until(lambda: {*store.begun} == {"create", "note"})
        found = asyncio.ensure_future(intake.entries([A], soon()))
        await until(lambda: "entries" in store.begun)
        store.gate.set()
        assert await found == [Entry(A, "acme", {"n": 1}, 1)]
        await asyncio.gather(*calls)

    asyncio.run(run())


def test_damaged_entry_of_one_post_is_none_of_another(store: Store, intake: ThreadedIntake) -> None:
    """All but the first share a call."""

    async def run() -> list[Any]:
        asked = [[A], [BROKEN], [A, A], [BROKEN]]
        calls = [asyncio.ensure_future(intake.entries(names, soon())) for names in asked]
        await until(lambda: store.begun == ["entries"])
        store.gate.set()
        return await asyncio.gather(*calls, return_exceptions=True)

    first, broken, second, also = asyncio.run(run())
    entry = Entry(A, "acme", {"n": 1}, 1)
    assert (first, second) == ([entry], [entry, entry])
    assert broken == also == [Entry(BROKEN, "acme", {}, 1)], "without what cannot be read"
    assert store.counts == [1, 3]


def test_pings_and_blocks_in_flight_delay_no_record_and_no_receipt(store: Store, intake: ThreadedIntake) -> None:
    async def run() -> None:
        rare = [asyncio.ensure_future(intake.ping()) for _ in range(20)]
        rare += [asyncio.ensure_future(intake.note_receipt_block("a", NOTED)) for _ in range(20)]
        await until(lambda: len(store.begun) == 2)
        calls = [
            asyncio.ensure_future(intake.create_all(some(1), soon())),
            asyncio.ensure_future(intake.note_receipts(some(1), soon())),
        ]
        await until(lambda: {"create", "note"} <= {*store.begun})
        store.gate.set()
        await asyncio.gather(*rare, *calls)

    asyncio.run(run())


def test_block_behind_calls_that_hang_is_unavailable_in_time(
    store: Store, intake: ThreadedIntake, mocker: MockerFixture
) -> None:
    mocker.patch("shared.stores.threaded_intake.RARE_SECONDS", 0.1)

    async def run() -> None:
        pings = [asyncio.ensure_future(intake.ping()) for _ in range(2)]
        await until(lambda: len(store.begun) == 2)
        with pytest.raises(StoreUnavailable):
            await intake.note_receipt_block("a", NOTED)
        assert [type(one) for one in await asyncio.gather(*pings, return_exceptions=True)] == [StoreUnavailable] * 2
        store.gate.set()
        await intake.ping()

    asyncio.run(run())
    assert "block" not in store.begun, "what still waited does not begin later"


def test_close_ends_the_threads_and_closes_the_store(store: Store, intake: ThreadedIntake) -> None:
    async def run() -> None:
        ping = asyncio.ensure_future(intake.ping())
        await until(lambda: store.begun == ["ping"])
        intake.close()
        store.gate.set()
        await ping
        with pytest.raises(RuntimeError, match="after shutdown"):
            await intake.ping()

    asyncio.run(run())
    assert store.begun == ["ping", "close"]


def test_rare_calls_end_within_the_five_seconds_of_a_post() -> None:
    assert RARE_SECONDS < 5
