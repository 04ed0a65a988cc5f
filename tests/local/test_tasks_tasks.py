"""The calls on tasks, through the unmodified client. "Recorded" is aertje/cloud-tasks-emulator, conformance/golden:
what the real service answered."""

import datetime
import time

import pytest
from google.api_core import exceptions
from google.cloud import tasks_v2

from tests.support.tasks_harness import Emulator, a_target, wait_until

View = tasks_v2.Task.View
LATER = {"seconds": 4102444800}


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


def test_a_task_without_a_name_gets_one_and_the_default_deadline(emulator):
    """CreateTaskRequest.task; Task.dispatch_deadline: "For HTTP tasks, the default is 10 minutes"."""
    queue = emulator.paused_queue()
    task = emulator.create(queue)
    assert task.name.startswith(f"{queue}/tasks/")
    assert task.dispatch_deadline.total_seconds() == 600
    assert task.http_request.http_method == tasks_v2.HttpMethod.POST
    assert (task.dispatch_count, task.response_count) == (0, 0)


@pytest.mark.parametrize("offset", [None, -3600])
def test_a_schedule_time_that_is_missing_or_past_becomes_now(emulator, offset):
    """CreateTaskRequest.task."""
    schedule = {} if offset is None else {"schedule_time": in_seconds(offset)}
    task = emulator.create(emulator.paused_queue(), **schedule)
    assert abs(task.schedule_time.timestamp() - time.time()) < 5


def test_future_schedule_time_is_exact_to_the_microsecond(emulator):
    """Task.schedule_time: "truncated to the nearest microsecond"; create_time to the second."""
    at = in_seconds(3600)
    task = emulator.create(emulator.queue(), schedule_time=at)
    assert task.schedule_time == at
    assert task.create_time.microsecond == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"schedule_time": in_seconds(31 * 24 * 3600)},  # tasks/docs/quotas: 30 days
        {"dispatch_deadline": {"seconds": 14}},  # Task.dispatch_deadline: 15 seconds to 30 minutes
        {"dispatch_deadline": {"seconds": 1801}},
        {"body": b"x" * 103_000},  # CreateTask: "The maximum task size is 100KB"
        {"headers": {"x-long": "x" * 82_000}},  # HttpRequest.headers: "less than 80KB"
        {"http_method": "GET", "body": b"x"},  # HttpRequest.body: POST, PUT or PATCH
        {"url": ""},  # recorded: "HttpRequest.url is required."
        {"url": "ftp://127.0.0.1/"},  # recorded: "must start with 'http://' or 'https://'"
        {"url": "http://127.0.0.1/" + "x" * 2083},  # HttpRequest.url: 2083 characters
        {"retry_config": {"max_attempts": -2}},
        {"oidc_token": {"audience": "a"}},
    ],
)
def test_a_task_outside_the_documented_limits_is_an_invalid_argument(emulator, fields):
    with pytest.raises(exceptions.InvalidArgument):
        emulator.create(emulator.paused_queue(), **fields)


def test_odd_url_is_accepted_and_fails_on_dispatch(emulator):
    """Recorded: task/create/invalid-url-bad-escape is OK."""
    queue = emulator.queue(retry={"max_attempts": 1})
    task = emulator.create(queue, url="http://[nonsense/%zz")
    wait_until(lambda: emulator.is_gone(task.name))
    emulator.logged("task_given_up", queue)


@pytest.mark.parametrize("task_id", ["not a valid id", "a" * 501, "dot.ted"])
def test_a_malformed_task_id_is_an_invalid_argument(emulator, task_id):
    """Task.name; the sentence is recorded."""
    with pytest.raises(exceptions.InvalidArgument, match="can contain only letters"):
        emulator.create(emulator.paused_queue(), task_id=task_id)


def test_a_task_named_for_another_queue_is_an_invalid_argument(emulator):
    """Recorded: task/create/queue-mismatch."""
    task = tasks_v2.Task(name=f"{emulator.queue()}/tasks/t", http_request={"url": "http://127.0.0.1:9/"})
    with pytest.raises(exceptions.InvalidArgument, match="must be the same as the queue name"):
        emulator.client.create_task(parent=emulator.queue(), task=task)


def test_a_task_for_a_queue_that_does_not_exist_is_not_found(emulator):
    """Recorded: task/create/queue-not-found."""
    with pytest.raises(exceptions.NotFound, match="Queue does not exist"):
        emulator.create("projects/p/locations/l/queues/never-was")


