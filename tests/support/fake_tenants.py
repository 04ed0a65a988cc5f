"""A registry of tenants in memory, which a test changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shared.domain.deadline import Deadline
from shared.domain.errors import RegistryUnreadable
from shared.domain.tenants import Sender, Tenant
from shared.pipeline.intake import Addressee


@dataclass
class FakeTenants:
    """Tenants by id, and senders. The owner of an account is the tenant of a sender in it."""

    known: dict[str, Tenant] = field(default_factory=dict)
    senders: list[Sender] = field(default_factory=list)
    of_environment: list[Sender] = field(default_factory=list)

    unreadable: set[str] = field(default_factory=set)

    async def owners_of(self, addressees: Sequence[Addressee], _: Deadline) -> Sequence[Tenant | Exception | None]:
        owners = [self.owner_of(addressee) for addressee in addressees]
        return [RegistryUnreadable() if owner and owner.id in self.unreadable else owner for owner in owners]

    def owner_of(self, addressee: Addressee) -> Tenant | None:
        for sender in self.senders:
            named = sender.account if addressee.is_account else sender.provider_id
            if (sender.provider, named) == (addressee.provider, addressee.id):
                return self.known[sender.tenant]
        return None

    def tenant(self, id: str) -> Tenant | None:
        return self.known.get(id)

    def sender(self, provider: str, provider_id: str) -> Sender | None:
        return next((one for one in self.senders if (one.provider, one.provider_id) == (provider, provider_id)), None)

    def senders_with(self, ids: Sequence[str]) -> Sequence[Sender]:
        return [sender for sender in self.senders if sender.id in ids]

    def senders_of_account(self, provider: str, account: str, tenant: str) -> Sequence[Sender]:
        named = [one for one in self.senders if (one.provider, one.account, one.tenant) == (provider, account, tenant)]
        return [*named, *(one for one in self.of_environment if one.tenant == tenant)]

    def senders_of_environment(self) -> Sequence[Sender]:
        return self.of_environment

    def are_several(self) -> bool:
        return len(self.known) > 1


class EnvironmentCredentials:
    """The tokens that the environment names, by `Sender.id`. Any other sender has none."""

    def __init__(self, tokens: Mapping[str, str]) -> None:
        self._tokens = tokens

    def of(self, sender: Sender) -> str:
        return self._tokens.get(sender.id, "")

    newest = of
