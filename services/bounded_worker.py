"""The worker: gunicorn's threads, with bounds on the time that a slow client can take from the others.

gunicorn's thread worker (25.1 and 27.0) has no timeout for the rest of a request or for a client that does not read the
response. A new, silent connection occupies a thread for 5 s. The one thread that accepts connections waits 2 s for each
client to hang up. A few such clients could block signed webhooks and /livez indefinitely.
"""

import errno
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

from services.serving import ANSWER_SECONDS, ARRIVAL_SECONDS, refusal
from shared import logs

STATUS = {
    LimitRequestLine: HTTPStatus.REQUEST_URI_TOO_LONG,
    LimitRequestHeaders: HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    ExpectationFailed: HTTPStatus.EXPECTATION_FAILED,
}
"""Any other malformed request is answered 400. gunicorn would answer some with 501 or 500."""

Malformed = ParseException
"""What an app meets when it reads a body in malformed chunks: gunicorn reads them only then."""


class BoundedWorker(ThreadWorker):
    """Threads that wait for a client only for a bounded time."""

    @staticmethod
    def refused(status: HTTPStatus) -> bytes:
        """The answer to a request that never reached the app."""
        return refusal(status)

    def enqueue_req(self, conn: Any) -> None:
        """Keep a silent new connection with the kept-alive ones, without a thread."""
        if conn.initialized or conn.data_ready:
            super().enqueue_req(conn)  # type: ignore[no-untyped-call]
            return
        conn.sock.setblocking(False)
        conn.set_timeout()
        self.pending_conns.append(conn)
        waiting: selectors.BaseSelector = self.poller  # type: ignore[assignment] # made before any client connects
        waiting.register(conn.sock, selectors.EVENT_READ, partial(self.on_pending_socket_readable, conn))

    def handle(self, conn: Any) -> Any:
        """Serve one request. A client that stops in the middle counts as disconnected."""
        if not isinstance(conn.sock, _BoundedSocket):
            conn.sock = _BoundedSocket(conn.sock)
        conn.sock.begin(ARRIVAL_SECONDS)
        goes_on = super().handle(conn)  # type: ignore[no-untyped-call]
        if not goes_on:
            conn.sock.hang_up()
        return goes_on

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:  # noqa: ARG002 - gunicorn's
        """Answer a request that never reached the app. gunicorn would copy it into its response and its log."""
        ours = isinstance(exc, InvalidResponseHeader | InvalidResponseHeaderName)
        if isinstance(exc, ParseException) and not ours:
            status = STATUS.get(type(exc), HTTPStatus.BAD_REQUEST)
        else:
            logs.event("unexpected_error", severity="ERROR", error=exc)
            status = HTTPStatus.INTERNAL_SERVER_ERROR
        client.sendall(self.refused(status))

    def _cap_keepalive(self, deadline: float) -> None:
        """When the service stops, silent connections do not delay it."""
        super()._cap_keepalive(deadline)  # type: ignore[no-untyped-call]
        for conn in self.pending_conns:
            conn.timeout = min(conn.timeout, deadline)


class _BoundedSocket:
    """A socket that reads until a deadline, however slowly the bytes arrive, and writes with a timeout."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._ends = 0.0

    def begin(self, seconds: float) -> None:
        self._ends = time.monotonic() + seconds

    def recv(self, size: int, *flags: int) -> bytes:
        """Raises NoMoreData after the deadline, as gunicorn does for a disconnected client."""
        left = self._ends - time.monotonic()
        if left <= 0:
            raise NoMoreData
        self._sock.settimeout(left)
        try:
            return self._sock.recv(size, *flags)
        except OSError:
            raise NoMoreData from None

    def sendall(self, data: bytes) -> None:
        """Raises BrokenPipeError; gunicorn then closes the connection and logs nothing."""
        self._sock.settimeout(ANSWER_SECONDS)
        try:
            self._sock.sendall(data)
        except OSError:
            raise BrokenPipeError(errno.EPIPE, "the client does not read the response") from None

    def hang_up(self) -> None:
        """Wait for the client to close, at most 2 s, then close: with unread input, closing resets the connection and
        the client could lose the response.
        """
        util.close_graceful(self._sock)  # type: ignore[no-untyped-call]

    def setblocking(self, flag: bool) -> None:
        """gunicorn calls this first when it closes a socket that has already hung up."""
        with suppress(OSError):
            self._sock.setblocking(flag)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)
