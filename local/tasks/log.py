"""The log of the Cloud Tasks emulator: one JSON object a line, with names and numbers; no body, query or token."""

import json
import threading
from datetime import UTC, datetime
from typing import TextIO

_MESSAGES = {
    "attempt_failed": "The attempt failed: the service did not answer 2xx. The task will be retried.",
    "task_given_up": "The last attempt failed. The queue dropped the task.",
    "fault_made": "Injected the requested fault into the task.",
    "faults_unreadable": "The fault file cannot be read. Tasks are delivered without faults.",
    "queue_created": "Queue created.",
    "queue_deleted": "Queue deleted.",
    "queue_purged": "Queue purged.",
    "started": "The Cloud Tasks emulator is ready.",
    "stopping": "The Cloud Tasks emulator is stopping. Unfinished tasks are delivered after the next start.",
    "unexpected_error": "Unexpected error in the Cloud Tasks emulator. The attempt counts as failed.",
}
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
        """Write one line. A field `severity` or `message` replaces the event's own."""
        about = {"time": _now(), "severity": _SEVERITIES.get(event, "INFO"), "event": event}
        line = json.dumps({**about, "message": _MESSAGES[event], **fields}) + "\n"
        with self._lock:
            try:
                self._stream.write(line)
                self._stream.flush()
            except (OSError, ValueError):
                return  # the reader of the log is gone; tasks are still delivered
