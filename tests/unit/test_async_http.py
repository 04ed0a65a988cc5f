"""The HTTP client of an event loop, against servers that answer well, badly, late, or not at all."""

import asyncio
import gc
import ssl
import time
import warnings
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from shared.net import async_http
from shared.net.async_http import Answer, AsyncHttp, CallFailed, NoFreeConnection, NotConnected, TimedOut

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
SOON = 5.0


class Server:
    """A server that treats each connection as `talk` says."""

    def __init__(self, talk: Talk, tls: ssl.SSLContext | None = None) -> None:
        self.connections = 0
        self.requests: list[bytes] = []
        self.open: list[asyncio.StreamWriter] = []
        self._talk, self._tls = talk, tls

    async def __aenter__(self) -> "Server":
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self.open:
            writer.transport.abort()
        for _ in range(5):
            await asyncio.sleep(0)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open.append(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await self._talk(reader, writer)

    async def request(self, reader: asyncio.StreamReader) -> bytes:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        self.requests.append(head + await reader.readexactly(length))
        return self.requests[-1]


def answer(body: bytes, status: int = 200, headers: bytes = b"") -> bytes:
    return b"HTTP/1.1 %d X\r\n%bContent-Length: %d\r\n\r\n%b" % (status, headers, len(body), body)


def answering(*answers: bytes, seconds: float = 0) -> Server:
    """A server that gives each connection these answers in turn, the last one again and again."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = [*answers]
        while True:
            await server.request(reader)
            await asyncio.sleep(seconds)
            writer.write(left.pop(0) if len(left) > 1 else left[0])

    server = Server(talk)
    return server


def get(http: AsyncHttp, body: bytes = b"") -> bytes:
    return http.start(b"POST", b"/path") + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 20))


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def with_server(server: Server, test: Callable[[AsyncHttp], Awaitable[None]], most: int = 4) -> None:
    async def both() -> None:
        async with server:
            http = AsyncHttp("127.0.0.1", server.port, most, None)
            await test(http)
            http.close()
            await settle()

    run(both)


# ---- calls and answers


def test_request_is_sent_whole_and_its_answer_returned() -> None:
    server = answering(answer(b"hello", 201))

    async def test(http: AsyncHttp) -> None:
        assert await http.call(get(http, b"a body"), SOON) == Answer(201, b"hello")
        host = f"127.0.0.1:{server.port}".encode()
        assert server.requests == [b"POST /path HTTP/1.1\r\nHost: %b\r\nContent-Length: 6\r\n\r\na body" % host]

    with_server(server, test)


@pytest.mark.parametrize(
    ("host", "port", "tls", "header"),
    [
        ("a", 443, True, b"a"),
        ("a", 80, False, b"a"),
        ("a", 80, True, b"a:80"),
        ("::1", 443, True, b"[::1]"),
        ("::1", 80, False, b"[::1]"),
        ("::1", 9083, False, b"[::1]:9083"),
    ],
)
def test_host_header_has_the_port_unless_it_is_the_default(host: str, port: int, tls: bool, header: bytes) -> None:
    http = AsyncHttp(host, port, 1, async_http.public_authorities if tls else None)
    assert http.start(b"GET", b"/", b"A: b\r\n") == b"GET / HTTP/1.1\r\nHost: %b\r\nA: b\r\n" % header


def test_calls_one_after_another_share_a_connection() -> None:
    server = answering(answer(b"1"), answer(b"2"))

    async def test(http: AsyncHttp) -> None:
        assert [(await http.call(get(http), SOON)).body for _ in range(3)] == [b"1", b"2", b"2"]
        assert server.connections == 1

    with_server(server, test)


WELL_FORMED = {
    "100 Continue before the answer": b"HTTP/1.1 100 Continue\r\n\r\n" + answer(b"hello"),
    "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nT: 1\r\n\r\n",
    "a closed connection": answer(b"hello", headers=b"Connection: close\r\n"),
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
}


@pytest.mark.parametrize("name", WELL_FORMED)
@pytest.mark.parametrize("in_pieces", [False, True])
def test_answer_in_every_form_is_read(name: str, in_pieces: bool) -> None:
    whole = WELL_FORMED[name]

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await server.request(reader)
            for piece in [whole[n : n + 1] for n in range(len(whole))] if in_pieces else [whole]:
                writer.write(piece)
                await asyncio.sleep(0)

    server = Server(talk)

    async def test(http: AsyncHttp) -> None:
        for _ in range(2):
            assert await http.call(get(http), SOON) == Answer(200, b"hello")
        assert server.connections == (2 if name in ("a closed connection", "HTTP/1.0") else 1)

    with_server(server, test)


MALFORMED = {
    "garbage": b"\0\1\2 no HTTP at all\r\n\r\n",
    "another protocol": b"SSH-2.0-OpenSSH\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "a bad chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
    "a switch of protocols": b"HTTP/1.1 101 X\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n\0\0\0",
}


@pytest.mark.parametrize("name", MALFORMED)
def test_answer_that_is_not_http_fails_the_call_and_the_next_one_works(name: str) -> None:
    server = answering(MALFORMED[name])

    async def test(http: AsyncHttp) -> None:
        for _ in range(2):
            with pytest.raises(CallFailed, match="not HTTP"):
                await http.call(get(http), SOON)
        assert server.connections == 2

    with_server(server, test)


@pytest.mark.parametrize("where", ["body", "header"])
def test_too_large_answer_fails_the_call(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_http, "ANSWER_BYTES", 10_000)
    large = answer(b"x" * 20_000) if where == "body" else answer(b"", headers=b"A: %b\r\n" % (b"x" * 20_000))

    async def test(http: AsyncHttp) -> None:
        with pytest.raises(CallFailed, match="too large"):
            await http.call(get(http), SOON)

    with_server(answering(large), test)


@pytest.mark.parametrize(("mebibytes", "is_read"), [(15, True), (17, False)])
def test_answer_may_have_16_mebibytes(mebibytes: int, is_read: bool) -> None:
    async def test(http: AsyncHttp) -> None:
        if is_read:
            assert len((await http.call(get(http), SOON)).body) == mebibytes * 1024 * 1024
        else:
            with pytest.raises(CallFailed, match="too large"):
                await http.call(get(http), SOON)

    with_server(answering(answer(bytes(mebibytes * 1024 * 1024))), test)


def test_several_answers_below_the_limit_are_not_too_large_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_http, "ANSWER_BYTES", 10_000)
    server = answering(answer(b"x" * 9000))

    async def test(http: AsyncHttp) -> None:
        for _ in range(3):
            assert len((await http.call(get(http), SOON)).body) == 9000
        assert server.connections == 1

    with_server(server, test)


@pytest.mark.parametrize("pause", [False, True])
def test_answer_without_a_request_is_dropped_with_its_connection(pause: bool) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.request(reader)
        writer.write(answer(b"mine") if pause else answer(b"mine") + answer(b"another's"))
        if pause:
            await asyncio.sleep(0.05)
            writer.write(answer(b"another's"))
        await server.request(reader)

    server = Server(talk)

    async def test(http: AsyncHttp) -> None:
        for _ in range(2):
            assert (await http.call(get(http), SOON)).body == b"mine"
            await asyncio.sleep(0.1)
        assert server.connections == 2

    with_server(server, test)


# ---- connections that end


def test_connection_that_the_server_closed_meanwhile_is_not_used() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.request(reader)
        writer.write(answer(b"hello"))
        writer.close()

    server = Server(talk)

    async def test(http: AsyncHttp) -> None:
        for _ in range(3):
            assert (await http.call(get(http), SOON)).body == b"hello"
            await asyncio.sleep(0.02)
        assert server.connections == 3

    with_server(server, test)


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"])
def test_server_that_hangs_up_instead_of_answering_fails_the_call(sent: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.request(reader)
        writer.write(sent)
        writer.close()

    server = Server(talk)

    async def test(http: AsyncHttp) -> None:
        with pytest.raises(CallFailed, match="hung up") as raised:
            await http.call(get(http), SOON)
        assert not isinstance(raised.value, NotConnected)

    with_server(server, test)


def test_refused_connection_is_not_connected() -> None:
    async def test() -> None:
        async with answering(b"") as server:
            port = server.port
        http = AsyncHttp("127.0.0.1", port, 1, None)
        with pytest.raises(NotConnected, match="ConnectionRefusedError"):
            await http.call(get(http), SOON)

    run(test)


def test_connecting_that_takes_too_long_is_not_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async def never(*_: object, **__: object) -> None:
            await asyncio.sleep(60)

        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", never)
        http = AsyncHttp("127.0.0.1", 9, 1, None)
        for _ in range(2):
            with pytest.raises(NotConnected, match="TimeoutError"):
                await http.call(get(http), 0.05)

    run(test)


def test_call_without_an_answer_times_out_and_its_connection_is_not_used_again() -> None:
    server = answering(answer(b"late"), seconds=0.3)

    async def test(http: AsyncHttp) -> None:
        with pytest.raises(TimedOut):
            await http.call(get(http), 0.1)
        assert (await http.call(get(http), SOON)).body == b"late"
        assert server.connections == 2

    with_server(server, test)


def test_cancelled_call_closes_its_connection_and_gives_its_place_back() -> None:
    server = answering(answer(b"late"), seconds=0.2)

    async def test(http: AsyncHttp) -> None:
        call = asyncio.ensure_future(http.call(get(http), SOON))
        await asyncio.sleep(0.05)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await http.call(get(http), SOON)).body == b"late"
        assert server.connections == 2

    with_server(server, test, most=1)


def test_leave_idle_closes_what_is_not_in_use() -> None:
    server = answering(answer(b"hello"), seconds=0.1)

    async def test(http: AsyncHttp) -> None:
        await asyncio.gather(*(http.call(get(http), SOON) for _ in range(3)))
        call = asyncio.ensure_future(http.call(get(http), SOON))
        await settle()
        http.leave_idle()
        assert (await call).body == b"hello"
        await asyncio.gather(*(http.call(get(http), SOON) for _ in range(4)))
        assert server.connections == 6

    with_server(server, test)


def test_closed_client_fails_the_calls_in_flight() -> None:
    async def test(http: AsyncHttp) -> None:
        call = asyncio.ensure_future(http.call(get(http), SOON))
        await asyncio.sleep(0.05)
        http.close()
        with pytest.raises(CallFailed, match="closed"):
            await call

    with_server(answering(answer(b""), seconds=1), test)


def test_closed_client_fails_the_calls_that_wait_and_those_that_follow() -> None:
    server = answering(answer(b""), seconds=1)

    async def test(http: AsyncHttp) -> None:
        calls = [asyncio.ensure_future(http.call(get(http), SOON)) for _ in range(4)]
        await asyncio.sleep(0.05)
        http.close()
        for call in (*calls, http.call(get(http), SOON)):
            with pytest.raises(CallFailed, match="closed"):
                await call
        assert (server.connections, len(server.requests)) == (1, 1)

    with_server(server, test, most=1)


def test_connection_that_opens_after_the_client_was_closed_is_closed_too() -> None:
    received: list[bytes] = []
    is_closed = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        try:
            received.append(await reader.read())
        finally:
            is_closed.set()

    async def test(http: AsyncHttp) -> None:
        calls = [asyncio.ensure_future(http.call(get(http), SOON)) for _ in range(2)]
        await asyncio.sleep(0)
        http.close()
        for call in calls:
            with pytest.raises(CallFailed, match="closed"):
                await call
        await asyncio.wait_for(is_closed.wait(), SOON)
        assert b"".join(received) == b""

    with_server(Server(talk), test, most=1)


# ---- waiting for a connection


def test_at_most_so_many_connections_are_open_and_calls_wait_in_order() -> None:
    server = answering(answer(b""), seconds=0.02)

    async def test(http: AsyncHttp) -> None:
        done: list[int] = []

        async def call(number: int) -> None:
            await http.call(get(http, b"%d" % number), SOON)
            done.append(number)

        await asyncio.gather(*(call(number) for number in range(12)))
        assert server.connections == 2
        assert [int(request.rpartition(b"\r\n")[2]) for request in server.requests] == [*range(12)]
        assert done == [*range(12)]

    with_server(server, test, most=2)


def test_new_call_does_not_overtake_one_that_waits() -> None:
    server = answering(answer(b""), seconds=0.02)

    async def test(http: AsyncHttp) -> None:
        async def first() -> None:
            await http.call(get(http, b"1"), SOON)
            await http.call(get(http, b"3"), SOON)

        await asyncio.gather(first(), http.call(get(http, b"2"), SOON))
        assert [request[-1:] for request in server.requests] == [b"1", b"2", b"3"]

    with_server(server, test, most=1)


def test_wait_for_a_connection_counts_and_times_out() -> None:
    server = answering(answer(b""), seconds=0.3)

    async def test(http: AsyncHttp) -> None:
        busy = asyncio.ensure_future(http.call(get(http), SOON))
        await settle()
        began = time.monotonic()
        with pytest.raises(NoFreeConnection, match="in use"):
            await http.call(get(http), 0.1)
        assert time.monotonic() - began < 0.25
        await busy
        await http.call(get(http), SOON)
        assert server.connections == 1

    with_server(server, test, most=1)


def test_cancelled_wait_leaves_the_turn_to_the_next() -> None:
    server = answering(answer(b""), seconds=0.05)

    async def test(http: AsyncHttp) -> None:
        calls = [asyncio.ensure_future(http.call(get(http, b"%d" % n), SOON)) for n in range(4)]
        await asyncio.sleep(0.01)
        calls[1].cancel()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(result) for result in results] == [Answer, asyncio.CancelledError, Answer, Answer]
        assert [request[-1:] for request in server.requests] == [b"0", b"2", b"3"]

    with_server(server, test, most=1)


def test_call_cancelled_just_when_its_turn_came_passes_it_on() -> None:
    server = answering(answer(b""), seconds=0.02)

    async def test(http: AsyncHttp) -> None:
        first = asyncio.ensure_future(http.call(get(http), SOON))
        await settle()
        second, third = (asyncio.ensure_future(http.call(get(http), SOON)) for _ in range(2))
        await settle()
        first.add_done_callback(lambda _: second.cancel())
        assert (await third).status == 200
        with pytest.raises(asyncio.CancelledError):
            await second

    with_server(server, test, most=1)


@pytest.mark.parametrize("how", ["cancelled", "timed out"])
def test_wait_that_ends_in_the_tick_of_its_turn_leaves_it_to_the_next(how: str) -> None:
    async def test(http: AsyncHttp) -> None:
        loop, seconds = asyncio.get_running_loop(), 0.05 if how == "timed out" else SOON
        busy = asyncio.ensure_future(http.call(get(http), SOON))
        await settle()
        began = loop.time()
        waiting, third = (asyncio.ensure_future(http.call(get(http), it)) for it in (seconds, SOON))
        await settle()
        if how == "timed out":
            loop.call_at(began + seconds, busy.cancel)
            time.sleep(seconds + 0.01)  # both times pass within one tick
        else:
            busy.cancel()
            waiting.cancel()
        ended, answered = await asyncio.gather(waiting, third, return_exceptions=True)
        assert type(ended) is (NoFreeConnection if how == "timed out" else asyncio.CancelledError)
        assert answered == Answer(200, b"")

    with_server(answering(answer(b""), seconds=0.1), test, most=1)


def test_failed_connections_give_their_places_to_those_that_wait() -> None:
    async def test() -> None:
        async with answering(b"") as server:
            port = server.port
        http = AsyncHttp("127.0.0.1", port, 1, None)
        results = await asyncio.gather(*(http.call(get(http), SOON) for _ in range(5)), return_exceptions=True)
        assert {type(result) for result in results} == {NotConnected}

    run(test)


# ---- event loops


@pytest.mark.parametrize("is_left_open", [False, True])
def test_client_works_on_several_event_loops_one_after_another(is_left_open: bool) -> None:
    http: AsyncHttp | None = None
    server = answering(answer(b"hello"))

    async def call(port: int) -> None:
        nonlocal http
        http = http or AsyncHttp("127.0.0.1", port, 1, None)
        assert (await http.call(get(http), SOON)).body == b"hello"
        if not is_left_open:
            http.leave_idle()
            await settle()

    async def serve() -> None:
        async with server:
            for _ in range(3):
                await asyncio.to_thread(asyncio.run, call(server.port))
        assert server.connections == 3

    run(serve)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the connections of a loop that was not left in order
        http = None
        gc.collect()


# ---- TLS


def certificate(tmp_path: Path, *names: str) -> tuple[Path, Path]:
    """A certificate for these names, signed by itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "pombo-test")])
    others = [x509.IPAddress(ip_address(it)) if it[0].isdigit() else x509.DNSName(it) for it in names]
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - timedelta(days=1))
        .not_valid_after(datetime.now(UTC) + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(others), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert_path, key_path = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert_path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return cert_path, key_path


@pytest.mark.parametrize(
    ("name", "is_trusted", "works"),
    [("127.0.0.1", True, True), ("other.example", True, False), ("127.0.0.1", False, False)],
)
def test_tls_server_needs_a_trusted_certificate_of_its_name(
    tmp_path: Path, name: str, is_trusted: bool, works: bool
) -> None:
    cert, key = certificate(tmp_path, name)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await server.request(reader)
            writer.write(answer(b"secret"))

    server = Server(talk, tls)
    contexts: list[ssl.SSLContext] = []

    def trusting() -> ssl.SSLContext:
        contexts.append(ssl.create_default_context(cafile=str(cert)) if is_trusted else async_http.public_authorities())
        return contexts[-1]

    async def test() -> None:
        async with server:
            http = AsyncHttp("127.0.0.1", server.port, 1, trusting)
            assert contexts == [], "it is made when it is needed"
            if works:
                assert [(await http.call(get(http), SOON)).body for _ in range(2)] == [b"secret"] * 2
                assert server.connections == 1
            else:
                with pytest.raises(NotConnected, match="SSLCertVerificationError"):
                    await http.call(get(http), SOON)
                assert server.requests == []
            http.close()
            await asyncio.sleep(0.05)

    run(test)


def test_context_of_public_servers_checks_certificates_and_is_made_once() -> None:
    context = async_http.public_authorities()
    assert context is async_http.public_authorities()
    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
