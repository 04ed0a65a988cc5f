"""Our protocol on an event loop in this process: what one connection may do, and when it is dropped."""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
import uvloop
from uvicorn.server import ServerState

from services import bounded_protocol
from services.bounded_protocol import BoundedProtocol
from services.exchange import App, Receive, Scope, Send
from tests.support import parts

R = TypeVar("R")
MEGABYTE = 1024 * 1024
SECONDS = 10.0
GET = b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n"
LAST = b"GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
POST = b"POST /post HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers the path and the body."""
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            body, more = b"broken off", False
        else:
            body, more = body + message["body"], message["more_body"]
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-y", b"1")]})
    await send({"type": "http.response.body", "body": scope["path"].encode() + b" " + body})


async def late_echo(scope: Scope, receive: Receive, send: Send) -> None:
    """The same, later than a request may take to arrive."""
    await asyncio.sleep(0.6)
    await echo(scope, receive, send)


class Listening:
    """A server on this event loop."""

    def __init__(self, state: ServerState, port: int) -> None:
        self.state = state
        self.port = port

    async def ask(self, *pieces: bytes, ends: bool = False) -> bytes:
        """All that it says to these. `ends`: the client sends no more, and says so."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        if ends:
            writer.write_eof()
        said = await asyncio.wait_for(reader.read(), SECONDS)
        writer.close()
        return said

    async def until(self, condition: Callable[[], Any]) -> None:
        """Check the connections, as the server does, until the condition is true."""
        loop = asyncio.get_running_loop()
        end = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < end, "the condition did not become true in time"
            for connection in list(self.state.connections):
                connection.check(loop.time())  # type: ignore[union-attr]
            await asyncio.sleep(0.01)


def serving(app: App, test: Callable[[Listening], Awaitable[R]]) -> R:
    """Run the test beside a server of this app."""

    async def run() -> R:
        loop, state = asyncio.get_running_loop(), ServerState()
        config: Any = SimpleNamespace(loaded_app=app)
        server = await loop.create_server(lambda: BoundedProtocol(config, state, {}), "127.0.0.1", 0)
        try:
            return await test(Listening(state, server.sockets[0].getsockname()[1]))
        finally:
            for connection in list(state.connections):
                connection.abort()  # type: ignore[union-attr] # ours
            server.close()

    return uvloop.run(run())


@contextmanager
def silent(port: int) -> Iterator[socket.socket]:
    """A client that reads nothing."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setblocking(False)
        yield connection


# ---- time


def test_deaf_client_is_dropped_after_its_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_protocol, "ANSWER_SECONDS", 0.2)

    async def large(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(64 * MEGABYTE)})

    async def test(listening: Listening) -> None:
        with silent(listening.port) as connection:
            connection.send(LAST)
            await listening.until(lambda: listening.state.connections)
            began = time.monotonic()
            await listening.until(lambda: not listening.state.connections)
            assert time.monotonic() - began > 0.1

    serving(large, test)


def test_late_head_is_dropped_and_late_body_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_protocol, "ARRIVAL_SECONDS", 0.2)

    async def test(listening: Listening) -> tuple[bytes, bytes]:
        head, body = (asyncio.ensure_future(listening.ask(sent)) for sent in (POST[:20], POST % 5 + b"abc"))
        await listening.until(lambda: head.done() and body.done())
        return await head, await body

    head, body = serving(echo, test)
    assert head == b""
    assert body.endswith(b"/post broken off")


def test_client_that_waits_for_us_is_not_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_protocol, "ARRIVAL_SECONDS", 0.2)

    async def test(listening: Listening) -> bytes:
        asked = asyncio.ensure_future(listening.ask(POST % MEGABYTE, bytes(MEGABYTE)))
        await listening.until(asked.done)
        return await asked

    assert len(serving(late_echo, test)) > MEGABYTE


def test_idle_connection_is_closed_after_its_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_protocol, "KEEPALIVE_SECONDS", 0.2)

    async def test(listening: Listening) -> bytes:
        asked = asyncio.ensure_future(listening.ask(GET % 1))
        await listening.until(asked.done)
        return await asked

    assert serving(echo, test).endswith(b"/1 ")


