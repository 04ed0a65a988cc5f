"""Connect a sender with an access token: checked with the provider, kept as a secret, and used from then on.

Each step can be repeated: an operation that failed in the middle is simply run again.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from shared.domain import marks
from shared.domain.identity import credential_fingerprint
from shared.domain.onboarding import Checked, OnboardingRefused
from shared.domain.tenants import CREDENTIAL_PREFIX, Sender
from shared.pipeline.ports import Secrets, Store


class Onboarding(Protocol):
    """What a provider does to connect a sender. Its methods raise OnboardingRefused and OnboardingUnavailable."""

    def check(self, provider_id: str, account: str, token: str) -> Checked:
        """Whether the provider, asked with this token, names this very number. Changes nothing."""
        ...

    def subscribe(self, account: str, token: str) -> None:
        """Have the provider send the account's webhooks to us; success if it does so already."""
        ...


StartDrain = Callable[[str], object]
"""Wakes the waiting messages of the sender with this id (`Sender.id`). Raises QueueUnavailable."""


@dataclass(frozen=True, slots=True)
class Connected:
    """A sender that is connected. `sender` names its secret, and is what the registry has to keep."""

    sender: Sender
    checked: Checked


@dataclass(frozen=True, slots=True)
class Connect:
    """Connects senders of one provider. Its methods raise OnboardingRefused, OnboardingUnavailable, SecretsUnavailable
    and StoreUnavailable, and write nothing unless the provider accepted the token.

    The time of a connection, which later reports of the provider are compared with, is the store's: the clock of an
    operator's machine may be wrong.
    """

    onboarding: Onboarding
    secrets: Secrets
    store: Store

    def connect(self, sender: Sender, token: str) -> Connected:
        """Connect a new sender. The caller then puts `Connected.sender` into the registry."""
        named = replace(sender, credential=sender.credential or credential_name(sender))
        checked = self._connected(named, token)
        return Connected(replace(named, display=named.display or checked.display), checked)

    def reconnect(self, sender: Sender, token: str, start_drain: StartDrain) -> Connected:
        """Connect a sender of the registry again, and start to send what waits. Also raises QueueUnavailable: the
        sender is connected then, and its messages go with their next hop.
        """
        if not sender.credential:
            raise OnboardingRefused(
                "The services read this sender's access token from their environment: replace it there, then restart "
                "them."
            )
        checked = self._connected(sender, token)
        start_drain(sender.id)
        return Connected(sender, checked)

    def _connected(self, sender: Sender, token: str) -> Checked:
        checked = self.onboarding.check(sender.provider_id, sender.account, token)
        self.secrets.add(sender.credential, token)
        self.onboarding.subscribe(sender.account, token)
        now, fingerprint = self.store.time(), credential_fingerprint(token)
        self.store.change_marks(sender.id, lambda current: marks.reconnected(current, fingerprint, now))
        return checked


def credential_name(sender: Sender) -> str:
    """The name of the secret that holds a sender's access token. It has the tenant: a number that moves to another
    tenant gets another secret, so no process that still knows the former owner finds the new owner's token.
    """
    return f"{CREDENTIAL_PREFIX}{sender.tenant}-{sender.id}"
