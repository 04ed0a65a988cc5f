"""HTTP/1.1 on one event loop: a server that can hang up, and a poster that keeps its connections.

Not the standard library's server or Werkzeug's: both use a thread per connection and parse headers as e-mail, and the
simulator shares two cores with everything that it tests. This one supports the little that clients on one machine use:
Content-Length, keep-alive, no chunked requests, no upgrade. With one thread, no response, receipt or fault needs a
lock.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import urlsplit

PHRASES = {status.value: status.phrase for status in HTTPStatus}

HEAD_LIMIT = 64 * 1024
BODY_LIMIT = 8 * 1024 * 1024
"""Larger than any message or webhook (Meta's webhooks end at 3 MB), small enough to hold in memory."""

ATTEMPT_SECONDS = 10.0
"""Timeout of one webhook. Meta states no figure; third parties have seen 3 to 20 s (as of November 2026)."""

IDLE_SECONDS = 1.0
"""Seconds after which an idle connection is not reused: gunicorn closes its own after 2 s."""


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    is_abandoned: Callable[[], bool]
    """Whether the client has disconnected."""
    query: str = ""


@dataclass(frozen=True, slots=True)
class Response:
    """The response. `handed` is called once it was written to the connection, not if the client had disconnected."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    handed: Callable[[], None] | None = None


Handle = Callable[[Request], Awaitable[Response | None]]
"""Answers a request; None closes the connection without a response."""


def json_answer(status: int, document: object) -> Response:
    return Response(status, json.dumps(document).encode())


class BadRequest(Exception):
    """The bytes are not a request that this server can read; the text says why."""


async def converse(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    handle: Handle,
    idle: set[asyncio.StreamWriter],
    goes_on: Callable[[], bool],
) -> None:
    """Answer requests while it `goes_on`. The writer is in `idle` while it waits for a request."""
    while goes_on():
        idle.add(writer)
        try:
            request = await _read_request(reader)
        except BadRequest as error:
            writer.write(_answer_bytes(Response(400, str(error).encode(), "text/plain"), close=True))
            await writer.drain()
            writer.close()
            await writer.wait_closed()
            return
        finally:
            idle.discard(writer)
        answer = await handle(request)
        if answer is None or reader.at_eof():
            return
        close = request.headers.get("connection", "").lower() == "close" or not goes_on()
        writer.write(_answer_bytes(answer, close))
        await writer.drain()
        if answer.handed:
            answer.handed()
        if close:
            writer.close()
            await writer.wait_closed()
            return


async def _read_request(reader: asyncio.StreamReader) -> Request:
    first, headers = _parse_head(await reader.readuntil(b"\r\n\r\n"))
    parts = first.split(" ")
    if len(parts) != 3 or parts[2] != "HTTP/1.1" or "transfer-encoding" in headers:
        raise BadRequest("Only HTTP/1.1 with a Content-Length is supported here.\n")
    length = headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > BODY_LIMIT:
        raise BadRequest(f"The Content-Length is a number of at most {BODY_LIMIT}.\n")
    body = await reader.readexactly(int(length))
    target = urlsplit(parts[1])
    return Request(parts[0], target.path, headers, body, reader.at_eof, target.query)


def _parse_head(head: bytes) -> tuple[str, dict[str, str]]:
    first, *lines = head[:-4].decode("latin-1").split("\r\n")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return first, headers


def _answer_bytes(answer: Response, close: bool) -> bytes:
    lines = [f"HTTP/1.1 {answer.status} {PHRASES.get(answer.status, 'Unknown')}"]
    lines += [f"Content-Type: {answer.content_type}"]
    lines += [f"{name}: {value}" for name, value in answer.headers.items()]
    lines += [f"Content-Length: {len(answer.body)}", f"Connection: {'close' if close else 'keep-alive'}"]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + answer.body


class WebhookPoster:
    """Posts to one URL over connections that are kept. It does not follow redirects: they are ordinary answers."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._tls = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._tls else 80)
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        self._head = f"POST {target or '/'} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter, float]] = []

    async def post(self, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """The answer's status and body; OSError (also for a timeout) or EOFError if there was none."""
        async with asyncio.timeout(ATTEMPT_SECONDS):
            reader, writer = await self._connection()
            try:
                lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
                writer.write(f"{self._head}{lines}Content-Length: {len(body)}\r\n\r\n".encode("latin-1") + body)
                status, content, reusable = await _read_answer(reader)
            except BaseException:
                writer.transport.abort()
                raise
        if reusable:
            self._idle.append((reader, writer, time.monotonic()))
        else:
            writer.close()
        return status, content

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while self._idle:
            reader, writer, since = self._idle.pop()
            if time.monotonic() - since < IDLE_SECONDS and not reader.at_eof():
                return reader, writer
            writer.close()
        return await asyncio.open_connection(self._host, self._port, ssl=self._tls or None)


async def _read_answer(reader: asyncio.StreamReader) -> tuple[int, bytes, bool]:
    """Status, body, and whether the connection can be reused. A body without a stated length is left unread."""
    try:
        first, headers = _parse_head(await reader.readuntil(b"\r\n\r\n"))
        status = int(first.split(" ")[1])
        length = int(headers.get("content-length", "-1"))
    except (IndexError, ValueError, asyncio.LimitOverrunError) as error:
        raise EOFError("no HTTP answer") from error
    if length < 0:
        return status, b"", False
    return status, await reader.readexactly(length), headers.get("connection", "").lower() != "close"
