"""A Google client over gRPC, shared by all threads of a process, with timeouts and retries (shared.net.patience).

gRPC's keepalive takes most of a minute to notice a dead connection, so the timeouts do.
"""

import os
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from shared.net.patience import PATIENCE, Patience, ServicePace

C = TypeVar("C")
T = TypeVar("T")

OPTIONS = (
    # A server that was down is often back within a second, so reconnect that soon.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    # Detect a peer that vanished without notice (an instance that slept, a network that changed).
    ("grpc.keepalive_time_ms", 30_000),
    # A new client gets a new connection, not the old one.
    ("grpc.use_local_subchannel_pool", 1),
)


class GrpcClient(Generic[C]):
    """A client that connects on first use, and again after a fork: a client made before a fork hangs after it.

    `load` imports and returns the library's client and its gRPC transport. The import takes a quarter of a second, so
    it happens in the first call, not at every start. `emulator` is host:port of an emulator on this machine.
    """

    def __init__(self, load: Callable[[], tuple[Callable[..., C], Any]], emulator: str | None) -> None:
        self._load = load
        self._emulator = emulator
        self._lock = threading.Lock()
        self._client: C | None = None
        self._pid = 0
        self._pace = ServicePace()

    def get(self) -> C:
        """The client of this process. Raises GoogleAuthError or OSError if it finds no credential."""
        client = self._client
        if client is None or self._pid != os.getpid():
            with self._lock:
                client = self._client
                if client is None or self._pid != os.getpid():
                    client = self._client = self._connect()
                    if self._pid != os.getpid():
                        self._pace, self._pid = ServicePace(), os.getpid()
        return client

    def patience(self, longest: float = PATIENCE) -> Patience:
        """The patience of an operation that begins now. The time to connect does not count."""
        self.get()
        return self._pace.patience(longest)

    def call(self, work: Callable[[C, float], T], patience: Patience, quick: bool = True) -> T:
        """The result of `work`, which gets the client and its timeout in seconds. Retries after an outage.

        `quick`: the call normally takes milliseconds. Raises OutOfPatience, and the library's own error if the server
        understood the call and refused it.
        """
        from google.api_core import exceptions

        passing = (
            exceptions.ServiceUnavailable,
            exceptions.DeadlineExceeded,
            exceptions.InternalServerError,
            exceptions.Unknown,
            exceptions.ResourceExhausted,
            exceptions.Cancelled,
        )
        while True:
            began = time.monotonic()
            client = self.get()
            try:
                result = work(client, self._pace.timeout(patience, quick))
                self._pace.heard(began)
                return result
            except exceptions.Aborted as error:
                self._pace.heard(began)
                patience.pause(error)
            except passing as error:
                if isinstance(error, exceptions.DeadlineExceeded) and self._pace.timed_out(began):
                    self._leave(client)
                patience.pause(error)
            except exceptions.GoogleAPICallError:
                self._pace.heard(began)
                raise

    def close(self) -> None:
        """Close the connection, if this process has one."""
        client: Any = self._client
        self._client = None
        if client is not None and self._pid == os.getpid():
            client.transport.close()

    def _leave(self, client: C) -> None:
        """Stop using this client: its connection is open but gets no answers. It is not closed, because other threads
        may be waiting for an answer on it.
        """
        with self._lock:
            if self._client is client:
                self._client = None

    def _connect(self) -> C:
        make, transport = self._load()
        if self._emulator:
            import grpc

            # A proxy from the environment cannot reach this machine.
            options = [*OPTIONS, ("grpc.enable_http_proxy", 0)]
            channel = grpc.insecure_channel(self._emulator, options=options)  # type: ignore[no-untyped-call]
        else:
            channel = transport.create_channel(options=list(OPTIONS))
        return make(transport=transport(channel=channel))
