"""The registry's ports: tenants, senders and keys as entries, which a store keeps without knowing what is in them.

The internal service and the command line read and write whole entries; the webhook service only reads them, by name.
`shared.tenants.entries` converts them to the values of `shared.domain.tenants` and back.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from shared.domain.deadline import Deadline


class EntryKind(StrEnum):
    """What an entry describes. The value is its name in the stores."""

    TENANT = "tenants"
    SENDER = "senders"  # by the hash of the provider's id
    ACCOUNT = "accounts"  # by the hash of the provider's id: which tenant owns an account at a provider
    KEY = "api_keys"
    QUEUE_USE = "queue_use"  # one entry, which every new tenant changes


class EntryName(NamedTuple):
    """Which entry: its kind, and its id within the kind (at most 64 characters of [a-z0-9_-])."""

    kind: EntryKind
    id: str


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry as read. `tenant` is its owner, "" for none; listings filter by it. `fields` is what JSON can hold.
    `version` is the store's; a write that names it is refused if another write came between. An entry that was damaged
    has no fields: it cannot be read, and hides no other.
    """

    name: EntryName
    tenant: str
    fields: Mapping[str, Any]
    version: int


@dataclass(frozen=True, slots=True)
class EntryWrite:
    """A write of one entry. `fields` None deletes it. `expected` is the version as read; None: it must not exist."""

    name: EntryName
    tenant: str
    fields: Mapping[str, Any] | None
    expected: int | None


class Registry(Protocol):
    """Where the entries live. All methods raise StoreUnavailable."""

    def entries(self, names: Sequence[EntryName]) -> Sequence[Entry | None]:
        """Each entry, in order; None for one that does not exist. The same name may come twice."""
        ...

    def entry_page(self, kind: EntryKind, tenant: str | None, after: str | None, limit: int) -> Sequence[Entry]:
        """The first `limit` entries of a kind, of one tenant or of all, whose ids come after `after`, in order."""
        ...

    def commit_entries(self, writes: Sequence[EntryWrite]) -> bool:
        """Write all, or none if one is not at its expected version: then it returns False. At most 20 writes. True
        also if this same call's write had been applied and its answer was lost.
        """
        ...


class IntakeRegistry(Protocol):
    """The registry as the webhook service reads it."""

    async def entries(self, names: Sequence[EntryName], deadline: Deadline) -> Sequence[Entry | None]:
        """As `Registry.entries`. Raises StoreUnavailable."""
        ...
