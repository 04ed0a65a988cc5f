"""The log of the WhatsApp simulator: one JSON object a line; no phone number, name, text, message id or token."""

import json
import select
import sys
import time
from contextlib import suppress

from local.whatsapp.webhook_payloads import rfc3339


def log(event: str, message: str, severity: str = "INFO", **facts: str | int | None) -> None:
    """Write one line about something unusual. Ordinary messages get no line.

    If the pipe is full or closed, the line is dropped: the simulator must neither block nor end.
    """
    line = {"time": rfc3339(time.time()), "severity": severity, "event": event, "message": message, **facts}
    with suppress(OSError):
        if select.select([], [sys.stdout], [], 0)[1]:
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()
