"""Sender health: whether each of our numbers is connected, and what is down, as far as past answers tell."""

from collections.abc import Sequence
from dataclasses import dataclass

from shared import logs
from shared.domain.errors import UnknownState
from shared.domain.guards import disconnected, is_down
from shared.domain.limits import Limits
from shared.domain.marks import Marks, is_refused
from shared.domain.tenants import Sender
from shared.pipeline import log_fields
from shared.pipeline.channels import Channels
from shared.pipeline.clock import Clock
from shared.pipeline.ports import Channel, Credentials, Store, Tenants
from shared.pipeline.reconnects import troubled

REPORTED_AT_MOST = 200
"""Troubled senders that a report looks at. If there are more, each report shows others."""


@dataclass(frozen=True, slots=True)
class Outages:
    """How many senders' providers and how many backends are down."""

    provider_down: int
    backend_down: int


@dataclass(frozen=True, slots=True)
class Senders:
    """Our numbers, and the backend that answers their messages (None if there is none)."""

    tenants: Tenants
    credentials: Credentials
    store: Store
    channels: Channels[Channel]
    limits: Limits
    clock: Clock
    backend: str | None = None

    def report(self) -> None:
        """Log one line for each sender that the environment names, which a monitor plots, and for each other one that
        something is known against: with 10,000 senders the report costs no more. Calls no provider. Skips a sender
        whose provider has no channel here. Raises StoreUnavailable and RegistryUnavailable.
        """
        named = self.tenants.senders_of_environment()
        for sender in (*named, *self._others_in_trouble(named)):
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
            reason = self._reason(sender, channel)
            logs.event(
                "sender_checked",
                severity="WARNING" if reason else "INFO",
                **log_fields.of_sender(sender, self.channels),
                connected=0 if reason else 1,
                reason=reason,
            )

    def _others_in_trouble(self, named: Sequence[Sender]) -> Sequence[Sender]:
        known = {sender.id for sender in named}
        ids = [id for id in troubled(self.store, self.clock, REPORTED_AT_MOST) if id not in known]
        return self.tenants.senders_with(ids) if ids else ()

    def _reason(self, sender: Sender, channel: Channel) -> str | None:
        """Why it cannot send, None if nothing is known against it. Reads no secret: 200 of them would take minutes
        while they are out of reach. Only the environment's token is at hand.
        """
        marks = self._marks(sender.id)
        if marks.refused is None or sender.credential:
            return disconnected(marks, is_refused(marks))
        return disconnected(marks, channel.fingerprint(self.credentials.of(sender)) == marks.refused.fingerprint)

    def outages(self) -> Outages:
        """What is down by the current marks: the provider for the senders that the environment names, and the backend
        that it names. An outage of a provider shows with any sender, so the others are not counted: their number has no
        bound. Raises StoreUnavailable and RegistryUnavailable.
        """
        ids = [sender.id for sender in self.tenants.senders_of_environment()]
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
