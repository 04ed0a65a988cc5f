"""HTTP/1.1 on one connection: requests with a Content-Length, one after another, bounded in size and time.

Blocking, for a thread of its own: the methods that answer are blocking too. No chunked requests, which no client of
Cloud Tasks sends.
"""

import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus

import grpc

from local.origin_check import refusal
from local.tasks.rest import error

HEAD_LIMIT = 64 * 1024
BODY_LIMIT = 2 * 1024 * 1024
"""Twice the largest task that https://cloud.google.com/tasks/docs/quotas allows, for base64 and the rest."""
IDLE_SECONDS = 120.0
"""Longer than clients keep an idle connection, so that none sends a request into one that closes."""
REQUEST_SECONDS = 5.0
"""From the first byte of a request to its last, and for a client to take the response: this is loopback."""
DRAIN_SECONDS = 1.0
_PHRASES = {status.value: status.phrase for status in HTTPStatus}

Answer = Callable[[str, str, bytes], tuple[int, bytes]]
"""Answers a method, a request target and a body with a status and JSON."""


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


class Refused(Exception):
    """The bytes are not a request that is read to its end; `args` are a status and a sentence."""


class HttpConnection:
    """A client's connection on `port`. `received` is what was read from it already."""

    def __init__(self, client: socket.socket, port: int, received: bytes, answer: Answer) -> None:
        self._client = client
        self._port = port
        self._received = bytearray(received)
        self._answer = answer

    def converse(self) -> None:
        """Answer requests until the client ends, goes silent, or sends something else. Raises OSError, EOFError."""
        close = False
        while not close:
            try:
                request = self._read()
            except Refused as refused:
                status, sentence = refused.args
                self._send(*error(grpc.StatusCode.INVALID_ARGUMENT, sentence, status), close=True)
                return self._drain()
            close = request.headers.get("connection", "").lower() == "close"
            self._send(*self._answer_of(request), close=close)
        return None

    def _answer_of(self, request: Request) -> tuple[int, bytes]:
        refused = refusal(request.headers, self._port)
        if refused is not None:
            return error(grpc.StatusCode.PERMISSION_DENIED, refused)
        return self._answer(request.method, request.target, request.body)

    def _read(self) -> Request:
        if not self._received:
            self._receive(time.monotonic() + IDLE_SECONDS)
        until = time.monotonic() + REQUEST_SECONDS
        while (end := self._received.find(b"\r\n\r\n")) < 0 and len(self._received) <= HEAD_LIMIT:
            self._receive(until)
        if not 0 <= end <= HEAD_LIMIT:
            raise Refused(431, f"The head of a request has at most {HEAD_LIMIT} bytes.")
        method, target, headers = _parse_head(bytes(self._received[:end]))
        start, length = end + 4, _length(headers)
        while len(self._received) < start + length:
            self._receive(until)
        body = bytes(self._received[start : start + length])
        del self._received[: start + length]
        return Request(method, target, headers, body)

    def _receive(self, until: float) -> None:
        self._limit(until - time.monotonic())
        piece = self._client.recv(65536)
        if not piece:
            raise EOFError
        self._received += piece

    def _send(self, status: int, body: bytes, close: bool) -> None:
        lines = [
            f"HTTP/1.1 {status} {_PHRASES.get(status, 'Unknown')}",
            "Content-Type: application/json; charset=UTF-8",
        ]
        lines += [f"Content-Length: {len(body)}", f"Connection: {'close' if close else 'keep-alive'}"]
        self._limit(REQUEST_SECONDS)
        self._client.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    def _limit(self, seconds: float) -> None:
        if seconds <= 0:
            raise TimeoutError
        self._client.settimeout(seconds)

    def _drain(self) -> None:
        """Read on for a while: a close with unread bytes resets the connection, and the client loses the response."""
        self._client.shutdown(socket.SHUT_WR)
        until = time.monotonic() + DRAIN_SECONDS
        with suppress(EOFError, TimeoutError):
            while True:
                self._received.clear()
                self._receive(until)


def _parse_head(head: bytes) -> tuple[str, str, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3 or parts[2] != "HTTP/1.1":
        raise Refused(400, "Only gRPC and HTTP/1.1 are served here.")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        name = name.lower()
        if name in headers and name in ("host", "content-length", "origin"):
            raise Refused(400, f"A request has one {name} header.")
        headers[name] = value.strip()
    return parts[0], parts[1], headers


def _length(headers: Mapping[str, str]) -> int:
    if "transfer-encoding" in headers:
        raise Refused(411, "A request needs a Content-Length; chunks are not supported.")
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdecimal()):
        raise Refused(400, "The Content-Length must be a number.")
    if len(length) > 18 or int(length) > BODY_LIMIT:
        raise Refused(413, f"A body has at most {BODY_LIMIT} bytes.")
    return int(length)
