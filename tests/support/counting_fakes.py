"""The benchmark's fakes of Firestore and Cloud Tasks in this process, by REST: they answer at once, and count."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import cast

from bench.fakes.calls import Counts, Service
from bench.fakes.cloud_tasks import CloudTasks
from bench.fakes.firestore import Firestore
from bench.fakes.http1 import Http1
from tests.support import event_loop


@dataclass(frozen=True)
class CountingFakes:
    """The addresses and what each fake has counted."""

    store: Counts
    queue: Counts
    firestore: str
    cloud_tasks: str
    open: set[asyncio.Protocol]
    """The connections to both."""
    broken: list[Exception]
    """Why each connection ended that its client did not close."""

    def reset(self) -> None:
        """Count from zero; what was stored stays."""
        self.store.__init__()  # type: ignore[misc] # the fakes hold these objects
        self.queue.__init__()  # type: ignore[misc]


class _Connection(asyncio.Protocol):
    def __init__(self, service: Service, counts: Counts, open_: set[asyncio.Protocol], broken: list[Exception]) -> None:
        self._service, self._counts, self._open, self._broken = service, counts, open_, broken

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._open.add(self)
        self._http = Http1(self._service, self._counts, cast(asyncio.Transport, transport))

    def data_received(self, data: bytes) -> None:
        self._http.feed(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._open.discard(self)
        if exc is not None:
            self._broken.append(exc)


@contextmanager
def counting_fakes() -> Iterator[CountingFakes]:
    """The fakes, while they run."""
    store, queue = Counts(), Counts()
    open_: set[asyncio.Protocol] = set()
    broken: list[Exception] = []

    async def serve(service: Service, counts: Counts) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        return await loop.create_server(partial(_Connection, service, counts, open_, broken), "127.0.0.1", 0)

    async def close() -> None:
        for server in servers:
            server.close()

    servers = [event_loop.run(serve(Firestore(store), store)), event_loop.run(serve(CloudTasks(queue), queue))]
    try:
        firestore, cloud_tasks = (f"127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in servers)
        yield CountingFakes(store, queue, firestore, cloud_tasks, open_, broken)
    finally:
        event_loop.run(close())
