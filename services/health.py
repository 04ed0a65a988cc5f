"""Health: whether this process lives, and whether it can do its work."""

import threading
import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from shared.domain.errors import PomboError
from shared.pipeline.ports import Queue
from shared.pipeline.senders import Senders
from shared.pipeline.webhook_store import WebhookStore

Body = tuple[dict[str, Any], int]

OUTAGES_SECONDS = 10.0


def livez(exhausted: bool = False) -> Body:
    """The process answers; 503 when its handler threads all hang, so that it is replaced."""
    return ({"status": "exhausted"}, 503) if exhausted else ({"status": "ok"}, 200)


def startz(store: WebhookStore) -> Body:
    """Whether this process may take requests: its configuration is complete, or it would not answer, and the store
    answers; 503 when it does not. The queue is not asked: without it webhooks are stored and delivered again, and a
    process that starts meanwhile works as soon as it is back.
    """
    return _report({"store": _word(store)})


def readyz(store: WebhookStore, queue: Queue) -> Body:
    """Whether store and queue answer; 503 when one does not."""
    return _report({"store": _word(store), "queue": _word(queue)})


def _report(services: dict[str, str]) -> Body:
    ok = all(word == "connected" for word in services.values())
    timestamp = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"status": "ok" if ok else "degraded", "timestamp": timestamp, "services": services}, 200 if ok else 503


class CachedOutages:
    """How many providers and backends are down, read again after 10 s; None where that cannot be read."""

    def __init__(self, senders: Senders) -> None:
        self._senders = senders
        self._lock = threading.Lock()
        self._known: dict[str, int | None] = {}
        self._read_at = 0.0

    def __call__(self) -> dict[str, int | None]:
        with self._lock:
            if not self._known or time.monotonic() - self._read_at > OUTAGES_SECONDS:
                self._known, self._read_at = self._read(), time.monotonic()
            return self._known

    def _read(self) -> dict[str, int | None]:
        try:
            return asdict(self._senders.outages())
        except PomboError:
            return {"provider_down": None, "backend_down": None}


def _word(port: WebhookStore | Queue) -> str:
    try:
        port.ping()
    except PomboError:
        return "unavailable"
    return "connected"
