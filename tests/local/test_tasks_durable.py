"""Durability and life cycle: real processes, real signals. Google promises that no task is lost in a restart
(https://cloud.google.com/tasks/docs/common-pitfalls) and delivers at least once; so does the emulator under kill -9."""

import datetime
import os
import signal
import sqlite3
import subprocess
import threading
import time
from contextlib import closing
from types import SimpleNamespace

import pytest
from google.api_core import exceptions
from google.cloud import tasks_v2

from local.tasks.server import Server
from tests.support import forked
from tests.support.tasks_harness import LOCATION, Emulator, a_target, wait_until


@pytest.fixture
def emulator(tmp_path):
    with Emulator(tmp_path) as emulator:
        yield emulator


@pytest.fixture
def target():
    with a_target() as target:
        yield target


def in_seconds(seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(time.time() + seconds, datetime.UTC)


def run(*options: str) -> subprocess.CompletedProcess:
    return forked.run(["local.tasks", *options], os.environ, seconds=20)


def restart(emulator: Emulator) -> None:
    emulator.kill()
    emulator.start()


def test_queues_and_waiting_tasks_survive_a_kill_with_their_schedule(emulator):
    queue = emulator.queue({"max_dispatches_per_second": 7})
    emulator.client.pause_queue(name=queue)
    at = in_seconds(3600)
    task = emulator.create(queue, schedule_time=at, body=b"kept", task_id="t")
    restart(emulator)
    kept = emulator.client.get_queue(name=queue)
    assert kept.state == tasks_v2.Queue.State.PAUSED
    assert kept.rate_limits.max_dispatches_per_second == 7
    found = emulator.client.get_task(request={"name": task.name, "response_view": tasks_v2.Task.View.FULL})
    assert found.schedule_time == at
    assert found.http_request.body == b"kept"


def test_a_task_due_while_the_emulator_was_down_is_delivered_when_it_is_back(emulator, target):
    at = in_seconds(1.0)
    emulator.create(emulator.queue(), target.url, schedule_time=at)
    emulator.kill()
    wait_until(lambda: time.time() > at.timestamp())
    emulator.start()
    wait_until(lambda: target.received)


def test_a_task_cut_short_by_a_kill_is_delivered_again(emulator, target):
    """At least once: nobody knows whether the first delivery took effect."""
    killed = []
    target.answer = lambda _: ((len(target.received) == 1 and wait_until(lambda: killed)) and 200) or 200
    emulator.create(emulator.queue(), target.url, task_id="t")
    wait_until(lambda: target.received)
    emulator.kill()
    killed.append(True)
    emulator.start()
    assert emulator.started["interrupted"] == 1
    wait_until(lambda: len(target.received) == 2)
    assert [request.task for request in target.received] == ["t", "t"]
    assert [request.headers["X-CloudTasks-TaskRetryCount"] for request in target.received] == ["0", "1"]


def test_retry_preserves_its_count_and_time_through_a_kill(emulator, target):
    target.answer = lambda _: 404
    queue = emulator.queue(retry={"min_backoff": {"seconds": 100}, "max_backoff": {"seconds": 100}})
    task = emulator.create(queue, target.url)
    before = wait_until(lambda: (found := emulator.client.get_task(name=task.name)).response_count and found)
    restart(emulator)
    assert emulator.client.get_task(name=task.name) == before


def test_used_names_survive_a_kill(emulator, target):
    queue = emulator.queue()
    task = emulator.create(queue, target.url, task_id="t")
    wait_until(lambda: emulator.is_gone(task.name))
    restart(emulator)
    with pytest.raises(exceptions.AlreadyExists):
        emulator.create(queue, target.url, task_id="t")
    assert len(target.received) == 1


def test_a_name_is_free_again_after_a_day(emulator, target):
    """CreateTaskRequest: "up to 24 hours"; the time is moved in the file."""
    queue = emulator.queue()
    task = emulator.create(queue, target.url, task_id="t")
    wait_until(lambda: emulator.is_gone(task.name))
    emulator.kill()
    with closing(sqlite3.connect(emulator.data_dir / "tasks.sqlite")) as db, db:
        db.execute("UPDATE used_names SET free_at = free_at - 24 * 3600")
    emulator.start()
    emulator.create(queue, target.url, task_id="t")
    wait_until(lambda: len(target.received) == 2)


def test_a_task_is_deleted_after_31_days_whether_it_was_dispatched_or_not(emulator):
    """CreateQueue; the time is moved in the file."""
    task = emulator.create(emulator.paused_queue())
    emulator.kill()
    with closing(sqlite3.connect(emulator.data_dir / "tasks.sqlite")) as db, db:
        db.execute("UPDATE tasks SET created_at = created_at - 31 * 24 * 3600")
    emulator.start()
    wait_until(lambda: emulator.is_gone(task.name))


def test_kills_every_moment_lose_no_acknowledged_task(emulator, target):
    """Tasks are created and delivered through five kills; each one that was acknowledged arrives."""
    queue = emulator.queue(retry={"min_backoff": {"nanos": 50_000_000}, "max_backoff": {"nanos": 50_000_000}})
    acknowledged: set[str] = set()
    stop = threading.Event()

    def create_until_stopped(worker: int) -> None:
        number = 0
        while not stop.is_set():
            task_id = f"w{worker}-{number}"
            try:
                emulator.create(queue, target.url, task_id=task_id)
            except exceptions.AlreadyExists:
                pass  # this one's acknowledgement was lost in a kill
            except (exceptions.GoogleAPICallError, ValueError):
                stop.wait(0.02)  # down, or a channel closed under us: the same name again
                continue
            acknowledged.add(task_id)
            number += 1

    creators = [threading.Thread(target=create_until_stopped, args=(worker,)) for worker in range(4)]
    for creator in creators:
        creator.start()
    for _ in range(5):
        seen = len(acknowledged)
        wait_until(lambda seen=seen: len(acknowledged) > seen + 40)
        restart(emulator)
    stop.set()
    for creator in creators:
        creator.join()
    wait_until(lambda: acknowledged <= {request.task for request in target.received})
    wait_until(lambda: not list(emulator.client.list_tasks(parent=queue)))


def test_sigterm_ends_it_cleanly_within_two_seconds_and_its_tasks_come_back(emulator, target):
    released = []
    target.answer = lambda _: ((len(target.received) == 1 and wait_until(lambda: released)) and 200) or 200
    emulator.create(emulator.queue(), target.url)
    wait_until(lambda: target.received)
    started = time.monotonic()
    assert emulator.stop() == 0
    assert time.monotonic() - started < 2
    assert emulator.log[-1]["event"] == "stopping"
    released.append(True)
    emulator.start()
    wait_until(lambda: len(target.received) == 2)


def test_server_waits_for_calls_no_longer_than_its_patience(monkeypatch):
    """A gRPC call that never ends must not keep the emulator from ending."""
    server = Server({}, 0)
    grpcs_stop = server._grpc.stop
    monkeypatch.setattr(server, "_grpc", SimpleNamespace(stop=lambda _: threading.Event()))
    started = time.monotonic()
    server.stop(0.2)()
    assert 0.15 < time.monotonic() - started < 2
    grpcs_stop(0)


def test_sigint_ends_it_like_sigterm(emulator):
    emulator.process.send_signal(signal.SIGINT)
    assert emulator.process.wait(5) == 0


def test_an_attempt_that_ends_while_it_stops_is_settled_and_not_repeated(emulator, target):
    target.answer = lambda _: wait_until(lambda: emulator.log[-1]["event"] == "stopping") and 200
    queue = emulator.queue()
    emulator.create(queue, target.url)
    wait_until(lambda: target.received)
    assert emulator.stop() == 0
    emulator.start()
    assert list(emulator.client.list_tasks(parent=queue)) == []
    assert len(target.received) == 1


def test_a_file_of_an_unknown_version_refuses_to_start_with_one_sentence(tmp_path):
    with closing(sqlite3.connect(tmp_path / "tasks.sqlite")) as db, db:
        db.execute("PRAGMA user_version = 99")
    ended = run("--port", "0", "--data-dir", str(tmp_path))
    assert ended.returncode == 1
    assert "version 99" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_a_second_emulator_on_the_same_data_refuses_to_start(emulator):
    ended = run("--port", "0", "--data-dir", str(emulator.data_dir))
    assert ended.returncode == 1
    assert "another emulator" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_port_in_use_stops_the_start(emulator, tmp_path_factory):
    ended = run("--port", str(emulator.port), "--data-dir", str(tmp_path_factory.mktemp("other")))
    assert ended.returncode == 1
    assert "Cannot listen on" in ended.stderr


def test_a_time_scale_outside_1_to_20_is_a_usage_error(tmp_path):
    assert run("--port", "0", "--data-dir", str(tmp_path), "--time-scale", "21").returncode == 2


def test_a_restart_takes_the_same_port_at_once(emulator):
    port = emulator.port
    restart(emulator)
    assert emulator.port == port
    emulator.client.list_queues(parent=LOCATION)
