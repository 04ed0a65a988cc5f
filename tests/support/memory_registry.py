"""A registry in memory, with the promises of shared.pipeline.registry.Registry, that records what is read."""

import itertools
import threading
from collections.abc import Sequence

from shared.domain.deadline import Deadline
from shared.domain.errors import StoreUnavailable
from shared.pipeline.registry import Entry, EntryKind, EntryName, EntryWrite


class MemoryRegistry:
    def __init__(self) -> None:
        self.kept: dict[EntryName, Entry] = {}
        self.reads: list[Sequence[EntryName]] = []
        self.is_down = False
        self._versions, self._lock = itertools.count(1), threading.Lock()

    def entries(self, names: Sequence[EntryName]) -> Sequence[Entry | None]:
        if self.is_down:
            raise StoreUnavailable
        self.reads.append(tuple(names))
        return [self.kept.get(name) for name in names]

    def entry_page(self, kind: EntryKind, tenant: str | None, after: str | None, limit: int) -> Sequence[Entry]:
        mine = [one for one in list(self.kept.values()) if one.name.kind is kind and tenant in (None, one.tenant)]
        return sorted((one for one in mine if one.name.id > (after or "")), key=lambda one: one.name.id)[:limit]

    def commit_entries(self, writes: Sequence[EntryWrite]) -> bool:
        with self._lock:
            for write in writes:
                found = self.kept.get(write.name)
                if (found.version if found else None) != write.expected:
                    return False
            for name, tenant, fields, _ in ((one.name, one.tenant, one.fields, one.expected) for one in writes):
                if fields is None:
                    del self.kept[name]
                else:
                    self.kept[name] = Entry(name, tenant, fields, next(self._versions))
        return True


class MemoryIntakeRegistry:
    """The same, as the webhook service reads it."""

    def __init__(self, registry: MemoryRegistry) -> None:
        self._registry = registry

    async def entries(self, names: Sequence[EntryName], _: Deadline) -> Sequence[Entry | None]:
        return self._registry.entries(names)
