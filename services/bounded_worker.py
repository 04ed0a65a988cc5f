"""The worker: gunicorn's threads, with a bound on how long a request may take to arrive.

gunicorn's thread worker waits for the rest of a request as long as its client likes (25.1 and 27.0: only a connection
that has sent nothing yet is put aside). Sixteen clients that stop in the middle would hold sixteen threads, which is
all of them, and neither a signed webhook nor /livez would be answered.
"""

import socket
import time
from typing import Any

from gunicorn.http.errors import NoMoreData
from gunicorn.workers.gthread import ThreadWorker

ARRIVAL_SECONDS = 10.0
"""From the first byte of a request to its last. Meta sends 3 MB at most, and waits about as long for its answer."""


class BoundedWorker(ThreadWorker):
    """Threads that wait for a client no longer than ARRIVAL_SECONDS."""

    def handle(self, conn: Any) -> Any:
        """One request. A client that stops in the middle is treated as one that has gone."""
        if not isinstance(conn.sock, _BoundedSocket):
            conn.sock = _BoundedSocket(conn.sock)
        conn.sock.begin(ARRIVAL_SECONDS)
        return super().handle(conn)  # type: ignore[no-untyped-call]


class _BoundedSocket:
    """A socket that reads until a moment, however the bytes drip."""

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
        except TimeoutError:
            raise NoMoreData from None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)
