"""The registry from the environment: all numbers that it names belong to tenant `default`."""

from collections.abc import Sequence
from typing import Self

from shared.pipeline.intake import Sender, Tenant

DEFAULT = Tenant("default")


class EnvironmentTenants:
    """One tenant and its senders. News of any account is also the tenant's: the provider signed it with our secret, and
    there is no other tenant.
    """

    def __init__(self, known: tuple[Sender, ...]) -> None:
        self._known = known
        self._senders = frozenset((sender.provider, sender.id) for sender in known)
        self._providers = frozenset(sender.provider for sender in known)

    @classmethod
    def of(cls, *senders: tuple[str, str]) -> Self:
        """From pairs of provider and the provider's id."""
        return cls(tuple(Sender(DEFAULT.id, provider, id) for provider, id in senders))

    def owner_of(self, provider: str, sender: str) -> Tenant | None:
        return DEFAULT if (provider, sender) in self._senders else None

    def owner_of_account(self, provider: str, account: str) -> Tenant | None:  # noqa: ARG002 - see the class
        return DEFAULT if provider in self._providers else None

    def senders(self, tenant: str | None = None) -> Sequence[Sender]:
        return self._known if tenant in (None, DEFAULT.id) else ()
