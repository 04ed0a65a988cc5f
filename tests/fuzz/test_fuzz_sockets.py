"""Bytes on a socket that are no HTTP, or nearly: to the server, a real process; and from one, to our only client."""

import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import strategies as st

from shared.domain.limits import PostTimes
from shared.net.bounded_http import ANSWER_MAX_BYTES, HttpResponse, NoAnswer, NotSent, Poster
from shared.net.egress_policy import ANYWHERE
from tests.fuzz import mutation
from tests.fuzz.hunt import Hunt
from tests.support import parts
from tests.support.parts import signed

CANARY = b"c4n4ry"
SECONDS = 20.0
"""The server gives a request 10 to arrive."""

PATH = b"/webhooks/whatsapp"
BODY = b'{"object":"c4n4ry"}'
SIGNED = b"X-Hub-Signature-256: " + signed(BODY).encode() + b"\r\n"
SHAKE = f"hub.mode=subscribe&hub.verify_token={parts.WORD}&hub.challenge=115".encode()


def head(line: bytes, *headers: bytes) -> bytes:
    return b"\r\n".join((line, b"Host: c4n4ry", *headers, b"", b""))


CHUNKS = b"8\r\n" + BODY[:8] + b"\r\n%x;x=y\r\n" % len(BODY[8:]) + BODY[8:] + b"\r\n0\r\nX-T: 1\r\n\r\n"
SIZED = head(b"POST " + PATH + b" HTTP/1.1", SIGNED.strip(), b"Content-Length: %d" % len(BODY)) + BODY
REQUESTS = (
    SIZED,
    SIZED * 3,
    head(b"POST " + PATH + b" HTTP/1.1", SIGNED.strip(), b"Transfer-Encoding: chunked") + CHUNKS,
    head(b"POST " + PATH + b" HTTP/1.1", SIGNED.strip(), b"Transfer-Encoding: chunked") + CHUNKS + SIZED,
    head(b"POST " + PATH + b" HTTP/1.1", SIGNED.strip(), b"Expect: 100-continue", b"Content-Length: 19") + BODY,
    head(b"GET " + PATH + b"?" + SHAKE + b" HTTP/1.1", b"Connection: close"),
    head(b"GET /livez HTTP/1.1") * 5,
    head(b"GET /livez HTTP/1.0"),
    head(b"HEAD /health HTTP/1.1", b"Connection: keep-alive"),
    head(b"PUT /c4n4ry HTTP/1.1", b"Content-Length: 19") + BODY,
    head(b"OPTIONS * HTTP/1.1"),
    head(b"CONNECT c4n4ry:443 HTTP/1.1") + BODY,
    head(b"GET http://c4n4ry/livez HTTP/1.1"),
    b"GET /livez\r\n\r\n",
)
INSERTS = (
    b"\r\n", b"\n", b"\r", b"\x00", b"\r\n\r\n", b" ", b"\t", b"%00", b"%", b"\xff", b"HTTP/0.9", b"HTTP/2.0",
    b"HTTP/1.9", b"Content-Length: 0\r\n", b"Content-Length: 5\r\nContent-Length: 6\r\n", b"Content-Length: -1\r\n",
    b"Content-Length: +5\r\n", b"Content-Length: 99999999999999999999\r\n", b"Content-Length: 0x10\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip, chunked\r\n",
    b"Transfer-Encoding: chunked, chunked\r\n", b"Transfer-Encoding:\x0bchunked\r\n", b"Transfer-Encoding: c4n4ry\r\n",
    b"Expect: c4n4ry\r\n", b"Expect: 100-continue\r\n", b"SCRIPT_NAME: /c4n4ry\r\n", b"Host: c4n4ry\r\n",
    b"X-Forwarded-Proto: https\r\nX-Forwarded-Ssl: off\r\n", b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\n",
    b"Connection: close\r\n", b"Connection: keep-alive\r\n", b"X c4n4ry: 1\r\n", b": 1\r\n", b" folded\r\n",
    b"X: " + CANARY * 1500 + b"\r\n", b"X: 1\r\n" * 120, CANARY * 1500, b"0\r\n\r\n", b"-1\r\n",
    b"ffffffffffffffff\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03",
)  # fmt: skip


