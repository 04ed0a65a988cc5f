"""What the webhook's client of Cloud Tasks does with many tasks, with a slow service, and with each error."""

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pytest_mock import MockerFixture

from local.faulty_proxy import FaultyProxy
from shared.domain.errors import QueueUnavailable
from shared.domain.record import Kind
from shared.pipeline.outcomes import faults_in
from shared.queues.cloud_tasks_intake import REMEMBERED_SECONDS, TaskRefused, _Remembered
from shared.queues.missing_queues import MissingQueues
from shared.queues.task_content import QueueSettings
from tests.support.real_servers import until
from tests.support.rest_middleman import STATUSES, Middleman
from tests.support.tasks_backend import PLACE, TARGET, TOKEN, Emulator, Intake, Queue, a_deadline, a_task, some_tasks

Opened = Callable[..., Intake]


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    with Emulator(tmp_path_factory.mktemp("tasks")) as emulator:
        yield emulator


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Opens clients of an address, and closes them in the end."""
    intakes: list[Intake] = []

    def open_one(address: str | None, token: Any = None, **changes: Any) -> Intake:
        given = {
            "project": "pombo-test",
            "location": "local",
            "queues": {Kind.INBOUND: "inbound", Kind.OUTBOUND: "outbound"},
            "base_url": TARGET,
            "token": TOKEN,
            "dispatch_deadline": timedelta(seconds=135),
            "emulator": address,
        }
        intakes.append(Intake(QueueSettings(**(given | changes)), token))
        return intakes[-1]

    yield open_one
    for intake in intakes:
        intake.close()


@pytest.fixture
def fake() -> Iterator[Middleman]:
    """A Cloud Tasks that makes no tasks."""
    with Middleman() as fake:
        yield fake


def test_many_tasks_are_made_each_once_and_each_when_it_is_due(emulator: Emulator, opened: Opened) -> None:
    queue = Queue(emulator)
    intake = opened(emulator.address, queues=queue.names)
    soon = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    tasks = [(a_task(), soon if number % 2 else None) for number in range(300)]
    queue.port.ensure(*tasks[7])
    for _ in range(2):
        assert intake.ensure_all(tasks, a_deadline()) == [None] * 300
    made = {task.name.rpartition("/")[2]: task for task in queue.made()}
    assert set(made) == {task.name for task, _ in tasks}
    assert {made[task.name].schedule_time == soon for task, at in tasks if at} == {True}


def test_64_creations_are_in_flight_and_no_more(opened: Opened, fake: Middleman) -> None:
    fake.seconds = 0.2
    began = time.monotonic()
    assert opened(fake.address).ensure_all(some_tasks(256), a_deadline()) == [None] * 256
    assert time.monotonic() - began < 2.5, "one after another they would take 51 s, 16 at a time 3.2"
    assert 32 < fake.most <= 64


@pytest.mark.parametrize("count", [1, 20])
def test_few_tasks_do_not_wait_behind_a_great_many(opened: Opened, fake: Middleman, count: int) -> None:
    """As two POSTs do at once."""
    fake.seconds = 0.05
    intake = opened(fake.address)
    with ThreadPoolExecutor(1) as other:
        great = other.submit(intake.ensure_all, some_tasks(2000), a_deadline())
        until(lambda: len(fake.calls) > 100)
        began = time.monotonic()
        intake.ensure_all(some_tasks(count), a_deadline())
        took = time.monotonic() - began
        assert not great.done(), "nothing was there to wait behind"
        assert took < 1
        great.result()


def test_unavailable_queue_fails_all_tasks_after_few_attempts(opened: Opened, fake: Middleman) -> None:
    fake.always = "PERMISSION_DENIED"
    made = opened(fake.address).ensure_all(some_tasks(500), a_deadline())
    assert {type(one) for one in made} == {QueueUnavailable}
    assert len(fake.calls) <= 64


@pytest.mark.parametrize("count", [2, 200], ids=["small", "large"])
def test_refusal_of_one_task_stops_no_other(opened: Opened, fake: Middleman, count: int) -> None:
    fake.errors.append("INVALID_ARGUMENT")
    made = opened(fake.address).ensure_all(some_tasks(count), a_deadline())
    assert made.count(None) == count - 1
    (refused,) = faults_in(made)
    assert isinstance(refused, TaskRefused)
    assert not refused.retryable
    assert len(fake.calls) == count


def test_refused_task_of_a_large_post_is_requested_again(opened: Opened, fake: Middleman) -> None:
    intake, tasks = opened(fake.address), some_tasks(30)
    fake.errors.append("INVALID_ARGUMENT")
    intake.ensure_all(tasks, a_deadline())
    assert intake.ensure_all(tasks, a_deadline()) == [None] * 30
    assert len(fake.calls) == 31


@pytest.mark.parametrize("code", ["NOT_FOUND", "PERMISSION_DENIED", "UNAUTHENTICATED", "FAILED_PRECONDITION"])
def test_refusal_that_concerns_all_tasks_is_an_outage(opened: Opened, fake: Middleman, code: str) -> None:
    fake.always = code
    made = opened(fake.address).ensure_all(some_tasks(200), a_deadline())
    with pytest.raises(QueueUnavailable) as caught:
        faults_in(made)
    assert caught.value.retryable
    assert len(fake.calls) <= 64


def test_redelivery_to_the_same_process_requests_only_the_missing_tasks(
    opened: Opened, fake: Middleman, mocker: MockerFixture
) -> None:
    """For a while: then the name may be free again, and the task be needed."""
    intake, tasks = opened(fake.address), some_tasks(30)
    now = mocker.patch("shared.queues.cloud_tasks_intake.time")
    now.monotonic.return_value = 1000.0
    intake.ensure_all(tasks[:20], a_deadline())
    assert intake.ensure_all(tasks, a_deadline()) == [None] * 30
    assert len(fake.calls) == 30
    now.monotonic.return_value += 899
    intake.ensure_all(tasks, a_deadline())
    assert len(fake.calls) == 30
    now.monotonic.return_value += 1
    intake.ensure_all(tasks, a_deadline())
    assert len(fake.calls) == 60


def test_tasks_of_a_small_post_are_not_remembered(opened: Opened, fake: Middleman) -> None:
    """A single event always asks."""
    intake, tasks = opened(fake.address), some_tasks(1)
    for _ in range(2):
        intake.ensure_all(tasks, a_deadline())
    assert len(fake.calls) == 2


def test_task_that_could_not_be_made_is_not_remembered(opened: Opened, fake: Middleman) -> None:
    intake, tasks = opened(fake.address), some_tasks(11)
    fake.always = "PERMISSION_DENIED"
    assert QueueUnavailable in {type(one) for one in intake.ensure_all(tasks, a_deadline())}
    fake.always = None
    fake.calls.clear()
    assert intake.ensure_all(tasks, a_deadline()) == [None] * 11
    assert len(fake.calls) == 11


def test_only_so_many_tasks_are_remembered(opened: Opened, fake: Middleman, mocker: MockerFixture) -> None:
    mocker.patch("shared.queues.cloud_tasks_intake.REMEMBERED", 20)
    intake, tasks = opened(fake.address), some_tasks(30)
    intake.ensure_all(tasks[:15], a_deadline())
    intake.ensure_all(tasks[15:], a_deadline())
    fake.calls.clear()
    intake.ensure_all(tasks[10:], a_deadline())
    assert len(fake.calls) == 0
    intake.ensure_all(tasks[:11], a_deadline())
    assert len(fake.calls) == 10


def test_task_is_remembered_for_15_minutes(mocker: MockerFixture) -> None:
    clock = mocker.patch("shared.queues.cloud_tasks_intake.time").monotonic
    clock.return_value = 5.0
    remembered = _Remembered(10, REMEMBERED_SECONDS)
    remembered.add(["a"])
    clock.return_value = 904.9
    assert "a" in remembered
    clock.return_value = 905.1
    assert "a" not in remembered


def test_tasks_are_not_begun_once_the_deadline_has_passed(opened: Opened, fake: Middleman) -> None:
    made = opened(fake.address).ensure_all(some_tasks(3), a_deadline(seconds=0))
    assert [str(one) for one in made] == ["The task queue is too slow."] * 3
    assert fake.calls == []


@pytest.mark.parametrize("count", [1, 200])
def test_tasks_that_are_not_answered_by_the_deadline_are_too_slow(opened: Opened, fake: Middleman, count: int) -> None:
    fake.seconds = 1
    began = time.monotonic()
    made = opened(fake.address).ensure_all(some_tasks(count), a_deadline(seconds=0.5))
    assert time.monotonic() - began < 2
    assert {str(one) for one in made} == {"The task queue is too slow."}
    assert len(fake.calls) <= 64


# ---- the service's pace


@pytest.mark.parametrize("count", [1, 10])
def test_few_tasks_on_silent_connections_cost_less_than_a_second(
    emulator: Emulator, opened: Opened, count: int
) -> None:
    queue = Queue(emulator)
    with FaultyProxy("127.0.0.1", emulator.port, names_target=True) as proxy:
        intake = opened(proxy.address, queues=queue.names)
        intake.ensure_all(some_tasks(count), a_deadline())
        proxy.silence()
        began = time.monotonic()
        assert intake.ensure_all(some_tasks(count), a_deadline()) == [None] * count
        assert 0.6 < time.monotonic() - began < 1.6


def test_slow_answers_to_a_large_post_are_awaited(opened: Opened, fake: Middleman) -> None:
    """More than a few tasks may take long on sound connections: the first try has no short timeout."""
    intake = opened(fake.address)
    intake.ensure(a_task(), None)
    fake.calls.clear()
    fake.seconds = 0.9
    assert intake.ensure_all(some_tasks(11), a_deadline()) == [None] * 11
    assert len(fake.calls) == 11


def test_slow_service_is_awaited_on_every_call(opened: Opened, fake: Middleman) -> None:
    """It is no silent connection: after one try that was too short each call has all of the patience."""
    intake = opened(fake.address)
    intake.ensure(a_task(), None)
    fake.seconds = 0.9
    for _ in range(3):
        intake.ensure(a_task(), None)
    assert len(fake.calls) == 5
    fake.seconds = 0
    intake.ensure(a_task(), None)
    fake.seconds = 0.9
    intake.ensure(a_task(), None)
    assert len(fake.calls) == 8, "once it was quick again a first try is short again"


# ---- errors, by their exact code


@pytest.mark.parametrize("code", ["UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL", "ABORTED", "RESOURCE_EXHAUSTED"])
@pytest.mark.parametrize("then", [[], ["ALREADY_EXISTS"]], ids=["made now", "was made"])
def test_briefly_failing_call_is_retried(opened: Opened, fake: Middleman, code: str, then: list[str]) -> None:
    """Only because it is named: what was made and not answered is not made twice."""
    fake.errors += [code, *then]
    opened(fake.address).ensure(a_task(), None)
    assert len(fake.calls) == 2


def test_task_that_is_too_large_is_no_outage(opened: Opened, fake: Middleman, mocker: MockerFixture) -> None:
    mocker.patch.dict(STATUSES, {"OUT_OF_RANGE": 413})
    fake.errors.append("OUT_OF_RANGE")
    refused, made = opened(fake.address).ensure_all(some_tasks(2), a_deadline())
    assert {type(refused), type(made)} == {TaskRefused, type(None)}


@pytest.mark.parametrize("code", ["INVALID_ARGUMENT", "NOT_FOUND", "PERMISSION_DENIED", "UNAUTHENTICATED"])
def test_refused_call_is_not_retried(opened: Opened, fake: Middleman, code: str) -> None:
    fake.always = code
    intake = opened(fake.address)
    for call in (lambda: intake.ensure(a_task(), None), intake.ping):
        fake.calls.clear()
        with pytest.raises(QueueUnavailable) as caught:
            call()
        assert len(fake.calls) == 1
        assert "c4n4ry" not in f"{caught.value}{caught.value.__cause__}"


def test_conflict_other_than_a_used_name_is_not_a_success(opened: Opened, fake: Middleman) -> None:
    fake.always = "ABORTED"
    with pytest.raises(QueueUnavailable):
        opened(fake.address).ensure(a_task(), None)
    assert len(fake.calls) > 1


def test_conflict_that_ends_at_once_is_not_a_success(opened: Opened, fake: Middleman, mocker: MockerFixture) -> None:
    """The code counts, not the status: 409 has several."""
    mocker.patch.dict(STATUSES, {"OUT_OF_RANGE": 409})
    fake.always = "OUT_OF_RANGE"
    with pytest.raises(QueueUnavailable):
        opened(fake.address).ensure(a_task(), None)
    assert len(fake.calls) == 1


NUMBERED = {"pairs": 2, "patterns": {Kind.INBOUND: "inbound-t{n:03d}", Kind.OUTBOUND: "outbound-t{n:03d}"}}


@pytest.mark.parametrize("code", ["NOT_FOUND", "FAILED_PRECONDITION", "PERMISSION_DENIED"])
@pytest.mark.parametrize("then", [[], ["ALREADY_EXISTS"]], ids=["made now", "was made"])
def test_a_refused_numbered_queue_costs_one_call_more_a_minute(
    opened: Opened, fake: Middleman, code: str, then: list[str]
) -> None:
    times = [1000.0]
    intake = opened(fake.address, **NUMBERED)
    intake.intake._missing = MissingQueues(lambda: times[-1])
    fake.errors += [code, *then]
    first, second, third = (a_task(pair=1) for _ in range(3))
    intake.ensure(first, None)
    intake.ensure(second, None)
    times.append(1061.0)
    intake.ensure(third, None)
    asked = [json.loads(call.body)["task"]["name"].removeprefix(f"{PLACE}/queues/") for call in fake.calls]
    assert asked == [
        f"inbound-t001/tasks/{first.name}",
        f"inbound/tasks/{first.name}",
        f"inbound/tasks/{second.name}",
        f"inbound-t001/tasks/{third.name}",
    ]


def test_a_task_that_a_numbered_queue_refuses_otherwise_goes_nowhere_else(opened: Opened, fake: Middleman) -> None:
    fake.always = "INVALID_ARGUMENT"
    with pytest.raises(TaskRefused):
        opened(fake.address, **NUMBERED).ensure(a_task(pair=1), None)
    assert len(fake.calls) == 1


def test_tasks_of_one_post_go_to_the_queues_of_several_tenants(opened: Opened, fake: Middleman) -> None:
    tasks = [(a_task(pair=pair), None) for pair in (None, 0, 1, 2)]
    assert opened(fake.address, **NUMBERED).ensure_all(tasks, a_deadline()) == [None] * 4
    queues = {call.path.removeprefix(f"/v2/{PLACE}/queues/").removesuffix("/tasks") for call in fake.calls}
    assert (queues, len(fake.calls)) == ({"inbound", "inbound-t000", "inbound-t001"}, 4)


def test_ping_reads_both_queues_and_lists_no_tasks(opened: Opened, fake: Middleman) -> None:
    """The account may do no more."""
    opened(fake.address).ping()
    assert [(call.verb, call.path) for call in fake.calls] == [
        ("GET", f"/v2/{PLACE}/queues/inbound"),
        ("GET", f"/v2/{PLACE}/queues/outbound"),
    ]


def test_request_is_googles(opened: Opened, fake: Middleman) -> None:
    """https://cloud.google.com/tasks/docs/reference/rest/v2/projects.locations.queues.tasks/create"""
    task = a_task()
    opened(fake.address).ensure(task, None)
    (call,) = fake.calls
    assert (call.verb, call.path) == ("POST", f"/v2/{PLACE}/queues/inbound/tasks")
    assert json.loads(call.body)["task"]["name"] == f"{PLACE}/queues/inbound/tasks/{task.name}"
    assert call.authorization is None
