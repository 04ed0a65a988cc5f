"""Health: whether this process lives, and whether it can do its work."""

from datetime import UTC, datetime
from typing import Any

from shared.domain.errors import PomboError
from shared.pipeline.ports import Queue, Store

Body = tuple[dict[str, Any], int]


def livez(exhausted: bool = False) -> Body:
    """The process answers; 503 when its handler threads all hang, so that it is replaced."""
    return ({"status": "exhausted"}, 503) if exhausted else ({"status": "ok"}, 200)


def readyz(store: Store, queue: Queue) -> Body:
    """Whether store and queue answer; 503 when one does not."""
    services = {"store": _word(store), "queue": _word(queue)}
    ok = all(word == "connected" for word in services.values())
    timestamp = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"status": "ok" if ok else "degraded", "timestamp": timestamp, "services": services}, 200 if ok else 503


def _word(port: Store | Queue) -> str:
    try:
        port.ping()
    except PomboError:
        return "unavailable"
    return "connected"
