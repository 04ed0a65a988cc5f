"""The registry in the Redis server."""

from collections.abc import Sequence
from typing import Any

from shared.pipeline.registry import Entry, EntryKind, EntryName, EntryWrite
from shared.stores.entries import StoredEntry, encoded, entries_of, entry_of, is_storable
from shared.stores.records import new_version
from shared.stores.redis.connection import RedisClient, Value
from shared.stores.redis.registry_scripts import COMMIT_ENTRIES, ENTRIES, ENTRY_PAGE


def find_entries(client: RedisClient, names: Sequence[EntryName]) -> list[StoredEntry | None]:
    """What is stored of each, in order, in one round trip. Raises StoreUnavailable."""
    asked = [name for name in dict.fromkeys(names) if is_storable(name)]
    answers = client.run(ENTRIES, *(part for name in asked for part in name)) if asked else ()
    found = {name: _stored(name.kind, answer) for name, answer in zip(asked, answers, strict=True) if answer}
    return [found.get(name) for name in names]


class RedisRegistry:
    """The `Registry` port on one Redis server. Each call is one round trip."""

    _client: RedisClient

    def entries(self, names: Sequence[EntryName]) -> Sequence[Entry | None]:
        """All of one moment."""
        return entries_of(find_entries(self._client, names))

    def entry_page(self, kind: EntryKind, tenant: str | None, after: str | None, limit: int) -> Sequence[Entry]:
        """By a sorted set of the kind, or of the kind and the tenant."""
        of_kind = f"pombo:entries:{kind}"
        answers = self._client.run(
            ENTRY_PAGE, kind, of_kind if tenant is None else f"{of_kind}:{tenant}", after or "", limit
        )
        return [entry_of(_stored(kind, answer)) for answer in answers]

    def commit_entries(self, writes: Sequence[EntryWrite]) -> bool:
        """One script. A commit that was sent again within a minute finds that it was made."""
        if not writes:
            return True
        pairs = zip(writes, encoded(writes), strict=True)
        return bool(
            self._client.run(COMMIT_ENTRIES, new_version(), *(part for pair in pairs for part in _write(*pair)))
        )


def _stored(kind: EntryKind, answer: Sequence[Any]) -> StoredEntry:
    id, version, tenant, fields = answer
    return StoredEntry(EntryName(kind, id), tenant, fields, version)


def _write(write: EntryWrite, text: str | None) -> Sequence[Value]:
    expected = "" if write.expected is None else write.expected
    return [*write.name, expected, write.tenant, text or ""]
