"""Task bodies: what a task says, and what is none."""

import json
from datetime import timedelta, timezone
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.domain.delivery.lease import lease
from shared.domain.delivery.settle import settle
from shared.domain.errors import TaskInvalid, TokenCheck, UnknownState
from shared.domain.guards import Go
from shared.domain.limits import Limits
from shared.domain.record import Kind, Task
from shared.domain.tasks import CHECK_BODY, next_hop, own_task, parse_task, reply_task, task_body
from shared.domain.verdicts import Replied
from tests.support.builders import NOW, at, pending

KEY = "0e" * 20
GOOD: dict[Kind, dict[str, Any]] = {
    Kind.INBOUND: {
        "v": 2,
        "tenant": "default",
        "inbound_event_id": KEY,
        "correlation_id": "corr_0001",
        "generation": 2,
        "hop": 3,
    },
    Kind.OUTBOUND: {
        "v": 2,
        "tenant": "default",
        "outbound_key": KEY,
        "correlation_id": "corr_0001",
        "generation": 2,
        "hop": 3,
    },
}
quickly = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
each_kind = pytest.mark.parametrize("kind", list(Kind))


@each_kind
def test_task_body_has_only_the_reference(kind: Kind) -> None:
    assert task_body(Task(KEY, kind, "corr_0001", 2, 3, "default")) == GOOD[kind]


@each_kind
def test_a_body_is_read_back_as_the_same_task(kind: Kind) -> None:
    assert parse_task(kind, GOOD[kind]) == Task(KEY, kind, "corr_0001", 2, 3, "default")


@quickly
@given(
    st.sampled_from(list(Kind)),
    st.from_regex(r"[0-9a-f]{40}", fullmatch=True),
    st.from_regex(r"[A-Za-z0-9_-]{8,64}", fullmatch=True),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**31 - 1),
    st.from_regex(r"[A-Za-z0-9._-]{0,64}", fullmatch=True),
)
def test_every_task_survives_the_queue(
    kind: Kind, key: str, correlation_id: str, generation: int, hop: int, tenant: str
) -> None:
    task = Task(key, kind, correlation_id, generation, hop, tenant)
    assert parse_task(kind, json.loads(json.dumps(task_body(task)))) == task


@each_kind
def test_fields_of_a_newer_version_are_ignored(kind: Kind) -> None:
    assert parse_task(kind, {**GOOD[kind], "more": "c4n4ry"}) == parse_task(kind, GOOD[kind])


@each_kind
@pytest.mark.parametrize("version", [3, 4, 0, 2**31 - 1])
def test_task_of_another_version_is_an_unknown_state(kind: Kind, version: int) -> None:
    with pytest.raises(UnknownState):
        parse_task(kind, {**GOOD[kind], "v": version, "generation": "who knows"})


@each_kind
@pytest.mark.parametrize("body", [None, [], "text", 5, True, {}, [{}], {"v": 1}])
def test_malformed_task_body_is_refused(kind: Kind, body: Any) -> None:
    with pytest.raises(TaskInvalid):
        parse_task(kind, body)


@each_kind
@pytest.mark.parametrize("version", [None, "1", 1.0, True, -1, [], 2**31])
def test_task_version_must_be_a_whole_number(kind: Kind, version: Any) -> None:
    with pytest.raises(TaskInvalid, match="version"):
        parse_task(kind, {**GOOD[kind], "v": version})


@each_kind
def test_a_task_of_version_1_is_read_and_names_no_tenant(kind: Kind) -> None:
    """Up to 31 days old ones may be waiting in a queue."""
    body = {**GOOD[kind], "v": 1, "tenant": "of nobody who could have written it"}
    assert parse_task(kind, body) == Task(KEY, kind, "corr_0001", 2, 3)
    del body["tenant"]
    assert parse_task(kind, body) == Task(KEY, kind, "corr_0001", 2, 3)


@each_kind
@pytest.mark.parametrize("tenant", [None, 5, "a b", "é", "x" * 65, "a/b", "a\n", ["default"]])
def test_task_tenant_must_be_a_valid_name(kind: Kind, tenant: Any) -> None:
    with pytest.raises(TaskInvalid, match="needs a tenant"):
        parse_task(kind, {**GOOD[kind], "tenant": tenant})


@each_kind
@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((field, value) for field in ("generation", "hop") for value in (None, "1", 1.0, True, -2, 2**31, [], {})),
        ("generation", -1.0),
        ("hop", -1),
    ],
)
def test_task_generation_and_hop_must_be_counts(kind: Kind, field: str, value: Any) -> None:
    with pytest.raises(TaskInvalid, match="generation and a hop"):
        parse_task(kind, {**GOOD[kind], field: value})


@each_kind
@pytest.mark.parametrize("key", [None, 5, "", KEY[:-1], KEY + "0", KEY.upper(), "g" * 40, KEY + "\n", [KEY]])
def test_task_key_must_be_forty_hex_digits(kind: Kind, key: Any) -> None:
    field = "inbound_event_id" if kind is Kind.INBOUND else "outbound_key"
    with pytest.raises(TaskInvalid, match=f"{field} of 40 hex digits"):
        parse_task(kind, {**GOOD[kind], field: key})


@each_kind
@pytest.mark.parametrize("value", [None, 5, "", "short", "x" * 65, "with space", "line\nbreak", "corr_0001\n"])
def test_task_correlation_id_must_be_valid(kind: Kind, value: Any) -> None:
    with pytest.raises(TaskInvalid, match="correlation_id"):
        parse_task(kind, {**GOOD[kind], "correlation_id": value})


