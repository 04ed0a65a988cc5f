"""Both servers as processes: how much one connection may delay the others, and how a bad request is answered."""

import json
import re
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from gunicorn.http.errors import NoMoreData

from services import bounded_worker
from tests.support import parts
from tests.support.parts import SENDER, Program, signed

WEBHOOK, INTERNAL = "services.webhook", "services.internal"

PATIENCE = 4.0
"""Seconds. Less than gunicorn itself gives a connection that says nothing, more than a busy machine needs to answer."""

MEGABYTE = 1024 * 1024
LOGGED = {"started", "stopping", "webhook_refused", "webhook_received", "webhook_ignored", "task_refused"}
ALIVE = b"GET /livez HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n"


class Served:
    """`python -m services.webhook` or `services.internal`; what is asked of it here needs no queue."""

    def __init__(self, directory: Path, service: str) -> None:
        self.service = service
        self.port = parts.free_port()
        self.program: Program = parts.run(directory, service, parts.environment(directory, PORT=str(self.port)))

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def ask(self, *pieces: bytes) -> bytes:
        """The whole answer to these bytes."""
        with self.connect() as connection:
            for piece in pieces:
                connection.sendall(piece)
            return b"".join(iter(lambda: connection.recv(65536), b""))

    def most_memory(self) -> int:
        """Bytes that the serving process has had at once: gunicorn's worker, or the only one."""
        pid = str(self.program.process.pid)
        if self.service == INTERNAL:
            (pid,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        assert peak
        return int(peak[1]) * 1024


@pytest.fixture(scope="module", params=[WEBHOOK, INTERNAL])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("served"), request.param)
    yield served
    assert served.program.end() == 0
    assert served.program.err.read_text() == "", "something was said beside the log"
    assert set(parts.events(served.program.out.read_text())) <= LOGGED


# ---- time


def test_silent_connections_delay_no_other_client(served: Served) -> None:
    with ExitStack() as silent:
        for _ in range(100):
            silent.enter_context(served.connect())
        assert served.ask(ALIVE).startswith(b"HTTP/1.1 200 ")


def test_clients_that_stay_connected_delay_no_other_client(served: Served) -> None:
    with ExitStack() as staying:
        for _ in range(5):
            connection = staying.enter_context(served.connect())
            connection.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
        assert served.ask(ALIVE).startswith(b"HTTP/1.1 200 ")


def test_client_that_reads_no_answer_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_worker, "ANSWER_SECONDS", 0.2)
    ours, theirs = socket.socketpair()
    with theirs:
        sock = bounded_worker._BoundedSocket(ours)
        with pytest.raises(BrokenPipeError):
            sock.sendall(bytes(64 * MEGABYTE))
        ours.close()


def test_broken_connection_counts_as_a_disconnected_client() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    theirs = socket.create_connection(listener.getsockname())
    ours, _ = listener.accept()
    with ours, listener:
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        theirs.close()  # a reset
        sock = bounded_worker._BoundedSocket(ours)
        sock.begin(PATIENCE)
        with pytest.raises(NoMoreData):
            sock.recv(1000)


def test_disconnected_socket_can_be_closed_again_without_an_error() -> None:
    """As gunicorn does; an error there would make it count the connection twice."""
    ours, theirs = socket.socketpair()
    theirs.close()
    sock = bounded_worker._BoundedSocket(ours)
    sock.hang_up()
    sock.setblocking(True)
    sock.close()


@pytest.mark.parametrize("service", [WEBHOOK, INTERNAL])
def test_silent_connection_does_not_delay_the_shutdown(service: str, tmp_path: Path) -> None:
    served = Served(tmp_path, service)
    with served.connect():
        assert served.ask(ALIVE)
        began = time.monotonic()
        assert served.program.end() == 0
        assert time.monotonic() - began < 6  # the grace is 8 s


# ---- memory