async def stays_open(listening: Listening, reader: asyncio.StreamReader, seconds: float) -> bool:
    """Whether the connection is open after so many seconds of checks."""
    end = time.monotonic() + seconds
    await listening.until(lambda: reader.at_eof() or reader.exception() or time.monotonic() > end)
    return not reader.at_eof() and reader.exception() is None


@pytest.mark.parametrize("between", [b"", b"\r\n"], ids=["nothing", "a blank line"])
def test_idle_connection_outlives_the_arrival_of_a_request(between: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after a blank line, which begins no request."""
    monkeypatch.setattr(bounded_protocol, "ARRIVAL_SECONDS", 0.2)

    async def test(listening: Listening) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", listening.port)
        writer.write(GET % 1)
        assert (await reader.readuntil(b"/1 ")).startswith(b"HTTP/1.1 200 ")
        writer.write(between)
        assert await stays_open(listening, reader, 0.6)
        writer.write(LAST)
        said = await reader.read()
        writer.close()
        return said

    assert serving(echo, test).endswith(b"/last ")


@pytest.mark.parametrize("pieces", [[b"G"], [b"\r\nGET /", *[b"x"] * 8]], ids=["stops", "drips"])
def test_head_that_has_begun_must_arrive_in_time(pieces: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_protocol, "ARRIVAL_SECONDS", 0.2)

    async def test(listening: Listening) -> bool:
        reader, writer = await asyncio.open_connection("127.0.0.1", listening.port)
        is_open = True
        for piece in pieces:
            if is_open:
                writer.write(piece)
                is_open = await stays_open(listening, reader, 0.1)
        is_open = is_open and await stays_open(listening, reader, 0.3)
        writer.close()
        return is_open

    assert not serving(echo, test)


def test_half_a_pipelined_head_ends_the_connection_after_the_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would stay open, and silently discard all that the client sends."""
    monkeypatch.setattr(bounded_protocol, "ARRIVAL_SECONDS", 0.2)

    async def test(listening: Listening) -> bytes:
        asked = asyncio.ensure_future(listening.ask(GET % 1 + b"GET /two HT"))
        await listening.until(asked.done)
        return await asked

    said = serving(late_echo, test)
    assert said.count(b"HTTP/1.1 200 OK") == 1
    assert b"\r\nConnection: close\r\n" in said


# ---- how it ends


def test_client_in_mid_upload_gets_its_answer_although_the_server_ends() -> None:
    """With unread input, closing at once would reset the connection."""

    async def refuses(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(0.2)
        await send({"type": "http.response.start", "status": 413, "headers": []})
        await send({"type": "http.response.body", "body": b"no"})

    async def test(listening: Listening) -> bytes:
        asked = asyncio.ensure_future(listening.ask(POST % (3 * MEGABYTE), bytes(2 * MEGABYTE)))
        await listening.until(lambda: listening.state.tasks)
        for _ in range(2):  # the second while the client may still be reading
            for connection in list(listening.state.connections):
                connection.shutdown()
            await asyncio.sleep(0.3)
        return await asked

    said = serving(refuses, test)
    assert said.startswith(b"HTTP/1.1 413 ")
    assert said.endswith(b"no")


def test_last_response_of_a_server_that_ends_closes_its_connection() -> None:
    begun, may_answer = asyncio.Event(), asyncio.Event()

    async def waits(scope: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        await may_answer.wait()
        await echo(scope, receive, send)

    async def test(listening: Listening) -> bytes:
        asked = asyncio.ensure_future(listening.ask(GET % 1))
        await begun.wait()
        for connection in list(listening.state.connections):
            connection.shutdown()
        may_answer.set()
        return await asked

    assert b"\r\nConnection: close\r\n" in serving(waits, test)


def test_client_that_does_not_close_is_dropped_after_2_s_when_the_server_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_protocol, "HANG_UP_SECONDS", 0.2)

    async def test(listening: Listening) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", listening.port)
        writer.write(LAST)
        await reader.read()
        for connection in list(listening.state.connections):
            connection.shutdown()
        await asyncio.sleep(0.05)
        assert listening.state.connections, "it was closed at once"
        await listening.until(lambda: not listening.state.connections)
        writer.close()

    serving(echo, test)


# ---- memory


def test_body_that_the_app_does_not_ask_for_is_not_read() -> None:
    held: list[int] = []

    async def waits(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(0.3)
        held.append(len((await receive())["body"]))
        await echo(scope, receive, send)

    async def test(listening: Listening) -> bytes:
        return await listening.ask(POST % (8 * MEGABYTE), bytes(8 * MEGABYTE))

    serving(waits, test)
    assert held[0] <= (16 + 32) * 1024


@pytest.mark.parametrize(
    ("endless", "status"),
    [
        (b"GET /livez HTTP/1.1\r\nX: ", b"431"),
        (b"GET /", b"414"),
        (b"\r\n", b"431"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;x=", b"200"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: ", b"200"),
    ],
    ids=["header", "line", "blank lines", "extension of a chunk", "trailer"],
)
def test_endless_part_of_a_request_is_refused(endless: bytes, status: bytes) -> None:
    filling = b"\r\n" if endless == b"\r\n" else b"x"

    async def test(listening: Listening) -> bytes:
        return await listening.ask(endless, filling * 128 * 1024)

    said = serving(echo, test)
    assert said.startswith(b"HTTP/1.1 " + status)
    assert status != b"200" or said.endswith(b"broken off")


@pytest.mark.parametrize(("length", "status"), [(600, b"200"), (1200, b"431")], ids=["60 KB", "120 KB"])
def test_head_may_have_64_kb(length: int, status: bytes) -> None:
    """Up to 32 KB more, if the end comes with the same read."""
    lines = b"".join(b"X-%02d: %s\r\n" % (number, b"x" * length) for number in range(98))

    async def test(listening: Listening) -> bytes:
        return await listening.ask(LAST[:-2] + lines + b"\r\n")

    assert serving(echo, test).startswith(b"HTTP/1.1 " + status)


@pytest.mark.parametrize("over", [0, 1], ids=["at the limit", "over it"])
@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (lambda over: LAST.replace(b"/last", b"/" * (4081 + over)), b"414"),
        (lambda over: LAST[:-2] + b"X: %b\r\n\r\n" % bytes(8185 + over).replace(b"\0", b"x"), b"431"),
        (lambda over: LAST[:-2] + b"X: 1\r\n" * (98 + over) + b"\r\n", b"431"),
    ],
    ids=["a line of 4,094 bytes", "a header of 8,190 bytes", "100 headers"],
)
def test_request_may_have_what_gunicorn_takes(request_: Callable[[int], bytes], status: bytes, over: int) -> None:
    async def test(listening: Listening) -> bytes:
        return await listening.ask(request_(over))

    assert serving(echo, test).startswith(b"HTTP/1.1 " + (status if over else b"200"))


def test_refusal_is_a_whole_response_that_closes_the_connection() -> None:
    async def test(listening: Listening) -> bytes:
        return await listening.ask(b"no request\r\n\r\n")

    head, _, body = serving(echo, test).partition(b"\r\n\r\n")
    assert body == b'{"error": "bad_request"}'
    assert head.split(b"\r\n") == [
        b"HTTP/1.1 400 Bad Request",
        b"Connection: close",
        b"Content-Type: application/json",
        b"Content-Length: 24",
    ]


# ---- requests


def test_pipelined_requests_are_answered_in_order() -> None:
    async def test(listening: Listening) -> bytes:
        return await listening.ask(GET % 1 + GET % 2 + GET % 3 + LAST)

    said = serving(echo, test)
    places = [said.index(path) for path in (b"/1 ", b"/2 ", b"/3 ", b"/last ")]
    assert places == sorted(places)
    assert said.count(b"HTTP/1.1 200 OK") == 4


def test_too_many_pipelined_requests_are_refused_after_the_answers() -> None:
    async def test(listening: Listening) -> bytes:
        return await listening.ask(b"".join(GET % number for number in range(100)))

    said = serving(echo, test)
    assert said.count(b"HTTP/1.1 200 OK") == 8 + 1
    assert said.endswith(b'{"error": "bad_request"}')


def test_client_that_sends_no_more_gets_its_answers() -> None:
    async def test(listening: Listening) -> tuple[bytes, bytes]:
        return await listening.ask(GET % 1 + GET % 2, ends=True), await listening.ask(POST % 5 + b"abc", ends=True)

    whole, broken = serving(echo, test)
    assert whole.count(b"HTTP/1.1 200 OK") == 2
    assert broken.endswith(b"/post broken off")


def test_client_that_sends_no_more_gets_the_answers_to_pipelined_requests() -> None:
    async def waits(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(0.05)
        await echo(scope, receive, send)

    async def test(listening: Listening) -> bytes:
        return await listening.ask(GET % 1 + GET % 2 + GET % 3, ends=True)

    assert serving(waits, test).count(b"HTTP/1.1 200 OK") == 3


def test_response_that_cannot_be_written_is_answered_500(capfd: pytest.CaptureFixture[str]) -> None:
    async def odd(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 999, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def test(listening: Listening) -> bytes:
        return await listening.ask(GET % 1)

    with parts.logged():
        assert serving(odd, test).startswith(b"HTTP/1.1 500 ")
    assert parts.events(capfd.readouterr().out) == ["unexpected_error"]


def test_date_of_a_response_is_the_second_of_the_response(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([0.9, 1.0, 1.9, 3600.0])
    monkeypatch.setattr(bounded_protocol, "time", SimpleNamespace(time=lambda: next(seconds)))

    async def test(listening: Listening) -> bytes:
        return await listening.ask(GET % 1 + GET % 2 + GET % 3 + LAST)

    said = serving(echo, test)
    dates = [line.removeprefix(b"Date: ") for line in said.split(b"\r\n") if line.startswith(b"Date: ")]
    assert dates == [b"Thu, 01 Jan 1970 0%b GMT" % at for at in (b"0:00:00", b"0:00:01", b"0:00:01", b"1:00:00")]


def test_client_that_expects_it_is_told_to_continue_once() -> None:
    async def test(listening: Listening) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", listening.port)
        writer.write((POST % 5).replace(b"Host", b"Expect: 100-Continue\r\nHost"))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"ab")
        await asyncio.sleep(0.05)
        writer.write(b"cde")
        said = await reader.read()
        writer.close()
        return said

    said = serving(echo, test)
    assert said.startswith(b"HTTP/1.1 200 OK")
    assert said.endswith(b"/post abcde")


@pytest.mark.parametrize("name", [b"Host", b"Content-Type", b"Content-Length"])
def test_header_that_makes_a_request_ambiguous_may_come_once(name: bytes) -> None:
    head, values = b"POST /post HTTP/1.1\r\nConnection: close\r\n", [b"x", b"x", b"3"]
    lines = [b"%b: %b\r\n" % line for line in zip((b"Host", b"Content-Type", b"Content-Length"), values, strict=True)]
    again = next(line for line in lines if line.startswith(name))

    async def test(listening: Listening) -> list[bytes]:
        return [await listening.ask(head + b"".join(given) + b"\r\nabc") for given in (lines, [*lines, again])]

    once, twice = serving(echo, test)
    assert once.endswith(b"/post abc")
    assert twice.startswith(b"HTTP/1.1 400 ")


def test_response_has_one_content_length_although_the_app_gives_one_too() -> None:
    async def measured(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    async def test(listening: Listening) -> bytes:
        return await listening.ask(LAST)

    assert serving(measured, test).count(b"Content-Length: 2\r\n") == 1


def test_client_that_expects_anything_else_is_refused() -> None:
    async def test(listening: Listening) -> bytes:
        return await listening.ask(POST[:-2] % 3 + b"Expect: 200-ok\r\n\r\nabc")

    assert serving(echo, test).startswith(b"HTTP/1.1 417 ")


def test_client_of_http_1_0_is_not_told_to_continue() -> None:
    """It would take 100 for the answer (RFC 9110, 10.1.1)."""
    request = (POST % 5).replace(b"HTTP/1.1", b"HTTP/1.0").replace(b"Host", b"Expect: 100-continue\r\nHost")

    async def test(listening: Listening) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", listening.port)
        writer.write(request)
        await asyncio.sleep(0.05)
        writer.write(b"abcde")
        said = await reader.read()
        writer.close()
        return said

    assert serving(echo, test).startswith(b"HTTP/1.1 200 OK")


def test_trailer_is_no_header() -> None:
    async def headers(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["more_body"]:
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": repr(scope["headers"]).encode()})

    request = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n1\r\na\r\n0\r\nX-T: 1\r\n\r\n"

    async def test(listening: Listening) -> bytes:
        return await listening.ask(request)

    said = serving(headers, test)
    assert b"transfer-encoding" in said
    assert b"x-t" not in said


UPGRADE = b"Host: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQ\r\n"


@pytest.mark.parametrize(
    ("rest", "body"),
    [
        (b"Content-Length: 3\r\n\r\nabc", b"abc"),
        (b"Content-Length: 0\r\n\r\n", b""),
        (b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n", b"abc"),
        (b"\r\n", b""),
    ],
    ids=["with a length", "empty", "chunked", "no body"],
)
@pytest.mark.parametrize("in_pieces", [False, True], ids=["at once", "in pieces"])
def test_upgrade_is_ignored_and_the_body_is_read(rest: bytes, body: bytes, in_pieces: bool) -> None:
    """As `curl --http2` sends it. The connection goes on."""
    request = b"POST /post HTTP/1.1\r\n" + UPGRADE + rest + LAST

    async def test(listening: Listening) -> bytes:
        if not in_pieces:
            return await listening.ask(request)
        reader, writer = await asyncio.open_connection("127.0.0.1", listening.port)
        for start in range(0, len(request), 5):
            writer.write(request[start : start + 5])
            await asyncio.sleep(0.001)
        said = await reader.read()
        writer.close()
        return said

    first, _, second = serving(echo, test).partition(b"/post " + body)
    assert first.startswith(b"HTTP/1.1 200 OK")
    assert second.startswith(b"HTTP/1.1 200 OK")
    assert second.endswith(b"/last ")


@pytest.mark.parametrize("length", [b"", b"Content-Length: 3\r\n"], ids=["without a length", "with a length"])
def test_tunnel_is_not_made(length: bytes) -> None:
    async def test(listening: Listening) -> bytes:
        return await listening.ask(b"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n" + length + b"\r\nabc")

    said = serving(echo, test)
    assert said.startswith(b"HTTP/1.1 200 OK")
    assert b"\r\nConnection: close\r\n" in said


def test_answer_to_head_has_no_body() -> None:
    async def test(listening: Listening) -> bytes:
        return await listening.ask(LAST.replace(b"GET", b"HEAD"))

    head, _, body = serving(echo, test).partition(b"\r\n\r\n")
    assert b"Content-Length: 6\r\n" in head
    assert body == b""


def test_error_of_the_app_is_answered_and_logged_without_its_words(capfd: pytest.CaptureFixture[str]) -> None:
    async def fails(scope: Scope, receive: Receive, send: Send) -> None:
        raise ValueError("c4n4ry")

    async def test(listening: Listening) -> bytes:
        return await listening.ask(GET % 1)

    with parts.logged():
        said = serving(fails, test)
    assert said.startswith(b"HTTP/1.1 500 ")
    assert b"\r\nContent-Type: application/json\r\n" in said
    assert b"\r\nConnection: close\r\n" in said
    logged = capfd.readouterr().out
    assert parts.events(logged) == ["unexpected_error"]
    assert "c4n4ry" not in logged
