"""A sender's pace: the places that messages take in it, by rule and in the outbound pipeline."""

import heapq
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain import pace
from shared.domain.delivery.answers import Answer, TaskResult
from shared.domain.delivery.sweep import sweep
from shared.domain.drains import DrainTask
from shared.domain.errors import StoreUnavailable
from shared.domain.identity import pace_id
from shared.domain.limits import Limits
from shared.domain.marks import Bucket, Marks, Outage
from shared.domain.pace import Place, counted, take_place
from shared.domain.record import Task
from shared.domain.tasks import parse_task, task_body
from shared.domain.tenants import Pace, Sender
from tests.support.builders import LIMITS, NOW, at, past_doubt, task_for
from tests.support.outbound_world import ID, World
from tests.support.pipelines import SENDER, Channel, Clock, Queue, Store, lines_of

AHEAD = LIMITS.waits.pace_ahead
WAITING, DONE = Answer(TaskResult.ACK, "waiting"), Answer(TaskResult.ACK, "done")
PACE_ID = pace_id("meta", SENDER)

paces = st.builds(Pace, st.sampled_from([0.1, 0.5, 1.0, 3.0, 80.0]), st.integers(1, 5))
gaps = st.lists(st.sampled_from([0.0, 0.01, 0.3, 1.0, 2.5, 40.0]), min_size=1, max_size=40)


def taken(bucket: Bucket | None, its: Pace, now: datetime = NOW, within: timedelta = AHEAD) -> Place:
    return take_place(bucket, its, LIMITS, now, within)


# ---- places


@given(paces, gaps)
def test_no_window_holds_more_places_than_burst_and_rate_allow(its: Pace, gaps: list[float]) -> None:
    each, bucket, now, places = pace.interval(its, LIMITS), None, NOW, list[datetime]()
    for gap in gaps:
        now += timedelta(seconds=gap)
        place = taken(bucket, its, now)
        bucket = place.bucket
        if place.taken:
            assert place.at >= now
            places.append(place.at)
    assert places == sorted(places), "who comes first goes first"
    for first, begins in enumerate(places):
        for last, ends in enumerate(places[first:], start=first):
            assert last - first + 1 <= its.burst + (ends - begins) / each + 1e-6


@given(paces, st.integers(1, 60))
def test_as_many_messages_as_wait_are_sent_in_the_time_that_the_pace_needs(its: Pace, count: int) -> None:
    """Each comes back by its hop alone; none is overtaken for ever."""
    each, bucket, sent = pace.interval(its, LIMITS), None, list[datetime]()
    hops = [(NOW, number) for number in range(count)]
    looks = 0
    while hops:
        now, number = heapq.heappop(hops)
        looks += 1
        place = taken(bucket, its, now)
        bucket = place.bucket
        if place.taken:
            sent.append(place.at)
        else:
            heapq.heappush(hops, (now + AHEAD * 0.8, number))
    assert len(sent) == count
    assert max(sent) <= NOW + each * count + AHEAD
    assert looks <= count * (2 + each * count / AHEAD)


def test_a_burst_goes_at_once_and_the_rest_at_the_pace() -> None:
    bucket, places = None, []
    for _ in range(5):
        place = taken(bucket, Pace(2.0, burst=3))
        bucket, places = place.bucket, [*places, place.at]
    assert places == [NOW, NOW, NOW, at(0.5), at(1)]


def test_a_pause_gives_back_no_more_than_the_burst() -> None:
    bucket = Bucket(at(-3600))
    places = []
    for _ in range(3):
        place = taken(bucket, Pace(1.0, burst=2))
        bucket, places = place.bucket, [*places, place.at]
    assert places == [NOW, NOW, at(1)]


@pytest.mark.parametrize(("ahead", "is_taken"), [(600, True), (600.5, False)])
def test_a_place_is_reserved_at_most_ten_minutes_ahead(ahead: float, is_taken: bool) -> None:
    bucket = Bucket(at(ahead))
    assert taken(bucket, Pace(1.0)) == Place(at(ahead), Bucket(at(ahead + 1)) if is_taken else bucket, is_taken)


def test_an_elected_message_is_counted_though_it_does_not_wait() -> None:
    assert counted(None, Pace(2.0), LIMITS, NOW) == Bucket(at(0.5))
    assert counted(Bucket(at(9)), Pace(2.0), LIMITS, NOW) == Bucket(at(9.5))


@pytest.mark.parametrize(("spent", "first"), [(5000, 1), (4, 1), (1.5, 0.5), (-9, 0)])
def test_places_given_back_leave_one_burst_spent_at_most(spent: float, first: float) -> None:
    its = Pace(1.0, burst=2)
    assert taken(pace.given_back(Bucket(at(spent)), its, LIMITS, NOW), its).at == at(first)
    assert pace.given_back(None, its, LIMITS, NOW) is None


