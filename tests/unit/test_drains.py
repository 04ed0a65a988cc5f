"""Drains: the name of each task, its body, and what is none."""

import json
from dataclasses import replace
from datetime import timedelta, timezone
from typing import Any

import pytest

from shared.domain.drains import DRAIN_PATH, LIMIT_OVER, RECONNECTED, RESUMED, DrainTask, drain_body, parse_drain
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
    "reason": "reconnected",
}


def test_body_of_a_drain_is_read_back_as_the_same_drain() -> None:
    assert drain_body(DRAIN) == BODY
    assert json.loads(json.dumps(drain_body(DRAIN))) == BODY
    assert parse_drain(BODY) == DRAIN
    resumed = replace(DRAIN, reason=RESUMED)
    assert drain_body(resumed) == {**BODY, "reason": "resumed"}
    assert parse_drain(drain_body(resumed)) == resumed
    first = DrainTask(SENDER, NOW, "corr_0001")
    assert parse_drain(drain_body(first)) == first


@pytest.mark.parametrize(("said", "reason"), [({}, RECONNECTED), ({"after_limit": True}, LIMIT_OVER)])
def test_drain_of_an_earlier_version_keeps_its_reason(said: dict[str, Any], reason: str) -> None:
    earlier = {name: value for name, value in BODY.items() if name != "reason"} | said
    assert parse_drain(earlier) == replace(DRAIN, reason=reason)
    again = drain_body(replace(DRAIN, reason=reason))
    assert {name: again.get(name) for name in earlier} == earlier, "an earlier version reads the same in it"
    assert again.get("after_limit") == said.get("after_limit")


def test_reason_of_a_newer_version_is_only_carried_on() -> None:
    newer = replace(DRAIN, reason="a_newer_one")
    assert parse_drain({**BODY, "reason": "a_newer_one"}) == newer
    assert drain_body(newer) == {**BODY, "reason": "a_newer_one"}


def test_name_of_a_drain_depends_on_sender_reconnect_and_page_alone() -> None:
    assert DRAIN.name == stable_hash("drain", SENDER, "2026-03-01T12:00:00+00:00", 3)
    others = [replace(DRAIN, sender="0f" * 20), replace(DRAIN, since=at(1)), replace(DRAIN, page=4)]
    assert len({DRAIN.name, *(other.name for other in others)}) == 4
    elsewhere = NOW.astimezone(timezone(timedelta(hours=5)))
    same = replace(DRAIN, since=elsewhere, cursor="another", correlation_id="other_id", reason=RESUMED)
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
        *(("reason", value) for value in (None, 5, "", "Limit", "limit over", "a" * 41, "resumed\n")),
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
