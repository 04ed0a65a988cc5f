"""The front: the emulator's public port, on which each connection speaks gRPC or REST, as at cloudtasks.googleapis.com.

HTTP/2 opens with a fixed preface (https://www.rfc-editor.org/rfc/rfc9113#section-3.4). A connection that does is passed
on unchanged to gRPC's server; any other is answered as HTTP/1.1 (decision 72). Each connection has a thread, gRPC's has
two: the methods block, and a long list then holds up no other call. An event loop passed gRPC on at the same cost.
"""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from local.tasks.http_connection import IDLE_SECONDS, REQUEST_SECONDS, Answer, HttpConnection

PREFACE = b"PRI * HTTP/2.0"
LOOPBACK = "127.0.0.1"
BACKLOG = 1024
PIECE = 64 * 1024


class CannotListen(Exception):
    """The port is in use."""


class Front:
    """Bound at once, so that a second emulator fails at its start; closed until `open`. Port 0 takes a free one."""

    def __init__(self, port: int) -> None:
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a restart takes the port at once
        try:
            self._listener.bind((LOOPBACK, port))
            self._listener.listen(BACKLOG)
        except OSError as error:
            self._listener.close()
            raise CannotListen(f"Cannot listen on {LOOPBACK}:{port}; is another program using it?") from error
        self.port: int = self._listener.getsockname()[1]
        self._stopping = False
        self._http: dict[threading.Thread, socket.socket] = {}

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    def open(self, grpc_path: str, answer: Answer) -> None:
        """Accept connections: gRPC goes to the Unix socket at this path, and `answer` answers REST."""
        _thread(partial(self._accept, grpc_path, answer))

    def stop(self) -> None:
        """Accept no connection, and read no further request of REST. gRPC's server ends its own connections."""
        self._stopping = True
        _shut(self._listener)
        self._listener.close()
        for client in list(self._http.values()):
            _shut(client, socket.SHUT_RD)

    def wait(self, until: float) -> None:
        """Wait until REST's last responses are sent, or for this moment of the monotonic clock."""
        for thread in list(self._http):
            thread.join(max(0.0, until - time.monotonic()))

    def _accept(self, grpc_path: str, answer: Answer) -> None:
        while not self._stopping:
            try:
                client, _ = self._listener.accept()
                _thread(partial(self._serve, client, grpc_path, answer))
            except (OSError, RuntimeError):  # stopped; or no file or thread is free, until another connection ends
                time.sleep(0.05)

    def _serve(self, client: socket.socket, grpc_path: str, answer: Answer) -> None:
        with client, suppress(OSError, EOFError):  # the client ended, or was too slow
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            first = _first_bytes(client)
            if first.startswith(PREFACE):
                _pass_on(client, first, grpc_path)
            elif first:
                self._http[threading.current_thread()] = client
                try:
                    HttpConnection(client, self.port, first, answer).converse()
                finally:
                    del self._http[threading.current_thread()]


def _thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True, name="front")
    thread.start()
    return thread


def _first_bytes(client: socket.socket) -> bytes:
    """What a connection begins with: enough to tell gRPC from REST, empty if it ends before."""
    client.settimeout(IDLE_SECONDS)
    first = client.recv(PIECE)
    until = time.monotonic() + REQUEST_SECONDS
    while first and len(first) < len(PREFACE) and PREFACE.startswith(first):
        client.settimeout(max(0.001, until - time.monotonic()))
        piece = client.recv(PIECE)
        first = first + piece if piece else b""
    return first


def _pass_on(client: socket.socket, first: bytes, grpc_path: str) -> None:
    client.settimeout(None)
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(grpc_path)
        server.sendall(first)
        back = _thread(partial(_pipe, server, client))
        _pipe(client, server)
        back.join()


def _pipe(source: socket.socket, target: socket.socket) -> None:
    """Copy bytes until one side ends; then end both, as HTTP/2 knows no half of a connection."""
    piece = bytearray(PIECE)
    view = memoryview(piece)
    with suppress(OSError):
        while size := source.recv_into(piece):
            target.sendall(view[:size])
    _shut(source)
    _shut(target)


def _shut(connection: socket.socket, how: int = socket.SHUT_RDWR) -> None:
    with suppress(OSError):
        connection.shutdown(how)
