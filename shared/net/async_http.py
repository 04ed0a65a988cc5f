"""An HTTP/1.1 client for one server, on an event loop: keep-alive connections, one call on each at a time.

It exists because each library's call costs more processor time than all of a webhook's own work (docs/performance.md).
It has no redirects, cookies, proxies or compression, which Google's APIs do not need. A request goes out whole; an
answer is bounded in size and in time. Several calls in flight take several connections, so that no call waits behind
another's answer.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any
from weakref import WeakSet

import httptools

ANSWER_BYTES = 16 * 1024 * 1024
"""The largest answer that is read, with its headers. Firestore's and Cloud Tasks' are far smaller."""

HTTPS, HTTP = 443, 80


class CallFailed(Exception):
    """No answer came: the server may or may not have carried out the request."""


class NotConnected(CallFailed):
    """The connection could not be opened, so the request was not sent."""


class NoFreeConnection(CallFailed):
    """All connections were in use by other calls until the time was over, so the request was not sent."""


class TimedOut(CallFailed):
    """No answer came in time. The connection was open, so it may be dead without notice."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete HTTP answer."""

    status: int
    body: bytes


@cache
def public_authorities() -> ssl.SSLContext:
    """TLS to a public server, which must have a valid certificate. Loading the authorities takes 10 ms or more."""
    return ssl.create_default_context()


