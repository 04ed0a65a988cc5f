"""An HTTP/1.1 client for one server, on an event loop: keep-alive connections, one call on each at a time.

It exists because each library's call costs more processor time than all of a webhook's own work (docs/performance.md).
It has no redirects, cookies, proxies or compression, which Google's APIs do not need. A request goes out whole; an
answer is bounded in size and in time. Several calls in flight take several connections, so that no call waits behind
another's answer.
"""

import asyncio
import ssl
from collections import deque
from dataclasses import dataclass
from typing import Any

import httptools

ANSWER_BYTES = 16 * 1024 * 1024
"""The largest answer that is read. Firestore's and Cloud Tasks' are far smaller."""

HTTPS, HTTP = 443, 80


class CallFailed(Exception):
    """No answer came: the server may or may not have carried out the request."""


class NotConnected(CallFailed):
    """The connection could not be opened, so the request was not sent."""


class TimedOut(CallFailed):
    """No answer came in time. The connection was open, so it may be dead without notice."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete HTTP answer."""

    status: int
    body: bytes


class AsyncHttp:
    """Calls to one server. Not safe for several threads or event loops."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None, most: int) -> None:
        """`most`: how many connections may be open at once. Further calls wait for one, in order."""
        self._host, self._port, self._tls, self._most = host, port, tls, most
        self._idle: list[_Connection] = []
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._open = 0
        authority = host if port in (HTTPS if tls else HTTP,) else f"{host}:{port}"
        self._host_header = f" HTTP/1.1\r\nHost: {authority}\r\n".encode()

    def request(self, method: bytes, path: bytes, headers: bytes, body: bytes = b"") -> bytes:
        """A request as bytes. `headers`: complete lines, each with its line end."""
        return b"%b %b%b%bContent-Length: %d\r\n\r\n%b" % (method, path, self._host_header, headers, len(body), body)

    async def call(self, request: bytes, seconds: float) -> Answer:
        """The answer to a request. `seconds` counts from now, with the time to wait for a connection and to open one.
        Raises CallFailed.
        """
        loop = asyncio.get_running_loop()
        ends = loop.time() + seconds
        connection = await self._connection(ends)
        try:
            return await connection.call(request, ends - loop.time())
        finally:
            self._give_back(connection)

    def leave_idle(self) -> None:
        """Close the connections that are not in use: they may be dead without notice."""
        while self._idle:
            self._idle.pop().close()
            self._open -= 1

    def close(self) -> None:
        """No other call may follow."""
        self.leave_idle()

    async def _connection(self, ends: float) -> "_Connection":
        while True:
            while self._idle:
                connection = self._idle.pop()
                if not connection.is_closed:
                    return connection
                self._open -= 1
            if self._open < self._most:
                return await self._connect(ends)
            await self._turn(ends)

    async def _turn(self, ends: float) -> None:
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout_at(ends):
                await turn
        except TimeoutError:
            raise TimedOut("All connections are in use.") from None
        finally:
            if not turn.done() or turn.cancelled():
                self._waiting.remove(turn)

    async def _connect(self, ends: float) -> "_Connection":
        self._open += 1
        try:
            async with asyncio.timeout_at(ends):
                _, connection = await asyncio.get_running_loop().create_connection(
                    _Connection, self._host, self._port, ssl=self._tls
                )
            return connection
        except (OSError, TimeoutError) as error:
            self._closed_one()
            raise NotConnected(f"{type(error).__name__}") from error
        except BaseException:
            self._closed_one()
            raise

    def _give_back(self, connection: "_Connection") -> None:
        if connection.is_closed:
            self._closed_one()
            return
        self._idle.append(connection)
        self._wake_next()

    def _closed_one(self) -> None:
        self._open -= 1
        self._wake_next()

    def _wake_next(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return


class _Connection(asyncio.Protocol):
    """One connection, with at most one call on it."""

    def __init__(self) -> None:
        self.is_closed = False
        self._transport: Any = None
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[Answer] | None = None
        self._pieces: list[bytes] = []
        self._size = 0

    async def call(self, request: bytes, seconds: float) -> Answer:
        if self.is_closed or seconds <= 0:
            raise NotConnected("The connection is closed.")
        loop = asyncio.get_running_loop()
        self._answer = answer = loop.create_future()
        ends = loop.call_later(seconds, self._time_out)
        self._transport.write(request)
        try:
            return await answer
        except asyncio.CancelledError:
            self.close()
            raise
        finally:
            ends.cancel()
            self._answer = None

    def close(self) -> None:
        self.is_closed = True
        if self._transport is not None:
            self._transport.abort()

    def _time_out(self) -> None:
        self._fail(TimedOut("No answer came in time."))

    def _fail(self, error: CallFailed) -> None:
        self.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    # ---- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._answer is None:
            self.close()  # what nobody asked for
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(CallFailed(f"The answer is not HTTP ({type(error).__name__})."))

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(CallFailed(f"The connection broke ({type(exc).__name__})." if exc else "The server hung up."))

    # ---- httptools

    def on_message_begin(self) -> None:
        self._pieces, self._size = [], 0

    def on_body(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > ANSWER_BYTES:
            self._fail(CallFailed("The answer is too large."))
        else:
            self._pieces.append(piece)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:  # 100 Continue and the like: the answer follows
            return
        if not self._parser.should_keep_alive():
            self.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(Answer(status, b"".join(self._pieces)))
