"""The worker: gunicorn's threads, with a bound on what a stranger's connection may cost the others.

gunicorn's thread worker (25.1 and 27.0) waits for the rest of a request, and for the client to take an answer, as long
as the client likes; a new connection that says nothing has a thread for 5 s; and the one thread that accepts everybody
waits 2 s for each client to hang up. A few such clients would hold up a signed webhook, and /livez, for as long as they
care to.
"""

import errno
import json
import selectors
import socket
import time
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Any

from gunicorn import util
from gunicorn.http.errors import (
    ExpectationFailed,
    InvalidResponseHeader,
    InvalidResponseHeaderName,
    LimitRequestHeaders,
    LimitRequestLine,
    NoMoreData,
    ParseException,
)
from gunicorn.workers.gthread import ThreadWorker

from shared import logs

ARRIVAL_SECONDS = 10.0
"""From the first byte of a request to its last. Meta sends 3 MB at most, and waits about as long for its answer."""

ANSWER_SECONDS = 5.0
"""For the client to take an answer. All of ours fit into the socket's buffer, so only one that takes none waits."""

STATUS = {
    LimitRequestLine: HTTPStatus.REQUEST_URI_TOO_LONG,
    LimitRequestHeaders: HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    ExpectationFailed: HTTPStatus.EXPECTATION_FAILED,
}
"""What else is no HTTP is a bad request. To gunicorn some of it is the server's own fault: 501, 500."""


class BoundedWorker(ThreadWorker):
    """Threads that wait for a client no longer than they must."""

    def enqueue_req(self, conn: Any) -> None:
        """A connection that has said nothing yet waits beside those that are kept alive, without a thread."""
        if conn.initialized or conn.data_ready:
            super().enqueue_req(conn)  # type: ignore[no-untyped-call]
            return
        conn.sock.setblocking(False)
        conn.set_timeout()
        self.pending_conns.append(conn)
        waiting: selectors.BaseSelector = self.poller  # type: ignore[assignment] # made before anybody connects
        waiting.register(conn.sock, selectors.EVENT_READ, partial(self.on_pending_socket_readable, conn))

    def handle(self, conn: Any) -> Any:
        """One request. A client that stops in the middle is treated as one that has gone."""
        if not isinstance(conn.sock, _BoundedSocket):
            conn.sock = _BoundedSocket(conn.sock)
        conn.sock.begin(ARRIVAL_SECONDS)
        goes_on = super().handle(conn)  # type: ignore[no-untyped-call]
        if not goes_on:
            conn.sock.hang_up()
        return goes_on

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:  # noqa: ARG002 - gunicorn's
        """Answer what no app has seen. gunicorn would repeat the request, to its sender and in a log of its own."""
        ours = isinstance(exc, InvalidResponseHeader | InvalidResponseHeaderName)
        if isinstance(exc, ParseException) and not ours:
            status = STATUS.get(type(exc), HTTPStatus.BAD_REQUEST)
        else:
            logs.event("unexpected_error", severity="ERROR", error=exc)
            status = HTTPStatus.INTERNAL_SERVER_ERROR
        body = json.dumps({"error": status.phrase.lower().replace(" ", "_").replace("-", "_")})
        head = f"HTTP/1.1 {status} {status.phrase}\r\nConnection: close\r\nContent-Type: application/json\r\n"
        client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())

    def _cap_keepalive(self, deadline: float) -> None:
        """When the service ends, nobody who has said nothing holds it up either."""
        super()._cap_keepalive(deadline)  # type: ignore[no-untyped-call]
        for conn in self.pending_conns:
            conn.timeout = min(conn.timeout, deadline)


class _BoundedSocket:
    """A socket that reads until a moment, however the bytes drip, and writes to nobody for ever."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._ends = 0.0

    def begin(self, seconds: float) -> None:
        self._ends = time.monotonic() + seconds

    def recv(self, size: int, *flags: int) -> bytes:
        """Raises NoMoreData once the time is over, as gunicorn does for a client that has gone."""
        left = self._ends - time.monotonic()
        if left <= 0:
            raise NoMoreData
        self._sock.settimeout(left)
        try:
            return self._sock.recv(size, *flags)
        except OSError:
            raise NoMoreData from None

    def sendall(self, data: bytes) -> None:
        """Raises BrokenPipeError, on which gunicorn closes the connection and says nothing."""
        self._sock.settimeout(ANSWER_SECONDS)
        try:
            self._sock.sendall(data)
        except OSError:
            raise BrokenPipeError(errno.EPIPE, "the client takes no answer") from None

    def hang_up(self) -> None:
        """Close, once the client has or 2 s are over: what it still sends would make it lose our answer."""
        util.close_graceful(self._sock)  # type: ignore[no-untyped-call]

    def setblocking(self, flag: bool) -> None:
        """gunicorn closes again what has hung up, and begins with this."""
        with suppress(OSError):
            self._sock.setblocking(flag)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)
