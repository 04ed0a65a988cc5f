"""How many providers and backends are down, for /health of the internal service."""

import threading
import time
from dataclasses import asdict

from shared.domain.errors import PomboError
from shared.pipeline.sender_health import Senders

OUTAGES_SECONDS = 10.0


class CachedOutages:
    """How many providers and backends are down, cached for 10 s; None if the store cannot be read."""

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
