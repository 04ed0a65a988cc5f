"""The server of the public service: uvicorn around one ASGI app, in one process.

https://uvicorn.dev/settings/ (0.54). One process, because Cloud Run scales by instances. It ends by SIGKILL at once,
and by SIGTERM when its requests have their responses.
"""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar, cast

import uvicorn
import uvloop

from services import serving
from services.bounded_protocol import BoundedProtocol
from services.exchange import App
from services.serving import GRACEFUL_SECONDS, KEEPALIVE_SECONDS, address, built
from shared import logs
from shared.signals import ENDING, ignore_further

BACKLOG = 2048
"""Connections that wait to be accepted: a burst of Meta's may open hundreds."""

CHECK_SECONDS = 0.25
"""Between two looks at the time limits of all connections."""


class Parts(serving.Parts, Protocol):
    """What this server needs of its service."""

    async def finish(self) -> None:
        """Do what is left to do, before `close`: 1.5 s at most, and raises nothing."""
        ...

    def close(self) -> None:
        """End the connections to the store and the queue. Called once, on the event loop, after the last request."""
        ...


P = TypeVar("P", bound=Parts)


def serve(build: Callable[[], P], make_app: Callable[[P], App], default_port: int) -> None:
    """Serve until SIGTERM. With an invalid configuration, report every fault and exit 1 before listening."""
    parts = built(build)
    host, port = address(parts, default_port)
    _Server(make_app(parts), parts, host, port).run()


class _Server(uvicorn.Server):
    def __init__(self, app: App, parts: Parts, host: str, port: int) -> None:
        self._parts = parts
        super().__init__(
            uvicorn.Config(
                app,
                host=host,
                port=port,
                http=BoundedProtocol,  # type: ignore[arg-type] # uvicorn makes it and calls shutdown
                loop="none",  # run takes it
                interface="asgi3",
                ws="none",
                lifespan="off",
                workers=1,
                backlog=BACKLOG,
                timeout_keep_alive=KEEPALIVE_SECONDS,
                timeout_graceful_shutdown=GRACEFUL_SECONDS - 1,  # it looks ten times a second, and first waits for one
                log_config=None,
                access_log=False,
                proxy_headers=False,  # trust no client's header about the connection or the path
                forwarded_allow_ips="",
                server_header=False,
                date_header=False,
            )
        )

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        uvloop.run(self.serve(sockets))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._checks = asyncio.create_task(self._check_connections())
        logs.event("started", stage=self._parts.config.service, pid=os.getpid())

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """A request that is still in work, or has not arrived, when the time to end is over gets a 500."""
        with _silent("uvicorn.error"):  # it would report that as an error, without saying where
            await super().shutdown(sockets)
        for _ in self.server_state.tasks:
            logs.event("webhook_refused", severity="WARNING", reason="stopping")
        self._checks.cancel()
        await self._parts.finish()
        self._parts.close()
        logs.event("stopping", stage=self._parts.config.service, pid=os.getpid())

    async def _check_connections(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            for connection in list(self.server_state.connections):
                _check(cast(BoundedProtocol, connection), loop.time())

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """On SIGTERM, shut down and end with 0, whatever signals follow. uvicorn would then end by the signal."""
        for number in ENDING:
            signal.signal(number, self.handle_exit)
        try:
            yield
        finally:
            ignore_further()


@contextmanager
def _silent(name: str) -> Iterator[None]:
    """Without the lines of this logger."""
    logger = logging.getLogger(name)
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _check(connection: BoundedProtocol, now: float) -> None:
    """Drop the connection if its check fails; the others keep their time limits."""
    try:
        connection.check(now)
    except Exception as error:  # noqa: BLE001 - else no connection would have a time limit any more
        logs.event("unexpected_error", severity="ERROR", error=error)
        connection.abort()
