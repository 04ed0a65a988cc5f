"""An HTTP target, called once per attempt: one request, no redirects, and a response within the deadline or none.

Uses http.client, not a client library: an attempt must be exactly one request on the wire. A library that silently
retries on a dropped connection would deliver a task twice and count it once.
"""

import http.client
import select
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, quote, urlsplit

from local.tasks.task_table import TargetResponse

IDLE_KEPT = 1.0
"""Seconds that an idle connection is kept: gunicorn closes one after 2 s, and a request written into a closing
connection is lost.
"""
NO_ANSWER_IN_TIME = TargetResponse(504, responded=False)
"""Recorded from the real service: after an attempt past its deadline the previous response is 504."""
UNREACHABLE = TargetResponse(503, responded=False)
"""Not recorded anywhere; 503 is the HTTP name of UNAVAILABLE."""
BROKEN = TargetResponse(503, responded=False, broken=True)
"""The same to a caller. Kept apart to count the attempts that a kill interrupted."""
_BODY_READ = 1 << 20
_SAFE = "/%:@!$&'()*+,;=~?-._"


@dataclass(frozen=True, slots=True)
class Call:
    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes
    deadline: float


class HttpTarget:
    """Makes calls from any number of threads, and keeps connections for the next call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[tuple[str, str], list[tuple[float, http.client.HTTPConnection]]] = {}

    def call(self, call: Call) -> TargetResponse:
        """Never raises for an error of a target, a network or an unusable URL: that is a failed attempt."""
        until = time.monotonic() + call.deadline
        try:
            url = urlsplit(call.url)
            connection = self._connection(url)
        except ValueError:
            return UNREACHABLE
        without_answer = UNREACHABLE
        try:
            _request(connection, url, call, until)
            without_answer = BROKEN
            return self._read(connection, url, until)
        except TimeoutError:
            connection.close()
            return NO_ANSWER_IN_TIME
        except (OSError, http.client.HTTPException, ValueError):
            connection.close()
            return without_answer

    def close(self) -> None:
        with self._lock:
            for _, connection in (kept for idle in self._idle.values() for kept in idle):
                connection.close()
            self._idle.clear()

    def _read(self, connection: http.client.HTTPConnection, url: SplitResult, until: float) -> TargetResponse:
        _limit(connection, until)
        response = connection.getresponse()
        _limit(connection, until)
        response.read(_BODY_READ)
        if response.isclosed() and not response.will_close:
            self._keep(url, connection)
        else:
            connection.close()
        return TargetResponse(response.status, responded=True, retry_after=response.getheader("Retry-After", ""))

    def _connection(self, url: SplitResult) -> http.client.HTTPConnection:
        fresh_since = time.monotonic() - IDLE_KEPT
        with self._lock:
            idle = self._idle.get((url.scheme, url.netloc), [])
            while idle:
                since, connection = idle.pop()
                if since >= fresh_since and not _is_dropped(connection):
                    return connection
                connection.close()
        make = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        return make(url.hostname or "", url.port)

    def _keep(self, url: SplitResult, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            self._idle.setdefault((url.scheme, url.netloc), []).append((time.monotonic(), connection))


def _request(connection: http.client.HTTPConnection, url: SplitResult, call: Call, until: float) -> None:
    _limit(connection, until)
    path = quote(url.path or "/", safe=_SAFE) + (f"?{quote(url.query, safe=_SAFE)}" if url.query else "")
    connection.request(call.method, path, call.body or None, dict(call.headers))


def _is_dropped(connection: http.client.HTTPConnection) -> bool:
    """An idle connection with something to read was closed by its server."""
    if connection.sock is None:
        return True
    readable = select.poll()
    readable.register(connection.sock, select.POLLIN)
    return bool(readable.poll(0))


def _limit(connection: http.client.HTTPConnection, until: float) -> None:
    """Give the next step the rest of the deadline; "approximate", as Task.dispatch_deadline says of itself."""
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    connection.timeout = left
    if connection.sock is not None:
        connection.sock.settimeout(left)