def test_task_of_the_other_kind_is_refused() -> None:
    with pytest.raises(TaskInvalid):
        parse_task(Kind.INBOUND, GOOD[Kind.OUTBOUND])
    with pytest.raises(TaskInvalid):
        parse_task(Kind.OUTBOUND, GOOD[Kind.INBOUND])


@quickly
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*GOOD[Kind.INBOUND], "x"]), inner),
        max_leaves=10,
    )
)
def test_random_body_is_a_task_or_refused_without_a_quote(body: Any) -> None:
    said = None
    try:
        parse_task(Kind.INBOUND, body)
    except (TaskInvalid, UnknownState) as error:
        said = error.sentence
    assert said in {
        None,
        "The task must be a JSON object.",
        "The task needs a version in the field v.",
        "A newer version of Pombo created this task.",
        "The task needs an inbound_event_id of 40 hex digits.",
        "The task needs a correlation_id.",
        "The task needs a tenant.",
        "The task needs a generation and a hop, whole numbers from 0.",
        "The task's slot must be a time with its offset, like 2026-11-29T12:00:00+00:00.",
    }


@each_kind
def test_a_body_has_a_slot_only_if_the_task_has_one(kind: Kind) -> None:
    task = Task(KEY, kind, "corr_0001", 2, 3, "default", slot=at(0.25))
    body = task_body(task)
    assert body == {**GOOD[kind], "slot": "2026-03-01T12:00:00.250000+00:00"}
    assert parse_task(kind, body) == task


@each_kind
def test_the_pair_of_queues_is_not_in_the_body(kind: Kind) -> None:
    assert task_body(Task(KEY, kind, "corr_0001", 2, 3, "default", pair=7)) == GOOD[kind]


@each_kind
@pytest.mark.parametrize("zone", [timezone(timedelta(hours=5, minutes=30)), timezone(timedelta(hours=-3))])
def test_a_slot_of_any_offset_is_the_same_moment(kind: Kind, zone: timezone) -> None:
    body = {**GOOD[kind], "slot": at(9).astimezone(zone).isoformat()}
    assert parse_task(kind, body).slot == at(9)


@each_kind
@pytest.mark.parametrize(
    "slot",
    [
        5,
        True,
        "",
        "soon",
        "2026-03-01T12:00:00",
        ["2026-03-01T12:00:00Z"],
        "2026-03-01T25:00:00Z",
        "0001-01-01T00:00:00+05:00",
    ],
)
def test_a_wrong_slot_is_refused(kind: Kind, slot: Any) -> None:
    with pytest.raises(TaskInvalid, match="slot"):
        parse_task(kind, {**GOOD[kind], "slot": slot})


@each_kind
def test_unknown_fields_of_a_task_are_ignored(kind: Kind) -> None:
    body = {**GOOD[kind], "slot": None, "traceparent": "00-1-2-01", "pair": 9}
    assert parse_task(kind, body) == Task(KEY, kind, "corr_0001", 2, 3, "default")


# ---- making


def test_a_records_own_task_runs_when_the_record_is_due_in_the_queue_of_its_tenant() -> None:
    record = pending(Kind.INBOUND, generation=3, tenant="acme", due_at=at(70))
    assert own_task(record, 7) == (Task(record.key, Kind.INBOUND, record.correlation_id, 3, 0, "acme", 7), at(70))


def test_a_hop_is_the_same_task_once_more() -> None:
    record = pending(Kind.OUTBOUND, tenant="acme")
    task = Task(KEY, Kind.OUTBOUND, "corr_0001", 2, 3, "acme")
    assert next_hop(record, task, at(9), 7) == (Task(KEY, Kind.OUTBOUND, "corr_0001", 2, 4, "acme", 7), at(9))


@pytest.mark.parametrize(
    ("before", "owner"),
    [("", "acme"), ("another", "acme"), ("another", "")],
    ids=["of version 1", "of another tenant", "nobody's"],
)
def test_a_hop_goes_to_the_queue_of_the_tenant_of_its_record(before: str, owner: str) -> None:
    record = pending(Kind.OUTBOUND, tenant=owner)
    task, _ = next_hop(record, Task(KEY, Kind.OUTBOUND, "corr_0001", 2, 3, before, pair=5), at(9), None)
    assert (task.tenant, task.hop, task.pair) == (owner, 4, None)


def test_the_task_of_a_reply_is_the_own_task_of_its_record() -> None:
    """The event makes it without a read, and whoever reads the record makes the same."""
    event = pending(Kind.INBOUND, tenant="acme")
    verdict = Replied(({"type": "text"}, {"type": "text"}))
    leased = lease(event, Task.of(event), "token", Go(), Limits(), NOW).write
    plan = settle(leased, "token", verdict, Limits(), NOW, 0.5).create
    assert [reply_task(event, index, reply.due_at, 7) for index, reply in enumerate(plan)] == [
        own_task(one, 7) for one in plan
    ]


# ---- the check of the token


def test_body_of_a_token_check_carries_a_version_and_no_task() -> None:
    assert CHECK_BODY == {"v": 2, "check": True}


@pytest.mark.parametrize("kind", Kind)
def test_token_check_is_told_from_an_invalid_task(kind: Kind) -> None:
    with pytest.raises(TokenCheck, match="carries no task"):
        parse_task(kind, {"v": 2, "check": True})
    with pytest.raises(TaskInvalid) as other:
        parse_task(kind, {"v": 2, "check": False})
    assert not isinstance(other.value, TokenCheck)
