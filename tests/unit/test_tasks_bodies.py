"""Task bodies: what a task says, and what is none."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.domain.errors import TaskInvalid, UnknownState
from shared.domain.record import Kind, Task
from shared.domain.tasks import parse_task, task_body

KEY = "0e" * 20
GOOD: dict[Kind, dict[str, Any]] = {
    Kind.INBOUND: {
        "v": 1,
        "inbound_event_id": KEY,
        "correlation_id": "corr_0001",
        "generation": 2,
        "hop": 3,
    },
    Kind.OUTBOUND: {
        "v": 1,
        "outbound_key": KEY,
        "correlation_id": "corr_0001",
        "generation": 2,
        "hop": 3,
    },
}
quickly = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
each_kind = pytest.mark.parametrize("kind", list(Kind))


@each_kind
def test_a_task_says_whose_it_is_and_nothing_more(kind: Kind) -> None:
    assert task_body(Task(KEY, kind, "corr_0001", 2, 3)) == GOOD[kind]


@each_kind
def test_a_body_is_read_back_as_the_same_task(kind: Kind) -> None:
    assert parse_task(kind, GOOD[kind]) == Task(KEY, kind, "corr_0001", 2, 3)


@quickly
@given(
    st.sampled_from(list(Kind)),
    st.from_regex(r"[0-9a-f]{40}", fullmatch=True),
    st.from_regex(r"[A-Za-z0-9_-]{8,64}", fullmatch=True),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**31 - 1),
)
def test_every_task_survives_the_queue(kind: Kind, key: str, correlation_id: str, generation: int, hop: int) -> None:
    task = Task(key, kind, correlation_id, generation, hop)
    assert parse_task(kind, json.loads(json.dumps(task_body(task)))) == task


@each_kind
def test_what_a_newer_version_adds_beside_is_ignored(kind: Kind) -> None:
    assert parse_task(kind, {**GOOD[kind], "more": "c4n4ry"}) == parse_task(kind, GOOD[kind])


@each_kind
@pytest.mark.parametrize("version", [2, 3, 0, 2**31 - 1])
def test_a_task_of_another_version_is_left_to_who_knows_it(kind: Kind, version: int) -> None:
    with pytest.raises(UnknownState):
        parse_task(kind, {**GOOD[kind], "v": version, "generation": "who knows"})


@each_kind
@pytest.mark.parametrize("body", [None, [], "text", 5, True, {}, [{}], {"v": 1}])
def test_what_is_no_object_of_ours_is_no_task(kind: Kind, body: Any) -> None:
    with pytest.raises(TaskInvalid):
        parse_task(kind, body)


@each_kind
@pytest.mark.parametrize("version", [None, "1", 1.0, True, -1, [], 2**31])
def test_a_version_is_a_whole_number(kind: Kind, version: Any) -> None:
    with pytest.raises(TaskInvalid, match="version"):
        parse_task(kind, {**GOOD[kind], "v": version})


@each_kind
@pytest.mark.parametrize("field", ["generation", "hop"])
@pytest.mark.parametrize("value", [None, "1", 1.0, True, -1, 2**31, [], {}])
def test_generation_and_hop_are_counts(kind: Kind, field: str, value: Any) -> None:
    with pytest.raises(TaskInvalid, match="generation and a hop"):
        parse_task(kind, {**GOOD[kind], field: value})


@each_kind
@pytest.mark.parametrize("key", [None, 5, "", KEY[:-1], KEY + "0", KEY.upper(), "g" * 40, KEY + "\n", [KEY]])
def test_a_key_is_forty_hex_digits(kind: Kind, key: Any) -> None:
    field = "inbound_event_id" if kind is Kind.INBOUND else "outbound_key"
    with pytest.raises(TaskInvalid, match=f"{field} of 40 hex digits"):
        parse_task(kind, {**GOOD[kind], field: key})


@each_kind
@pytest.mark.parametrize("value", [None, 5, "", "short", "x" * 65, "with space", "line\nbreak", "corr_0001\n"])
def test_a_correlation_id_is_one(kind: Kind, value: Any) -> None:
    with pytest.raises(TaskInvalid, match="correlation_id"):
        parse_task(kind, {**GOOD[kind], "correlation_id": value})


def test_a_task_of_the_other_half_is_none() -> None:
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
def test_whatever_comes_is_a_task_or_refused_without_being_repeated(body: Any) -> None:
    said = None
    try:
        parse_task(Kind.INBOUND, body)
    except (TaskInvalid, UnknownState) as error:
        said = error.sentence
    assert said in {
        None,
        "A task is a JSON object.",
        "A task has a version, v.",
        "A newer version of Pombo made this task.",
        "A task has an inbound_event_id of 40 hex digits.",
        "A task has a correlation_id.",
        "A task has a generation and a hop, whole numbers from 0.",
    }
