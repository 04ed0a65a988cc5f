"""A Google client over gRPC, shared by all threads of a process, with timeouts and retries.

A connection may be dead without notice: the instance slept for an hour, or a firewall or a failover dropped it. gRPC's
keepalive takes most of a minute to notice. So a call that should take milliseconds first gets a short timeout, and then
the rest of its patience on a new connection. If the service itself is slow, it misses the short timeout. From then on
each call gets all of the patience, until the service answers quickly again.
"""

import os
import random
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

C = TypeVar("C")
T = TypeVar("T")

PATIENCE = 2.0
"""Seconds after which a service counts as unreachable, if it answered no operation of the process meanwhile. A healthy
call takes tens of milliseconds. One call to the store and one to the queue stay under the 5 s within which the webhook
has to answer.
"""

FIRST_TRY = 0.7
"""Timeout in seconds of a quick call's first try, if the last answer came as quickly."""

OPTIONS = (
    # A server that was down is often back within a second, so reconnect that soon.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    # Detect a peer that vanished without notice (an instance that slept, a network that changed).
    ("grpc.keepalive_time_ms", 30_000),
    # A new client gets a new connection, not the old one.
    ("grpc.use_local_subchannel_pool", 1),
)

_PAUSE = 0.01
_LONGEST_PAUSE = 0.5
_LEAST = 0.05
"""Seconds. With less time left, no try begins."""


class OutOfPatience(Exception):
    """An operation's patience is over. The cause is its last failure."""


class Patience:
    """How long one operation is retried: until no answer came for PATIENCE seconds, and at most `longest` seconds."""

    def __init__(self, last_answer: Callable[[], float], longest: float = PATIENCE) -> None:
        self._began = time.monotonic()
        self._last_answer = last_answer
        self._longest = longest
        self._pauses = 0

    @property
    def left(self) -> float:
        """The seconds left; zero or negative when it is over."""
        last_sign = max(self._began, self._last_answer())
        return min(self._began + self._longest, last_sign + PATIENCE) - time.monotonic()

    def pause(self, cause: Exception) -> None:
        """Wait before the next try: exponential backoff with jitter. Raises OutOfPatience at the end."""
        pause = random.uniform(0.2, 1) * min(_LONGEST_PAUSE, _PAUSE * 2**self._pauses)  # noqa: S311 — not a secret
        self._pauses += 1
        if self.left <= pause + _LEAST:
            raise OutOfPatience from cause
        time.sleep(pause)


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
        self._answered = 0.0
        self._is_quick = False

    def get(self) -> C:
        """The client of this process. Raises GoogleAuthError or OSError if it finds no credential."""
        client = self._client
        if client is None or self._pid != os.getpid():
            with self._lock:
                client = self._client
                if client is None or self._pid != os.getpid():
                    client = self._client = self._connect()
                    if self._pid != os.getpid():
                        self._answered, self._is_quick, self._pid = 0.0, False, os.getpid()
        return client

    def patience(self, longest: float = PATIENCE) -> Patience:
        """The patience of an operation that begins now. The time to connect does not count."""
        self.get()
        return Patience(lambda: self._answered, longest)

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
                result = work(client, self._seconds(patience, quick))
                self._heard(began)
                return result
            except exceptions.Aborted as error:
                self._heard(began)
                patience.pause(error)
            except passing as error:
                if isinstance(error, exceptions.DeadlineExceeded):
                    self._is_quick = False
                    if self._answered < began:
                        self._leave(client)
                patience.pause(error)
            except exceptions.GoogleAPICallError:
                self._heard(began)
                raise

    def close(self) -> None:
        """Close the connection, if this process has one."""
        client: Any = self._client
        self._client = None
        if client is not None and self._pid == os.getpid():
            client.transport.close()

    def _seconds(self, patience: Patience, quick: bool) -> float:
        """The timeout of the next try. A process's first call includes connecting, and so does a second try."""
        return min(FIRST_TRY, patience.left) if quick and self._is_quick else patience.left

    def _heard(self, began: float) -> None:
        self._answered = time.monotonic()
        self._is_quick = self._answered - began < FIRST_TRY

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
