"""The drain of one message, and a page of a drain: what is woken, once, and what keeps its wait."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from shared.domain.delivery.answers import Ensure
from shared.domain.delivery.drain import drain
from shared.domain.drains import ACCOUNT_NEWS, LIMIT_OVER, RESUMED, SENDER_CHANGED, DrainTask
from shared.domain.errors import QueueUnavailable, TaskInvalid
from shared.domain.record import Attempt, Delivery, Kind, State, Task
from shared.pipeline.drain import PAGE, Drained
from tests.support.builders import LIMITS, NOW, STATES, at, pending
from tests.support.outbound_world import ID, World
from tests.support.pipelines import Channel, Clock, Queue, Store, lines_of

DRAIN = DrainTask(ID, NOW, "correlation-9")


def after(answer: str, round_: int = 0) -> tuple[Attempt, ...]:
    return (Attempt(at(-90), 1, answer, round=round_),)


WOKEN = {
    "due, waiting by hops": {"due_at": at(-60)},
    "due just now": {"due_at": at(-0.001)},
    "after a refused credential": {"due_at": at(600), "attempts_log": after("credential_refused")},
    "after a block": {"due_at": at(600), "attempts_log": after("blocked")},
}
KEPT = {
    "for a later time": {"due_at": at(600)},
    "after a limit": {"due_at": at(600), "attempts_log": after("limited")},
    "after an outage": {"due_at": at(600), "attempts_log": after("provider_down")},
    "refused before a replay": {"due_at": at(600), "attempts_log": after("credential_refused", 1)},
}


@pytest.mark.parametrize("fields", WOKEN.values(), ids=WOKEN)
@pytest.mark.parametrize("sweeps", [0, 3, 40])
def test_message_that_waits_for_its_sender_is_due_now(fields: dict[str, object], sweeps: int) -> None:
    record = pending(sweeps=sweeps, **fields)
    step = drain(record, LIMITS, NOW)
    assert step.write is not None
    assert (step.write.generation, step.write.due_at) == (record.generation + 1, NOW)
    assert (step.write.sweeps, step.write.sweep_at) == (0, at(600))
    assert step.next == Ensure(step.write)
    assert drain(step.write, LIMITS, NOW).write is None, "a repeated page moves it no further"
    assert drain(step.write, LIMITS, NOW).next == Ensure(step.write)


@pytest.mark.parametrize("fields", KEPT.values(), ids=KEPT)
def test_any_other_wait_is_kept(fields: dict[str, object]) -> None:
    step = drain(pending(**fields), LIMITS, NOW)
    assert (step.write, step.next) == (None, None)


@pytest.mark.parametrize("state", [name for name in STATES[Kind.OUTBOUND] if name != "pending"])
def test_message_in_another_state_is_left_alone(state: str) -> None:
    step = drain(STATES[Kind.OUTBOUND][state](), LIMITS, NOW)
    assert (step.write, step.next) == (None, None)


def test_event_and_missing_record_are_left_alone() -> None:
    for record in (pending(Kind.INBOUND), None):
        step = drain(record, LIMITS, NOW)
        assert (step.write, step.next) == (None, None)


# ---- a page


@pytest.fixture
def world(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> World:
    clock = Clock()
    return World(Store(tmp_path, clock), Channel(), clock, Queue(), lines_of(caplog))


def add_many(world: World, count: int, **changes: object) -> list[Delivery]:
    """Messages in the order of their age."""
    records = [
        pending(key=f"{number:040x}", generation=0, received_at=at(number - 1000), **changes) for number in range(count)
    ]
    for record in reversed(records):
        world.store.create(record)
    return records


def woken(world: World) -> Sequence[str]:
    return [task.key for task, _ in world.queue.made]


def test_page_wakes_the_senders_messages_oldest_first(world: World) -> None:
    records = add_many(world, 5)
    world.store.create(pending(key="a" * 40, sender="200000000000002"))
    world.store.create(pending(key="b" * 40, tenant="another"))
    world.store.create(pending(key="d" * 40, provider="another"))
    world.store.create(pending(Kind.INBOUND, key="c" * 40))
    assert world.drain(DRAIN) == Drained(5, more=False)
    assert woken(world) == [record.key for record in records]
    assert [task for task, _ in world.queue.made] == [Task.of(world.read(record)) for record in records]
    assert {at for _, at in world.queue.made} == {NOW}
    assert {world.read(record).generation for record in records} == {1}


def test_pages_follow_one_another_and_wake_each_message_once(world: World) -> None:
    records = add_many(world, 2 * PAGE + 50)
    task, pages = DRAIN, []
    while True:
        pages.append(world.drain(task))
        if not pages[-1].more:
            break
        task = world.queue.drains[-1]
    assert [page.woken for page in pages] == [PAGE, PAGE, 50]
    assert woken(world) == [record.key for record in records]
    assert [(drain.page, drain.sender, drain.since) for drain in world.queue.drains] == [(1, ID, NOW), (2, ID, NOW)]
    assert len({drain.name for drain in (DRAIN, *world.queue.drains)}) == 3
    assert len(world.lines("tenant_reconnected")) == 1, "as the drain begins"
    assert [line["count"] for line in world.lines("sender_drained")] == [PAGE, PAGE, 50]


@pytest.mark.parametrize("reason", [LIMIT_OVER, RESUMED, SENDER_CHANGED, ACCOUNT_NEWS, "a_newer_one"])
def test_only_a_drain_after_a_reconnect_says_that_the_sender_is_connected(world: World, reason: str) -> None:
    add_many(world, PAGE + 1)
    world.drain(replace(DRAIN, reason=reason))
    world.drain(world.queue.drains.pop())
    assert world.lines("tenant_reconnected") == []
    world.drain(replace(DRAIN, since=at(9)))
    assert len(world.lines("tenant_reconnected")) == 1
    assert [line["reason"] for line in world.lines("sender_drained")] == [reason, reason, "reconnected"]


def test_repeated_page_adds_no_generation_and_makes_the_same_tasks(world: World) -> None:
    records = add_many(world, 3)
    for _ in range(2):
        world.drain(DRAIN)
    assert len({task.name for task, _ in world.queue.made}) == 3
    assert {world.read(record).generation for record in records} == {1}


def test_page_whose_queue_fails_is_repeated_and_completes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    records, ensure = add_many(world, 3), world.queue.ensure

    def failing(task: Task, at: object) -> None:
        if len(world.queue.made) == 1:
            raise QueueUnavailable
        ensure(task, at)  # type: ignore[arg-type]

    monkeypatch.setattr(world.queue, "ensure", failing)
    with pytest.raises(QueueUnavailable):
        world.drain(DRAIN)
    monkeypatch.setattr(world.queue, "ensure", ensure)
    world.drain(DRAIN)
    assert {task.name for task, _ in world.queue.made} == {Task.of(world.read(record)).name for record in records}


def test_drain_of_a_sender_that_was_removed_does_nothing(world: World) -> None:
    add_many(world, 2)
    world.tenants.senders.clear()
    assert world.drain(DRAIN) == Drained(0, more=False)
    assert woken(world) == []
    (line,) = world.lines("sender_drained")
    assert (line["sender"], line["reason"]) == (ID, "sender_removed")


def test_sent_message_is_not_woken(world: World) -> None:
    (record,) = add_many(world, 1)
    world.process(record)
    assert world.drain(DRAIN) == Drained(0, more=False)
    assert world.read(record).state is State.DONE


@pytest.mark.parametrize("cursor", ["x", "{}", "[1]", '"a"'])
def test_cursor_that_no_page_ended_with_is_refused(world: World, cursor: str) -> None:
    with pytest.raises(TaskInvalid):
        world.drain(DrainTask(ID, NOW, "correlation-9", cursor, 1))
