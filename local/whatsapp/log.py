"""A log line is one JSON object on standard output, and never holds a number, a name, a text, a wamid or a token."""

import json
import select
import sys
import time
from contextlib import suppress

from local.whatsapp.payloads import rfc3339


def log(event: str, message: str, severity: str = "INFO", **facts: str | int | None) -> None:
    """Only what is out of the ordinary gets a line: every message would drown it.

    A line is dropped where nobody reads: a full pipe must not stop the simulator, nor a closed one end it.
    """
    line = {"time": rfc3339(time.time()), "severity": severity, "event": event, "message": message, **facts}
    with suppress(OSError):
        if select.select([], [sys.stdout], [], 0)[1]:
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()
