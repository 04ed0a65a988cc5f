"""Listings and searches in the form of the Redis store's scripts."""

from collections.abc import Sequence
from typing import Any

from shared.domain.errors import UnknownState
from shared.domain.listings import BY_STATE, Listing
from shared.domain.record import Delivery
from shared.pipeline.ports import Cursor, Page
from shared.stores.records import without_content
from shared.stores.redis.records import Value, as_stored


def asking_for(listing: Listing, after: Cursor | None, limit: int) -> list[Value]:
    """The arguments of a page of a listing."""
    name = f"pombo:state:{listing}" if listing in BY_STATE else f"pombo:listed:{listing}"
    score, key = after or ("", "")
    return [name, score, key, limit]


def as_page(answer: Sequence[Any], tenant: str | None) -> Page:
    """The page from a script's answer, only with records of `tenant`: the script returns those of all tenants."""
    found, ends_at = answer
    records: list[Delivery] = []
    unread = 0
    for each in found:
        try:
            stored = as_stored(each)
        except UnknownState:
            unread += 1
            continue
        if stored is not None and tenant in (None, stored.record.tenant):
            records.append(without_content(stored.record))
    return Page(records, unread, tuple(ends_at) or None)


def ids_in(name: str) -> Sequence[str]:
    """The key of a record, or the correlation id of an index; empty for any other name in the server."""
    _, sort, id = name.split(":", 2)
    return [id] if sort in ("record", "correlation") else []
