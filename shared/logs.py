"""Logs: one JSON object a line on standard output, in the form that Cloud Logging reads.

Private data is never logged: no number, name, text, token or provider id. An exception is logged by its type and the
places it passed, never by its message, which may quote its input.
"""

import json
import logging
import os
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache
from types import MappingProxyType, TracebackType
from typing import Any

import orjson

from shared import log_events

EVENTS: Mapping[str, str] = {name: event.sentence for name, event in log_events.EVENTS.items()}
"""All events and their sentences."""

_LABELLED = ("correlation_id", "inbound_event_id", "delivery", "tenant", "stage")
_TRACE_ID = re.compile(r"[0-9a-f]{32}")
_AN_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""The form of a phone_number_id, which comes from outside: any other form may be private, and is left out."""


class PublicId(str):
    """A provider's id of a sender that, by its channel, is not a phone number. No other may be logged: digits alone do
    not distinguish the two.
    """

    __slots__ = ()


PLACES_KEPT = 60
"""Frames kept of a traceback; an endless recursion has a thousand."""

LOGGER = "pombo"
"""The logger of every event."""

_OURS, _ROOT = logging.getLogger(LOGGER), logging.getLogger()
_PLAIN = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS
_LEVELS: Mapping[str, int] = MappingProxyType(logging.getLevelNamesMapping())
_context: ContextVar[Mapping[str, Any]] = ContextVar("pombo_log_context", default=MappingProxyType({}))


def event(name: str, *, severity: str = "INFO", error: BaseException | None = None, **fields: Any) -> None:
    """Log one event. Fields that are None are left out."""
    level, sentence = _LEVELS[severity], EVENTS[name]
    if not _OURS.isEnabledFor(level):
        return
    record = {"event": name, **_context.get(), **fields}
    sender = record.get("phone_number_id")
    if sender is not None and not (isinstance(sender, PublicId) and _AN_ID.fullmatch(sender)):
        del record["phone_number_id"]
    match _OURS.handlers or _ROOT.handlers:
        case [_LineHandler() as only]:  # as in a service: in two thirds of the time that logging takes for a line
            only.write(_line(time.time(), severity, sentence, record, error))
        case _:
            exc_info = (type(error), error, error.__traceback__) if error else None
            _OURS.log(level, sentence, exc_info=exc_info, extra={"pombo": record})


class context:
    """A context manager: fields for every event logged inside."""

    __slots__ = ("_fields", "_token")

    def __init__(self, **fields: Any) -> None:
        self._fields = fields

    def __enter__(self) -> None:
        self._token = _context.set({**_context.get(), **self._fields})

    def __exit__(self, *_: object) -> None:
        _context.reset(self._token)


def take_standard_output() -> None:
    """Reserve standard output for log lines: all other output to it, including that of programs that the team's code
    starts, goes to standard error from now on.
    """
    kept = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    _ROOT.handlers[:] = [_LineHandler(kept)]


def configure(level: str) -> None:
    """Send every log line of this process to standard output. Libraries log only errors and above."""
    taken = [known.descriptor for known in _ROOT.handlers if isinstance(known, _LineHandler)]
    handler = _LineHandler(*taken)
    handler.setFormatter(_JsonFormatter())
    handler.addFilter(_is_heard)
    _ROOT.handlers[:] = [handler]
    _ROOT.setLevel(logging.ERROR)
    _OURS.setLevel(level)
    sys.excepthook = _log_uncaught
    threading.excepthook = _log_uncaught_in_thread


def write_to(descriptor: int) -> None:
    """Send only the events of this process there: for a command, whose standard output is its answer."""
    handler = _LineHandler(descriptor)
    handler.setFormatter(_JsonFormatter())
    _OURS.handlers[:] = [handler]
    _OURS.setLevel("INFO")
    _OURS.propagate = False


def trace_of(header: Callable[[str, str], str], project: str) -> str | None:
    """The trace of a request, as Cloud Logging names it. `header` returns the header with a name in lower case, or its
    second argument.

    https://cloud.google.com/trace/docs/trace-context: traceparent first, otherwise X-Cloud-Trace-Context.
    """
    parts = header("traceparent", "").split("-")
    trace_id = parts[1] if len(parts) == 4 else header("x-cloud-trace-context", "").split("/")[0]
    return f"projects/{project}/traces/{trace_id}" if _TRACE_ID.fullmatch(trace_id) else None


class _LineHandler(logging.Handler):
    """Writes each line at once, so that lines of several processes in one file never mix. If the output is closed, it
    drops the line: logging's own error report would quote it on standard error.
    """

    def __init__(self, descriptor: int = 1) -> None:
        super().__init__()
        self.descriptor = descriptor

    def emit(self, record: logging.LogRecord) -> None:
        self.write(self.format(record).encode())

    def write(self, line: bytes) -> None:
        """Write one line, in one call."""
        try:  # noqa: SIM105 - suppress takes as long as the rest of this method
            os.write(self.descriptor, line + b"\n")
        except OSError:
            pass


def _is_heard(record: logging.LogRecord) -> bool:
    """Whether to log a record: a library may set the levels of its loggers, which the root's level does not limit."""
    return hasattr(record, "pombo") or record.levelno >= logging.ERROR


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info else None
        fields = getattr(record, "pombo", None)
        if fields is None:
            of_library = {"event": "unexpected_error", "logger": record.name}
            line = _line(record.created, record.levelname, "A library reports an error.", of_library, error)
        else:
            line = _line(record.created, record.levelname, record.getMessage(), fields, error)
        return line.decode()


def _line(at: float, severity: str, message: str, fields: Mapping[str, Any], error: BaseException | None) -> bytes:
    """One line without its end. `at`: seconds since 1970."""
    moment = f"{_second(int(at))}.{int(at % 1 * 1_000_000):06}Z"
    line: dict[str, Any] = {"time": moment, "severity": severity, "message": message, **fields}
    if None in line.values():
        line = {name: value for name, value in line.items() if value is not None}
    labels: dict[str, str] = {}
    for name in _LABELLED:
        if name in line:
            labels[name] = str(line[name])
    if labels:
        line["logging.googleapis.com/labels"] = labels
    if error is not None:
        line["error"] = type(error).__name__
        line["stack_trace"] = places_of(error)
    try:
        return orjson.dumps(line, default=str, option=_PLAIN)
    except TypeError:  # such as half of a surrogate pair, a key that is no text, or a number beyond 64 bits
        return json.dumps(line, ensure_ascii=False, default=str).encode("utf-8", "replace")


@lru_cache(maxsize=1)
def _second(at: int) -> str:
    """The time without its fraction. Many lines share a second, and formatting it takes a quarter of a line's time."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def places_of(error: BaseException) -> str:
    """The traceback with only types and places, without messages and values. Error Reporting groups by it. The middle
    of a deep one is left out.
    """
    places = [
        f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}'
        for frame in traceback.extract_tb(error.__traceback__)
    ]
    if len(places) > PLACES_KEPT:
        half = PLACES_KEPT // 2
        places[half:-half] = [f"  ({len(places) - 2 * half} more)"]
    parts = ["Traceback (most recent call last):", *places]
    parts.append(type(error).__name__)
    if error.__cause__:
        parts.append(f"caused by {type(error.__cause__).__name__}")
    return "\n".join(parts)


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt | SystemExit):
        return
    event("unexpected_error", severity="CRITICAL", error=error.with_traceback(trace))


def _log_uncaught_in_thread(uncaught: threading.ExceptHookArgs) -> None:
    if uncaught.exc_value is not None:
        _log_uncaught(uncaught.exc_type, uncaught.exc_value, uncaught.exc_traceback)
