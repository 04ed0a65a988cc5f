"""The pure rules of dispatch, as tables. Sources are those of RetryConfig and RateLimits in google-cloud-tasks 2.26
(google/cloud/tasks_v2/types/queue.py), unless a test names another."""

import pytest
from google.cloud import tasks_v2
from hypothesis import given
from hypothesis import strategies as st

from local.tasks.headers import attempt_headers
from local.tasks.protobuf import Task, grpc_code
from local.tasks.queue_config import retry_policy
from local.tasks.retry_and_rate import Bucket, RetryPolicy, backoff, burst_size, is_given_up, least_wait
from local.tasks.task_table import StoredTask, TargetResponse

NOW = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT
POLICY = RetryPolicy(max_attempts=100, max_retry_duration=0, min_backoff=10, max_backoff=300, max_doublings=3)


def policy(**changes: float) -> RetryPolicy:
    fields = {name: getattr(POLICY, name) for name in RetryPolicy.__slots__}
    return RetryPolicy(**{**fields, **changes})


def test_the_backoff_doubles_then_grows_linearly_then_stays_at_its_maximum():
    """RetryConfig.max_doublings gives this very example: 10s, 300s and 3 doublings."""
    assert [backoff(POLICY, n) for n in range(1, 10)] == [10, 20, 40, 80, 160, 240, 300, 300, 300]


@pytest.mark.parametrize(
    ("doublings", "expected"),
    [
        (0, [10, 20, 30, 40, 50]),  # no doubling: linear from the start, by 2^0 * 10
        (1, [10, 20, 40, 60, 80]),
        (16, [10, 20, 40, 80, 160]),
    ],
)
def test_the_linear_part_begins_after_the_last_doubling(doublings, expected):
    assert [backoff(policy(max_doublings=doublings), n) for n in range(1, 6)] == expected


def test_pombo_queues_retry_as_in_the_contract():
    """min 5 s, max 600 s, 5 doublings."""
    ours = policy(min_backoff=5, max_backoff=600, max_doublings=5)
    assert [backoff(ours, n) for n in range(1, 11)] == [5, 10, 20, 40, 80, 160, 320, 480, 600, 600]


@given(st.integers(1, 10_000), st.integers(0, 2**31 - 1))
def test_a_backoff_lies_between_the_minimum_and_the_maximum(failures, doublings):
    """RetryConfig.min_backoff: "will be scheduled for retry between min_backoff and max_backoff"."""
    assert 10 <= backoff(policy(max_doublings=doublings), failures) <= 300


@pytest.mark.parametrize(
    ("value", "wait"),
    [
        ("1", 1),
        (" 90 ", 90),
        ("0", 0),
        ("3600", 3600),
        ("3601", 3600),
        ("9" * 5000, 3600),
        ("Tue, 14 Nov 2023 22:13:50 GMT", 30),  # 30 seconds after NOW
        ("Tue, 14 Nov 2023 22:13:50 -0000", 30),
        ("Tue, 14 Nov 2023 22:13:10 GMT", 0),  # it has passed
        ("Fri, 31 Dec 9999 23:59:59 GMT", 3600),
        ("", 0),
        ("-5", 0),
        ("1.5", 0),
        ("٣", 0),
        ("soon", 0),
        ("1, 2", 0),
        ("Fri, 99 Nov 99999999 12:01:00 GMT", 0),
    ],
)
def test_a_retry_after_is_read_as_seconds_or_as_a_date_and_lasts_an_hour_at_most(value, wait):
    """https://www.rfc-editor.org/rfc/rfc9110#field.retry-after; the hour is ours."""
    assert least_wait(503, value, now=NOW) == wait


@given(st.text() | st.dates().map(lambda day: day.strftime("%a, %d %b %Y 00:00:00 GMT")))
def test_any_retry_after_value_waits_between_zero_and_an_hour(value):
    assert 0 <= least_wait(503, value, now=NOW) <= 3600


@pytest.mark.parametrize(("status", "wait"), [(429, 7), (503, 7), (302, 0), (404, 0), (409, 0), (500, 0), (504, 0)])
def test_a_retry_after_counts_on_429_and_503_alone(status, wait):
    """HttpRequest (types/target.py) considers it where the worker returns one of these two."""
    assert least_wait(status, "7", now=NOW) == wait


@pytest.mark.parametrize(
    ("attempts", "duration", "made", "elapsed", "given_up"),
    [
        (3, 0, 2, 9999, False),  # attempts alone
        (3, 0, 3, 0, True),
        (3, 60, 3, 59, False),  # both set: attempts are used up, the time is not
        (3, 60, 2, 61, False),  # … and the other way about
        (3, 60, 3, 60, True),
        (3, 60, 50, 59, False),  # so a task may well run more than max_attempts times
        (-1, 0, 10_000, 10**9, False),  # without end
        (-1, 60, 1, 59, False),  # unlimited attempts are no limit to wait for; the time is
        (-1, 60, 1, 60, True),
        (1, 0, 1, 0, True),
    ],
)
def test_task_is_dropped_only_when_attempts_and_duration_are_both_used_up(attempts, duration, made, elapsed, given_up):
    """RetryConfig.max_attempts: "stops retrying only when max_attempts and max_retry_duration are both satisfied"."""
    assert is_given_up(policy(max_attempts=attempts, max_retry_duration=duration), made, elapsed) is given_up


