"""Tenants of the environment and of the registry, for the webhook service: one look for all events of a POST."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from shared.domain.deadline import Deadline
from shared.domain.errors import RegistryUnavailable, RegistryUnreadable, StoreUnavailable, UnknownState
from shared.domain.tenants import Tenant
from shared.pipeline.intake import Addressee
from shared.pipeline.registry import EntryName, IntakeRegistry
from shared.tenants.cache import RegistryCache, Value
from shared.tenants.entries import owned_name, tenant_name
from shared.tenants.environment import EnvironmentTenants


class RegisteredIntakeTenants:
    """The `IntakeTenants` port. The environment's number needs no read. Others take one read for all their entries and
    one for all their tenants, or none if both are in the cache.
    """

    def __init__(
        self, environment: EnvironmentTenants, registry: IntakeRegistry, monotonic: Callable[[], float]
    ) -> None:
        self._environment = environment
        self._registry = registry
        self._cache = RegistryCache(monotonic)

    async def owners_of(
        self, addressees: Sequence[Addressee], deadline: Deadline
    ) -> Sequence[Tenant | Exception | None]:
        ours = {one: self._environment.owner_of(one) for one in dict.fromkeys(addressees)}
        strange = [one for one, owner in ours.items() if one.is_account or not owner]
        found = await self._owners(strange, deadline, ours) if strange else ours
        return [found[one] for one in addressees]

    async def _owners(
        self, strange: Sequence[Addressee], deadline: Deadline, ours: Mapping[Addressee, Tenant | None]
    ) -> Mapping[Addressee, Tenant | Exception | None]:
        """The owners by the registry, and `ours` of those that it does not know."""
        names = {one: owned_name(one) for one in strange}
        owners = await self._owned(names.values(), deadline)
        gone = [name for name, owner in owners.items() if owner is None]
        if gone:  # known from the cache, perhaps, and another tenant's by now
            self._cache.forget(gone)
            again = await self._owned(gone, deadline)
            owners = {**{name: owner for name, owner in owners.items() if owner is not None}, **again}
        return {**ours, **{one: owners[name] for one, name in names.items() if name in owners}}

    async def _owned(
        self, names: Iterable[EntryName], deadline: Deadline
    ) -> dict[EntryName, Tenant | Exception | None]:
        """The owner of each that has an entry; None if that tenant does not exist."""
        found = {name: value for name, value in (await self._look(names, deadline)).items() if value is not None}
        ids = {value.tenant for value in found.values() if not isinstance(value, Exception)}
        tenants = await self._look(map(tenant_name, sorted(ids)), deadline)
        return {
            name: value if isinstance(value, Exception) else tenants[tenant_name(value.tenant)]
            for name, value in found.items()
        }

    async def _look(self, names: Iterable[EntryName], deadline: Deadline) -> dict[EntryName, Value | Exception | None]:
        """The values, with one read for all that are not in the cache. RegistryUnavailable for each if the registry
        does not answer, RegistryUnreadable for one that cannot be read.
        """
        wanted = list(dict.fromkeys(names))
        known = self._cache.fresh(wanted)
        missing = [name for name in wanted if name not in known]
        if not missing:
            return known
        asked = self._cache.begin()
        try:
            entries = await self._registry.entries(missing, deadline)
        except StoreUnavailable as error:
            return {**known, **dict.fromkeys(missing, _caused(RegistryUnavailable(), error))}
        found = self._cache.keep(missing, entries, asked)
        return {**known, **{name: _known(value) for name, value in found.items()}}


def _known(value: Value | UnknownState | None) -> Value | Exception | None:
    return _caused(RegistryUnreadable(), value) if isinstance(value, UnknownState) else value


def _caused(error: RegistryUnavailable, cause: Exception) -> RegistryUnavailable:
    error.__cause__ = cause
    return error