def test_time_scale_quickens_a_pace_too() -> None:
    quick = Limits().scaled(10)
    assert pace.interval(Pace(2.0), quick) == timedelta(seconds=0.05)


@pytest.mark.parametrize(
    ("slot", "valid"), [(None, False), (-10.1, False), (-10, True), (0, True), (600, True), (600.1, False)]
)
def test_a_slot_is_valid_from_its_reservation_to_ten_seconds_late(slot: float | None, valid: bool) -> None:
    assert pace.is_valid(None if slot is None else at(slot), LIMITS, NOW) is valid


# ---- in the pipeline


@pytest.fixture
def world(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> World:
    """A sender that sends one message a second."""
    clock = Clock()
    world = World(Store(tmp_path, clock), Channel(), clock, Queue(), lines_of(caplog))
    world.tenants.senders = [Sender("default", "meta", SENDER, pace=Pace(1.0))]
    world.mark()
    return world


def bucket_of(world: World) -> Bucket | None:
    return world.store.marks(PACE_ID).bucket


def test_twenty_waiting_messages_are_sent_by_twenty_hops(world: World) -> None:
    for number in range(20):
        record = world.add(f"{number:x}" if number < 16 else "ghij"[number - 16])
        assert world.process(record) == (DONE if number == 0 else WAITING)
    hops = list(world.queue.made)
    assert [(moment, task.slot) for task, moment in hops] == [(at(n), at(n)) for n in range(1, 20)]
    assert [(line["reason"], line["until"]) for line in world.lines("outbound_waiting")][:1] == [
        ("paced", at(1).isoformat())
    ]
    writes = world.store.asked["change_marks"]
    for task, moment in hops:
        assert moment is not None
        world.clock.go((moment - world.clock.at).total_seconds())
        assert world.outbound(task) == DONE
    assert len(world.queue.made) == 19, "no hop more"
    assert world.store.asked["change_marks"] == writes, "a reserved place is not taken once more"
    assert world.channel.calls == ["send"] * 20


def test_a_slot_survives_the_task_body() -> None:
    task = replace(task_for(None), slot=at(7))
    assert parse_task(task.kind, task_body(task)) == task


@pytest.mark.parametrize(("late", "answer"), [(-0.1, DONE), (10, DONE), (10.1, WAITING)])
def test_a_task_that_comes_too_late_for_its_slot_takes_another_place(world: World, late: float, answer: Answer) -> None:
    world.store.change_marks(PACE_ID, lambda marks: replace(marks, bucket=Bucket(at(60))))
    record = world.add("a")
    task = replace(Task.of(record), hop=1, slot=at(5))
    world.clock.go(5 + late)
    assert world.outbound(task) == answer
    assert bucket_of(world) == Bucket(at(60 if answer == DONE else 61))


def test_an_early_task_keeps_its_slot_and_writes_nothing(world: World) -> None:
    record = world.add("a")
    assert world.outbound(replace(Task.of(record), hop=1, slot=at(5))) == WAITING
    ((task, moment),) = world.queue.made
    assert (task.slot, moment, task.hop) == (at(5), at(5), 2)
    assert bucket_of(world) is None


def test_a_message_whose_predecessor_is_unfinished_reserves_nothing(world: World) -> None:
    before = world.add("b", due_at=at(60))
    record = world.add("a", after=before.key)
    assert world.process(record) == WAITING
    assert world.lines("outbound_waiting")[-1]["reason"] == "predecessor"
    assert bucket_of(world) is None
    ((task, _),) = world.queue.made
    assert task.slot is None


def test_a_wait_for_something_else_gives_the_slot_up(world: World) -> None:
    world.mark(down=Outage(at(40), timedelta(seconds=40)))
    world.outbound(replace(Task.of(world.add("a")), hop=1, slot=NOW))
    ((task, moment),) = world.queue.made
    assert (task.slot, moment) == (None, at(40))


def test_an_older_task_reserves_no_place(world: World) -> None:
    """It makes no hop that could carry one."""
    world.store.change_marks(PACE_ID, lambda marks: replace(marks, bucket=Bucket(at(60))))
    record = world.add("a", generation=1)
    assert world.outbound(task_for(record, age=-1)) == WAITING
    assert bucket_of(world) == Bucket(at(60))
    assert [task for task, _ in world.queue.made] == [Task.of(record)]


def test_a_message_beyond_the_reservations_comes_back_without_a_place(world: World) -> None:
    world.store.change_marks(PACE_ID, lambda marks: replace(marks, bucket=Bucket(at(7200))))
    assert world.process(world.add("a")) == WAITING
    ((task, moment),) = world.queue.made
    assert (task.slot, moment) == (None, at(600))
    assert bucket_of(world) == Bucket(at(7200))


def test_an_elected_message_goes_at_once_and_is_counted(world: World) -> None:
    world.mark(down=Outage(NOW, timedelta(seconds=40)))
    world.store.change_marks(PACE_ID, lambda marks: replace(marks, bucket=Bucket(at(60))))
    assert world.process(world.add("a")) == DONE
    assert world.channel.calls == ["probe", "send"]
    assert bucket_of(world) == Bucket(at(61))


def test_an_elected_message_goes_although_it_cannot_be_counted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    change = world.store.change_marks

    def fails(id: str, *given: Any) -> tuple[Marks, Marks]:
        if id == PACE_ID:
            raise StoreUnavailable
        return change(id, *given)

    world.mark(down=Outage(NOW, timedelta(seconds=40)))
    monkeypatch.setattr(world.store, "change_marks", fails)
    assert world.process(world.add("a")) == DONE


def test_a_message_that_is_not_sent_takes_no_place(world: World) -> None:
    for record in (
        world.add("a", due_at=at(60)),
        world.add("b", attempt=LIMITS.max_attempts),
        world.add("c", past_doubt, doubts=2),
    ):
        world.process(record)
    assert world.channel.calls == []
    assert bucket_of(world) is None


def test_a_call_is_no_message_of_the_pace(world: World) -> None:
    typing = {"type": "typing", "content": {"message_id": "wamid.in"}, "to": "+15550002222"}
    for key in "ab":
        assert world.process(world.add(key, payload=typing)) == DONE
    assert bucket_of(world) is None


def test_an_unpaced_sender_costs_no_read_and_no_write_more(world: World) -> None:
    world.tenants.senders = [Sender("default", "meta", SENDER)]
    world.process(world.add("a"))
    world.store.asked.clear()
    world.process(world.add("b"))
    assert (world.store.asked["marks"], world.store.asked["change_marks"]) == (1, 0)


# ---- in a drain


def drain(world: World) -> list[Task]:
    """A drain begins now; the tasks of the messages that it woke."""
    world.queue.made.clear()
    world.drain(DrainTask(ID, world.clock.now(), "correlation-9"))
    return [task for task, _ in world.queue.made]


def run(world: World, tasks: list[tuple[Task, datetime | None]]) -> list[float]:
    """Run these tasks, and all that they make, once each and when it is due. Returns when each message was sent."""
    sent, due = list[float](), [(moment or NOW, order, task) for order, (task, moment) in enumerate(tasks)]
    known = {task.name for task, _ in tasks}
    while due:
        due.sort()
        moment, _, task = due.pop(0)
        world.clock.go(max(0.0, (moment - world.clock.at).total_seconds()))
        world.queue.made.clear()
        before = len(world.channel.calls)
        world.outbound(task)
        if len(world.channel.calls) > before:
            sent.append(world.clock.seconds)
        due += [(at or NOW, 99, made) for made, at in world.queue.made if made.name not in known]
        known |= {made.name for made, _ in world.queue.made}
    return sent


def test_drain_gives_back_the_places_of_those_that_it_wakes(world: World) -> None:
    """Also if the former tasks come: else those that wait would be sent at twice the pace, or behind unused places."""
    for key in "abcdef":
        world.process(world.add(key))
    waiting = list(world.queue.made)
    assert bucket_of(world) == Bucket(at(6))
    woken = [(task, None) for task in drain(world)]
    assert run(world, [*reversed(waiting), *reversed(woken)]) == [1, 2, 3, 4, 5]
    assert bucket_of(world) == Bucket(at(6))


def test_sweep_leaves_a_waiting_message_its_place(world: World) -> None:
    """It adds a task to each record that waits for long: else each sweep would empty ten minutes of the pace."""
    world.process(world.add("a"))
    record = world.add("b", sweep_at=at(0.5))
    world.process(record)
    ((task, _),) = world.queue.made
    world.clock.go(1)
    world.store.change(record.key, lambda found: sweep(found, LIMITS, at(1)))
    assert world.outbound(task) == DONE


def test_faster_pace_counts_at_once_for_what_waits(world: World) -> None:
    world.tenants.senders[:] = [Sender("default", "meta", SENDER, pace=Pace(0.001, burst=5))]
    world.store.change_marks(PACE_ID, lambda marks: replace(marks, bucket=Bucket(at(5600))))
    assert world.process(world.add("a")) == WAITING
    world.tenants.senders[:] = [Sender("default", "meta", SENDER, pace=Pace(2.0))]
    (task,) = drain(world)
    assert world.outbound(task) == WAITING
    assert world.queue.made[-1][0].slot == at(0.5)


def test_drain_of_a_sender_without_a_pace_writes_no_bucket(world: World) -> None:
    world.tenants.senders[:] = [Sender("default", "meta", SENDER)]
    world.add("a")
    assert len(drain(world)) == 1
    assert world.store.asked["change_marks"] == 1, "the fixture's"
