"""Senders: whether each number that is ours is connected, as far as the provider has told us."""

from collections.abc import Sequence
from dataclasses import dataclass

from shared import logs
from shared.domain.guards import disconnected
from shared.pipeline.ports import Channel, Store


@dataclass(frozen=True, slots=True)
class Sender:
    """A number, by the provider's id, and whose it is."""

    tenant: str
    id: str


@dataclass(frozen=True, slots=True)
class Senders:
    """The numbers that are ours."""

    known: Sequence[Sender]
    store: Store
    channel: Channel

    def report(self) -> None:
        """Log one line for each, of which a monitor makes a curve. Asks no provider. Raises StoreUnavailable."""
        for sender in self.known:
            marks = self.store.marks(sender.tenant)
            reason = disconnected(marks, self.channel.fingerprint(sender.id), sender.id)
            logs.event(
                "sender_checked",
                severity="WARNING" if reason else "INFO",
                tenant=sender.tenant,
                phone_number_id=sender.id,
                connected=0 if reason else 1,
                reason=reason,
            )
