"""A Google client over gRPC: one for all threads of a process, and the patience of its calls.

A connection may go silent without a word: an instance slept for an hour, a firewall or a failover forgot it. gRPC's
keepalive takes most of a minute to notice. So a call that should take milliseconds is first given little time, and the
rest of its patience on a new connection. A service that is slow by itself is told from that: once it did not answer
within the little time, each call has all of the patience, until it answers quickly again.
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
"""Seconds without an answer, to this operation or another of the process, after which a service counts as unreachable.
A healthy call takes tens of milliseconds. One call to the store and one to the queue stay under the 5 s within which
the webhook has to answer.
"""

FIRST_TRY = 0.7
"""Seconds of the first try of a quick call, where the last answer came as quickly."""

OPTIONS = (
    # A server that was away is back within a second: look again that soon.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    # A peer that went without a word (an instance that slept, a network that changed) is noticed.
    ("grpc.keepalive_time_ms", 30_000),
    # A new client gets a connection of its own, not the old one.
    ("grpc.use_local_subchannel_pool", 1),
)

_PAUSE = 0.01
_LONGEST_PAUSE = 0.5
_LEAST = 0.05
"""Seconds. A try with less than that left is not worth making."""


class OutOfPatience(Exception):
    """An operation has gone on for as long as it makes sense. The cause is its last failure."""


class Patience:
    """How long one operation goes on: until nothing was answered for PATIENCE, and `longest` seconds at most."""

    def __init__(self, last_answer: Callable[[], float], longest: float = PATIENCE) -> None:
        self._began = time.monotonic()
        self._last_answer = last_answer
        self._longest = longest
        self._pauses = 0

    @property
    def left(self) -> float:
        """Seconds; none, or less than none, when it is over."""
        last_sign = max(self._began, self._last_answer())
        return min(self._began + self._longest, last_sign + PATIENCE) - time.monotonic()

    def pause(self, cause: Exception) -> None:
        """Wait before the next try, longer each time and never twice the same. Raises OutOfPatience at the end."""
        pause = random.uniform(0.2, 1) * min(_LONGEST_PAUSE, _PAUSE * 2**self._pauses)  # noqa: S311 — no secret
        self._pauses += 1
        if self.left <= pause + _LEAST:
            raise OutOfPatience from cause
        time.sleep(pause)


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
        self._answered = 0.0
        self._is_quick = False

    def get(self) -> C:
        """The client of this process. Raises GoogleAuthError or OSError where no credential can be found."""
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
        """That of an operation that begins now. The time to connect, which is ours, is no part of it."""
        self.get()
        return Patience(lambda: self._answered, longest)

    def call(self, work: Callable[[C, float], T], patience: Patience, quick: bool = True) -> T:
        """What `work` gives, which takes the client and the seconds that it has; again where a try met an outage.

        `quick`: the call takes milliseconds where all is well. Raises OutOfPatience, and the library's word where the
        call was understood and refused.
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
        """Of the next try. A process's first call pays for the connection, and a second try is on a new one."""
        return min(FIRST_TRY, patience.left) if quick and self._is_quick else patience.left

    def _heard(self, began: float) -> None:
        self._answered = time.monotonic()
        self._is_quick = self._answered - began < FIRST_TRY

    def _leave(self, client: C) -> None:
        """Never give out this client again: its connection holds, and nothing is heard on it. It is not closed: others
        may be waiting for an answer on it.
        """
        with self._lock:
            if self._client is client:
                self._client = None

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
