"""The registry from the environment: all numbers that it names belong to tenant `default`."""

from collections.abc import Sequence
from typing import Self

from shared.pipeline.intake import Addressee, Sender, Tenant

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

    async def owners_of(self, addressees: Sequence[Addressee]) -> Sequence[Tenant | None]:
        """Each from memory."""
        return [self.owner_of(addressee) for addressee in addressees]

    def owner_of(self, addressee: Addressee) -> Tenant | None:
        provider, id, is_account = addressee
        is_ours = provider in self._providers if is_account else (provider, id) in self._senders
        return DEFAULT if is_ours else None

    def senders(self, tenant: str | None = None) -> Sequence[Sender]:
        return self._known if tenant in (None, DEFAULT.id) else ()
