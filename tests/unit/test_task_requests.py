"""The REST request for a task says the same as the official client's request."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from google.cloud import tasks_v2
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.record import Kind, Task
from shared.queues import cloud_tasks_intake, task_content
from shared.queues.cloud_tasks import CloudTasksQueue
from shared.queues.cloud_tasks_intake import CloudTasksIntake
from shared.queues.task_content import LEAST_DEADLINE, QueueSettings
from shared.tenants.environment import EnvironmentTenants

SOON = datetime.now(UTC) + timedelta(days=2)

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
counts = st.integers(0, 2**31 - 1)
pairs = st.none() | st.sampled_from([0, 7, 19, 20, 10_000])
slots = st.none() | st.datetimes(datetime(2020, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
tasks = st.builds(
    Task,
    words,
    st.sampled_from(Kind),
    words,
    counts,
    counts,
    st.sampled_from(["", "default", "acme"]),
    pairs,
    slots,
)
zones = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=45))])
moments = st.none() | st.builds(
    lambda later, zone: (SOON + later).astimezone(zone), st.timedeltas(timedelta(days=-4), timedelta(days=26)), zones
)


def settings(token: str = "a token", deadline: timedelta = timedelta(seconds=135)) -> QueueSettings:
    return QueueSettings(
        project="pombo-test",
        location="europe-west1",
        queues={Kind.INBOUND: "inbound", Kind.OUTBOUND: "outbound"},
        base_url="https://internal.example.com",
        token=token,
        dispatch_deadline=deadline,
        drain="drain",
        pairs=20,
        patterns={Kind.INBOUND: "inbound-t{n:03d}", Kind.OUTBOUND: "outbound-t{n:03d}"},
    )


def sent_by_rest(given_: QueueSettings, task: Task, at: datetime | None) -> tuple[bytes, bytes]:
    """The start of the request, and its body as the service understands it."""
    intake = CloudTasksIntake(given_)
    route = intake._route(intake.queue_of(task), task.kind)
    body = cloud_tasks_intake._body(route, cloud_tasks_intake._Wanted(task, task.name, at, True))
    document = json.loads(body)
    assert document.keys() == {"task"}
    message = json_format.ParseDict(document["task"], tasks_v2.Task.pb()())
    return route.start, message.SerializeToString(deterministic=True)


def sent_by_grpc(given_: QueueSettings, task: Task, at: datetime | None) -> bytes:
    queue = CloudTasksQueue(given_)
    made = tasks_v2.Task(queue._task(queue.queue_of(task), task, at))
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


@pytest.mark.parametrize(
    ("kind", "pair", "name"),
    [
        (Kind.INBOUND, None, "inbound"),
        (Kind.INBOUND, 0, "inbound-t000"),
        (Kind.OUTBOUND, 19, "outbound-t019"),
        (Kind.OUTBOUND, 20, "outbound"),
        (Kind.OUTBOUND, -1, "outbound"),
    ],
    ids=["no pair", "the first", "the last", "beyond the last", "negative"],
)
def test_queue_of_a_task_follows_its_pair(kind: Kind, pair: int | None, name: str) -> None:
    task = Task("0e" * 20, kind, "corr_0001", 0, tenant="acme", pair=pair)
    assert settings().name_of(task) == name


BEFORE_TENANTS = {
    Kind.INBOUND: b'{"v":2,"inbound_event_id":"%b","tenant":"default","correlation_id":"corr_0001",'
    b'"generation":0,"hop":0}',
    Kind.OUTBOUND: b'{"v":2,"outbound_key":"%b","tenant":"default","correlation_id":"corr_0001",'
    b'"generation":0,"hop":0}',
}
"""The bodies of a deployment before it could have several tenants."""


@pytest.mark.parametrize("kind", list(Kind))
def test_task_of_tenant_default_is_unchanged_byte_for_byte(kind: Kind) -> None:
    tenant = EnvironmentTenants.of(("meta", "1")).tenant("default")
    assert tenant is not None
    task = Task("0e" * 20, kind, "corr_0001", 0, tenant=tenant.id, pair=tenant.queue)
    assert task_content.body(task) == BEFORE_TENANTS[kind] % (b"0e" * 20)
    assert settings().name_of(task) == kind
