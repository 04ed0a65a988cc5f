"""How many providers and backends are down, for /health of the internal service."""

import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace

from shared.domain.errors import PomboError
from shared.pipeline.sender_health import Senders

OUTAGES_SECONDS = 10.0


class CachedOutages:
    """How many providers and backends are down, cached for 10 s; None if the store cannot be read. `of_tenants`: how
    many of tenants' own backends are.
    """

    def __init__(self, senders: Senders, of_tenants: Callable[[], int] = lambda: 0) -> None:
        self._senders = senders
        self._of_tenants = of_tenants
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
            found = self._senders.outages()
            return asdict(replace(found, backend_down=found.backend_down + self._of_tenants()))
        except PomboError:
            return {"provider_down": None, "backend_down": None}
