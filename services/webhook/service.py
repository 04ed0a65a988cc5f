"""One webhook service: its parts, and what its requests share. Several in a process share nothing."""

from dataclasses import dataclass

from services.health import AsyncHealth
from services.webhook.admission import Admission
from shared.bootstrap.webhook import Webhook


@dataclass(frozen=True, slots=True)
class Service:
    """What a request needs."""

    parts: Webhook
    admission: Admission
    health: AsyncHealth

    @classmethod
    def of(cls, parts: Webhook) -> "Service":
        """The service of these parts, without any request yet."""
        return cls(parts, Admission.of(parts.config["WEBHOOK_CONCURRENCY"]), AsyncHealth(parts.store, parts.queue))
