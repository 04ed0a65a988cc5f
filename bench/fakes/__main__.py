"""python -m bench.fakes: serve the three fakes on free ports, print the ports as JSON, and end with standard input."""

import asyncio
import json
import sys
from functools import partial
from typing import cast

import uvloop

from bench.fakes.calls import Counts, Service
from bench.fakes.cloud_tasks import CloudTasks
from bench.fakes.firestore import Firestore
from bench.fakes.http1 import Http1
from bench.fakes.http2 import PREFACE, Http2
from bench.fakes.metadata import Metadata

PROJECT = "pombo-bench"


class Connection(asyncio.Protocol):
    """One connection; its first bytes tell which version of HTTP it is."""

    def __init__(self, service: Service, counts: Counts) -> None:
        self._service = service
        self._counts = counts
        self._transport: asyncio.Transport | None = None
        self._http: Http1 | Http2 | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._http is None and self._transport is not None:
            version = Http2 if data[:4] == PREFACE[:4] else Http1
            self._http = version(self._service, self._counts, self._transport)
        if self._http is not None:
            self._http.feed(data)


async def serve() -> None:
    counts = Counts()
    firestore, tasks = Firestore(counts), CloudTasks(counts)

    def reset() -> None:
        firestore.reset()
        tasks.reset()
        counts.__init__()  # type: ignore[misc] # the services hold this object

    services: dict[str, Service] = {
        "firestore": firestore,
        "tasks": tasks,
        "metadata": Metadata(counts, reset, PROJECT),
    }
    loop = asyncio.get_running_loop()
    ports = {}
    for name, service in services.items():
        server = await loop.create_server(partial(Connection, service, counts), "127.0.0.1", 0)
        ports[name] = server.sockets[0].getsockname()[1]
    print(json.dumps(ports), flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(serve())
