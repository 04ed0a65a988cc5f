"""Bounded HTTP: one request with a bound on its total time, which knows whether any byte was sent."""

# httpx offers neither: its read timeout restarts with every byte received, and its exceptions do not tell whether any
# of the request was sent. Both are known only where the bytes are written. So this uses httpcore, the transport of
# httpx, whose network backend is a public interface. It reads no environment, follows no redirect, keeps no cookie and
# retries no request.

import ssl
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import httpcore

from shared.domain.limits import PostTimes
from shared.net.egress_policy import PUBLIC, EgressPolicy

CONNECTIONS = 100
"""One for each thread that may send at once; Cloud Run's concurrency is at most 80 by default."""

IDLE_SECONDS = 1.0
"""An idle connection is not reused after this. If the other side closes a connection while we write, a doubt of five
minutes follows; a new connection costs only a few round trips. So this is shorter than any server's idle timeout that
we know of (gunicorn 2 s, Node.js 5 s), and long enough for the messages of a burst."""

ANSWER_MAX_BYTES = 1024 * 1024
"""Longer answers are not read. Meta's are under 2 KB, thirty replies of 4096 characters under 500 KB."""

WRITE_BYTES = 32 * 1024
"""Bytes of one write. The clock is checked between writes, because the server may read slowly."""

_FAILURES = (
    httpcore.NetworkError,
    httpcore.TimeoutException,
    httpcore.ProtocolError,
    httpcore.UnsupportedProtocol,
    OSError,
    ValueError,  # an address that cannot be parsed or encoded
    TypeError,  # httpcore raises it for an address that is not ASCII
)


class NotSent(Exception):
    """No byte of the request was sent."""


class NoAnswer(Exception):
    """The request may have been sent, and no status came back."""


class Unread(StrEnum):
    """Why there is a status, but no body."""

    TOO_LONG = "is longer than 1 MiB"
    TOO_SLOW = "did not arrive in time"
    BROKEN = "broke off"


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """Header names are in lower case. `body` is None if it is incomplete or too long; `unread` says which."""

    status: int
    headers: Mapping[str, str]
    body: bytes | None
    unread: Unread | None = None


class Poster:
    """A pool of connections for many threads. Create it after the fork, like everything that holds a connection.

    `reach` limits where the connections may lead, for any URL and any resolved name.
    """

    def __init__(
        self,
        times: PostTimes,
        monotonic: Callable[[], float],
        connections: int = CONNECTIONS,
        reach: EgressPolicy = PUBLIC,
    ) -> None:
        self._total = times.total.total_seconds()
        connect, write, read = (t.total_seconds() for t in (times.connect, times.write, times.read))
        self._timeouts = {"connect": connect, "write": write, "read": read, "pool": connect}
        self._call = _Call(monotonic)
        self._pool = httpcore.ConnectionPool(
            max_connections=connections,
            max_keepalive_connections=connections,
            keepalive_expiry=IDLE_SECONDS,
            network_backend=_Backend(self._call, reach),
        )

    def post(self, url: str, headers: Mapping[str, str], body: bytes) -> HttpResponse:
        """Post and read the answer, within PostTimes.total. Resolving a name is not bounded, but nothing has been sent
        by then. Raises NotSent or NoAnswer; once it has a status it raises nothing.
        """
        return self._exchange("POST", url, headers, body)

    def get(self, url: str, headers: Mapping[str, str]) -> HttpResponse:
        """The same, without a body."""
        return self._exchange("GET", url, headers, None)

    def _exchange(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> HttpResponse:
        self._call.begin(self._total)
        extensions = {"timeout": self._timeouts}
        sent = [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]
        try:
            with self._pool.stream(method, url, headers=sent, content=body, extensions=extensions) as answer:
                return HttpResponse(answer.status, _texts(answer.headers), *_read(answer))
        except _FAILURES as error:
            raise (NoAnswer if self._call.left else NotSent)(type(error).__name__) from error

    def close(self) -> None:
        self._pool.close()


def _read(answer: httpcore.Response) -> tuple[bytes | None, Unread | None]:
    pieces: list[bytes] = []
    length = 0
    try:
        for piece in answer.iter_stream():
            length += len(piece)
            if length > ANSWER_MAX_BYTES:
                return None, Unread.TOO_LONG
            pieces.append(piece)
    except httpcore.TimeoutException:
        return None, Unread.TOO_SLOW
    except _FAILURES:
        return None, Unread.BROKEN
    return b"".join(pieces), None


def _texts(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}


class _Call(threading.local):
    """The request that this thread is making."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._deadline = 0.0
        self.left = False

    def begin(self, seconds: float) -> None:
        self._deadline = self._monotonic() + seconds
        self.left = False

    def within(self, timeout: float | None, over: type[httpcore.TimeoutException]) -> float:
        """The timeout, capped at the total time left. Raises `over` if no time is left."""
        remaining = self._deadline - self._monotonic()
        if remaining <= 0:
            raise over("the whole time is over")
        return remaining if timeout is None else min(timeout, remaining)


class _Backend(httpcore.NetworkBackend):
    def __init__(self, call: _Call, reach: EgressPolicy) -> None:
        self._call = call
        self._reach = reach
        self._sockets = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect to the first of the host's addresses that accepts. TLS still checks the host's name."""
        failure: Exception = httpcore.ConnectError("the name has no address")
        for address in self._reach.addresses(host, port):
            left = self._call.within(timeout, httpcore.ConnectTimeout)
            try:
                stream = self._sockets.connect_tcp(address, port, left, local_address, socket_options)
                return _Stream(stream, self._call)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream, call: _Call) -> None:
        self._stream = stream
        self._call = call

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._call.within(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), WRITE_BYTES):
            left = self._call.within(timeout, httpcore.WriteTimeout)
            self._call.left = True
            self._stream.write(buffer[start : start + WRITE_BYTES], left)

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        timeout = self._call.within(timeout, httpcore.ConnectTimeout)
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, timeout), self._call)

    def close(self) -> None:
        self._stream.close()

    def get_extra_info(self, info: str) -> object:
        return self._stream.get_extra_info(info)