def test_an_app_engine_task_is_refused_as_not_imitated(emulator):
    task = tasks_v2.Task(app_engine_http_request={"relative_uri": "/"})
    with pytest.raises(exceptions.MethodNotImplemented):
        emulator.client.create_task(parent=emulator.queue(), task=task)


def test_the_name_of_a_waiting_task_is_refused(emulator):
    """CreateTaskRequest: ALREADY_EXISTS; the sentence is recorded."""
    queue = emulator.paused_queue()
    emulator.create(queue, task_id="t")
    with pytest.raises(exceptions.AlreadyExists, match="Requested entity already exists"):
        emulator.create(queue, task_id="t")


def test_the_name_of_an_executed_task_is_refused(emulator, target):
    """CreateTaskRequest: "a task that was deleted or executed recently"."""
    queue = emulator.queue()
    task = emulator.create(queue, target.url, task_id="t")
    wait_until(lambda: emulator.is_gone(task.name))
    with pytest.raises(exceptions.AlreadyExists, match="existed too recently"):
        emulator.create(queue, target.url, task_id="t")
    assert len(target.received) == 1


def test_the_name_of_a_deleted_task_is_refused(emulator):
    queue = emulator.paused_queue()
    emulator.client.delete_task(name=emulator.create(queue, task_id="t").name)
    with pytest.raises(exceptions.AlreadyExists, match="existed too recently"):
        emulator.create(queue, task_id="t")


def test_the_same_id_in_another_queue_is_another_task(emulator):
    emulator.create(emulator.paused_queue(), task_id="t")
    emulator.create(emulator.paused_queue(), task_id="t")


def test_the_basic_view_leaves_the_body_out_and_is_the_default(emulator):
    """Task.View: BASIC "does not include the body"; unspecified means BASIC. Recorded: headers are in both."""
    queue = emulator.paused_queue()
    task = emulator.create(queue, body=b"secret", headers={"x-mine": "1"}, task_id="t")
    for shown in (task, emulator.client.get_task(name=task.name), next(iter(emulator.client.list_tasks(parent=queue)))):
        assert shown.view == View.BASIC
        assert shown.http_request.body == b""
        assert shown.http_request.headers["x-mine"] == "1"
    full = emulator.client.get_task(request={"name": task.name, "response_view": View.FULL})
    assert full.view == View.FULL
    assert full.http_request.body == b"secret"


def test_stored_headers_keep_their_case_and_lose_what_the_service_reserves(emulator):
    """Recorded: golden/headers.json, headers/http. HttpRequest.headers names what is ignored or replaced."""
    asked = {"X-Mixed-Case": "a", "content-type": "b", "Host": "c", "content-length": "9", "user-agent": "d"}
    asked |= {"X-Google-Thing": "e", "X-AppEngine-Thing": "f", "x-cloudtasks-taskname": "g"}
    task = emulator.create(emulator.paused_queue(), headers=asked)
    assert dict(task.http_request.headers) == {
        "X-Mixed-Case": "a",
        "content-type": "b",
        "User-Agent": "Google-Cloud-Tasks",
    }


def test_output_only_fields_of_a_request_are_ignored(emulator):
    """Task: create_time, dispatch_count, response_count and the attempts are output only."""
    task = emulator.create(emulator.paused_queue(), dispatch_count=7, response_count=7, create_time=LATER)
    assert (task.dispatch_count, task.response_count) == (0, 0)
    assert task.create_time.timestamp() < time.time() + 1


def test_tasks_are_listed_page_by_page(emulator):
    """ListTasksRequest.page_token."""
    queue = emulator.paused_queue()
    ids = {emulator.create(queue, task_id=f"t{number}").name for number in range(5)}
    pages = [
        [task.name for task in page.tasks]
        for page in emulator.client.list_tasks(request={"parent": queue, "page_size": 2}).pages
    ]
    assert [len(page) for page in pages] == [2, 2, 1]
    assert {name for page in pages for name in page} == ids


def test_a_list_with_large_bodies_comes_in_pages_that_grpc_can_carry(emulator):
    """ListTasksRequest.page_size: "Fewer tasks than requested might be returned"; gRPC refuses over 4 MB."""
    queue = emulator.paused_queue()
    for _ in range(45):
        emulator.create(queue, body=b"x" * 100_000)
    tasks = list(emulator.client.list_tasks(request={"parent": queue, "response_view": View.FULL}))
    assert {len(task.http_request.body) for task in tasks} == {100_000}
    assert len(tasks) == 45


