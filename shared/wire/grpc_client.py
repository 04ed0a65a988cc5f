"""A Google client over gRPC: one for all threads of a process, and a new one where nothing more is heard on the old."""

import os
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

C = TypeVar("C")

OPTIONS = (
    # A server that was away is back within a second: look again that soon.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    # A peer that went without a word (an instance that slept, a network that changed) is noticed.
    ("grpc.keepalive_time_ms", 30_000),
    # A new client gets a connection of its own, not the old one.
    ("grpc.use_local_subchannel_pool", 1),
)


class GrpcClient(Generic[C]):
    """Connects when first used, and anew after a fork: clients made before one hang after it.

    `load` imports and gives the library's client and its gRPC transport; the import costs a quarter of a second, which
    the first call pays, not every start. `emulator` is host:port of one on this machine.
    """

    def __init__(self, load: Callable[[], tuple[Callable[..., C], Any]], emulator: str | None) -> None:
        self._load = load
        self._emulator = emulator
        self._lock = threading.Lock()
        self._client: C | None = None
        self._pid = 0

    def get(self) -> C:
        """The client of this process. Raises GoogleAuthError or OSError where no credential can be found."""
        client = self._client
        if client is None or self._pid != os.getpid():
            with self._lock:
                client = self._client
                if client is None or self._pid != os.getpid():
                    client = self._client = self._connect()
                    self._pid = os.getpid()
        return client

    def leave(self, client: C | None) -> None:
        """Never give out this client again: its connection may hold, and nothing be heard on it; the keepalive needs
        most of a minute to find that out. It is not closed: others may be waiting for an answer on it.
        """
        with self._lock:
            if self._client is client:
                self._client = None

    def close(self) -> None:
        """Close the connection, if this process has one."""
        client: Any = self._client
        self._client = None
        if client is not None and self._pid == os.getpid():
            client.transport.close()

    def _connect(self) -> C:
        make, transport = self._load()
        if self._emulator:
            import grpc

            # A proxy of the environment's knows nothing of this machine.
            options = [*OPTIONS, ("grpc.enable_http_proxy", 0)]
            channel = grpc.insecure_channel(self._emulator, options=options)  # type: ignore[no-untyped-call]
        else:
            channel = transport.create_channel(options=list(OPTIONS))
        return make(transport=transport(channel=channel))
