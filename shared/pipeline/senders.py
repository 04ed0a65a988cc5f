"""Senders: whether each number that is ours is connected, and what is down, as far as answers have told us."""

from dataclasses import dataclass

from shared import logs
from shared.domain.guards import disconnected, is_down
from shared.domain.marks import sender_id
from shared.pipeline.ports import Channel, Store, Tenants


@dataclass(frozen=True, slots=True)
class Outages:
    """How many senders' providers and how many backends are down."""

    provider_down: int
    backend_down: int


@dataclass(frozen=True, slots=True)
class Senders:
    """The numbers that are ours, and the backend that their messages are answered by (None: there is none)."""

    tenants: Tenants
    store: Store
    channel: Channel
    backend: str | None = None

    def report(self) -> None:
        """Log one line for each sender, of which a monitor makes a curve. Asks no provider. Raises StoreUnavailable and
        RegistryUnavailable.
        """
        for sender in self.tenants.senders():
            marks = self.store.marks(sender_id(sender.provider, sender.id))
            reason = disconnected(marks, self.channel.fingerprint(sender.id))
            logs.event(
                "sender_checked",
                severity="WARNING" if reason else "INFO",
                tenant=sender.tenant,
                phone_number_id=sender.id,
                connected=0 if reason else 1,
                reason=reason,
            )

    def outages(self) -> Outages:
        """What is down by the marks as they stand. Raises StoreUnavailable and RegistryUnavailable."""
        ids = [sender_id(sender.provider, sender.id) for sender in self.tenants.senders()]
        backends = [self.backend] if self.backend else []
        return Outages(
            provider_down=sum(is_down(self.store.marks(id)) for id in ids),
            backend_down=sum(is_down(self.store.marks(id)) for id in backends),
        )