class AsyncHttp:
    """Calls to one server. Not safe for several threads, nor for several event loops at a time. On a new event loop it
    starts without connections.
    """

    def __init__(self, host: str, port: int, most: int, tls: Callable[[], ssl.SSLContext] | None) -> None:
        """`most`: how many connections may be open at once. Further calls wait for one, in order. `tls` makes the
        context of the first connection; None for HTTP without TLS.
        """
        self._host, self._port, self._most, self._tls = host, port, most, tls
        self._loop: asyncio.AbstractEventLoop | None = None
        self._idle: list[_Connection] = []
        self._all: WeakSet[_Connection] = WeakSet()
        self._waiting: deque[asyncio.Future[_Connection | None]] = deque()
        self._open = 0
        self._is_closed = False
        name = f"[{host}]" if ":" in host else host  # an IPv6 address
        authority = name if port == (HTTPS if tls else HTTP) else f"{name}:{port}"
        self._host_header = f" HTTP/1.1\r\nHost: {authority}\r\n".encode()

    def start(self, method: bytes, path: bytes, headers: bytes = b"") -> bytes:
        """The start of a request, which more headers and an empty line may follow. `headers`: complete lines, each with
        its line end.
        """
        return b"%b %b%b%b" % (method, path, self._host_header, headers)

    async def call(self, request: bytes, seconds: float) -> Answer:
        """The answer to a complete request. `seconds` counts from now, with the time to wait for a connection and to
        open one. Raises CallFailed.
        """
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._move_to(loop)
        ends = loop.time() + seconds
        connection = self._idle_connection() or await self._next_connection(ends)
        try:
            return await connection.call(request, loop, ends)
        finally:
            self._pass_on(None if connection.is_closed else connection)

    def leave_idle(self) -> None:
        """Close the connections that are not in use: they may be dead without notice."""
        while self._idle:
            self._idle.pop().close()
            self._open -= 1

    def close(self) -> None:
        """End all connections. The calls on them fail, and so do those that wait for one and those that follow."""
        self._is_closed = True
        for connection in [*self._all]:
            connection.fail(CallFailed("The client is closed."))

    def _move_to(self, loop: asyncio.AbstractEventLoop) -> None:
        for connection in [*self._all]:
            with suppress(RuntimeError):  # its event loop is closed
                connection.close()
        self._loop, self._idle, self._waiting, self._open = loop, [], deque(), 0

    def _idle_connection(self) -> "_Connection | None":
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed:
                return connection
            self._open -= 1
        return None

    async def _next_connection(self, ends: float) -> "_Connection":
        if self._open < self._most:
            self._open += 1
            return await self._connect(ends)
        connection = await self._turn(ends)
        if connection is None or connection.is_closed:
            return await self._connect(ends)
        return connection

    async def _turn(self, ends: float) -> "_Connection | None":
        """A connection that another call has given back, or None for the place of a closed one."""
        turn: asyncio.Future[_Connection | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout_at(ends):
                return await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self._pass_on(turn.result())
            elif turn in self._waiting:  # unless another call gave its connection back in this same tick
                self._waiting.remove(turn)
            if isinstance(error, TimeoutError):
                raise NoFreeConnection("All connections are in use.") from None
            raise

    async def _connect(self, ends: float) -> "_Connection":
        """A new connection. Its place is counted already."""
        try:
            async with asyncio.timeout_at(ends):
                self._check_open()
                tls = self._tls() if self._tls else None
                loop = asyncio.get_running_loop()
                _, connection = await loop.create_connection(_Connection, self._host, self._port, ssl=tls)
                if self._is_closed:
                    connection.close()
                self._check_open()
                self._all.add(connection)
                return connection
        except (OSError, TimeoutError) as error:
            self._pass_on(None)
            raise NotConnected(f"No connection ({type(error).__name__}).") from error
        except BaseException:
            self._pass_on(None)
            raise

    def _check_open(self) -> None:
        if self._is_closed:
            raise CallFailed("The client is closed.")

    def _pass_on(self, connection: "_Connection | None") -> None:
        """Give a connection, or with None the place of one, to the call that waits longest."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(connection)
                return
        if connection is None:
            self._open -= 1
        else:
            self._idle.append(connection)


class _Connection(asyncio.Protocol):
    """One connection, with at most one call on it."""

    def __init__(self) -> None:
        self.is_closed = False
        self._transport: Any = None
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[Answer] | None = None
        self._pieces: list[bytes] = []
        self._size = 0

    async def call(self, request: bytes, loop: asyncio.AbstractEventLoop, ends: float) -> Answer:
        answer: asyncio.Future[Answer] = loop.create_future()
        self._answer = answer
        self._size = 0
        timer = loop.call_at(ends, self._time_out)
        self._transport.write(request)
        try:
            return await answer
        except asyncio.CancelledError:
            self.close()
            raise
        finally:
            timer.cancel()
            self._answer = None

    def close(self) -> None:
        self.is_closed = True
        if self._transport is not None:
            self._transport.abort()

    def _time_out(self) -> None:
        self.fail(TimedOut("No answer came in time."))

    def fail(self, error: CallFailed) -> None:
        """Close it; the call on it raises this."""
        self.close()
        if self._is_expected:
            self._answer.set_exception(error)  # type: ignore[union-attr] # not None if expected

    @property
    def _is_expected(self) -> bool:
        return self._answer is not None and not self._answer.done()

    # ---- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._size += len(data)
        if self._answer is None:
            self.close()  # the server answers without a request
        elif self._size > ANSWER_BYTES:
            self.fail(CallFailed("The answer is too large."))
        else:
            try:
                self._parser.feed_data(data)
            except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
                self.fail(CallFailed(f"The answer is not HTTP ({type(error).__name__})."))

    def connection_lost(self, exc: Exception | None) -> None:
        self.fail(CallFailed(f"The connection broke ({type(exc).__name__})." if exc else "The server hung up."))

    # ---- httptools

    def on_message_begin(self) -> None:
        self._pieces = []
        if not self._is_expected:
            self.close()  # a second answer

    def on_body(self, piece: bytes) -> None:
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:  # 100 Continue and the like: the answer follows
            return
        if not self._parser.should_keep_alive():
            self.close()
        answer = self._answer
        if answer is not None and not answer.done():
            pieces = self._pieces
            answer.set_result(Answer(status, pieces[0] if len(pieces) == 1 else b"".join(pieces)))
