"""Dispatch, with a real target: who gets what, when, how often and how many at once.

Sources: google-cloud-tasks 2.26 (RateLimits, RetryConfig, HttpRequest, Task); "recorded" is
aertje/cloud-tasks-emulator, conformance/golden/dispatch.json: what the real service sent."""

import datetime
import time
from email.utils import format_datetime

import pytest
from google.cloud import tasks_v2

from tests.support.tasks_harness import Emulator, a_target, wait_until

FAST = {"min_backoff": {"nanos": 20_000_000}, "max_backoff": {"nanos": 20_000_000}}


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


def answering(*statuses: int):
    """An answer function that gives these statuses in turn, and then 200."""
    left = list(statuses)
    return lambda _: left.pop(0) if left else 200


def test_task_arrives_exactly_as_created(emulator, target):
    """HttpRequest; User-Agent, Host and Content-Length are the service's own."""
    emulator.create(
        emulator.queue(), f"{target.url}/path?query=1", body=b"\x00body", headers={"X-Mine": "yes", "Host": "elsewhere"}
    )
    (request,) = wait_until(lambda: target.received)
    assert (request.method, request.path, request.body) == ("POST", "/path?query=1", b"\x00body")
    assert request.headers["X-Mine"] == "yes"
    assert request.headers["User-Agent"] == "Google-Cloud-Tasks"
    assert request.headers["Host"] == target.url.removeprefix("http://")
    assert request.headers["Content-Type"] is None  # HttpRequest.headers: "won't be set by Cloud Tasks"


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"])
def test_a_task_is_sent_with_its_own_method(emulator, target, method):
    task = emulator.create(emulator.queue(), target.url, http_method=method)
    wait_until(lambda: emulator.is_gone(task.name))
    assert [request.method for request in target.received] == [method]


def test_the_headers_of_each_attempt_are_those_the_service_sends(emulator, target):
    """Recorded: dispatch/http answers 503, 404, 429, 500, 302 and then 200."""
    target.answer = answering(503, 404, 429, 500, 302)
    queue = emulator.queue(retry=FAST)
    task = emulator.create(queue, target.url, task_id="t")
    wait_until(lambda: emulator.is_gone(task.name))

    def sent(header):
        return [request.headers[f"X-CloudTasks-{header}"] for request in target.received]

    assert sent("TaskRetryCount") == ["0", "1", "2", "3", "4", "5"]
    assert sent("TaskExecutionCount") == ["0", "0", "1", "2", "2", "3"]
    assert sent("TaskPreviousResponse") == [None, "503", "404", "429", "500", "302"]
    assert sent("TaskRetryReason") == [None, "", "", "", "", ""]
    assert set(sent("QueueName")) == {queue.rpartition("/")[2]}
    assert set(sent("TaskName")) == {"t"}
    assert sorted(sent("TaskETA"), key=float) == sent("TaskETA")


@pytest.mark.parametrize("status", [200, 201, 204, 299])
def test_any_status_from_200_to_299_removes_the_task(emulator, target, status):
    target.answer = lambda _: status
    task = emulator.create(emulator.queue(), target.url)
    wait_until(lambda: emulator.is_gone(task.name))
    assert len(target.received) == 1


def test_a_redirect_is_a_failure_and_is_not_followed(emulator, target):
    """HttpRequest.url: "may be followed"; the narrower reading, so that no one relies on it."""
    target.answer = answering(307)
    task = emulator.create(emulator.queue(retry=FAST), f"{target.url}/here")
    wait_until(lambda: emulator.is_gone(task.name))
    assert [request.path for request in target.received] == ["/here", "/here"]


def test_a_task_shows_what_has_happened_to_it(emulator, target):
    """Task.dispatch_count, response_count, first_attempt ("only dispatch_time will be set"), last_attempt."""
    target.answer = answering(404, *[500] * 10_000)
    queue = emulator.queue(retry=FAST | {"max_backoff": {"seconds": 3600}, "max_doublings": 1})
    task = emulator.create(queue, target.url)
    wait_until(lambda: emulator.client.get_task(name=task.name).response_count >= 2)
    emulator.client.pause_queue(name=queue)
    shown = emulator.client.get_task(name=task.name)
    assert shown.dispatch_count == shown.response_count >= 2
    assert shown.first_attempt.dispatch_time.timestamp() > 0
    assert not shown.first_attempt.response_time
    assert shown.last_attempt.response_status.code == 13
    assert "500" in shown.last_attempt.response_status.message
    assert shown.first_attempt.dispatch_time < shown.last_attempt.dispatch_time <= shown.last_attempt.response_time
    assert shown.schedule_time > shown.last_attempt.response_time


def test_a_target_that_cannot_be_reached_is_a_failure_without_a_response(emulator):
    """HttpRequest: "no response is received". Such an attempt counts as dispatched and not as answered."""
    queue = emulator.queue(retry={"min_backoff": {"seconds": 100}, "max_backoff": {"seconds": 100}})
    task = emulator.create(queue, "http://127.0.0.1:9/")
    emulator.logged("attempt_failed", queue)
    shown = emulator.client.get_task(name=task.name)
    assert (shown.dispatch_count, shown.response_count) == (1, 0)


