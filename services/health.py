"""Health: whether this process is alive, and whether its store and queue are connected.

Anyone may ask the webhook service, so requests at the same time share one ping: many of them cost the store and the
queue no more than one, and do not queue before the webhooks. No result is kept: the next request pings again.
"""

import asyncio
from datetime import UTC, datetime
from typing import Any, Protocol

from shared.domain.errors import PomboError

Body = tuple[dict[str, Any], int]

CONNECTED, UNAVAILABLE = "connected", "unavailable"


class Port(Protocol):
    """A store or a queue."""

    def ping(self) -> None:
        """Raise PomboError unless it answers."""
        ...


class AsyncPort(Protocol):
    """A store or a queue on an event loop."""

    async def ping(self) -> None:
        """Raise PomboError unless it answers."""
        ...


def livez(exhausted: bool = False) -> Body:
    """Whether the process is alive; 503 if all its handler threads hang, so that Cloud Run replaces it."""
    return ({"status": "exhausted"}, 503) if exhausted else ({"status": "ok"}, 200)


def startz(store: Port) -> Body:
    """Whether this process may take requests; 503 if the store does not answer.

    The configuration is valid, or the process would not run. The queue is not checked: without it Pombo stores webhooks
    and the provider redelivers them, and a process that starts meanwhile works once the queue is back.
    """
    return _report({"store": _word(store)})


def readyz(store: Port, queue: Port) -> Body:
    """Whether store and queue answer; 503 if one does not."""
    return _report({"store": _word(store), "queue": _word(queue)})


class AsyncHealth:
    """The same on an event loop, for one store and one queue."""

    def __init__(self, store: AsyncPort, queue: AsyncPort) -> None:
        self._store, self._queue = _SharedPing(store), _SharedPing(queue)

    async def startz(self) -> Body:
        """As `startz` above."""
        return _report({"store": await self._store.word()})

    async def readyz(self) -> Body:
        """As `readyz` above."""
        store, queue = await asyncio.gather(self._store.word(), self._queue.word())
        return _report({"store": store, "queue": queue})


def _report(services: dict[str, str]) -> Body:
    ok = all(word == CONNECTED for word in services.values())
    timestamp = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"status": "ok" if ok else "degraded", "timestamp": timestamp, "services": services}, 200 if ok else 503


def _word(port: Port) -> str:
    try:
        port.ping()
    except PomboError:
        return UNAVAILABLE
    return CONNECTED


class _SharedPing:
    """Pings one port. Callers at the same time share one ping."""

    def __init__(self, port: AsyncPort) -> None:
        self._port = port
        self._in_flight: asyncio.Task[str] | None = None

    async def word(self) -> str:
        """The result of the ping in flight, or of a new one. A caller that is cancelled leaves it to the others."""
        if self._in_flight is None or self._in_flight.done():
            self._in_flight = asyncio.create_task(self._pinged())
        return await asyncio.shield(self._in_flight)

    async def _pinged(self) -> str:
        try:
            await self._port.ping()
        except PomboError:
            return UNAVAILABLE
        return CONNECTED
