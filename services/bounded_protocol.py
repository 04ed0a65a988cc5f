"""The protocol: HTTP/1.1 on one connection of an event loop, with bounds on the time and the memory that it may take.

uvicorn's own protocol has no timeout for the rest of a request or for a client that does not read the response. It
takes 256 KB from a client before the app asks for any, and as many pipelined requests as come.
"""

import asyncio
import time
from collections import deque
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Any, cast

from uvicorn.config import Config
from uvicorn.server import ServerState

from services.exchange import Exchange
from services.request_reader import Refused, RequestReader
from services.serving import ANSWER_SECONDS, ARRIVAL_SECONDS, HANG_UP_SECONDS, KEEPALIVE_SECONDS, refusal

MOST_PIPELINED = 8
"""Requests that may wait for the response to an earlier one. Providers send none before they have their response."""

_READ = memoryview(bytearray(32 * 1024))
"""Where the event loop reads into. All connections share it: each parses what it has read before the next reads."""


class BoundedProtocol(asyncio.BufferedProtocol):
    """One connection. The server calls `check` now and then, so a request sets no timer."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],  # noqa: ARG002 - uvicorn's signature
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._app = config.loaded_app
        self._server = server_state
        self._loop = _loop or asyncio.get_running_loop()
        self._reader = RequestReader(self)

        self._arriving: Exchange | None = None  # the last request whose head has arrived
        self._current: Exchange | None = None  # the one that is being answered
        self._pipelined: deque[Exchange] = deque()
        self._refusal = b""  # to be sent after all responses
        self._reads = True
        self._writes = True
        self._discards = False  # all further input is discarded
        self._at_end = False  # the client sends no more
        self._stopping = False

        self._arrives_by = 0.0
        self._idle_since = self._checked_at = self._loop.time()
        self._hung_up_at = 0.0
        self._written = self._taken = 0  # bytes of responses; those of them that the client has taken
        self._taken_at = self._idle_since

    # ---- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._server.connections.add(self)  # type: ignore[arg-type] # uvicorn only calls shutdown

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._server.connections.discard(self)
        self._pipelined.clear()
        for exchange in (self._arriving, self._current):
            if exchange is not None:
                exchange.break_off()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return _READ

    def buffer_updated(self, count: int) -> None:
        if self._discards:
            return
        try:
            if not self._reader.feed(_READ[:count]):
                self._end_with_request()
        except Refused as error:
            self._refuse(error.status)

    def eof_received(self) -> bool:
        """The client sends no more, and may still read."""
        self._at_end = True
        if self._current is None or self._hung_up_at:
            return False
        if self._arriving is not None and self._arriving.more_body:
            self._arriving.break_off()
        return True

    def pause_writing(self) -> None:
        self._writes = False

    def resume_writing(self) -> None:
        self._writes = True
        if self._current is None:
            self._go_on()

    def shutdown(self) -> None:
        """The server ends: close, or do so after the response. A client that is reading its response may finish."""
        self._stopping = True
        if self._current is None and not self._hung_up_at:
            self._transport.close()

    def abort(self) -> None:
        """Drop the client."""
        self._transport.abort()

    def check(self, now: float) -> None:
        """Drop the client if its time is over."""
        if not self._reads and self._arrives_by:
            self._arrives_by += now - self._checked_at  # it waits for us
        self._checked_at = now
        if self._is_unread(now):
            self._transport.abort()
        elif self._hung_up_at:
            if now > self._hung_up_at + HANG_UP_SECONDS:
                self._transport.close()
        elif self._arrives_by:
            if now > self._arrives_by:
                self._give_up()
        elif self._current is None and now > self._idle_since + KEEPALIVE_SECONDS:
            self._transport.close()

    def _is_unread(self, now: float) -> bool:
        """Whether the client has taken nothing for as long as it may."""
        waiting = self._transport.get_write_buffer_size()
        taken = self._written - waiting
        if not waiting or taken != self._taken:
            self._taken, self._taken_at = taken, now
        return now > self._taken_at + ANSWER_SECONDS

    def _give_up(self) -> None:
        """The request did not arrive in time: answer it if its head has arrived."""
        self._arrives_by = 0.0
        if self._arriving is not None and self._arriving.more_body:
            self._discards = True
            self._arriving.break_off()
        elif self._current is None:
            self._transport.close()
        else:
            self._end_with_request()

    def _end_with_request(self) -> None:
        """No request is taken after those that have arrived: the connection closes after the last of them."""
        self._discards = True
        last = self._arriving or (self._pipelined[-1] if self._pipelined else self._current)
        if last is not None:
            last.keep_alive = False

    # ---- requests

    def begin(self) -> None:
        self._arriving = None
        self._arrives_by = self._loop.time() + ARRIVAL_SECONDS

    def take_head(self, scope: dict[str, Any], keep_alive: bool, expects: bool) -> None:
        exchange = Exchange(self, self._app, scope, keep_alive, expects)
        if self._current is None and self._writes:
            self._start(exchange)
        elif len(self._pipelined) < MOST_PIPELINED:
            self._pipelined.append(exchange)
            self.pause_reading()
        else:
            raise Refused(HTTPStatus.BAD_REQUEST)
        self._arriving = exchange

    def take_body(self, piece: bytes) -> None:
        if self._arriving is not None and self._arriving.take(piece):
            self.pause_reading()

    def end(self) -> None:
        self._arrives_by = 0.0
        if self._arriving is not None:
            self._arriving.end()

    def _refuse(self, status: HTTPStatus) -> None:
        """Answer a malformed request, after those before it, and read no more."""
        self._discards = True
        if self._arriving is not None and self._arriving.more_body:
            self._arriving.break_off()
            return
        self._arrives_by = 0.0
        self._refusal = refusal(status)
        if self._current is None:
            self._go_on()

    # ---- responses

    def pause_reading(self) -> None:
        if self._reads:
            self._reads = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._reads and not self._pipelined and not self._transport.is_closing():
            self._reads = True
            self._transport.resume_reading()

    def continue_100(self) -> None:
        self._write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def respond(self, exchange: Exchange, status: int, headers: tuple[tuple[bytes, bytes], ...], body: bytes) -> None:
        """Send the whole response, and go on to the next request."""
        if self._transport.is_closing():
            return
        is_last = exchange.more_body or self._stopping or (self._at_end and not self._pipelined)
        goes_on = exchange.keep_alive and not is_last
        length = b"Content-Length: %d\r\n" % len(body)
        end = b"\r\n" if goes_on else b"Connection: close\r\n\r\n"
        content = b"" if exchange.scope["method"] == "HEAD" else body
        self._write(b"".join((_head(status, headers), _date(int(time.time())), length, end, content)))
        self._current = None
        self._idle_since = self._loop.time()
        if goes_on:
            self._go_on()
        else:
            self._hang_up()

    def _go_on(self) -> None:
        if not self._writes or self._hung_up_at:
            return
        if self._pipelined:
            self._start(self._pipelined.popleft())
        elif self._refusal:
            self._write(self._refusal)
            self._hang_up()
        else:
            self.resume_reading()

    def _start(self, exchange: Exchange) -> None:
        self._current = exchange
        task = self._loop.create_task(exchange.run())
        self._server.tasks.add(task)
        task.add_done_callback(self._server.tasks.discard)

    def _write(self, data: bytes) -> None:
        self._written += len(data)
        self._transport.write(data)

    def _hang_up(self) -> None:
        """Close once the client has closed, or after a while; until then, discard what it sends."""
        self._discards = True
        self._arrives_by = 0.0
        self._pipelined.clear()
        if self._at_end:
            self._transport.close()
        elif not self._transport.is_closing():
            self._hung_up_at = self._loop.time()
            self._transport.write_eof()
            self.resume_reading()


@lru_cache(maxsize=64)
def _head(status: int, headers: tuple[tuple[bytes, bytes], ...]) -> bytes:
    """The lines of a response that do not change with its time and length."""
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode()]
    lines += [b"%s: %s\r\n" % (name.title(), value) for name, value in headers if name != b"content-length"]
    return b"".join(lines)


@lru_cache(maxsize=1)
def _date(second: int) -> bytes:
    return f"Date: {formatdate(second, usegmt=True)}\r\n".encode()