def test_a_failed_task_waits_for_its_backoff(emulator, target):
    """RetryConfig.min_backoff, doubling; measured at the target."""
    target.answer = answering(500, 500)
    task = emulator.create(
        emulator.queue(retry={"min_backoff": {"nanos": 200_000_000}, "max_backoff": {"seconds": 9}}), target.url
    )
    wait_until(lambda: emulator.is_gone(task.name))
    first, second, third = (request.at for request in target.received)
    assert 0.2 <= second - first < 1.0
    assert 0.4 <= third - second < 1.4


def test_retry_after_delays_only_its_own_task(emulator, target):
    """HttpRequest: after 429 and 503 it "is considered". The real service may slow the queue (decision 0005)."""
    target.headers = {"Retry-After": "1"}
    target.answer = lambda request: 503 if request.path == "/busy" and len(target.at("/busy")) == 1 else 200
    queue = emulator.queue(retry={"min_backoff": {"nanos": 100_000_000}})
    busy = emulator.create(queue, f"{target.url}/busy")
    wait_until(lambda: emulator.client.get_task(name=busy.name).response_count == 1)
    emulator.create(queue, f"{target.url}/other")
    wait_until(lambda: emulator.is_gone(busy.name))
    assert [request.path for request in target.received] == ["/busy", "/other", "/busy"]
    first, _, second = (request.at for request in target.received)
    assert 1 <= second - first < 2


def failed_once(emulator, target, status: int, **retry):
    """A task after its first attempt, which the target answered so; and the seconds until its next one."""
    target.answer = lambda _: status
    name = emulator.create(emulator.queue(retry=retry), target.url).name
    shown = wait_until(lambda: (task := emulator.client.get_task(name=name)).response_count == 1 and task)
    return shown, (shown.schedule_time - shown.last_attempt.response_time).total_seconds()


@pytest.mark.parametrize(
    ("status", "header", "wait"),
    [(503, "90", 90), (429, "90", 90), (503, "20", 60), (503, "86400", 3600), (503, "soon", 60), (500, "90", 60)],
)
def test_the_longer_of_backoff_and_retry_after_is_waited(emulator, target, status, header, wait):
    target.headers = {"Retry-After": header}
    _, waits = failed_once(emulator, target, status, min_backoff={"seconds": 60})
    assert waits == pytest.approx(wait, abs=0.001)


def test_retry_after_can_be_a_date(emulator, target):
    at = in_seconds(90).replace(microsecond=0)
    target.headers = {"Retry-After": format_datetime(at, usegmt=True)}
    shown, _ = failed_once(emulator, target, 429)
    assert shown.schedule_time.timestamp() == pytest.approx(at.timestamp(), abs=0.001)


def test_a_task_is_deleted_after_its_last_attempt_and_its_name_stays_used(emulator, target):
    """RetryConfig.max_attempts: "including the first attempt", then "the task is deleted"."""
    target.answer = lambda _: 500
    queue = emulator.queue(retry=FAST | {"max_attempts": 3})
    task = emulator.create(queue, target.url)
    wait_until(lambda: emulator.is_gone(task.name))
    assert len(target.received) == 3
    assert emulator.logged("task_given_up", queue)["attempts"] == 3


def test_a_task_goes_on_past_its_attempts_while_its_retry_duration_lasts(emulator, target):
    """RetryConfig.max_retry_duration: the time has passed *and* the attempts are used up."""
    target.answer = lambda _: 500
    task = emulator.create(
        emulator.queue(retry=FAST | {"max_attempts": 2, "max_retry_duration": {"seconds": 1}}), target.url
    )
    wait_until(lambda: emulator.is_gone(task.name))
    assert len(target.received) > 5
    assert target.received[-1].at - target.received[0].at >= 0.9


def test_a_tasks_own_retry_config_is_followed(emulator, target):
    """Task.retry_config."""
    target.answer = lambda _: 500
    task = emulator.create(emulator.queue(retry=FAST), target.url, retry_config=tasks_v2.RetryConfig(max_attempts=2))
    wait_until(lambda: emulator.is_gone(task.name))
    assert len(target.received) == 2


def test_a_task_is_not_delivered_before_its_schedule_time(emulator, target):
    """Task.schedule_time; TaskETA says the same moment."""
    at = in_seconds(0.5)
    emulator.create(emulator.queue(), target.url, schedule_time=at)
    (request,) = wait_until(lambda: target.received)
    assert 0 <= request.at - at.timestamp() < 0.2
    assert float(request.headers["X-CloudTasks-TaskETA"]) == pytest.approx(at.timestamp(), abs=1e-5)


def test_a_sooner_task_overtakes_a_later_one(emulator, target):
    queue = emulator.queue()
    emulator.create(queue, target.url + "/later", schedule_time=in_seconds(0.6))
    emulator.create(queue, target.url + "/sooner", schedule_time=in_seconds(0.2))
    wait_until(lambda: len(target.received) == 2)
    assert [request.path for request in target.received] == ["/sooner", "/later"]


