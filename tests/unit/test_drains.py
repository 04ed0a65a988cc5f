"""Drains: the name of each task, its body, and what is none."""

import json
from dataclasses import replace
from datetime import timedelta, timezone
from typing import Any

import pytest

from shared.domain.drains import DRAIN_PATH, DrainTask, drain_body, parse_drain
from shared.domain.errors import TaskInvalid, TokenCheck, UnknownState
from shared.domain.identity import stable_hash
from shared.domain.tasks import CHECK_BODY
from tests.support.builders import NOW, at

SENDER = "0e" * 20
DRAIN = DrainTask(SENDER, NOW, "corr_0001", "a cursor", 3)
BODY: dict[str, Any] = {
    "v": 1,
    "sender": SENDER,
    "since": "2026-03-01T12:00:00+00:00",
    "cursor": "a cursor",
    "page": 3,
    "correlation_id": "corr_0001",
}


def test_body_of_a_drain_is_read_back_as_the_same_drain() -> None:
    assert drain_body(DRAIN) == BODY
    assert json.loads(json.dumps(drain_body(DRAIN))) == BODY
    assert parse_drain(BODY) == DRAIN
    after_limit = replace(DRAIN, after_limit=True)
    assert drain_body(after_limit) == {**BODY, "after_limit": True}
    assert parse_drain(drain_body(after_limit)) == after_limit
    first = DrainTask(SENDER, NOW, "corr_0001")
    assert parse_drain(drain_body(first)) == first


def test_name_of_a_drain_depends_on_sender_reconnect_and_page_alone() -> None:
    assert DRAIN.name == stable_hash("drain", SENDER, "2026-03-01T12:00:00+00:00", 3)
    others = [replace(DRAIN, sender="0f" * 20), replace(DRAIN, since=at(1)), replace(DRAIN, page=4)]
    assert len({DRAIN.name, *(other.name for other in others)}) == 4
    elsewhere = NOW.astimezone(timezone(timedelta(hours=5)))
    same = replace(DRAIN, since=elsewhere, cursor="another", correlation_id="other_id")
    assert same.name == DRAIN.name


def test_drains_have_their_own_path() -> None:
    assert DRAIN_PATH == "/internal/drain"


def test_unknown_fields_of_a_drain_are_ignored() -> None:
    assert parse_drain({**BODY, "traceparent": "00-1-2-01"}) == DRAIN


def test_a_drain_of_a_newer_version_is_unknown() -> None:
    with pytest.raises(UnknownState):
        parse_drain({**BODY, "v": 2})


def test_check_of_the_token_is_no_drain() -> None:
    with pytest.raises(TokenCheck):
        parse_drain(CHECK_BODY)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("v", value) for value in (None, "1", True, -1)),
        *(("sender", value) for value in (None, 5, "", SENDER[:-1], SENDER.upper(), SENDER + "\n")),
        *(("since", value) for value in (None, 5, "", "now", "2026-03-01T12:00:00")),
        *(("cursor", value) for value in (None, 5, "x" * 2049)),
        *(("page", value) for value in (None, "1", 1.0, True, -1)),
        *(("correlation_id", value) for value in (None, 5, "short", "with space")),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_a_wrong_field_of_a_drain_is_refused(field: str, value: Any) -> None:
    with pytest.raises(TaskInvalid):
        parse_drain({**BODY, field: value})


@pytest.mark.parametrize("body", [None, [], "text", 5])
def test_a_body_that_is_no_object_is_no_drain(body: Any) -> None:
    with pytest.raises(TaskInvalid):
        parse_drain(body)
