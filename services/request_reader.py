"""The reader: parses the requests of one connection, with bounds on the length of a head and of all that is no body.

httptools parses (https://github.com/MagicStack/httptools, 0.9); the methods whose names begin with `on_` are its
callbacks.
"""

from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import unquote

import httptools

LONGEST_LINE = 4094
LONGEST_HEADER = 8190
MOST_HEADERS = 100
"""gunicorn's limits, which the private service has too."""

LONGEST_HEAD = 64 * 1024
"""Bytes without an end of the head, and without a byte of the body. Google's front end takes no longer head."""

_SINGLE = {b"host", b"content-type", b"content-length", b"transfer-encoding"}
"""Headers that make a request ambiguous if they come twice."""

_FRAMING = {b"content-length", b"transfer-encoding"}

_ASGI = {"version": "3.0", "spec_version": "2.3"}


class Refused(Exception):
    """The request is malformed or too large."""

    def __init__(self, status: HTTPStatus) -> None:
        self.status = status


class Requests(Protocol):
    """Who takes the requests. Each method may raise Refused."""

    def begin(self) -> None:
        """The first byte of a request has arrived."""
        ...

    def take_head(self, scope: dict[str, Any], keep_alive: bool, expects: bool) -> None:
        """`expects`: the client sends the body only after a response of 100 Continue."""
        ...

    def take_body(self, piece: bytes) -> None: ...

    def end(self) -> None:
        """The request has arrived."""
        ...


class RequestReader:
    """The parser and its callbacks."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._parser = self._new_parser()
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._seen: set[bytes] = set()
        self._expects = False
        self._in_head = False
        self._framing = b""  # the header that says how long the body is
        self._repeats_head = False  # the parser reads the framing of the same request again
        self._unframed = 0  # bytes since the parser last made something of them

    def feed(self, data: memoryview) -> bool:
        """Parse these bytes. Returns whether more may follow. Raises Refused."""
        self._unframed += len(data)
        try:
            goes_on = self._parse(data)
        except httptools.HttpParserCallbackError as error:
            if isinstance(error.__context__, Refused):
                raise error.__context__ from None
            raise
        except httptools.HttpParserError:
            raise Refused(HTTPStatus.BAD_REQUEST) from None
        if self._unframed > LONGEST_HEAD:
            raise Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        return goes_on

    def _parse(self, data: memoryview) -> bool:
        """Returns False after a CONNECT. An Upgrade is ignored, as RFC 9110 (7.8) allows."""
        while True:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                if self._parser.get_method() == b"CONNECT":
                    return False  # a tunnel, which is not made here
                data = data[upgrade.args[0] :]
                self._go_on_without_upgrade()
            else:
                return True

    def _go_on_without_upgrade(self) -> None:
        """The parser takes what follows the head for another protocol. A new one, which reads no Upgrade, finds the
        body there.
        """
        if self._framing:
            self._repeats_head = True
            self._parser = self._new_parser()
            self._parser.feed_data(b"POST / HTTP/1.1\r\n" + self._framing + b"\r\n\r\n")

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        parser.set_dangerous_leniencies(lenient_data_after_close=True)  # what follows the last request is ignored
        return parser

    def on_message_begin(self) -> None:
        if self._repeats_head:
            return
        self._framing = b""
        self._target = b""
        self._headers = []
        self._seen.clear()
        self._expects = False
        self._in_head = True
        self._requests.begin()

    def on_url(self, piece: bytes) -> None:
        if self._repeats_head:
            return
        self._target += piece
        if len(self._target) > LONGEST_LINE:
            raise Refused(HTTPStatus.REQUEST_URI_TOO_LONG)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            return  # a trailer
        if len(name) + len(value) + 4 > LONGEST_HEADER or len(self._headers) == MOST_HEADERS:
            raise Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        name = name.lower()
        if name in _SINGLE:
            is_coding = name == b"transfer-encoding" and value.lower() != b"chunked"
            if name in self._seen or is_coding:
                raise Refused(HTTPStatus.BAD_REQUEST)
            self._seen.add(name)
            if name in _FRAMING:
                self._framing = name + b": " + value
        elif name == b"expect":
            if value.lower() != b"100-continue":
                raise Refused(HTTPStatus.EXPECTATION_FAILED)
            self._expects = True
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._repeats_head:
            self._repeats_head = False
            return
        version, method = self._parser.get_http_version(), self._parser.get_method()
        if version != "1.1" and (version != "1.0" or b"transfer-encoding" in self._seen):
            raise Refused(HTTPStatus.BAD_REQUEST)
        if len(method) + len(self._target) + len(" HTTP/1.1 ") > LONGEST_LINE:
            raise Refused(HTTPStatus.REQUEST_URI_TOO_LONG)
        if method == b"CONNECT":
            self._framing = b""  # its length says nothing (RFC 9110, 9.3.6)
        path, query = _split(self._target)
        scope = {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "scheme": "http",
            "method": method.decode(),
            "root_path": "",
            "path": unquote(path.decode()) if b"%" in path else path.decode(),
            "raw_path": path,
            "query_string": query,
            "headers": self._headers,
        }
        self._in_head = False
        self._unframed = 0
        is_new = version == "1.1"
        self._requests.take_head(scope, is_new and self._parser.should_keep_alive(), is_new and self._expects)

    def on_body(self, piece: bytes) -> None:
        self._unframed = 0
        self._requests.take_body(piece)

    def on_message_complete(self) -> None:
        self._unframed = 0
        if self._framing and self._parser.should_upgrade():
            return  # the body follows
        self._requests.end()


def _split(target: bytes) -> tuple[bytes, bytes]:
    """The path and the query of a request's target. An address in it is not followed."""
    if target.startswith(b"http"):
        try:
            url = httptools.parse_url(target)
        except httptools.HttpParserInvalidURLError:
            raise Refused(HTTPStatus.BAD_REQUEST) from None
        return url.path or b"", url.query or b""
    path, _, query = target.partition(b"#")[0].partition(b"?")
    return path, query
