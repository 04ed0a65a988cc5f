"""The live feed of `make run`: what a person reads of a log line, and how soon."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from local.log_follower import LogFollower, pretty

FAILED = {
    "time": "2026-03-01T12:00:00.123456Z",
    "severity": "WARNING",
    "event": "inbound_rescheduled",
    "correlation_id": "0123456789abcdef",
    "state": "rescheduled",
    "attempt": 1,
    "verdict": "handler_failed",
}


def shown(**fields: Any) -> str:
    return pretty(json.dumps(FAILED | fields)) or ""


def test_a_failed_attempt_shows_the_type_the_line_and_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    line = shown(error_type="KeyError", place="handlers/mine.py:7", function="book", stack_trace="Traceback ...")
    assert line.startswith("12:00:00.123  01234567  inbound_rescheduled ")
    assert line.endswith("verdict=handler_failed error_type=KeyError place=handlers/mine.py:7 function=book")


def test_a_sentence_is_shown_in_quotes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert shown(cause="The backend answered 500.").endswith(' cause="The backend answered 500."')


def test_a_reply_that_cannot_be_sent_shows_which_one_it_is_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    line = shown(event="dead_lettered", reply=2, reason="invalid", attempt=0, cause="The text of a message is empty.")
    assert " reply=2 reason=invalid " in line
    assert line.endswith(' cause="The text of a message is empty."')


def test_a_request_of_the_api_shows_its_route_and_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    answered = {"time": FAILED["time"], "event": "api_answered", "route": "POST /v1/messages", "http_status": 422}
    line = pretty(json.dumps(answered | {"problem": "IDEMPOTENCY_CONFLICT", "duration_ms": 2.1})) or ""
    assert line.endswith(' route="POST /v1/messages" http_status=422 problem=IDEMPOTENCY_CONFLICT duration_ms=2.1')


def test_a_failed_attempt_is_on_the_screen_within_a_second(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    follower = LogFollower(tmp_path / "logs.jsonl")
    follower.start()
    said = ""
    with (tmp_path / "logs.jsonl").open("a") as log:
        log.write(json.dumps(FAILED | {"error_type": "KeyError", "place": "handlers/mine.py:7"}) + "\n")
    deadline = time.monotonic() + 1
    while "handlers/mine.py:7" not in said and time.monotonic() < deadline:
        said += capsys.readouterr().out
        time.sleep(0.02)
    follower.stop()
    assert "error_type=KeyError place=handlers/mine.py:7" in said


@pytest.mark.parametrize("event", ["attempt_failed", "task_refused"])
def test_event_of_normal_operation_is_not_in_the_feed(event: str) -> None:
    """A reply that waits for the one before it is answered 503; doctor's check of the token is refused as no task."""
    assert shown(event=event, severity="INFO") == ""
    assert event in shown(event=event, severity="WARNING")


def test_a_service_that_does_not_answer_is_in_the_feed_with_its_message_and_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    words = {"event": "attempt_failed", "reason": "The target does not answer.", "retry_in": 0.1, "state": None}
    line = shown(**words, verdict=None, attempt=None)
    assert (
        line == '12:00:00.123  01234567  attempt_failed               reason="The target does not answer." retry_in=0.1'
    )
