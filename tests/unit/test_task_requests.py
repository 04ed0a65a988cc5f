"""The REST request for a task says the same as the official client's request."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from google.cloud import tasks_v2
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.record import Kind, Task
from shared.queues import cloud_tasks_intake
from shared.queues.cloud_tasks import CloudTasksQueue
from shared.queues.cloud_tasks_intake import CloudTasksIntake
from shared.queues.task_content import LEAST_DEADLINE, QueueSettings

SOON = datetime.now(UTC) + timedelta(days=2)

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
counts = st.integers(0, 2**31 - 1)
tasks = st.builds(Task, words, st.sampled_from(Kind), words, counts, counts, st.sampled_from(["", "default", "acme"]))
zones = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=45))])
moments = st.none() | st.builds(
    lambda later, zone: (SOON + later).astimezone(zone), st.timedeltas(timedelta(days=-4), timedelta(days=30)), zones
)


def settings(token: str = "a token", deadline: timedelta = timedelta(seconds=135)) -> QueueSettings:
    return QueueSettings(
        project="pombo-test",
        location="europe-west1",
        queues={Kind.INBOUND: "inbound", Kind.OUTBOUND: "outbound"},
        base_url="https://internal.example.com",
        token=token,
        dispatch_deadline=deadline,
        tenant_queues={(Kind.INBOUND, "acme"): "inbound-acme"},
    )


def sent_by_rest(given_: QueueSettings, task: Task, at: datetime | None) -> tuple[bytes, bytes]:
    """The start of the request, and its body as the service understands it."""
    intake = CloudTasksIntake(given_)
    route = intake._route(task)
    body = cloud_tasks_intake._body(route, cloud_tasks_intake._Wanted(task, task.name, at, True))
    document = json.loads(body)
    assert document.keys() == {"task"}
    message = json_format.ParseDict(document["task"], tasks_v2.Task.pb()())
    return route.start, message.SerializeToString(deterministic=True)


def sent_by_grpc(given_: QueueSettings, task: Task, at: datetime | None) -> bytes:
    made = tasks_v2.Task(CloudTasksQueue(given_)._task(task, at))
    sent: bytes = tasks_v2.Task.pb(made).SerializeToString(deterministic=True)
    return sent


@given(task=tasks, at=moments, token=words, micros=st.integers(1, 1_800_000_000))
def test_task_by_rest_equals_the_one_by_grpc(task: Task, at: datetime | None, token: str, micros: int) -> None:
    given_ = settings(token, timedelta(microseconds=micros))
    start, sent = sent_by_rest(given_, task, at)
    assert sent == sent_by_grpc(given_, task, at)
    queue = f"projects/pombo-test/locations/europe-west1/queues/{given_.name_of(task)}"
    assert (
        start
        == (
            f"POST /v2/{queue}/tasks HTTP/1.1\r\nHost: cloudtasks.googleapis.com\r\nContent-Type: application/json\r\n"
        ).encode()
    )


@pytest.mark.parametrize("seconds", [0.1, 14.999, 15, 135, 1800])
def test_deadline_is_what_the_service_accepts(seconds: float) -> None:
    found = settings(deadline=timedelta(seconds=seconds)).deadline
    assert found == max(timedelta(seconds=seconds), LEAST_DEADLINE)
