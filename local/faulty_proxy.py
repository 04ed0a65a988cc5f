"""A TCP proxy that injects faults: it cuts connections, drops all bytes, or swallows the answer to a request.

It is independent of the protocol: it can stand before a Firestore emulator, a Redis or an HTTP server, in any process.
"""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum, auto

QUIET = 0.1
"""Seconds of the server's silence after which an answer counts as complete and swallowed."""

_TICK = 0.02


class _Way(Enum):
    OPEN = auto()
    CUT = auto()
    BLACK_HOLE = auto()


@dataclass(frozen=True)
class _Swallow:
    holding: bytes
    hang_up: bool


class FaultyProxy:
    """A proxy to a server, on a port that it keeps through every fault. It runs until it is closed.

    `names_target`: requests that name the proxy's address name the server's instead. A server may check HTTP's Host.
    """

    def __init__(self, host: str, port: int, names_target: bool = False) -> None:
        self._target = (host, port)
        self._names_target = names_target
        self._lock = threading.Lock()
        self._connections: set[_Connection] = set()
        self._swallows: list[_Swallow] = []
        self.way = _Way.OPEN
        self.swallowed = 0
        """How many answers it has swallowed."""
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        self.target_port = port
        self.address = f"127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> "FaultyProxy":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # otherwise its thread keeps waiting
        self._listener.close()
        self._hang_up(lambda _: True)

    # ---- faults

    @property
    def is_open(self) -> bool:
        """Whether it passes everything on."""
        return self.way is _Way.OPEN

    def cut(self) -> None:
        """Until `restore`: close every connection, and each new one at once."""
        self.way = _Way.CUT
        self._hang_up(lambda _: True)

    def blackhole(self) -> None:
        """Until `restore`: keep and accept connections, and drop everything that either side sends."""
        self.way = _Way.BLACK_HOLE

    def restore(self) -> None:
        """End the fault; close the connections that lost bytes."""
        self.way = _Way.OPEN
        self._hang_up(lambda connection: connection.spoiled)

    def silence(self) -> None:
        """Keep the existing connections, but pass nothing on, as a firewall does that forgot them; new ones work."""
        with self._lock:
            for connection in self._connections:
                connection.spoiled = connection.silent = True

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        """Close every connection, and each new one at once; restore at the end."""
        self.cut()
        try:
            yield
        finally:
            self.restore()

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Keep connections and let nothing arrive at either end, the slowest kind of failure; restore at the end."""
        self.blackhole()
        try:
            yield
        finally:
            self.restore()

    def swallow_next_answer(self, hang_up: bool = True, holding: bytes = b"") -> None:
        """Pass on the next request that contains these bytes and lose its answer; then close the connection, or else
        keep it silent. On a connection with a greeting (HTTP/2), the greeting would be the next request: pass bytes of
        the request that you mean.
        """
        with self._lock:
            self._swallows.append(_Swallow(holding, hang_up))

    def swallow_no_more(self) -> None:
        """Pass on the answers that were still to be swallowed."""
        with self._lock:
            self._swallows.clear()

    # ---- called by its connections

    def renamed(self, request: bytes) -> bytes:
        """The request as the server gets it."""
        if not self._names_target:
            return request
        host, port = self._target
        return request.replace(self.address.encode(), f"{host}:{port}".encode())

    def taken(self, request: bytes) -> _Swallow | None:
        """Whether the answer to this request is to be swallowed; true once per request for it."""
        with self._lock:
            found = next((swallow for swallow in self._swallows if swallow.holding in request), None)
            if found:
                self._swallows.remove(found)
        return found

    def has_swallowed(self) -> None:
        with self._lock:
            self.swallowed += 1

    def ended(self, connection: "_Connection") -> None:
        with self._lock:
            self._connections.discard(connection)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._connect(client)

    def _connect(self, client: socket.socket) -> None:
        try:
            if self.way is _Way.CUT:
                raise ConnectionRefusedError
            server = socket.create_connection(self._target, timeout=5)
        except OSError:
            client.close()
            return
        connection = _Connection(self, client, server)
        with self._lock:
            self._connections.add(connection)
        connection.start()

    def _hang_up(self, which: Callable[["_Connection"], bool]) -> None:
        with self._lock:
            connections = [connection for connection in self._connections if which(connection)]
        for connection in connections:
            connection.close()


class _Connection:
    """A client's connection and its connection to the server, with a thread for each direction."""

    def __init__(self, proxy: FaultyProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._swallow: _Swallow | None = None
        self._swallowed_at: float | None = None
        self.spoiled = False
        """It lost bytes, so no protocol can continue on it."""
        self.silent = False

    def start(self) -> None:
        self._server.settimeout(_TICK)
        self._client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        for each in (self._client, self._server):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        requests = threading.Thread(target=self._until_closed, args=(self._requests,), daemon=True)
        requests.start()
        self._until_closed(self._answers)
        requests.join()
        self._client.close()
        self._server.close()
        self._proxy.ended(self)

    def _until_closed(self, pump: Callable[[], None]) -> None:
        with suppress(OSError):
            pump()
        self.close()

    def _requests(self) -> None:
        while data := self._client.recv(65536):
            if self.silent or self._proxy.way is _Way.BLACK_HOLE:
                self.spoiled = True
                continue
            self._swallow = self._swallow or self._proxy.taken(data)
            data = self._proxy.renamed(data)
            while data:
                with suppress(TimeoutError):
                    data = data[self._server.send(data) :]

    def _answers(self) -> None:
        while not self._over():
            try:
                data = self._server.recv(65536)
            except TimeoutError:
                continue
            if not data:
                return
            if self._swallow:
                self._lose()
            elif self.silent or self._proxy.way is _Way.BLACK_HOLE:
                self.spoiled = True
            else:
                self._client.sendall(data)

    def _lose(self) -> None:
        if self._swallowed_at is None:
            self._proxy.has_swallowed()
        self.spoiled, self._swallowed_at = True, time.monotonic()

    def _over(self) -> bool:
        hangs_up = self._swallow is not None and self._swallow.hang_up
        return hangs_up and self._swallowed_at is not None and time.monotonic() - self._swallowed_at > QUIET
