"""Lanes: which message another one waits for, for how long, and what a long lane costs and keeps."""

import heapq
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from shared.domain.delivery.answers import Answer, Step, TaskResult
from shared.domain.delivery.conversation import moved_up
from shared.domain.delivery.operator import cancel
from shared.domain.delivery.sweep import sweep
from shared.domain.errors import StoreUnavailable
from shared.domain.guards import is_patience_over, renewed, with_patience
from shared.domain.record import Delivery, State, Task
from shared.domain.tasks import own_task
from shared.domain.tenants import Pace, Sender
from shared.pipeline.lanes import MOST_PASSED_OVER
from tests.support.builders import EVERY_RECEIPT, LIMITS, NOW, at, done, dropped, leased, pending
from tests.support.outbound_world import World
from tests.support.pipelines import SENDER, Channel, Clock, Queue, Store, lines_of

PATIENCE = LIMITS.order_patience
OVER = replace(Task.of(pending()), hop=9, alone_since=NOW - PATIENCE)
CANCELLED: dict[str, Any] = {"reason": "cancelled", "started_at": None, "after": "0a" * 20}


# ---- patience


def test_patience_is_over_ten_minutes_after_the_first_hop_that_waited_alone() -> None:
    found = [
        is_patience_over(replace(OVER, alone_since=since), LIMITS, NOW)
        for since in (None, NOW, at(-599), at(-599.95), at(-600), at(-9000))
    ]
    assert found == [False, False, False, True, True, True]


@pytest.mark.parametrize("behind", [pending(), leased(), replace(pending(), state=State.IN_DOUBT)])
def test_patience_begins_anew_while_the_one_before_waits_itself(behind: Delivery) -> None:
    assert renewed(OVER, behind, NOW) == replace(OVER, alone_since=None)


@pytest.mark.parametrize("finished_at", [None, at(-6000), NOW - PATIENCE])
def test_patience_is_over_if_the_one_before_has_been_first_for_as_long(finished_at: datetime | None) -> None:
    assert renewed(OVER, None, NOW) == OVER
    assert renewed(OVER, replace(done(), finished_at=finished_at), NOW) == OVER


def test_patience_counts_from_when_the_one_before_became_the_first() -> None:
    assert renewed(OVER, replace(done(), finished_at=at(-5)), NOW) == replace(OVER, alone_since=at(-5))


def test_receipt_of_the_message_behind_ends_its_part_in_the_lane() -> None:
    for receipts in EVERY_RECEIPT.values():
        assert renewed(OVER, pending(receipts={0: receipts}), NOW) == OVER


def test_nobody_waits_because_of_a_message_that_is_given_up() -> None:
    assert renewed(OVER, pending(give_up_at=NOW), NOW) == OVER
    assert renewed(OVER, pending(give_up_at=at(0.1)), NOW).alone_since is None


def test_cancelled_message_behind_says_nothing_about_those_before_it() -> None:
    """So many were cancelled in a row that the look ended there."""
    assert renewed(OVER, replace(dropped(), finished_at=at(-9000), **CANCELLED), NOW).alone_since is None


def test_each_generation_begins_its_patience_anew() -> None:
    record = pending(generation=3)
    task = replace(Task.of(record), alone_since=at(-900))
    assert with_patience(task, record) == task
    assert with_patience(replace(task, generation=4), record).alone_since == at(-900)
    assert with_patience(replace(task, generation=2), record).alone_since is None
    swept = sweep(replace(record, sweep_at=NOW), LIMITS, NOW).write
    assert swept is not None
    assert own_task(swept, None)[0].alone_since is None


def test_message_that_has_ended_is_not_moved_up() -> None:
    assert moved_up(None, "0b" * 20).write is None
    assert moved_up(done(), "0b" * 20).write is None
    moved = moved_up(pending(after="0a" * 20), "0b" * 20).write
    assert moved == pending(after="0b" * 20)


# ---- in the pipeline