def test_no_more_than_max_concurrent_dispatches_run_at_once(emulator, target):
    """RateLimits.max_concurrent_dispatches."""
    target.answer = lambda _: time.sleep(0.02) or 200
    queue = emulator.queue({"max_concurrent_dispatches": 3})
    emulator.client.pause_queue(name=queue)
    for _ in range(30):
        emulator.create(queue, target.url)
    emulator.client.resume_queue(name=queue)
    wait_until(lambda: len(target.received) == 30)
    assert target.most_at_once == 3


def test_a_queue_gives_its_burst_and_then_its_rate(emulator, target):
    """RateLimits.max_burst_size, the token bucket; ramp-up of idle queues is not imitated (decision 0005)."""
    queue = emulator.queue({"max_dispatches_per_second": 20})
    emulator.client.pause_queue(name=queue)
    for _ in range(32):
        emulator.create(queue, target.url)
    emulator.client.resume_queue(name=queue)
    wait_until(lambda: len(target.received) == 32)
    times = sorted(request.at for request in target.received)
    assert times[19] - times[0] < 0.4  # 20 of burst
    assert 0.5 <= times[31] - times[0] < 1.0  # 12 more at 20 a second


def test_hundred_hanging_tasks_delay_no_other_queue(emulator, target):
    """RateLimits are per queue."""
    released = []
    target.answer = lambda request: ((request.path == "/hang" and wait_until(lambda: released)) and 200) or 200
    slow, quick = emulator.queue(), emulator.queue()
    for _ in range(100):
        emulator.create(slow, target.url + "/hang", dispatch_deadline={"seconds": 135})
    wait_until(lambda: target.most_at_once >= 100)
    task = emulator.create(quick, target.url + "/quick")
    wait_until(lambda: emulator.is_gone(task.name))
    released.append(True)
    wait_until(lambda: not list(emulator.client.list_tasks(parent=slow)))
    assert len(target.received) == 101


def test_an_update_changes_the_pace_of_a_queue_under_way(emulator, target):
    queue = emulator.queue({"max_dispatches_per_second": 0.01})
    for _ in range(3):
        emulator.create(queue, target.url)
    wait_until(lambda: len(target.received) == 1)
    emulator.client.update_queue(queue=tasks_v2.Queue(name=queue, rate_limits={"max_dispatches_per_second": 500}))
    wait_until(lambda: len(target.received) == 3)


def test_a_time_scale_hastens_retries_and_rates_and_leaves_schedule_times_alone(tmp_path, target):
    """The emulator's own rule: the client has scaled schedule_time already, and GetQueue shows what was configured."""
    with Emulator(tmp_path, "--time-scale", "20") as emulator:
        target.answer = answering(500)
        queue = emulator.queue(
            {"max_dispatches_per_second": 5},
            {"min_backoff": {"seconds": 4}, "max_backoff": {"seconds": 600}},
        )
        at = in_seconds(0.4)
        task = emulator.create(queue, target.url, schedule_time=at)
        wait_until(lambda: emulator.is_gone(task.name))
        first, second = (request.at for request in target.received)
        assert first >= at.timestamp()
        assert 0.2 <= second - first < 1.0
        shown = emulator.client.get_queue(name=queue)
        assert shown.retry_config.min_backoff.total_seconds() == 4
        assert shown.rate_limits.max_dispatches_per_second == 5
        started = time.time()
        for _ in range(55):
            emulator.create(queue, target.url)
        wait_until(lambda: len(target.received) == 57)
        assert time.time() - started < 3  # 50 after the burst: ten seconds at the rate as configured


def test_a_time_scale_leaves_a_retry_after_alone(tmp_path, target):
    """The emulator's own rule: who asks for a wait does not know of the scale."""
    target.headers = {"Retry-After": "90"}
    with Emulator(tmp_path, "--time-scale", "20") as emulator:
        _, waits = failed_once(emulator, target, 503, min_backoff={"seconds": 4})
    assert waits == pytest.approx(90, abs=0.001)


def failure(emulator, target_url, body):
    """The line of the first attempt at such a task that failed."""
    queue = emulator.queue()
    emulator.create(queue, target_url, body=body)
    return emulator.logged("attempt_failed", queue)


def test_failed_attempt_is_logged_with_its_message_and_reason(emulator, target):
    """The feed of `pombo up` shows it; a service that answered has a line of its own."""
    target.answer = answering(503)
    with_id = b'{"v": 1, "correlation_id": "0123456789abcdef"}'

    answered = failure(emulator, target.url, with_id)
    unanswered = failure(emulator, "http://127.0.0.1:9", with_id)

    assert [line["correlation_id"] for line in (answered, unanswered)] == ["0123456789abcdef"] * 2
    assert (answered["severity"], answered["reason"]) == ("INFO", "The target answered 503.")
    assert (unanswered["severity"], unanswered["reason"]) == ("WARNING", "The target does not answer.")


@pytest.mark.parametrize("body", [b"\xff", b"[]", b"{}", b'{"correlation_id": "+1555"}', b"[" * 50_000])
def test_body_of_a_foreign_task_is_not_logged(emulator, body):
    assert "correlation_id" not in failure(emulator, "http://127.0.0.1:9", body)
