"""Changes of the registry: tenants and their pairs of queues. senders.py has numbers and accounts, keys.py API keys.

Each change is one commit, conditional on every entry that it was decided by; if another write came between, it is
decided again. So however many operators work at once, a pair's count equals its tenants, and nothing belongs to two.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar

from shared.domain.errors import PomboError, StoreUnavailable, UnknownState
from shared.domain.identity import is_id_prefix
from shared.domain.listings import Listing
from shared.domain.record import OPEN_STATES
from shared.domain.tenants import DEFAULT_TENANT, QueueUse, Tenant, TenantState
from shared.operations.dead_letters import pages
from shared.pipeline.clock import Clock
from shared.pipeline.ports import Store
from shared.pipeline.registry import Entry, EntryKind, EntryName, EntryWrite, Registry
from shared.tenants.entries import (
    QUEUE_USE,
    READERS,
    deletion,
    is_gone,
    is_removed,
    read_key,
    read_queue_use,
    read_tenant,
    tenant_name,
    write_queue_use,
    write_tenant,
)

PATIENCE_SECONDS = 60.0
"""How long a change is decided again while other writes come first: 64 at once take ten on Firestore."""

PAUSE_SECONDS = 0.005
LONGEST_PAUSE_SECONDS = 0.5

PAGE = 100
MOST_OPEN = 10_000
"""Open records of all tenants that are looked at, one read each, before a tenant is removed."""

EVER = timedelta(days=3650)
"""No record is due later."""

MOST_SHOWN = 10
"""Of the ids that begin with the same characters."""

MOST_WRITES = 20
"""Of one commit."""

_TENANT_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")

T = TypeVar("T")
Decided = tuple[Sequence[EntryWrite], T]
"""What to write, and what to return once it is written."""


class Refused(PomboError):
    """The registry cannot be changed like this."""

    code = "refused"


class NotFound(Refused):
    """It does not exist."""

    code = "not_found"


class Invalid(Refused):
    """A value is not valid. `field` says which."""

    code = "invalid"
    is_usage = True

    def __init__(self, field: str, sentence: str) -> None:
        super().__init__(sentence)
        self.field = field


class Taken(Refused):
    """It exists already, or belongs to another tenant. Only an operator may read this sentence: for a tenant, what
    another one has does not exist.
    """

    code = "taken"


# ---- tenants


def add_tenant(registry: Registry, clock: Clock, tenant: Tenant, pairs: int) -> Tenant:
    """Add a tenant, active, with the pair of queues that serves the fewest, of the pairs 0 to `pairs` - 1; with none,
    the shared queues. Raises Refused and StoreUnavailable.
    """
    if tenant.id == DEFAULT_TENANT:
        raise Invalid("id", f"{DEFAULT_TENANT} is the tenant of the environment's number: choose another id.")
    if not _TENANT_ID.fullmatch(tenant.id):
        raise Invalid("id", "A tenant's id has 1 to 63 characters of a-z, 0-9 and -, and does not begin with -.")

    def decide() -> Decided[Tenant]:
        found, counts = registry.entries([tenant_name(tenant.id), QUEUE_USE])
        if found is not None:
            raise Taken(f"There is a tenant {tenant.id} already.")
        use = read_queue_use(counts)
        pair = min(range(pairs), key=lambda number: use.tenants.get(number, 0), default=None)
        added = replace(tenant, state=TenantState.ACTIVE, queue=pair, created_at=clock.now())
        return [write_tenant(added, None), write_queue_use(_counted(use, pair, tenants=1, active=1), counts)], added

    return commit(registry, clock, decide)


def find_tenant(registry: Registry, id: str) -> Tenant:
    """Raises NotFound, UnknownState and StoreUnavailable."""
    return read_tenant(tenant_entry(registry, id))


def queue_use(registry: Registry) -> QueueUse:
    """How many tenants each pair of queues serves, as counted. Raises UnknownState and StoreUnavailable."""
    return read_queue_use(registry.entries([QUEUE_USE])[0])


def set_tenant(registry: Registry, clock: Clock, id: str, change: Callable[[Tenant], Tenant]) -> Tenant:
    """Change a tenant's name, handler or in-doubt policy. `change` may run several times. Raises Refused, UnknownState
    and StoreUnavailable.
    """

    def decide() -> Decided[Tenant]:
        found = tenant_entry(registry, id)
        before = read_tenant(found)
        after = replace(before, **_settings_of(change(before)))
        return [write_tenant(after, found)] if after != before else [], after

    return commit(registry, clock, decide)


def _settings_of(tenant: Tenant) -> dict[str, Any]:
    return {"name": tenant.name, "handler": tenant.handler, "in_doubt": tenant.in_doubt}


def suspend(registry: Registry, clock: Clock, id: str) -> Tenant:
    """Let the tenant's messages wait; what its customers write is still handled. Idempotent. Raises as `set_tenant`."""
    return _set_state(registry, clock, id, TenantState.SUSPENDED)


