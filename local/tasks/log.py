"""A log line is one JSON object about one notable event: names and numbers, never a body, a query or a token."""

import json
import threading
from typing import TextIO


class Log:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def write(self, event: str, **fields: str | int | float | None) -> None:
        line = json.dumps({"event": event, **fields}) + "\n"
        with self._lock:
            try:
                self._stream.write(line)
                self._stream.flush()
            except (OSError, ValueError):
                return  # whoever read it is gone; tasks are delivered all the same
