"""Logs: one JSON object a line, in Cloud Logging's form, and nothing private in any of them."""

import io
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from pytest_mock import MockerFixture

from shared import logs

CANARY = "c4n4ry-15550002222"
Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def lines(capfd: pytest.CaptureFixture[str]) -> Lines:
    """Logs as a service configures them; what was written to standard output since the last look, and nothing else."""
    logs.configure("DEBUG")

    def read() -> list[dict[str, Any]]:
        out, err = capfd.readouterr()
        assert err == ""
        return [json.loads(line) for line in out.split("\n") if line]

    return read


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    """The error as it is once it was raised and caught."""
    try:
        raise error from cause
    except BaseException as caught:
        return caught


# ---- the shape of a line


def test_a_line_has_the_time_the_severity_the_event_and_its_sentence(lines: Lines) -> None:
    before = datetime.now(UTC)
    logs.event("outbound_sent", attempt=1, duration_ms=12.5)
    (line,) = lines()
    assert before <= datetime.fromisoformat(line.pop("time")) <= datetime.now(UTC)
    assert line == {
        "severity": "INFO",
        "message": "The provider accepted the message.",
        "event": "outbound_sent",
        "attempt": 1,
        "duration_ms": 12.5,
    }


def test_the_time_is_utc_with_microseconds(lines: Lines) -> None:
    logs.event("started")
    assert len(lines()[0]["time"]) == len("2026-03-01T12:00:00.000000Z")


@pytest.mark.parametrize("severity", ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"])
def test_a_severity_is_one_that_cloud_logging_knows(lines: Lines, severity: str) -> None:
    logs.event("started", severity=severity)
    assert lines()[0]["severity"] == severity


def test_a_field_that_is_none_is_left_out(lines: Lines) -> None:
    logs.event("outbound_sent", code=None, attempt=0)
    (line,) = lines()
    assert "code" not in line
    assert line["attempt"] == 0


def test_a_line_break_in_a_value_does_not_break_the_line(lines: Lines) -> None:
    logs.event("webhook_refused", reason="one\ntwo\r\n\u2028three")
    assert [line["reason"] for line in lines()] == ["one\ntwo\r\n\u2028three"]


@pytest.mark.parametrize("sender", ["+1 555 000 2222", "Ana Lima", "a\nb", "x" * 65, "", "\u0661" * 15])
def test_a_senders_id_is_logged_only_if_it_looks_like_one(lines: Lines, sender: str) -> None:
    """Whoever signs a webhook may have written anything there."""
    logs.event("inbound_new", phone_number_id=logs.PublicId(sender))
    logs.event("inbound_new", phone_number_id=logs.PublicId("100000000000001"))
    odd, usual = lines()
    assert "phone_number_id" not in odd
    assert usual["phone_number_id"] == "100000000000001"


@pytest.mark.parametrize("sender", ["15550002222", "100000000000001", 15550002222])
def test_sender_id_not_marked_public_is_not_logged(lines: Lines, sender: object) -> None:
    logs.event("inbound_new", phone_number_id=sender)
    with logs.context(phone_number_id=sender):
        logs.event("inbound_new")
    assert ["phone_number_id" in line for line in lines()] == [False, False]


def test_lone_surrogate_does_not_break_logging(lines: Lines) -> None:
    logs.event("webhook_refused", reason="\ud83d")
    assert len(lines()) == 1


def test_searchable_ids_are_labels_too(lines: Lines) -> None:
    labels = {
        "correlation_id": "corr_0001",
        "inbound_event_id": "0e",
        "delivery": "0f",
        "tenant": "default",
        "stage": "inbound",
    }
    logs.event("outbound_sent", **labels, attempt=1)
    (line,) = lines()
    assert line["logging.googleapis.com/labels"] == labels
    assert {name: line[name] for name in labels} == labels


def test_a_line_without_any_of_them_has_no_labels(lines: Lines) -> None:
    logs.event("started", pid=1)
    assert "logging.googleapis.com/labels" not in lines()[0]


def test_unknown_event_raises_key_error() -> None:
    with pytest.raises(KeyError):
        logs.event("something_else")


def test_every_event_has_a_sentence() -> None:
    assert all(sentence.endswith(".") and sentence[0].isupper() for sentence in logs.EVENTS.values())


def test_below_the_level_nothing_is_logged(lines: Lines) -> None:
    logs.configure("WARNING")
    logs.event("outbound_sent")
    logs.event("outbound_failed", severity="WARNING")
    assert [line["event"] for line in lines()] == ["outbound_failed"]


def test_configuring_twice_does_not_double_a_line(lines: Lines) -> None:
    logs.configure("INFO")
    logs.event("started")
    assert len(lines()) == 1


# ---- the context


def test_the_context_is_in_every_line_inside_and_in_none_outside(lines: Lines) -> None:
    with logs.context(correlation_id="corr_0001"):
        logs.event("outbound_sent")
        with logs.context(generation=2, correlation_id="corr_0002"):
            logs.event("outbound_sent")
        logs.event("outbound_sent")
    logs.event("outbound_sent")
    assert [(line.get("correlation_id"), line.get("generation")) for line in lines()] == [
        ("corr_0001", None),
        ("corr_0002", 2),
        ("corr_0001", None),
        (None, None),
    ]


def test_own_field_of_a_line_overrides_the_context(lines: Lines) -> None:
    with logs.context(correlation_id="of-the-task"):
        logs.event("dead_lettered", severity="ERROR", correlation_id="of-the-record")
    assert lines()[0]["correlation_id"] == "of-the-record"


def test_the_context_ends_with_an_error_too(lines: Lines) -> None:
    with pytest.raises(ValueError), logs.context(correlation_id="corr_0001"):
        raise ValueError
    logs.event("started")
    assert "correlation_id" not in lines()[0]


# ---- errors


def test_an_exception_is_logged_by_type_and_places_and_never_by_its_message(lines: Lines) -> None:
    error = raised(ValueError(CANARY), cause=KeyError(CANARY))
    logs.event("unexpected_error", severity="ERROR", error=error)
    (line,) = lines()
    assert line["error"] == "ValueError"
    trace = line["stack_trace"].splitlines()
    assert trace[0] == "Traceback (most recent call last):"
    assert trace[1].startswith(f'  File "{__file__}", line ')
    assert trace[1].endswith(", in raised")
    assert trace[-2:] == ["ValueError", "caused by KeyError"]
    assert CANARY not in json.dumps(line)


def test_an_exception_that_was_never_raised_has_a_type_too(lines: Lines) -> None:
    logs.event("unexpected_error", severity="ERROR", error=ValueError(CANARY))
    assert lines()[0]["error"] == "ValueError"


def test_an_uncaught_exception_is_logged_without_its_message(lines: Lines) -> None:
    error = raised(ValueError(CANARY))
    sys.excepthook(type(error), error, error.__traceback__)
    (line,) = lines()
    assert (line["event"], line["severity"], line["error"]) == ("unexpected_error", "CRITICAL", "ValueError")
    assert CANARY not in json.dumps(line)


def test_an_uncaught_exception_of_a_thread_is_logged_without_its_message(lines: Lines) -> None:
    def fail() -> None:
        raise ValueError(CANARY)

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    (line,) = lines()
    assert (line["event"], line["severity"], line["error"]) == ("unexpected_error", "CRITICAL", "ValueError")
    assert CANARY not in json.dumps(line)


@pytest.mark.parametrize("told", [KeyboardInterrupt, SystemExit])
def test_requested_shutdown_is_not_logged_as_an_error(lines: Lines, told: type[BaseException]) -> None:
    sys.excepthook(told, told(), None)
    assert lines() == []


# ---- other libraries


def test_other_libraries_are_logged_from_errors_upwards(lines: Lines) -> None:
    for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL):
        logging.getLogger("a.library").log(level, "said")
    assert [line["severity"] for line in lines()] == ["ERROR", "CRITICAL"]


