"""Counting within a process: what is counted, for whom, and when it is written."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from shared.domain.counters import WHOLE, WINDOW, Cell, Measure, ProcessCounters, bucket_of, window_of
from shared.domain.deadline import Deadline
from shared.domain.delivery.answers import Answer, Step, TaskResult
from shared.domain.errors import StoreUnavailable
from shared.domain.record import Kind, State
from shared.pipeline import counting
from shared.pipeline.counting import MOST_TENANTS, Counters, IntakeCounting
from shared.pipeline.send_counting import OutboundCounting
from tests.support.builders import NOW, pending
from tests.support.pipelines import Clock

EVERY = timedelta(seconds=60)


@dataclass
class Store:
    """Keeps what is written, unless it is down."""

    written: list[ProcessCounters] = field(default_factory=list)
    is_down: bool = False

    def keep_counters(self, counters: ProcessCounters) -> None:
        if self.is_down:
            raise StoreUnavailable
        self.written.append(counters)


@dataclass
class IntakeStore(Store):
    """On an event loop; a write waits until it `may_go`."""

    may_go: asyncio.Event = field(default_factory=asyncio.Event)

    async def keep_counters(self, counters: ProcessCounters) -> None:  # type: ignore[override]
        await self.may_go.wait()
        super().keep_counters(counters)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def counters(clock: Clock) -> Counters:
    return Counters(clock, EVERY)


def sums(found: ProcessCounters | None) -> dict[tuple[str, Measure], int]:
    assert found is not None
    totals: dict[tuple[str, Measure], int] = {}
    for cell, count in found.counts.items():
        totals[cell.tenant, cell.measure] = totals.get((cell.tenant, cell.measure), 0) + count
    return totals


# ---- the counters of a process


def test_each_count_is_for_its_tenants_and_once_for_the_whole(counters: Counters) -> None:
    counters.add(Measure.WEBHOOK_TIME, ["a", "b"], 0.2)
    counters.add(Measure.WEBHOOK_TIME, ["a"], 0.2)
    counters.add(Measure.WEBHOOK_TIME, [], 0.2)
    counters.add(Measure.WEBHOOK_TIME, [""], 0.2)
    counters.add(Measure.SENT, ["a"])
    window, bucket = window_of(NOW), bucket_of(0.2)
    found = counters.left()
    assert found is not None
    assert found.counts == {
        Cell(window, WHOLE, Measure.WEBHOOK_TIME, bucket): 4,
        Cell(window, "a", Measure.WEBHOOK_TIME, bucket): 2,
        Cell(window, "b", Measure.WEBHOOK_TIME, bucket): 1,
        Cell(window, WHOLE, Measure.SENT): 1,
        Cell(window, "a", Measure.SENT): 1,
    }
    assert found.flushed_at == NOW


def test_write_is_due_a_minute_after_the_start_and_after_the_last(clock: Clock, counters: Counters) -> None:
    counters.add(Measure.SENT, ["a"])
    clock.go(59.9)
    assert counters.due() is None
    clock.go(0.1)
    assert sums(counters.due())[WHOLE, Measure.SENT] == 1
    counters.add(Measure.SENT, ["a"])
    clock.go(59.9)
    assert counters.due() is None
    clock.go(0.1)
    assert sums(counters.due())[WHOLE, Measure.SENT] == 2, "all of it again, in place of the last"


def test_nothing_new_is_never_written(clock: Clock, counters: Counters) -> None:
    clock.go(600)
    assert (counters.due(), counters.left()) == (None, None)
    counters.add(Measure.SENT, ["a"])
    assert counters.due() is not None
    clock.go(600)
    assert (counters.due(), counters.left()) == (None, None)


def test_what_is_left_is_given_before_a_minute_is_over(counters: Counters) -> None:
    counters.add(Measure.SENT, ["a"])
    assert sums(counters.left())["a", Measure.SENT] == 1


def test_all_writes_of_a_process_are_by_one_name_and_no_other_process_has_it(clock: Clock) -> None:
    one, other = Counters(clock, EVERY), Counters(clock, EVERY)
    names = set[tuple[int, str]]()
    for _ in range(3):
        for number, each in enumerate((one, other)):
            each.add(Measure.SENT, ["a"])
            found = each.left()
            assert found is not None
            names.add((number, found.process))
    assert len(names) == 2
    assert len({name for _, name in names}) == 2


def test_process_has_its_name_only_when_it_writes(clock: Clock) -> None:
    """A server forks between: two of its workers may not have one name."""
    counters = Counters(clock, EVERY)
    counters.add(Measure.SENT, ["a"])
    assert clock.tokens == 0
    counters.left()
    assert clock.tokens == 1


def test_counts_leave_after_the_last_hour(clock: Clock, counters: Counters) -> None:
    counters.add(Measure.SENT, ["a"])
    clock.go(7 * WINDOW.total_seconds())
    counters.add(Measure.SENT, ["b"])
    assert sums(counters.left()) == {(WHOLE, Measure.SENT): 1, ("b", Measure.SENT): 1}


def test_tenants_beyond_the_limit_count_for_the_whole_until_others_leave(clock: Clock, counters: Counters) -> None:
    assert MOST_TENANTS == 200, "more would not fit into a document"
    for number in range(MOST_TENANTS + 1):
        counters.add(Measure.SENT, [f"t{number}"])
        counters.add(Measure.SENT, ["t0"])
    found = sums(counters.left())
    assert found[WHOLE, Measure.SENT] == 2 * MOST_TENANTS + 2
    assert (found["t0", Measure.SENT], found[f"t{MOST_TENANTS - 1}", Measure.SENT]) == (MOST_TENANTS + 2, 1)
    assert (f"t{MOST_TENANTS}", Measure.SENT) not in found
    clock.go(7 * WINDOW.total_seconds())
    counters.add(Measure.SENT, [])
    counters.left()
    counters.add(Measure.SENT, [f"t{MOST_TENANTS}"])
    assert sums(counters.left())[f"t{MOST_TENANTS}", Measure.SENT] == 1


def test_no_count_is_lost_among_threads_and_one_of_them_writes(clock: Clock, counters: Counters) -> None:
    clock.go(60)
    due: list[ProcessCounters | None] = []

    def work() -> None:
        for _ in range(500):
            counters.add(Measure.SEND_TIME, ["a"], 0.5)
        due.append(counters.due())

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len([one for one in due if one]) == 1
    counters.add(Measure.SENT, [])
    assert sums(counters.left())["a", Measure.SEND_TIME] == 4000


# ---- webhooks


def spent(clock: Clock, seconds: float) -> Deadline:
    """The deadline of a POST that came so long ago."""
    deadline = Deadline.of_webhook(clock.monotonic)
    clock.go(seconds)
    return deadline


def test_webhook_is_counted_with_the_time_since_it_came(clock: Clock, counters: Counters) -> None:
    it = IntakeCounting(counters, IntakeStore())  # type: ignore[arg-type]
    it.answered({"a"}, spent(clock, 0.25))
    found = counters.left()
    assert found is not None
    assert {cell.bucket for cell in found.counts} == {bucket_of(0.25)}
    assert sums(found) == {(WHOLE, Measure.WEBHOOK_TIME): 1, ("a", Measure.WEBHOOK_TIME): 1}


def on_a_loop(counters: Counters, work: Callable[[IntakeCounting, IntakeStore], Any]) -> IntakeStore:
    async def run() -> IntakeStore:
        store = IntakeStore()
        await work(IntakeCounting(counters, store), store)  # type: ignore[arg-type]
        return store

    return asyncio.run(run())


def test_webhook_does_not_wait_for_the_write_that_it_begins(clock: Clock, counters: Counters) -> None:
    async def work(it: IntakeCounting, store: IntakeStore) -> None:
        counters.add(Measure.SENT, ["a"])
        clock.go(60)
        it.begin()
        it.begin()
        await asyncio.sleep(0)
        assert store.written == []
        store.may_go.set()
        await it.finish()

    assert [sums(one)["a", Measure.SENT] for one in on_a_loop(counters, work).written] == [1]


def test_what_is_left_is_written_at_the_end_after_a_write_in_flight(clock: Clock, counters: Counters) -> None:
    async def work(it: IntakeCounting, store: IntakeStore) -> None:
        counters.add(Measure.SENT, ["a"])
        clock.go(60)
        it.begin()
        counters.add(Measure.SENT, ["a"])
        ending = asyncio.create_task(it.finish())
        await asyncio.sleep(0)
        store.may_go.set()
        await ending

    assert [sums(one)["a", Measure.SENT] for one in on_a_loop(counters, work).written] == [1, 2]


def test_end_does_not_wait_long_for_a_store_that_hangs(
    clock: Clock, counters: Counters, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert counting.LAST_FLUSH_SECONDS == 1.5, "Cloud Run gives the end of a process ten seconds in all"
    monkeypatch.setattr(counting, "LAST_FLUSH_SECONDS", 0.01)

    async def work(it: IntakeCounting, _: IntakeStore) -> None:
        counters.add(Measure.SENT, ["a"])
        await it.finish()

    assert on_a_loop(counters, work).written == []


def test_write_that_failed_is_left_until_the_next(clock: Clock, counters: Counters) -> None:
    async def work(it: IntakeCounting, store: IntakeStore) -> None:
        store.may_go.set()
        store.is_down = True
        counters.add(Measure.SENT, ["a"])
        clock.go(60)
        it.begin()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        store.is_down = False
        it.begin()  # too early
        await it.finish()

    assert [sums(one)["a", Measure.SENT] for one in on_a_loop(counters, work).written] == [1]


# ---- sends


def step(**changes: Any) -> Step:
    record = replace(pending(), tenant="a", received_at=NOW, **changes)
    return Step(Answer(TaskResult.ACK, ""), write=record)


def counted(clock: Clock, steps: Sequence[tuple[Step, bool]]) -> dict[tuple[str, Measure], int]:
    counters = Counters(clock, EVERY)
    it = OutboundCounting(counters, Store(), clock)  # type: ignore[arg-type]
    for each, is_accepted in steps:
        it.written(each, is_accepted)
    return {key: count for key, count in sums(counters.left() or ProcessCounters("", NOW, {})).items() if key[0] == "a"}


@pytest.mark.parametrize(
    ("written", "is_accepted", "measures"),
    [
        (step(state=State.DONE), True, {Measure.SENT, Measure.SEND_TIME}),
        (step(state=State.DONE), False, {Measure.SENT}),
        (step(state=State.DONE, round=1), True, {Measure.SENT}),
        (step(state=State.DEAD), False, {Measure.FAILED}),
        (step(state=State.PENDING), False, set()),
        (step(state=State.LEASED), False, set()),
        (step(state=State.IN_DOUBT), False, set()),
        (step(state=State.DROPPED), False, set()),
        (step(state=State.DONE, payload={"type": "read"}), True, set()),
        (step(state=State.DEAD, payload={"type": "typing"}), False, set()),
        (step(state=State.DONE, kind=Kind.INBOUND), False, set()),
        (Step(Answer(TaskResult.ACK, "")), True, set()),
    ],
)
def test_message_is_counted_when_it_ends(
    clock: Clock, written: Step, is_accepted: bool, measures: set[Measure]
) -> None:
    assert counted(clock, [(written, is_accepted)]) == {("a", measure): 1 for measure in measures}


@pytest.mark.parametrize(
    ("changes", "seconds"), [({}, 30), ({"send_at": NOW + timedelta(seconds=20)}, 10), ({"send_at": NOW}, 30)]
)
def test_send_takes_from_its_acceptance_or_from_when_it_is_wanted(
    clock: Clock, counters: Counters, changes: dict[str, Any], seconds: float
) -> None:
    clock.go(30)
    OutboundCounting(counters, Store(), clock).written(step(state=State.DONE, **changes), True)  # type: ignore[arg-type]
    found = counters.left()
    assert found is not None
    assert {cell.bucket for cell in found.counts if cell.measure is Measure.SEND_TIME} == {bucket_of(seconds)}


def test_sends_are_written_once_a_minute_and_at_the_end(clock: Clock, counters: Counters) -> None:
    store = Store()
    it = OutboundCounting(counters, store, clock)  # type: ignore[arg-type]
    it.written(step(state=State.DEAD), False)
    it.flush()
    assert store.written == []
    clock.go(60)
    it.flush()
    it.flush()
    assert len(store.written) == 1
    it.finish()
    assert len(store.written) == 1, "nothing is new"
    it.written(step(state=State.DEAD), False)
    it.finish()
    assert [sums(one)["a", Measure.FAILED] for one in store.written] == [1, 2]


def test_sends_that_could_not_be_written_are_written_next(clock: Clock, counters: Counters) -> None:
    store = Store(is_down=True)
    it = OutboundCounting(counters, store, clock)  # type: ignore[arg-type]
    it.written(step(state=State.DEAD), False)
    it.finish()
    store.is_down = False
    it.finish()
    assert [sums(one)["a", Measure.FAILED] for one in store.written] == [1]