@pytest.fixture
def world(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> World:
    clock = Clock()
    world = World(Store(tmp_path, clock), Channel(), clock, Queue(), lines_of(caplog))
    world.mark()
    return world


def a_lane(world: World, number: int, **changes: Any) -> list[Delivery]:
    """That many messages, each of which waits for the one before it."""
    keys = [f"{place:040x}" for place in range(number)]
    records = [
        pending(key=key, generation=0, after=keys[place - 1] if place else None, **changes)
        for place, key in enumerate(keys)
    ]
    for record in records:
        world.store.create(record)
    return records


def late(record: Delivery, since: timedelta = PATIENCE) -> Task:
    return replace(Task.of(record), hop=9, alone_since=NOW - since)


def costs(world: World, task: Task) -> Counter[str]:
    world.store.asked.clear()
    world.outbound(task)
    return Counter(world.store.asked)


def test_message_looks_one_further_only_when_its_patience_is_over(world: World) -> None:
    *_, third = a_lane(world, 3)
    world.process(third)
    assert costs(world, late(third, PATIENCE - timedelta(seconds=1))) == {"get": 2, "marks": 1, "change": 1}
    assert costs(world, late(third)) == {"get": 3, "marks": 1, "change": 1}
    assert world.queue.made[-1] == (replace(late(third), hop=10, alone_since=NOW), at(38.4))


def test_only_the_message_behind_the_first_goes_when_patience_is_over(world: World) -> None:
    first, second, third, fourth = a_lane(world, 4)
    for record in (fourth, third):
        assert world.outbound(late(record)).state == "waiting"
    assert world.outbound(late(second)).state == "done"
    assert world.outbound(late(third)).state == "done"
    assert [world.read(record).overtook for record in (second, third, fourth)] == [first.key, None, None]


def test_patience_begins_anew_at_each_look_while_the_lane_moves(world: World) -> None:
    first, second, third = a_lane(world, 3)
    world.process(first)
    assert world.outbound(late(third)).state == "waiting"
    assert world.queue.made[-1][0].alone_since == NOW, "the second became the first just now"
    world.clock.go(PATIENCE.total_seconds())
    assert world.outbound(world.queue.made[-1][0]).state == "done"
    assert world.read(third).overtook == second.key


@pytest.mark.parametrize(("method", "place"), [("get", 1), ("change", 2)], ids=["in the look", "after it"])
def test_patience_that_ends_after_the_look_has_not_ended(
    world: World, monkeypatch: pytest.MonkeyPatch, method: str, place: int
) -> None:
    """Else a slow store would let a message go that nobody has looked for."""
    lane = a_lane(world, 3)
    third, does = lane[2], getattr(world.store, method)

    def slowly(key: str, *given: Any, **named: Any) -> Any:
        world.clock.go(key == lane[place].key)
        return does(key, *given, **named)

    monkeypatch.setattr(world.store, method, slowly)
    assert world.outbound(late(third, PATIENCE - timedelta(seconds=0.5))).state == "waiting"
    assert world.read(third).state is State.PENDING


def test_message_does_not_look_further_while_the_one_before_it_is_sent(world: World) -> None:
    _, second, third = a_lane(world, 3)
    sent = replace(second, state=State.LEASED, attempt=1, token="another", lease_until=at(9))
    world.store.change(second.key, lambda _: Step(Answer(TaskResult.ACK, ""), write=sent))
    world.process(third)
    assert costs(world, late(third)) == {"get": 2, "marks": 1, "change": 1}
    assert world.queue.made[-1][0].alone_since == NOW - PATIENCE


def test_task_of_an_earlier_generation_overtakes_nobody(world: World) -> None:
    _, second = a_lane(world, 2)
    world.store.change(second.key, lambda now: sweep(replace(now or second, sweep_at=NOW), LIMITS, NOW))
    assert world.outbound(late(second)).state == "waiting"
    ((task, _),) = world.queue.made
    assert (task.generation, task.alone_since) == (1, None)


def test_message_that_would_overtake_reserves_no_place_in_the_pace(world: World) -> None:
    """The one before it may wait for its own, and a place that is not used is lost for all."""
    world.tenants.senders = [Sender("default", "meta", SENDER, pace=Pace(1.0))]
    other = world.add("a")
    _, second = a_lane(world, 2)
    world.process(other)
    assert world.outbound(late(second)).state == "waiting"
    assert world.lines("outbound_waiting")[-1]["reason"] == "paced"
    task, moment = world.queue.made[-1]
    assert (task.slot, task.alone_since, moment) == (None, None, at(1))
    world.clock.go(1)
    assert world.process(world.add("b")).state == "done", "the place is free"


# ---- cancelled messages in a row


def cancel_all(world: World, records: list[Delivery]) -> None:
    for record in records:
        world.store.change(record.key, lambda found: cancel(found, LIMITS, NOW))


@pytest.mark.parametrize("number", [1, MOST_PASSED_OVER - 1, MOST_PASSED_OVER, MOST_PASSED_OVER + 1, 65])
def test_message_behind_many_cancelled_ones_waits_for_the_message_before_them(world: World, number: int) -> None:
    first, *cancelled, last = a_lane(world, number + 2)
    cancel_all(world, cancelled)
    assert world.process(last).state == "waiting"
    assert {entry.partition(".")[0] for entry in world.read(first).bell} >= {last.key}
    assert world.process(first).state == "done"
    assert world.process(world.read(last)).state == "done"
    assert world.read(last).overtook is None


def test_cancelled_messages_are_counted_once(world: World) -> None:
    _, *cancelled, last = a_lane(world, 2 + 3 * MOST_PASSED_OVER)
    cancel_all(world, cancelled)
    assert costs(world, Task.of(last)) == {"get": 2 + 3 * MOST_PASSED_OVER, "marks": 1, "change": 3 + 2}
    assert costs(world, replace(Task.of(last), hop=1)) == {"get": 2, "marks": 1, "change": 1}


@pytest.mark.parametrize(("is_late", "number"), [(False, 3), (True, 4)], ids=["first look", "second look"])
def test_message_that_was_moved_up_is_leased_as_it_was_written(world: World, is_late: bool, number: int) -> None:
    """Else the store would find it changed, and decide once more under its lock. Late: they are cancelled while the
    message enters the bell of the last one.
    """
    first, *cancelled, last = a_lane(world, MOST_PASSED_OVER + 2)
    world.process(first)
    change, decided = world.store.change, count()

    def counting(key: str, decide: Any, seen: Delivery | None = None) -> Step:
        if key == cancelled[-1].key:
            world.store.change = change  # type: ignore[method-assign]
            cancel_all(world, cancelled)
            world.store.change = counting  # type: ignore[method-assign]
        return change(key, lambda found: (next(decided) if key == last.key else 0, decide(found))[1], seen)

    if not is_late:
        cancel_all(world, cancelled)
    world.store.change = counting  # type: ignore[method-assign]
    assert world.process(last).state == "done"
    assert next(decided) == number


def test_lane_behind_many_cancelled_messages_stays_in_order(world: World) -> None:
    records = a_lane(world, 60)
    cancel_all(world, records[10:50])
    sent = run(world, [Task.of(record) for record in reversed(records)])
    assert sent == [record.key for record in (*records[:10], *records[50:])]


def test_message_that_ends_while_it_looks_along_its_lane_is_left_alone(world: World) -> None:
    _, *cancelled, last = a_lane(world, MOST_PASSED_OVER + 3)
    cancel_all(world, cancelled)
    looks = count(1)
    get = world.store.get

    def end_last(key: str, unechoed: bool = True) -> Delivery | None:
        if next(looks) == 9:
            world.store.change(last.key, lambda found: cancel(found, LIMITS, NOW))
        return get(key, unechoed)

    world.store.get = end_last  # type: ignore[method-assign]
    assert world.outbound(Task.of(last)).state == "dropped"
    assert world.channel.calls == []


# ---- a long lane, in time that only the queue passes


def run(world: World, tasks: list[Task], seconds_a_send: float = 0.0) -> list[str]:
    """Run these tasks, and all that they make, once each and when it is due. The keys of what was sent, in order."""
    took: list[str] = []
    send = world.channel.send

    def slow(record: Delivery, *given: Any) -> Any:
        world.clock.go(seconds_a_send)
        took.append(record.key)
        return send(record, *given)

    world.channel.send = slow  # type: ignore[method-assign]
    numbers, names = count(), {task.name for task in tasks}
    due = [(NOW, next(numbers), task) for task in tasks]
    while due:
        moment, _, task = heapq.heappop(due)
        world.clock.go(max(0.0, (moment - world.clock.at).total_seconds()))
        world.queue.made.clear()
        world.outbound(task)
        for made, when in world.queue.made:
            if made.name not in names:
                names.add(made.name)
                heapq.heappush(due, (when or world.clock.at, next(numbers), made))
    return took


@pytest.mark.parametrize(("pace", "seconds_a_send"), [(Pace(1.0), 0.0), (None, 1.0)], ids=["paced", "slow"])
def test_lane_with_a_backlog_beyond_patience_stays_in_order_and_moves_on(
    world: World, pace: Pace | None, seconds_a_send: float
) -> None:
    """Sixty messages of one a second, with a patience of twelve seconds."""
    world.limits = replace(LIMITS, order_patience=timedelta(seconds=12))
    world.tenants.senders = [Sender("default", "meta", SENDER, pace=pace)]
    records = a_lane(world, 60)
    assert run(world, [Task.of(record) for record in records], seconds_a_send) == [record.key for record in records]
    assert not any(world.read(record).overtook for record in records)
    assert world.clock.seconds <= 62


def test_message_is_woken_when_the_pace_of_its_sender_has_a_place(world: World) -> None:
    """A wake task reserves none: one that came at once would find the pace spent, and its message wait for a hop."""
    world.tenants.senders = [Sender("default", "meta", SENDER, pace=Pace(0.5, burst=2))]
    records = a_lane(world, 4)
    for record in reversed(records[1:]):
        world.process(record)
    for record, place in zip(records, (0, 2, 4), strict=False):
        world.queue.made.clear()
        assert world.process(world.read(record)).state == "done"
        assert [moment for task, moment in world.queue.made if task.wake] == [at(place)]
        world.clock.go((at(place) - world.clock.at).total_seconds())


def test_message_is_woken_at_once_if_the_pace_cannot_be_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.tenants.senders = [Sender("default", "meta", SENDER, pace=Pace(1.0))]
    first, second = a_lane(world, 2)
    world.process(second)
    world.queue.made.clear()

    def fails(*_: Any) -> Any:
        raise StoreUnavailable

    world.channel.during = lambda _: monkeypatch.setattr(world.store, "marks", fails)
    assert world.process(first).state == "done"
    assert [(task.key, moment) for task, moment in world.queue.made] == [(second.key, None)]


def test_message_that_does_not_move_is_overtaken_by_the_next_one_alone(world: World) -> None:
    first, *others = a_lane(world, 6)
    world.store.change(first.key, lambda _: moved_up(replace(first, due_at=at(3600)), None))
    sent = run(world, [Task.of(record) for record in (first, *others)])
    assert sent == [record.key for record in (*others, first)]
    assert [world.read(record).overtook for record in others] == [first.key, *[None] * 4]
