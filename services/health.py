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


async def async_startz(store: AsyncPort) -> Body:
    """As `startz`."""
    return _report({"store": await _async_word(store)})


def readyz(store: Port, queue: Port) -> Body:
    """Whether store and queue answer; 503 if one does not."""
    return _report({"store": _word(store), "queue": _word(queue)})


async def async_readyz(store: AsyncPort, queue: AsyncPort) -> Body:
    """As `readyz`."""
    words = await asyncio.gather(_async_word(store), _async_word(queue))
    return _report(dict(zip(("store", "queue"), words, strict=True)))


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


_in_flight: dict[int, asyncio.Task[str]] = {}
"""The ping in flight of each port, by the identity of the port."""


async def _async_word(port: AsyncPort) -> str:
    """The result of the ping in flight, or of a new one. A caller that is cancelled leaves it to the others."""
    key = id(port)
    if key not in _in_flight:
        ping = _in_flight[key] = asyncio.create_task(_pinged(port))
        ping.add_done_callback(lambda _: _in_flight.pop(key))
    return await asyncio.shield(_in_flight[key])


async def _pinged(port: AsyncPort) -> str:
    try:
        await port.ping()
    except PomboError:
        return UNAVAILABLE
    return CONNECTED