@pytest.mark.parametrize("path", ["/nothing", "/robots.txt", "/livez", "/webhooks/whatsapp"])
@pytest.mark.parametrize("chunked", [False, True], ids=["with a length", "chunked"])
def test_unread_request_body_is_not_held_in_memory(served: Served, path: str, chunked: bool) -> None:
    before = served.most_memory()
    size = 100 * MEGABYTE
    length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {size}"
    head = f"PUT {path} HTTP/1.1\r\nHost: here\r\n{length}\r\n\r\n"
    with served.connect() as connection:
        try:
            connection.sendall(head.encode() + (f"{size:x}\r\n".encode() if chunked else b""))
            for _ in range(size // MEGABYTE):
                connection.sendall(bytes(MEGABYTE))
        except OSError:
            pass  # it has heard enough
    assert served.ask(ALIVE).startswith(b"HTTP/1.1 200 ")
    assert served.most_memory() - before < 16 * MEGABYTE


# ---- what a stranger is told

CANARY = b"c4n4ry"
NO_HTTP = {
    "no version": b"GET /c4n4ry\r\n\r\n",
    "HTTP/0.9": b"GET /c4n4ry HTTP/0.9\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03c4n4ry\r\n\r\n",
    "NUL": b"GET /livez\x00c4n4ry HTTP/1.1\r\nHost: x\r\n\r\n",
    "a header that is none": b"GET /livez HTTP/1.1\r\nc4n4ry\r\n\r\n",
    "a blank in a name": b"GET /livez HTTP/1.1\r\nX c4n4ry: 1\r\n\r\n",
    "NUL in a header": b"GET /livez HTTP/1.1\r\nX: c4n4ry\x00\r\n\r\n",
    "a folded header": b"GET /livez HTTP/1.1\r\nX: 1\r\n c4n4ry\r\n\r\n",
    "two hosts": b"GET /livez HTTP/1.1\r\nHost: a\r\nHost: c4n4ry\r\n\r\n",
    "a coding nobody knows": b"POST /livez HTTP/1.1\r\nTransfer-Encoding: c4n4ry\r\n\r\n",
    "a coding that is not the last": b"POST /livez HTTP/1.1\r\nTransfer-Encoding: chunked, gzip\r\n\r\n",
    "a length and chunks": b"POST /livez HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
    "a length of digits that are none": "POST /livez HTTP/1.1\r\nContent-Length: ²\r\n\r\n".encode("latin-1"),
    "a length beyond all": b"POST /livez HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
    "an expectation": b"GET /livez HTTP/1.1\r\nExpect: c4n4ry\r\n\r\n",
    "brackets": b"GET http://[c4n4ry/livez HTTP/1.1\r\n\r\n",
    "a long line": b"GET /" + CANARY * 2000 + b" HTTP/1.1\r\n\r\n",
    "a long header": b"GET /livez HTTP/1.1\r\nX: " + CANARY * 2000 + b"\r\n\r\n",
    "many headers": b"GET /livez HTTP/1.1\r\n" + b"X: c4n4ry\r\n" * 200 + b"\r\n",
}


OTHER_ERRORS = {
    "an expectation": (417, "expectation_failed"),
    "a long line": (414, "request_uri_too_long"),
    "a long header": (431, "request_header_fields_too_large"),
    "many headers": (431, "request_header_fields_too_large"),
}
"""All others are answered 400, bad_request."""


@pytest.mark.parametrize("name", NO_HTTP)
def test_non_http_request_is_a_client_error_and_not_quoted(served: Served, name: str) -> None:
    answer = served.ask(NO_HTTP[name])
    head, _, body = answer.partition(b"\r\n\r\n")
    status, error = OTHER_ERRORS.get(name, (400, "bad_request"))
    assert re.match(rb"HTTP/1\.1 %d [A-Z]" % status, head)
    assert json.loads(body) == {"error": error}
    assert CANARY not in answer


@pytest.mark.parametrize(("count", "status"), [(100, b"200"), (101, b"431")])
def test_request_may_have_100_headers(served: Served, count: int, status: bytes) -> None:
    given = ALIVE.count(b"\r\n") - 2
    more = b"".join(b"X-%d: 1\r\n" % number for number in range(count - given))
    assert served.ask(ALIVE[:-2] + more + b"\r\n").startswith(b"HTTP/1.1 " + status)


@pytest.mark.parametrize(
    "header", ["SCRIPT_NAME: /c4n4ry", "PATH_INFO: /c4n4ry", "X-Forwarded-Proto: https\r\nX-Forwarded-Ssl: off"]
)
def test_forwarding_headers_are_ignored(served: Served, header: str) -> None:
    """gunicorn believes whoever calls from this machine, and answers some of it with 500."""
    answer = served.ask(ALIVE.replace(b"Host", header.encode() + b"\r\nHost"))
    assert answer.endswith(b'{"status":"ok"}\n')


@pytest.mark.parametrize("target", ["http://c4n4ry", "http://c4n4ry?x=y", "//c4n4ry//livez", "/livez/"])
def test_host_in_the_request_target_is_not_followed_or_quoted(served: Served, target: str) -> None:
    answer = served.ask(ALIVE.replace(b"/livez", target.encode()).replace(b"here", CANARY))
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert CANARY not in answer


def test_no_response_header_has_a_version(served: Served) -> None:
    refused = parts.post(parts.text("wamid.1"), to=SENDER)
    path = b"/webhooks/whatsapp" if served.service == WEBHOOK else b"/internal/sweep"
    head = b"POST " + path + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    unsigned = head + f"Content-Length: {len(refused)}\r\n\r\n".encode() + refused
    signature = f"X-Hub-Signature-256: {signed(b'{}')}\r\nContent-Length: 2\r\n\r\n{{}}"
    for asked, status in (
        (ALIVE, 200),
        (ALIVE.replace(b"livez", b"other"), 404),
        (unsigned, 403),
        (NO_HTTP["TLS"], 400),
    ):
        head_of, _, _ = served.ask(asked).partition(b"\r\n\r\n")
        assert int(head_of.split()[1]) == status
        told = [line for line in head_of.split(b"\r\n")[1:] if not line.startswith((b"Date:", b"Content-Length:"))]
        assert not [line for line in told if re.search(rb"\d", line.replace(b"charset=utf-8", b""))]
    if served.service == WEBHOOK:
        assert b" 200 " in served.ask(head + signature.encode())