def resume(registry: Registry, clock: Clock, id: str) -> Tenant:
    """End a suspension. Idempotent. Raises as `set_tenant`."""
    return _set_state(registry, clock, id, TenantState.ACTIVE)


def _set_state(registry: Registry, clock: Clock, id: str, state: TenantState) -> Tenant:
    def decide() -> Decided[Tenant]:
        found, counts = tenant_entry(registry, id), registry.entries([QUEUE_USE])[0]
        before = read_tenant(found)
        if before.state is state:
            return [], before
        after, use = replace(before, state=state), read_queue_use(counts)
        change = 1 if state is TenantState.ACTIVE else -1
        return [write_tenant(after, found), write_queue_use(_counted(use, None, active=change), counts)], after

    return commit(registry, clock, decide)


@dataclass(frozen=True, slots=True)
class Remains:
    """What keeps a tenant from being removed."""

    senders: int = 0
    keys: int = 0
    open: int = 0
    dead: int = 0
    leaving: int = 0
    """Senders whose removal has not ended."""

    def __str__(self) -> str:
        """For example "2 senders and 1 key"; "" for nothing."""
        counts = {"sender": self.senders, "key": self.keys, "open record": self.open, "dead letter": self.dead}
        said = [f"{count:,} {what}{'' if count == 1 else 's'}" for what, count in counts.items() if count]
        if self.leaving:
            said.insert(0, f"{self.leaving:,} number{'' if self.leaving == 1 else 's'} whose removal has not ended")
        return " and ".join([", ".join(said[:-1]), said[-1]]) if len(said) > 1 else "".join(said)


def remove_tenant(registry: Registry, store: Store, clock: Clock, id: str) -> Tenant:
    """Delete a tenant that has no sender, no key in force, no open record and no dead letter, and its revoked keys with
    it. Its place in its pair of queues is free again. Raises Refused, UnknownState and StoreUnavailable.
    """
    open_records = _open_records(store, clock, id) if tenant_entry(registry, id) else 0
    dead = sum(len(page.records) + page.unread for page in pages(store, Listing.DEAD, id))

    def decide() -> Decided[Tenant]:
        found, counts = tenant_entry(registry, id), registry.entries([QUEUE_USE])[0]
        leaving = [is_gone(entry) for entry in entries_of(registry, EntryKind.SENDER, id)]
        keys = list(entries_of(registry, EntryKind.KEY, id))
        in_force = sum(read_key(key).revoked_at is None for key in keys)
        remains = str(Remains(leaving.count(False), in_force, open_records, dead, leaving.count(True)))
        if remains:
            raise Refused(f"Tenant {id} is not removed: it still has {remains}.")
        _delete(registry, keys)
        gone = read_tenant(found)
        use = _counted(read_queue_use(counts), gone.queue, tenants=-1, active=0 if gone.suspended else -1)
        return [deletion(found), write_queue_use(use, counts)], gone

    return commit(registry, clock, decide)


def _delete(registry: Registry, entries: Sequence[Entry]) -> None:
    """One that changed meanwhile is found again: every key is added together with a write of its tenant."""
    for start in range(0, len(entries), MOST_WRITES):
        registry.commit_entries([deletion(entry) for entry in entries[start : start + MOST_WRITES]])


