"""A TCP proxy that can be cut, turned into a black hole, or made to swallow the answer to what was done.

It knows no protocol, so it may stand before a Firestore emulator, a Redis or an HTTP server alike, and in any process.
"""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum, auto

QUIET = 0.1
"""Seconds of the server's silence after which its answer counts as given, and swallowed whole."""

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
    """A proxy to a server, on a port of its own that it keeps through everything. It runs until it is closed."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._lock = threading.Lock()
        self._connections: set[_Connection] = set()
        self._swallows: list[_Swallow] = []
        self.way = _Way.OPEN
        self.swallowed = 0
        """How many answers it has kept for itself."""
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
            self._listener.shutdown(socket.SHUT_RDWR)  # or its thread would go on waiting
        self._listener.close()
        self._hang_up(lambda _: True)

    # ---- what is done to it

    @property
    def is_open(self) -> bool:
        """Whether it only passes on what it is given."""
        return self.way is _Way.OPEN

    def cut(self) -> None:
        """Until `restore`: every connection is closed, each new one at once."""
        self.way = _Way.CUT
        self._hang_up(lambda _: True)

    def blackhole(self) -> None:
        """Until `restore`: connections hold and are taken, and what either side sends is lost."""
        self.way = _Way.BLACK_HOLE

    def restore(self) -> None:
        """All is as before; connections of which anything was lost are closed."""
        self.way = _Way.OPEN
        self._hang_up(lambda connection: connection.spoiled)

    def silence(self) -> None:
        """The connections that there are hold, and pass nothing on any more, as where a firewall forgot them; new ones
        work.
        """
        with self._lock:
            for connection in self._connections:
                connection.spoiled = connection.silent = True

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        """Every connection is closed, each new one at once; then all is as before."""
        self.cut()
        try:
            yield
        finally:
            self.restore()

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Connections hold and nothing arrives at either end: the slowest way to be away; then all is as before."""
        self.blackhole()
        try:
            yield
        finally:
            self.restore()

    def swallow_next_answer(self, hang_up: bool = True, holding: bytes = b"") -> None:
        """The next request that holds these bytes reaches the server, and its answer is lost; then the connection is
        closed, or else nothing more is heard on it. Where connections greet (HTTP/2), that would be the next request:
        so name what the meant one holds.
        """
        with self._lock:
            self._swallows.append(_Swallow(holding, hang_up))

    def swallow_no_more(self) -> None:
        """Whatever was still to be swallowed is passed on."""
        with self._lock:
            self._swallows.clear()

    # ---- for its connections

    def taken(self, request: bytes) -> _Swallow | None:
        """Whether the answer to this is to be swallowed; told once for each time that it was asked for."""
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
    """A client's connection and its other half to the server, with a thread for each direction."""

    def __init__(self, proxy: FaultyProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._swallow: _Swallow | None = None
        self._swallowed_at: float | None = None
        self.spoiled = False
        """Bytes of it are lost: no protocol can go on from here."""
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
