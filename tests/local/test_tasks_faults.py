"""Faults that a test asks of the emulator, written to the book by another process (here: this one).

What each imitates: a duplicate is the "at least once" of https://cloud.google.com/tasks/docs/common-pitfalls; a drop
is a task deleted after its last attempt (RetryConfig); an early delivery and a freed name are what nobody promises
will never be (CreateTaskRequest: "up to 24 hours")."""

import datetime
import time

import pytest
from google.api_core import exceptions

from tests.support.tasks_harness import Emulator, a_target, wait_until


@pytest.fixture(scope="module")
def emulator(tmp_path_factory):
    with Emulator(tmp_path_factory.mktemp("tasks")) as emulator:
        yield emulator


@pytest.fixture
def target():
    with a_target() as target:
        yield target


def in_seconds(seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(time.time() + seconds, datetime.UTC)


def test_a_duplicate_is_delivered_again_after_its_success(emulator, target):
    queue = emulator.queue()
    emulator.add_fault("duplicate", queue)
    emulator.create(queue, target.url, task_id="a")
    wait_until(lambda: len(target.received) == 2)
    emulator.create(queue, target.url, task_id="b")
    wait_until(lambda: len(target.received) == 3)
    assert [request.task for request in target.received] == ["a", "a", "b"]
    assert [request.headers["X-CloudTasks-TaskRetryCount"] for request in target.received] == ["0", "0", "0"]


def test_a_failure_is_not_duplicated_and_leaves_the_fault_for_a_success(emulator, target):
    target.answer = lambda _: 500 if len(target.received) == 1 else 200
    queue = emulator.queue()
    emulator.add_fault("duplicate", queue)
    emulator.create(queue, target.url)
    wait_until(lambda: len(target.received) == 3)
    assert [request.headers["X-CloudTasks-TaskRetryCount"] for request in target.received] == ["0", "1", "1"]


def test_a_dropped_task_vanishes_undelivered_and_its_name_stays_used(emulator, target):
    queue = emulator.queue()
    emulator.add_fault("drop", queue)
    task = emulator.create(queue, target.url, task_id="t")
    wait_until(lambda: emulator.is_gone(task.name))
    assert target.received == []
    with pytest.raises(exceptions.AlreadyExists):
        emulator.create(queue, target.url, task_id="t")


def test_early_fault_delivers_tasks_created_before_or_after_it(emulator, target):
    queue = emulator.queue()
    at = in_seconds(3600)
    before = emulator.create(queue, target.url + "/before", schedule_time=at)
    emulator.add_fault("early", queue, times=2)
    wait_until(lambda: emulator.is_gone(before.name))
    emulator.create(queue, target.url + "/after", schedule_time=at)
    wait_until(lambda: len(target.received) == 2)
    third = emulator.create(queue, target.url + "/third", schedule_time=at)
    assert [request.path for request in target.received] == ["/before", "/after"]
    assert {request.headers["X-CloudTasks-TaskETA"] for request in target.received} == {f"{at.timestamp():.6f}"}
    assert emulator.client.get_task(name=third.name).dispatch_count == 0


def test_freed_name_can_be_reused_at_once(emulator, target):
    queue = emulator.queue()
    task = emulator.create(queue, target.url, task_id="t")
    wait_until(lambda: emulator.is_gone(task.name))
    emulator.add_fault("free_name", queue)
    emulator.create(queue, target.url, task_id="t")
    wait_until(lambda: len(target.received) == 2 and emulator.is_gone(task.name))
    with pytest.raises(exceptions.AlreadyExists):
        emulator.create(queue, target.url, task_id="t")


def test_a_name_in_use_is_never_freed(emulator):
    queue = emulator.paused_queue()
    emulator.create(queue, task_id="t")
    emulator.add_fault("free_name", queue)
    with pytest.raises(exceptions.AlreadyExists):
        emulator.create(queue, task_id="t")


def test_slow_task_is_late_and_delays_no_other(emulator, target):
    queue = emulator.queue()
    emulator.add_fault("slow", queue, seconds=0.5, match={"name": "slow"})
    created_at = time.time()
    emulator.create(queue, target.url, task_id="slow")
    emulator.create(queue, target.url, task_id="quick")
    wait_until(lambda: len(target.received) == 2)
    quick, slow = target.received
    assert (quick.task, slow.task) == ("quick", "slow")
    assert slow.at - created_at >= 0.5


def test_a_fault_makes_only_what_its_match_names(emulator, target):
    """By queue, short name and path."""
    queue = emulator.queue()
    emulator.add_fault("drop", queue, times=0, match={"path": "/a"})
    dropped = emulator.create(queue, target.url + "/a?query=1")
    emulator.create(queue, target.url + "/b")
    wait_until(lambda: emulator.is_gone(dropped.name) and target.at("/b"))
    assert len(target.received) == 1
    assert emulator.logged("fault_made", queue)["kind"] == "drop"