def _open_records(store: Store, clock: Clock, tenant: str) -> int:
    """Raises Refused if there are too many to look at."""
    keys = store.overdue(clock.now() + EVER, MOST_OPEN + 1)
    if len(keys) > MOST_OPEN:
        raise Refused(f"More than {MOST_OPEN:,} records of all tenants are open: try again when there are fewer.")
    records = (store.get(key) for key in keys)
    return sum(record is not None and record.tenant == tenant and record.state in OPEN_STATES for record in records)


# ---- what the other changes use


def commit(registry: Registry, clock: Clock, decide: Callable[[], Decided[T]]) -> T:
    """Decide from the entries as they are and write, again until no other write came between. Raises what `decide`
    raises, and StoreUnavailable.
    """
    until, pause = clock.monotonic() + PATIENCE_SECONDS, PAUSE_SECONDS
    while True:
        writes, result = decide()
        if not writes or registry.commit_entries(writes):
            return result
        if clock.monotonic() > until:
            raise StoreUnavailable("Other changes of the registry came first each time: try again.")
        clock.sleep(pause * (0.5 + clock.jitter()))
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


def entries_of(registry: Registry, kind: EntryKind, tenant: str | None) -> Iterator[Entry]:
    """All entries of a kind, of one tenant or of all, in the order of their ids. Raises StoreUnavailable."""
    after: str | None = None
    while page := registry.entry_page(kind, tenant, after, PAGE):
        yield from page
        after = page[-1].name.id


def beginning_with(registry: Registry, kind: EntryKind, id: str) -> Entry | None:
    """The entry of a kind whose id begins with these 8 or more characters; None if there is none. Raises NotFound if
    there are several, and StoreUnavailable.
    """
    following = registry.entry_page(kind, None, id, MOST_SHOWN) if is_id_prefix(id) else ()
    found = [entry for entry in following if entry.name.id.startswith(id)]
    if len(found) > 1:
        ids = ", ".join(entry.name.id for entry in found)
        raise NotFound(f"Several ids of {kind.value} begin with this: {ids}. Give more characters.")
    return found[0] if found else None


def values_of(registry: Registry, kind: EntryKind, tenant: str | None) -> Iterator[Any]:
    """What is in them, without senders that are being removed; None for one that cannot be read. Raises
    StoreUnavailable.
    """
    for entry in entries_of(registry, kind, tenant):
        if is_gone(entry):
            continue
        try:
            yield READERS[kind](entry)
        except UnknownState:
            yield None


def unreadable(registry: Registry) -> Iterator[EntryName]:
    """The entries of tenants, senders and accounts that cannot be read. Raises StoreUnavailable."""
    for kind in (EntryKind.TENANT, EntryKind.SENDER, EntryKind.ACCOUNT):
        for entry in entries_of(registry, kind, None):
            try:
                READERS[kind](entry)
            except UnknownState:
                yield entry.name


def being_removed(registry: Registry) -> Iterator[str]:
    """The ids of the senders that were taken from their tenants and are not deleted yet. Raises StoreUnavailable."""
    return (entry.name.id for entry in entries_of(registry, EntryKind.SENDER, None) if is_removed(entry))


def tenant_entry(registry: Registry, id: str) -> Entry:
    """Raises NotFound, and Invalid for the tenant of the environment, which has no entry."""
    if id == DEFAULT_TENANT:
        raise Invalid(
            "tenant",
            f"{DEFAULT_TENANT} is the tenant of the environment: its settings are variables, and it takes no further "
            "numbers.",
        )
    found = registry.entries([tenant_name(id)])[0] if _TENANT_ID.fullmatch(id) else None
    if found is None:
        which = f"tenant {id}" if _TENANT_ID.fullmatch(id) else "such tenant"
        raise NotFound(f"There is no {which}: pombo tenants list shows their ids.")
    return found


def _counted(use: QueueUse, pair: int | None, tenants: int = 0, active: int = 0) -> QueueUse:
    counts = dict(use.tenants)
    if pair is not None:
        counts[pair] = max(0, counts.get(pair, 0) + tenants)
    return QueueUse(counts, max(0, use.active + active))
