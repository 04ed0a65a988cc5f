"""A log line is one JSON object about one notable event: names and numbers, never a body, a query or a token."""

import json
import threading
from datetime import UTC, datetime
from typing import TextIO

_SEVERITIES = {
    "task_given_up": "ERROR",
    "faults_unreadable": "ERROR",
    "unexpected_error": "ERROR",
}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


class Log:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def write(self, event: str, **fields: str | int | float | None) -> None:
        """A field `severity` goes before the event's own."""
        about = {"time": _now(), "severity": _SEVERITIES.get(event, "INFO"), "event": event}
        line = json.dumps({**about, "message": f"Cloud Tasks: {event.replace('_', ' ')}.", **fields}) + "\n"
        with self._lock:
            try:
                self._stream.write(line)
                self._stream.flush()
            except (OSError, ValueError):
                return  # whoever read it is gone; tasks are delivered all the same
