"""The registry from the environment: all numbers that it names belong to tenant `default`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from shared.pipeline.ports import Sender, Tenant

DEFAULT = Tenant("default")


@dataclass(frozen=True, slots=True)
class EnvironmentTenants:
    """One tenant and its senders. News of any account is also the tenant's: the provider signed it with our secret, and
    there is no other tenant.
    """

    known: tuple[Sender, ...]

    @classmethod
    def of(cls, *senders: tuple[str, str]) -> Self:
        """From pairs of provider and the provider's id."""
        return cls(tuple(Sender(DEFAULT.id, provider, id) for provider, id in senders))

    def owner_of(self, provider: str, sender: str) -> Tenant | None:
        return DEFAULT if Sender(DEFAULT.id, provider, sender) in self.known else None

    def owner_of_account(self, provider: str, account: str) -> Tenant | None:  # noqa: ARG002 - see the class
        return DEFAULT if any(sender.provider == provider for sender in self.known) else None

    def senders(self, tenant: str | None = None) -> Sequence[Sender]:
        return self.known if tenant in (None, DEFAULT.id) else ()
