"""The registry and the credentials from the environment: all numbers that it names belong to tenant `default`."""

from collections.abc import Sequence
from typing import Self

from shared.domain.deadline import Deadline
from shared.domain.tenants import DEFAULT_TENANT, Sender, Tenant
from shared.pipeline.intake import Addressee

DEFAULT = Tenant(DEFAULT_TENANT)


class EnvironmentTenants:
    """One tenant and its senders. News of any account is also the tenant's, as far as no tenant of the registry owns
    the account: the provider signed it with our secret.
    """

    def __init__(self, known: tuple[Sender, ...]) -> None:
        self._known = known
        self._senders = {(sender.provider, sender.provider_id): sender for sender in known}
        self._providers = frozenset(sender.provider for sender in known)

    @classmethod
    def of(cls, *senders: tuple[str, str]) -> Self:
        """From pairs of provider and the provider's id."""
        return cls(tuple(Sender(DEFAULT.id, provider, id) for provider, id in senders))

    async def owners_of(self, addressees: Sequence[Addressee], deadline: Deadline) -> Sequence[Tenant | None]:  # noqa: ARG002 — it makes no call
        """Each from memory."""
        return [self.owner_of(addressee) for addressee in addressees]

    def owner_of(self, addressee: Addressee) -> Tenant | None:
        provider, id, is_account = addressee
        is_ours = provider in self._providers if is_account else (provider, id) in self._senders
        return DEFAULT if is_ours else None

    def tenant(self, id: str) -> Tenant | None:
        return DEFAULT if id == DEFAULT.id else None

    def sender(self, provider: str, provider_id: str) -> Sender | None:
        return self._senders.get((provider, provider_id))

    def senders_with(self, ids: Sequence[str]) -> Sequence[Sender]:
        by_id = {sender.id: sender for sender in self._known}
        return [by_id[id] for id in ids if id in by_id]

    def only_sender_of(self, tenant: str) -> Sender | None:
        return self._known[0] if tenant == DEFAULT.id and len(self._known) == 1 else None

    def senders_of_account(self, provider: str, account: str, tenant: str) -> Sequence[Sender]:  # noqa: ARG002 — it names no account
        return [sender for sender in self._known if sender.provider == provider and tenant == DEFAULT.id]

    def senders_of_environment(self) -> Sequence[Sender]:
        return self._known

    def are_several(self) -> bool:
        return False