@st.composite
def broken(draw: st.DrawFn, seeds: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """One of them with something put in at the end of a line or anywhere, then perhaps corrupted; in pieces."""
    random = draw(mutation.randoms)
    text = random.choice(seeds)
    for _ in range(random.randint(0, 2)):
        ends = [match.end() for match in re.finditer(b"\r\n", text)] or [0]
        at = random.choice(ends) if random.random() < 0.7 else random.randint(0, len(text))
        text = text[:at] + random.choice(INSERTS) + text[at:]
    if random.random() < 0.5:
        text = mutation.corrupted(text, random)
    cuts = sorted(random.randint(0, len(text)) for _ in range(random.choice((0, 0, 1, 3))))
    return tuple(text[start:end] for start, end in zip((0, *cuts), (*cuts, len(text)), strict=True))


# ---- to the server


@dataclass
class Served:
    """`python -m services.webhook`. What is asked of it here needs no queue."""

    program: parts.Program
    port: int

    def ask(self, pieces: tuple[bytes, ...]) -> bytes:
        """All that it says to these, when no more are to come."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            answer = b""
            try:
                for piece in pieces:
                    connection.sendall(piece)
                connection.shutdown(socket.SHUT_WR)
                while more := connection.recv(65536):
                    answer += more
            except (ConnectionError, BrokenPipeError):
                pass  # it has heard enough
            return answer


@pytest.fixture(scope="module")
def served(quick_directory: Path) -> Iterator[Served]:
    directory = quick_directory / "sockets"
    directory.mkdir()
    port = parts.free_port()
    served = Served(parts.run(directory, "services.webhook", parts.environment(directory, PORT=str(port))), port)
    yield served
    assert served.ask((SIZED,)).startswith(b"HTTP/1.1 200 "), "it does not live any more"
    assert served.program.end() == 0
    assert served.program.err.read_text() == "", "something was said beside the log"
    said = set(parts.events(served.program.out.read_text()))
    assert said <= {"started", "stopping", "webhook_refused", "webhook_ignored", "webhook_received"}


def check_server(served: Served, pieces: tuple[bytes, ...]) -> None:
    answer = served.ask(pieces)
    statuses = [int(status) for status in re.findall(rb"HTTP/1\.[01] (\d{3}) ", answer)]
    assert answer == b"" or answer.startswith(b"HTTP/1.")
    assert all(100 <= status < 500 for status in statuses), answer
    assert CANARY not in answer


def test_any_bytes_get_a_client_error_or_a_disconnect(served: Served, hunt: Hunt) -> None:
    hunt(lambda pieces: check_server(served, pieces), broken(REQUESTS), quick=700)


# ---- from a server

OK = b"HTTP/1.1 200 OK\r\n"
ANSWERS = (
    OK + b"Content-Length: 19\r\n\r\n" + BODY,
    OK + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKS,
    OK + b"Connection: close\r\n\r\n" + BODY,
    b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 2\r\n\r\n{}",
    b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 3 + OK + b"Content-Length: 2\r\n\r\n{}",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/c4n4ry\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 429 X\r\nRetry-After: 1\r\nContent-Length: 2\r\n\r\n{}",
    b"HTTP/1.0 500\r\n\r\n",
)


@dataclass
class Answering:
    """Says what it is told to say, to whoever asks, and hangs up."""

    listener: socket.socket
    pieces: tuple[bytes, ...] = ()

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with closing(connection):
                try:
                    connection.recv(65536)
                    for piece in self.pieces:
                        connection.sendall(piece)
                except OSError:
                    pass  # it has heard enough


@pytest.fixture(scope="module")
def answering() -> Iterator[Answering]:
    with closing(socket.create_server(("127.0.0.1", 0), backlog=64)) as listener:
        served = Answering(listener)
        thread = threading.Thread(target=served.serve, daemon=True)
        thread.start()
        yield served
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(SECONDS)


def check_client(poster: Poster, answering: Answering, pieces: tuple[bytes, ...]) -> None:
    answering.pieces = pieces
    try:
        answer = poster.post(f"http://127.0.0.1:{answering.listener.getsockname()[1]}/", {"Host": "here"}, b"{}")
    except (NotSent, NoAnswer):
        return
    assert isinstance(answer, HttpResponse)
    assert 100 <= answer.status <= 999
    assert (answer.body is None) is (answer.unread is not None)
    assert len(answer.body or b"") <= ANSWER_MAX_BYTES


def test_any_response_is_an_answer_or_none_to_the_client(answering: Answering, hunt: Hunt) -> None:
    times = PostTimes(*[timedelta(seconds=SECONDS)] * 4)
    with closing(Poster(times, time.monotonic, reach=ANYWHERE)) as poster:
        hunt(lambda pieces: check_client(poster, answering, pieces), broken(ANSWERS), quick=400)
