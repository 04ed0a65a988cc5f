"""The bell: who waits for a record is in it, and gets a wake task when the record has ended."""

from dataclasses import replace

import pytest

from shared.domain.delivery.answers import Answer, Ensure, Run, Step, TaskResult
from shared.domain.delivery.bell import enter, may_enter
from shared.domain.delivery.lease import lease
from shared.domain.delivery.operator import cancel, replay
from shared.domain.delivery.settle import settle
from shared.domain.guards import Go, Wait
from shared.domain.identity import wake_name
from shared.domain.record import MOST_WAITERS, WAKE, Delivery, Kind, State, Task, waiter
from shared.domain.tasks import parse_task, task_body, wake_tasks
from shared.domain.verdicts import Accepted, Limited, LimitScope, Lost, Refused, Replied, Retry
from tests.support.builders import LIMITS, MINE, NO_JITTER, NOW, at, dead, done, leased, pending

WAITING = replace(pending(key="0e" * 20), correlation_id="correlation-2")
ENTRY = f"{'0e' * 20}.correlation-2"
RUNG = frozenset({ENTRY})


def wake(record: Delivery) -> Task:
    """A wake task for this record."""
    return replace(Task.of(record), generation=WAKE, wake="0f" * 20)


def test_who_waits_enters_the_bell_once() -> None:
    record = pending()
    entered = enter(record, WAITING).write
    assert entered == replace(record, bell=RUNG)
    assert entered is not None
    assert enter(entered, WAITING).write is None
    assert not may_enter(entered, WAITING)


def test_full_bell_takes_no_more() -> None:
    entries = frozenset(f"{number:040x}.correlation-1" for number in range(MOST_WAITERS))
    assert MOST_WAITERS == 20
    assert not may_enter(pending(bell=entries), WAITING)
    assert may_enter(pending(bell=frozenset(sorted(entries)[1:])), WAITING)
    assert enter(pending(bell=entries), WAITING).write is None


@pytest.mark.parametrize("record", [None, done(), dead()], ids=["gone", "done", "dead"])
def test_nobody_enters_the_bell_of_a_record_that_is_gone_or_final(record: Delivery | None) -> None:
    assert enter(record, WAITING).write is None


@pytest.mark.parametrize(
    ("verdict", "state"),
    [
        (Accepted("wamid.1"), State.DONE),
        (Refused(131026), State.DEAD),
        (Retry(131053), None),
        (Limited(LimitScope.RATE, 130429), None),
        (Lost(), None),
    ],
)
def test_settle_rings_once_the_record_is_final(verdict: object, state: State | None) -> None:
    step = settle(leased(token=MINE, bell=RUNG), MINE, verdict, LIMITS, NOW, NO_JITTER)  # type: ignore[arg-type] # each is a verdict
    assert step.write is not None
    assert step.write.bell == RUNG
    assert (step.rings, step.write.state if step.write.final else None) == (step.write if state else None, state)


def test_task_that_ends_a_record_or_finds_it_final_rings() -> None:
    for record in (pending(attempt=8, bell=RUNG), pending(give_up_at=NOW, bell=RUNG)):
        step = lease(record, Task.of(record), MINE, Go(), LIMITS, NOW)
        assert step.write is not None
        assert step.rings == step.write
    for record in (done(bell=RUNG), dead(bell=RUNG)):
        assert lease(record, Task.of(record), MINE, Go(), LIMITS, NOW).rings == record


def test_event_that_has_ended_rings_too() -> None:
    found = done(Kind.INBOUND, bell=RUNG)
    assert lease(found, Task.of(found), MINE, Go(), LIMITS, NOW).rings == found
    step = settle(leased(Kind.INBOUND, token=MINE, bell=RUNG), MINE, Replied(()), LIMITS, NOW, NO_JITTER)
    assert step.write is not None
    assert step.rings == step.write


def test_record_without_waiters_rings_for_nobody() -> None:
    assert lease(done(), Task.of(done()), MINE, Go(), LIMITS, NOW).rings is None
    assert settle(leased(token=MINE), MINE, Accepted("wamid.1"), LIMITS, NOW, NO_JITTER).rings is None


def test_cancelled_message_rings_also_when_it_is_cancelled_again() -> None:
    step = cancel(pending(bell=RUNG), LIMITS, NOW)
    assert step.write is not None
    assert step.rings == step.write
    assert cancel(step.write, LIMITS, NOW).rings == step.write


def test_replay_begins_with_an_empty_bell() -> None:
    step = replay(dead(bell=RUNG, overtook="0a" * 20), LIMITS, NOW)
    assert step.write is not None
    assert (step.write.bell, step.write.overtook) == (frozenset(), None)


def test_wake_task_is_named_by_who_waits_and_by_the_end_that_woke_it() -> None:
    finished = done(bell=RUNG)
    (task,) = wake_tasks(finished, 7)
    assert task.name == wake_name(WAITING.key, finished.key, finished.round, finished.generation, "done")
    assert (task.key, task.correlation_id, task.generation, task.hop) == (WAITING.key, "correlation-2", WAKE, 0)
    assert (task.kind, task.tenant, task.pair) == (finished.kind, finished.tenant, 7)
    others = [replace(finished, round=8), replace(finished, generation=8), replace(finished, state=State.DEAD)]
    assert len({task.name, *(wake_tasks(other, 7)[0].name for other in others)}) == 4
    assert waiter(WAITING) == ENTRY


def test_wake_task_is_read_as_it_was_made() -> None:
    (task,) = wake_tasks(done(bell=RUNG), None)
    assert parse_task(Kind.OUTBOUND, task_body(task)) == replace(task, wake=None)


def test_hop_carries_since_when_it_waits_alone() -> None:
    task = replace(Task.of(WAITING), hop=2, alone_since=NOW)
    assert parse_task(Kind.OUTBOUND, task_body(task)) == task


def test_wake_task_sends_what_may_go() -> None:
    step = lease(WAITING, wake(WAITING), MINE, Go(), LIMITS, NOW)
    assert isinstance(step.next, Run)


def test_wake_task_never_hops() -> None:
    for guard in (Wait("predecessor", at(9)), Wait("blocked", at(9))):
        step = lease(WAITING, wake(WAITING), MINE, guard, LIMITS, NOW)
        assert step.next == Ensure(WAITING)
    later = replace(WAITING, due_at=at(60))
    assert lease(later, wake(later), MINE, Go(), LIMITS, NOW).next == Ensure(later)


def test_wake_task_owes_nothing_at_a_live_lease() -> None:
    held = leased(token="another", lease_until=at(9))
    assert lease(held, wake(held), MINE, Go(), LIMITS, NOW) == Step(Answer(TaskResult.ACK, "leased"))
    assert lease(held, Task.of(held), MINE, Go(), LIMITS, NOW) == Step(Answer(TaskResult.CONFLICT, "leased"))


def test_message_that_waited_long_enough_says_which_one_it_overtook() -> None:
    step = lease(WAITING, Task.of(WAITING), MINE, Go(overtakes="0a" * 20), LIMITS, NOW)
    assert step.write is not None
    assert step.write.overtook == "0a" * 20
    again = replace(step.write, state=State.PENDING, token=None, lease_until=None)
    later = lease(again, Task.of(again), MINE, Go(), LIMITS, NOW)
    assert later.write is not None
    assert later.write.overtook == "0a" * 20