def test_a_time_scale_divides_what_a_queue_waits_and_not_how_often_it_tries():
    assert POLICY.faster(10) == policy(min_backoff=1, max_backoff=30)


def test_tasks_own_retry_config_overrides_only_the_fields_it_sets():
    """Task.retry_config: "overrides the Queue.retry_config for this task"."""
    queue = tasks_v2.RetryConfig(max_attempts=9, min_backoff={"seconds": 0, "nanos": 500_000_000}, max_doublings=4)
    task = tasks_v2.Task(retry_config=tasks_v2.RetryConfig(max_attempts=2, min_backoff={"seconds": 7}))
    merged = retry_policy(tasks_v2.RetryConfig.pb(queue), tasks_v2.Task.pb(task))
    assert (merged.max_attempts, merged.min_backoff, merged.max_doublings) == (2, 7.0, 4)


def test_a_full_bucket_gives_its_burst_at_once_and_then_its_rate():
    """RateLimits.max_burst_size describes the token bucket."""
    bucket = Bucket.full(rate=10, burst=10, now=0.0).take(10)
    assert bucket.tokens == 0
    assert bucket.seconds_to_a_token() == pytest.approx(0.1)
    assert bucket.at_time(0.5).tokens == pytest.approx(5)


def test_a_bucket_never_holds_more_than_its_burst():
    assert Bucket.full(10, 10, now=0.0).take(3).at_time(3600).tokens == 10


def test_clock_going_backwards_removes_no_tokens():
    assert Bucket.full(10, 10, now=100.0).take(4).at_time(50.0).tokens == 6


@given(st.floats(0.1, 500), st.lists(st.floats(0, 2), max_size=50))
def test_a_bucket_never_gives_more_than_burst_plus_rate_times_time(rate, pauses):
    bucket, now, given_out = Bucket.full(rate, burst_size(rate), 0.0), 0.0, 0
    for pause in pauses:
        now += pause
        bucket = bucket.at_time(now)
        given_out += int(bucket.tokens)
        bucket = bucket.take(int(bucket.tokens))
    assert given_out <= burst_size(rate) + rate * now + 1e-6


@pytest.mark.parametrize(("rate", "burst"), [(500.0, 500), (20.0, 20), (0.1, 1), (1.5, 2)])
def test_the_burst_is_at_least_the_rate(rate, burst):
    """RateLimits.max_burst_size: "generally at least equal to max_dispatches_per_second"."""
    assert burst_size(rate) == burst


def stored(**changes) -> StoredTask:
    row = dict.fromkeys(StoredTask.__slots__)
    row |= {"queue": "projects/p/locations/l/queues/inbound", "name": "projects/p/locations/l/queues/inbound/tasks/t-1"}
    row |= {"dispatch_count": 1, "execution_count": 0, "schedule_at": 1700000000.25}
    return StoredTask(**{**row, **changes})


def test_first_attempt_carries_queue_name_counts_and_schedule_time():
    """https://cloud.google.com/tasks/docs/creating-http-target-tasks#handler: short names, epoch seconds."""
    assert attempt_headers(stored()) == {
        "X-CloudTasks-QueueName": "inbound",
        "X-CloudTasks-TaskName": "t-1",
        "X-CloudTasks-TaskRetryCount": "0",
        "X-CloudTasks-TaskExecutionCount": "0",
        "X-CloudTasks-TaskETA": "1700000000.250000",
    }


def test_a_retry_also_carries_the_previous_response_and_an_empty_reason():
    """Recorded from the service: aertje/cloud-tasks-emulator, conformance/golden/dispatch.json, dispatch/http."""
    headers = attempt_headers(stored(dispatch_count=3, execution_count=1, previous_response=404))
    assert headers["X-CloudTasks-TaskRetryCount"] == "2"
    assert headers["X-CloudTasks-TaskPreviousResponse"] == "404"
    assert headers["X-CloudTasks-TaskRetryReason"] == ""


@pytest.mark.parametrize(
    ("answer", "success", "execution"),
    [
        (TargetResponse(200, True), True, True),
        (TargetResponse(204, True), True, True),
        (TargetResponse(299, True), True, True),
        (TargetResponse(302, True), False, True),
        (TargetResponse(404, True), False, True),
        (TargetResponse(429, True), False, True),
        (TargetResponse(500, True), False, False),
        (TargetResponse(503, True), False, False),
        (TargetResponse(504, False), False, False),  # a deadline that passed is no response
    ],
)
def test_only_2xx_is_a_success_and_5xx_is_not_an_execution(answer, success, execution):
    """HttpRequest (types/target.py); TaskContext.executionCount of firebase-functions: "does not include 5XX"."""
    assert (answer.is_success, answer.is_execution) == (success, execution)


@pytest.mark.parametrize(("status", "code"), [(200, 0), (404, 5), (429, 8), (500, 13), (503, 14), (504, 4), (302, 2)])
def test_a_response_status_is_the_google_rpc_code_of_its_http_status(status, code):
    """https://github.com/googleapis/googleapis/blob/master/google/rpc/code.proto."""
    assert grpc_code(status) == code


def test_the_stored_message_is_the_clients_own_type():
    assert Task is tasks_v2.Task.pb()