def test_the_tasks_of_a_queue_that_does_not_exist_are_not_found(emulator):
    with pytest.raises(exceptions.NotFound):
        emulator.client.list_tasks(parent="projects/p/locations/l/queues/never-was")


@pytest.mark.parametrize("call", ["get_task", "delete_task", "run_task"])
def test_unknown_task_is_not_found(emulator, call):
    """Recorded: task/get, task/delete and task/run, not-found."""
    with pytest.raises(exceptions.NotFound, match="Requested entity was not found"):
        getattr(emulator.client, call)(name=f"{emulator.queue()}/tasks/never-was")


@pytest.mark.parametrize("call", ["get_task", "delete_task", "run_task"])
def test_deleted_task_is_not_found(emulator, call):
    """GetTask, DeleteTask ("cannot be deleted if it has executed"), RunTask; the sentence is recorded for get."""
    task = emulator.create(emulator.paused_queue())
    emulator.client.delete_task(name=task.name)
    with pytest.raises(exceptions.NotFound, match="existed recently"):
        getattr(emulator.client, call)(name=task.name)


def test_paused_queue_accepts_tasks_and_delivers_none_until_resumed(emulator, target):
    """PauseQueue: "Tasks can still be added when the queue is paused"."""
    queue, other = emulator.paused_queue(), emulator.queue()
    task = emulator.create(queue, target.url + "/held")
    emulator.create(other, target.url + "/other")
    wait_until(lambda: target.at("/other"))
    assert emulator.client.get_task(name=task.name).dispatch_count == 0
    assert not target.at("/held")
    emulator.client.resume_queue(name=queue)
    wait_until(lambda: target.at("/held"))


def test_running_a_task_dispatches_it_even_from_a_paused_queue_before_its_time(emulator, target):
    """RunTask: "even if … PAUSED"; what it returns is "after the task is dispatched but before … received"."""
    queue = emulator.paused_queue()
    task = emulator.create(queue, target.url, schedule_time=in_seconds(3600))
    shown = emulator.client.run_task(name=task.name)
    assert shown.dispatch_count == 1
    assert shown.response_count == 0
    assert shown.last_attempt.dispatch_time.timestamp() > 0
    wait_until(lambda: emulator.is_gone(task.name))
    assert len(target.received) == 1


def test_a_run_that_fails_is_retried_from_the_time_of_the_run(emulator, target):
    """RunTask: schedule_time becomes "the time that RunTask was called plus the retry delay"."""
    target.answer = lambda _: 500
    queue = emulator.queue(retry={"min_backoff": {"seconds": 100}, "max_backoff": {"seconds": 100}})
    task = emulator.create(queue, target.url, schedule_time=in_seconds(3600))
    ran_at = emulator.client.run_task(name=task.name).last_attempt.dispatch_time
    again = wait_until(lambda: (found := emulator.client.get_task(name=task.name)).response_count and found)
    assert (again.schedule_time - ran_at).total_seconds() == pytest.approx(100, abs=0.001)


def test_a_task_can_be_run_while_it_is_running(emulator, target):
    """RunTask: "even if the task is already running"."""
    both = wait_for_two(target)
    task = emulator.create(emulator.queue(), target.url)
    wait_until(lambda: target.received)
    emulator.client.run_task(name=task.name)
    wait_until(both)
    assert [request.headers["X-CloudTasks-TaskRetryCount"] for request in target.received] == ["0", "1"]


def wait_for_two(target):
    """Make the target answer only once two requests are there."""

    def answer(_):
        wait_until(lambda: len(target.received) >= 2)
        return 200

    target.answer = answer
    return lambda: target.most_at_once == 2


def test_a_task_deleted_while_it_runs_is_not_retried(emulator, target):
    """DeleteTask: "can be deleted if it is scheduled or dispatched"."""
    deleted = []

    def fail_after_the_deletion(_):
        wait_until(lambda: deleted)
        return 500

    target.answer = fail_after_the_deletion
    queue = emulator.queue()
    task = emulator.create(queue, target.url)
    wait_until(lambda: target.received)
    emulator.client.delete_task(name=task.name)
    deleted.append(True)
    emulator.logged("attempt_failed", queue)
    assert emulator.is_gone(task.name)
    assert len(target.received) == 1
