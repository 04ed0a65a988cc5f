"""WhatsApp is away for a while: what becomes of the messages in the running stack, and what an operator sees."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.stack import TASK_TOKEN, Stack

KINDS: dict[str, dict[str, Any]] = {
    "503 with code 2": {"kind": "refuse"},
    "no connection": {"kind": "unreachable", "times": None},
    "no answer": {"kind": "hang", "seconds": 60},
    "500 without a body": {"kind": "error", "status": 500},
    "429": {"kind": "error", "status": 429},
}
LOST = {"no answer", "500 without a body"}


@pytest.fixture(scope="module")
def away(make_stack: Callable[..., Stack]) -> Iterator[Stack]:
    """The doubt window is as short as it may be: 120 s, which is 6 here."""
    with make_stack(IN_DOUBT_SECONDS="120") as stack:
        yield stack


def swept(stack: Stack) -> dict[str, Any]:
    """The line of a sweep that is made now."""
    before = len(stack.logs("swept"))
    url = stack.described["internal"] + "/internal/sweep"
    assert stack.http.post(url, headers={"X-Internal-Token": TASK_TOKEN}).status_code == 200
    return stack.wait_until(lambda: stack.logs("swept")[before:], "the sweep is logged")[0]


def outages(stack: Stack) -> dict[str, int]:
    found: dict[str, int] = stack.get("internal", "/health").json()["outages"]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_outage_makes_no_dead_message_doubles_none_and_is_reported(
    away: Stack, contacts: Callable[[], str], kind: str
) -> None:
    away.put_marks(down=None)
    downs, ups = len(away.logs("provider_down")), len(away.logs("provider_up"))
    away.fault("provider", **{"times": 0, **{name: value for name, value in KINDS[kind].items() if value is not None}})
    people = [contacts() for _ in range(5)]

    ids = [away.say(one, "!list 2") for one in people]

    away.wait_until(lambda: len(away.logs("provider_down")) >= downs + 3, "two probes failed", 60)
    assert swept(away)["provider_down"] == 1
    assert all("dead" not in away.what(one) for one in ids)
    away.wait_until(lambda: outages(away) == {"provider_down": 1, "backend_down": 0}, "health says so")
    away.control("DELETE", "faults")
    away.wait_settled(ids, 120)
    assert [away.texts(one) for one in people] == [["1", "2"]] * 5
    replies = [away.reply(one, index) for one in ids for index in (0, 1)]
    doubts = sum(reply.doubts for reply in replies if reply)
    if kind in LOST:
        assert doubts <= 8, "those on their way when it began: a worker has eight threads"
    else:
        assert (doubts, {reply.attempt for reply in replies if reply}) == (0, {1}), "no attempt is spent"
    assert swept(away)["provider_down"] == 0
    away.wait_until(lambda: outages(away) == {"provider_down": 0, "backend_down": 0}, "health says so")
    down, up = away.logs("provider_down")[downs], away.logs("provider_up")[ups]
    assert (down["severity"], up["severity"]) == ("WARNING", "INFO")
    assert {"until", "wait_seconds", "phone_number_id"} <= down.keys()
    assert not away.logs("dead_lettered")


def test_timeline_shows_what_a_message_waits_for(away: Stack, contacts: Callable[[], str]) -> None:
    first, later = contacts(), contacts()
    away.fault("provider", "refuse", times=0)
    refused = away.say(first, "hello")
    away.wait_until(lambda: "provider_down" in away.what(refused), "it was refused")
    waiting = away.say(later, "hello")
    away.wait_until(lambda: "waiting" in away.what(waiting), "the next one waits")
    timelines = [away.timeline(one) for one in (refused, waiting)]
    away.control("DELETE", "faults")

    assert [timeline["replies"][0]["why"] for timeline in timelines] == ["provider_down"] * 2
    said = {moment["what"]: moment["sentence"] for timeline in timelines for moment in timeline["events"]}
    assert said["provider_down"].startswith("Meta is overloaded or down. Next attempt at ")
    assert "down" in said["waiting"]
    away.wait_settled([refused, waiting], 60)
