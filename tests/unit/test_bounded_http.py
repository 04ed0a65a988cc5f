"""One POST: whether any byte of it may have left, and where it may lead unless somebody says otherwise."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from shared.domain.limits import PostTimes
from shared.net.bounded_http import NoAnswer, NotSent, Poster
from shared.net.egress_policy import ANYWHERE

TIMES = PostTimes(*[timedelta(seconds=10)] * 4)
CONNECTED, FIRST_WRITE, SECOND_WRITE = 2, 3, 4
"""When the clock is looked at: at the beginning, before a connection, and before each write."""

TOO_LATE = 1_000.0


@dataclass
class Clock:
    """Stands still; before its n-th look something may happen, which may also say what time it is then."""

    at: dict[int, Callable[[], float]]
    looks: int = 0

    def __call__(self) -> float:
        self.looks += 1
        return self.at.get(self.looks, lambda: 0.0)()


@dataclass
class Server:
    """Accepts connections and reads; `reset` hangs up on the last one, so that writing to it fails."""

    listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))

    def __post_init__(self) -> None:
        self.listener.settimeout(10)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}/"

    def accept(self) -> socket.socket:
        connection, _ = self.listener.accept()
        connection.settimeout(10)
        return connection

    def reset(self) -> float:
        connection = self.accept()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
        return 0.0

    def read_all(self) -> bytes:
        """What came until the client hung up."""
        connection, said = self.accept(), b""
        with connection:
            while piece := connection.recv(65536):
                said += piece
        return said


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    with server.listener:
        yield server


def post(url: str, clock: Clock, body: bytes = b"{}", **given: Any) -> None:
    with closing(Poster(TIMES, clock, **({"reach": ANYWHERE} | given))) as poster:
        poster.post(url, {"Content-Type": "application/json", "Content-Length": str(len(body))}, body)


def test_a_connection_that_is_refused_sent_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(NotSent, match="ConnectError"):
        post(f"http://127.0.0.1:{port}/", Clock({}))


def test_a_time_that_is_over_before_the_first_byte_sent_nothing(server: Server) -> None:
    with pytest.raises(NotSent, match="WriteTimeout"):
        post(server.url, Clock({FIRST_WRITE: lambda: TOO_LATE}))
    assert server.read_all() == b""


def test_a_time_that_is_over_before_the_connection_sent_nothing(server: Server) -> None:
    with pytest.raises(NotSent, match="ConnectTimeout"):
        post(server.url, Clock({CONNECTED: lambda: TOO_LATE}))


def test_failed_first_write_counts_as_possibly_sent(server: Server) -> None:
    """The system says that it failed, and not how much of it had left."""
    with pytest.raises(NoAnswer):
        post(server.url, Clock({FIRST_WRITE: server.reset}))


def test_timeout_between_two_writes_counts_as_possibly_sent(server: Server) -> None:
    with pytest.raises(NoAnswer, match="WriteTimeout"):
        post(server.url, Clock({SECOND_WRITE: lambda: TOO_LATE}))
    assert server.read_all().startswith(b"POST / HTTP/1.1\r\n")


def test_connection_closed_without_answer_counts_as_possibly_sent(server: Server) -> None:
    def hang_up() -> None:
        connection = server.accept()
        connection.recv(65536)
        connection.close()

    thread = threading.Thread(target=hang_up)
    thread.start()
    with pytest.raises(NoAnswer):
        post(server.url, Clock({}))
    thread.join(10)


def test_a_tls_handshake_that_fails_sent_nothing(server: Server) -> None:
    """Bytes go out, and none of them is the request's."""
    thread = threading.Thread(target=lambda: server.accept().close())
    thread.start()
    with pytest.raises(NotSent):
        post(server.url.replace("http:", "https:"), Clock({}))
    thread.join(10)


def test_earlier_call_does_not_affect_whether_the_next_was_sent(server: Server) -> None:
    with closing(Poster(TIMES, Clock({FIRST_WRITE: server.reset}), reach=ANYWHERE)) as poster:
        with pytest.raises(NoAnswer):
            poster.post(server.url, {"Content-Length": "2"}, b"{}")
        url = server.url
        server.listener.close()
        with pytest.raises(NotSent):
            poster.post(url, {"Content-Length": "2"}, b"{}")


def test_poster_reaches_only_public_addresses_by_default(server: Server) -> None:
    with closing(Poster(TIMES, Clock({}))) as poster, pytest.raises(NotSent, match="NotPublic"):
        poster.post(server.url, {"Content-Length": "2"}, b"{}")
