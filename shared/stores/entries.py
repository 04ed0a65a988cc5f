"""Entries of the registry, as all stores keep them: the owner beside the fields, which are JSON text."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shared.domain.errors import UnknownState
from shared.pipeline.registry import Entry, EntryName, EntryWrite
from shared.stores.codec import from_json, to_json

MOST_WRITES = 20
"""Of one commit, as the port says."""

_ID = re.compile(r"[a-z0-9_-]{1,64}")


def is_storable(name: EntryName) -> bool:
    """Whether an entry may have this name. A caller may look up an id that a stranger chose: a name that no entry can
    have exists in no store, and no store is asked for it.
    """
    return _ID.fullmatch(name.id) is not None


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """What is stored of an entry: its owner, its fields as JSON text, its version; of whatever type it was found."""

    name: EntryName
    tenant: Any
    fields: Any
    version: Any


def entry_of(stored: StoredEntry) -> Entry:
    """The entry. One that was damaged has no fields, so that nothing can be read from it, and it hides no other."""
    try:
        plain = from_json(stored.fields)
    except UnknownState:
        plain = None
    is_whole = isinstance(plain, dict) and isinstance(stored.tenant, str)
    tenant = stored.tenant if isinstance(stored.tenant, str) else ""
    return Entry(stored.name, tenant, plain if is_whole else {}, _version(stored.version))


def entries_of(stored: Sequence[StoredEntry | None]) -> list[Entry | None]:
    """Each entry, in order."""
    return [None if each is None else entry_of(each) for each in stored]


def _version(stored: Any) -> int:
    """The version; 0, which no entry has, if it was damaged: the entry can be changed by no commit."""
    try:
        return int(stored)
    except (TypeError, ValueError):
        return 0


def encoded(writes: Sequence[EntryWrite]) -> Sequence[str | None]:
    """The fields of each write as JSON text; None for a deletion. Raises TypeError or ValueError for what no store can
    keep, and ValueError for writes that are no commit.
    """
    names = [write.name for write in writes]
    if len(writes) > MOST_WRITES or len({*names}) < len(names):
        raise ValueError(f"A commit has at most {MOST_WRITES} writes, each of another entry.")
    if not all(map(is_storable, names)):
        raise ValueError("The id of an entry has 1 to 64 characters of [a-z0-9_-].")
    if any(write.fields is None and write.expected is None for write in writes):
        raise ValueError("Only an entry that exists can be deleted.")
    return [None if write.fields is None else _text(write.fields) for write in writes]


def _text(fields: Mapping[str, Any]) -> str:
    return to_json(dict(fields))
