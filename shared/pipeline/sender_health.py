"""Sender health: whether each of our numbers is connected, and what is down, as far as past answers tell."""

from dataclasses import dataclass

from shared import logs
from shared.domain.errors import UnknownState
from shared.domain.guards import disconnected, is_down
from shared.domain.identity import sender_id
from shared.domain.limits import Limits
from shared.domain.marks import Marks
from shared.pipeline import log_fields
from shared.pipeline.channels import Channels
from shared.pipeline.clock import Clock
from shared.pipeline.ports import Channel, Store, Tenants


@dataclass(frozen=True, slots=True)
class Outages:
    """How many senders' providers and how many backends are down."""

    provider_down: int
    backend_down: int


@dataclass(frozen=True, slots=True)
class Senders:
    """Our numbers, and the backend that answers their messages (None if there is none)."""

    tenants: Tenants
    store: Store
    channels: Channels[Channel]
    limits: Limits
    clock: Clock
    backend: str | None = None

    def report(self) -> None:
        """Log one line for each sender, which a monitor plots. Calls no provider. Skips a sender whose
        provider has no channel here. Raises StoreUnavailable and RegistryUnavailable.
        """
        for sender in self.tenants.senders():
            channel = self.channels.get(sender.provider)
            if channel is None:
                logs.event(
                    "state_unknown",
                    severity="WARNING",
                    tenant=sender.tenant,
                    provider=sender.provider,
                    reason="provider",
                )
                continue
            marks = self._marks(sender_id(sender.provider, sender.id))
            reason = disconnected(marks, channel.fingerprint(sender.id))
            logs.event(
                "sender_checked",
                severity="WARNING" if reason else "INFO",
                tenant=sender.tenant,
                provider=sender.provider,
                phone_number_id=log_fields.sender_id(channel, sender.id),
                connected=0 if reason else 1,
                reason=reason,
            )

    def outages(self) -> Outages:
        """What is down by the current marks. Raises StoreUnavailable and RegistryUnavailable."""
        ids = [sender_id(sender.provider, sender.id) for sender in self.tenants.senders()]
        backends = [self.backend] if self.backend else []
        return Outages(
            provider_down=sum(self._is_down(id) for id in ids),
            backend_down=sum(self._is_down(id) for id in backends),
        )

    def _is_down(self, id: str) -> bool:
        return is_down(self._marks(id), self.limits, self.clock.now())

    def _marks(self, id: str) -> Marks:
        """The marks; empty ones if only a newer version can read them."""
        try:
            return self.store.marks(id)
        except UnknownState:
            logs.event("state_unknown", severity="WARNING", reason="marks")
            return Marks()