def test_library_with_its_own_level_is_not_logged(lines: Lines) -> None:
    library = logging.getLogger("a.loud.library")
    library.setLevel(logging.DEBUG)
    library.info("said")
    assert lines() == []


def test_library_error_is_logged_without_its_text(lines: Lines) -> None:
    logging.getLogger("a.library").error("%s", CANARY, exc_info=raised(ValueError(CANARY)))
    (line,) = lines()
    assert line["event"] == "unexpected_error"
    assert line["message"] == "A library reports an error."
    assert (line["logger"], line["error"]) == ("a.library", "ValueError")
    assert CANARY not in json.dumps(line)


# ---- where the lines go


def test_line_that_cannot_be_written_is_dropped_silently() -> None:
    """logging's own complaint about it would quote the message."""
    script = f"""
import logging, os
from shared import logs
logs.configure("INFO")
os.close(1)
logs.event("started")
logging.getLogger("a.library").error("{CANARY}")
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_lines_do_not_wait_for_a_buffer(lines: Lines, monkeypatch: pytest.MonkeyPatch, mocker: MockerFixture) -> None:
    """A process that is killed loses no line that it has logged: it goes to the file, past sys.stdout."""
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    write = mocker.spy(os, "write")
    logs.event("started")
    assert [call.args[0] for call in write.call_args_list] == [1]


# ---- the trace of a request

TRACE = "0af7651916cd43dd8448eb211c80319c"
FOUND = f"projects/a-project/traces/{TRACE}"


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ({"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}, FOUND),
        ({"x-cloud-trace-context": f"{TRACE}/1234;o=1"}, FOUND),
        ({"x-cloud-trace-context": TRACE}, FOUND),
        ({"traceparent": f"00-{TRACE}-b7ad6b7169203331-01", "x-cloud-trace-context": "0" * 32}, FOUND),
        ({"traceparent": "nonsense", "x-cloud-trace-context": f"{TRACE}/1"}, FOUND),
        ({}, None),
        ({"traceparent": ""}, None),
        ({"traceparent": f"00-{TRACE[:-1]}-b7ad6b7169203331-01"}, None),
        ({"traceparent": f"00-{TRACE.upper()}-b7ad6b7169203331-01"}, None),
        ({"x-cloud-trace-context": f"{CANARY}/1"}, None),
        ({"x-cloud-trace-context": "/"}, None),
        ({"traceparent": f"00-{'g' * 32}-b7ad6b7169203331-01"}, None),
    ],
)
def test_the_trace_is_read_from_whichever_header_has_it(headers: dict[str, str], found: str | None) -> None:
    assert logs.trace_of(headers.get, "a-project") == found
