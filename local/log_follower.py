"""The log of a running stack, printed line by line as an operator reads it."""

import json
import threading
from pathlib import Path
from typing import Any

import click

from local import terminal

_COLOURS = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}
_SHOWN = (
    "route",
    "http_status",
    "problem",
    "state",
    "reply",
    "reason",
    "attempt",
    "code",
    "verdict",
    "error_type",
    "place",
    "function",
    "cause",
    "count",
    "outbound_planned",
    "outbound_invalid",
    "duration_ms",
    "retry_in",
)
_OF_RECEIPTS = frozenset({"receipt_applied", "receipt_failed", "receipt_unknown"})
_QUIET = frozenset(
    {"swept", "sender_checked", "started", "inbound_enqueued", "webhook_received", "attempt_failed", "task_refused"}
)
"""At INFO: attempt_failed repeats what a service already logged, and task_refused is pombo's own check of the token."""


class LogFollower:
    """Prints the lines added to the log file, in a thread, until stopped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="pombo-screen", daemon=True)

    def start(self) -> None:
        self._path.touch()
        self._from = self._path.stat().st_size
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(1)

    def _follow(self) -> None:
        with self._path.open(encoding="utf-8", errors="replace") as lines:
            lines.seek(self._from)
            while not self._stop.wait(0.1):
                while text := lines.readline():
                    shown = pretty(text)
                    if shown:
                        click.echo(shown)


def pretty(text: str) -> str | None:
    """One log line as text; None for a line that says nothing new."""
    try:
        line: dict[str, Any] = json.loads(text)
        event, severity = line["event"], line.get("severity", "INFO")
    except (ValueError, KeyError, TypeError):
        return None
    if event in _QUIET and severity == "INFO":
        return None
    who = str(line.get("correlation_id") or line.get("delivery") or line.get("inbound_event_id") or "")[:8]
    if event in _OF_RECEIPTS and line.get("event_type"):
        event = f"{event} {line['event_type']}"
    facts = " ".join(f"{name}={_shown(line[name])}" for name in _SHOWN if line.get(name) is not None)
    words = f"{str(line.get('time', ''))[11:23]}  {who:<8}  {event:<28} {facts}".rstrip()
    return terminal.styled(words, fg=_COLOURS.get(severity))


def _shown(value: Any) -> str:
    """A value as shown: a sentence in quotes, otherwise it is unclear where the next fact begins."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) and " " in value else str(value)
