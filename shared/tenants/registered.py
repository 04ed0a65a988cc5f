"""Tenants of the environment and of the registry, for the internal service and the command line.

The environment comes first and needs no read, so a deployment with one number never waits for the registry. Only news
of an account is looked up there first: the environment names no account, and owns those that no tenant has.
"""

from collections.abc import Callable, Iterable, Sequence

from shared.domain.errors import RegistryUnavailable, RegistryUnreadable, StoreUnavailable, UnknownState
from shared.domain.identity import sender_id
from shared.domain.tenants import QueueUse, Sender, Tenant
from shared.pipeline.intake import Addressee
from shared.pipeline.registry import EntryKind, EntryName, Registry
from shared.tenants.cache import RegistryCache, Value
from shared.tenants.entries import (
    QUEUE_USE,
    Account,
    account_name,
    is_gone,
    owned_name,
    read_queue_use,
    read_sender,
    sender_name,
    tenant_name,
)
from shared.tenants.environment import EnvironmentTenants

MOST_LOOKED_AT = 10
"""Senders of a tenant, among them those that are being removed, to see whether it has only one."""

SEVERAL_SECONDS = 60.0
"""How old the answer to `are_several` may be."""


class RegisteredTenants:
    """The `Tenants` port. Safe in threads."""

    def __init__(self, environment: EnvironmentTenants, registry: Registry, monotonic: Callable[[], float]) -> None:
        self._environment = environment
        self._registry = registry
        self._cache = RegistryCache(monotonic)
        self._only = RegistryCache(monotonic)
        """The senders of tenants that have one, by the tenants' names."""

    def owner_of(self, addressee: Addressee) -> Tenant | None:
        ours = self._environment.owner_of(addressee)
        if ours and not addressee.is_account:
            return ours
        name = owned_name(addressee)
        owned, owner = self._owned(name)
        if owned and not owner:  # known from the cache, perhaps, and another tenant's by now
            self._cache.forget([name])
            owned, owner = self._owned(name)
        return owner if owned else ours

    def _owned(self, name: EntryName) -> tuple[Sender | Account | None, Tenant | None]:
        owned: Sender | Account | None = self._one(name)
        return owned, self.tenant(owned.tenant) if owned else None

    def tenant(self, id: str) -> Tenant | None:
        found: Tenant | None = self._environment.tenant(id) or self._one(tenant_name(id))
        return found

    def sender(self, provider: str, provider_id: str) -> Sender | None:
        ours = self._environment.sender(provider, provider_id)
        found: Sender | None = ours or self._one(sender_name(sender_id(provider, provider_id)))
        return found

    def senders_with(self, ids: Sequence[str]) -> Sequence[Sender]:
        """One read for all. A sender that cannot be read is left out: it must not keep the sweep from the others."""
        ours = {sender.id: sender for sender in self._environment.senders_with(ids)}
        found = self._look(sender_name(id) for id in ids if id not in ours)
        both = (ours.get(id) or found.get(sender_name(id)) for id in dict.fromkeys(ids))
        return [sender for sender in both if isinstance(sender, Sender)]

    def only_sender_of(self, tenant: str) -> Sender | None:
        """One read, unless the answer was a sender less than 5 s ago."""
        if self._environment.tenant(tenant):
            return self._environment.only_sender_of(tenant)
        name = tenant_name(tenant)
        known: Sender | None = self._only.fresh([name]).get(name)
        if known:
            return known
        asked = self._only.begin()
        try:
            page = self._registry.entry_page(EntryKind.SENDER, tenant, None, MOST_LOOKED_AT)
            found = [read_sender(entry) for entry in page if not is_gone(entry)]
        except UnknownState as error:
            raise RegistryUnreadable from error
        except StoreUnavailable as error:
            raise RegistryUnavailable from error
        if len(found) != 1 or len(page) == MOST_LOOKED_AT:
            return None
        self._only.put(name, found[0], asked)
        return found[0]

    def senders_of_account(self, provider: str, account: str, tenant: str) -> Sequence[Sender]:
        found: Account | None = self._one(account_name(provider, account))
        if found is None:
            return self._environment.senders_of_account(provider, account, tenant)
        if found.tenant != tenant:
            return ()
        return [sender for sender in self.senders_with(found.senders) if sender.tenant == tenant]

    def senders_of_environment(self) -> Sequence[Sender]:
        return self._environment.senders_of_environment()

    def are_several(self) -> bool:
        """Tenant `default` is one, so any tenant of the registry makes them several: also a suspended one, whose
        customers are still answered. The answer is a minute old at most: it is asked for with each message, also of a
        deployment that has no registry, and only shares threads. If the counts cannot be read, they share them.
        """
        use: QueueUse | None = self._cache.fresh([QUEUE_USE], SEVERAL_SECONDS).get(QUEUE_USE)
        if use is None:
            asked = self._cache.begin()
            use = self._use()
            self._cache.put(QUEUE_USE, use, asked)
        return bool(use.active or sum(use.tenants.values()))

    def _use(self) -> QueueUse:
        """Read now: what the cache has is too old. Raises RegistryUnavailable."""
        try:
            return read_queue_use(self._registry.entries([QUEUE_USE])[0])
        except StoreUnavailable as error:
            raise RegistryUnavailable from error
        except UnknownState:
            return QueueUse(active=1)

    def _one(self, name: EntryName) -> Value | None:
        """Raises RegistryUnavailable; RegistryUnreadable if the entry is there, but cannot be read."""
        found = self._look([name])[name]
        if isinstance(found, UnknownState):
            raise RegistryUnreadable from found
        return found

    def _look(self, names: Iterable[EntryName]) -> dict[EntryName, Value | UnknownState | None]:
        """The values, with one read for all that are not in the cache. Raises RegistryUnavailable."""
        wanted = list(dict.fromkeys(names))
        known = self._cache.fresh(wanted)
        missing = [name for name in wanted if name not in known]
        if not missing:
            return known
        asked = self._cache.begin()
        try:
            entries = self._registry.entries(missing)
        except StoreUnavailable as error:
            raise RegistryUnavailable from error
        return {**known, **self._cache.keep(missing, entries, asked)}
