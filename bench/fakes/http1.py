"""HTTP/1.1 for a fake service, with connections that stay open."""

import asyncio
from typing import Any

import httptools

from bench.fakes.calls import HTTP_STATUS, UNIMPLEMENTED, Counts, Service

REASONS = {200: b"OK", 400: b"Bad Request", 404: b"Not Found", 409: b"Conflict"}


class Http1:
    """One connection."""

    def __init__(self, service: Service, counts: Counts, transport: asyncio.Transport) -> None:
        self._service = service
        self._counts = counts
        self._transport = transport
        self._parser: Any = httptools.HttpRequestParser(self)
        self._path = b""
        self._body: list[bytes] = []

    def feed(self, data: bytes) -> None:
        self._counts.received += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.close()

    # ---- callbacks of httptools

    def on_message_begin(self) -> None:
        self._path = b""
        self._body.clear()

    def on_url(self, url: bytes) -> None:
        self._path += url

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        method, path = self._parser.get_method().decode(), self._path.decode()
        code, answer = self._service.rest(method, path, b"".join(self._body))
        count(self._counts, method, path, code)
        status = HTTP_STATUS[code]
        self._transport.write(
            b"HTTP/1.1 %d %b\r\nContent-Type: application/json\r\nMetadata-Flavor: Google\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (status, REASONS[status], len(answer), answer)
        )


def count(counts: Counts, method: str, path: str, code: int) -> None:
    """Count a call of REST by its kind."""
    if path.startswith("/bench/"):
        return
    last = path.partition("?")[0].rpartition("/")[2]
    verb = last[last.find(":") :] if ":" in last else "tasks" if last == "tasks" else ""
    kind = f"{method} {verb}".rstrip()
    if code == UNIMPLEMENTED:
        counts.unknown[f"{method} {path}"[:200]] += 1
    counts.calls[kind] += 1
