"""One HTTP call to a process of this machine, by the standard library's client: it loads at once, and every start of
the stack waits for that.
"""

import json
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit

NO_ANSWER = (OSError, HTTPException, ValueError)
"""What a call raises if it gets no answer; ValueError for an address that is none."""


def call(
    method: str, url: str, *, document: Any = None, headers: Mapping[str, str] | None = None, timeout: float
) -> tuple[int, bytes]:
    """The status and the body of the answer. `document` is sent as JSON; a silence of `timeout` seconds ends the call.
    Raises NO_ANSWER. No proxy is used and no redirect followed.
    """
    parts = urlsplit(url)
    body = None if document is None else json.dumps(document).encode()
    given = {"Content-Type": "application/json"} if body is not None else {}
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=timeout)
    try:
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        connection.request(method, target or "/", body, {**given, **(headers or {})})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
