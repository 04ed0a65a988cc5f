"""Listings and searches in the form of the Redis store's scripts."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from shared.domain.errors import UnknownState
from shared.domain.listings import BY_STATE, Listing
from shared.domain.record import Delivery
from shared.pipeline.ports import Cursor, Page
from shared.stores.codec import as_moment, moment
from shared.stores.records import without_content
from shared.stores.redis.records import Value, as_stored, as_time, microseconds


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


def asking_for_history(
    tenant: str, since: datetime | None, until: datetime | None, after: Cursor | None, limit: int
) -> list[Value]:
    """The arguments of a page of a tenant's records."""
    first = microseconds(since) if since else "-inf"
    beyond = f"({microseconds(until)}" if until else "+inf"
    score, key = (microseconds(as_moment(after[0])), after[1]) if after else ("", "")
    return [f"pombo:tenant:{tenant}", first, beyond, score, key, limit]


def asking_for_conversation(id: str, after: Cursor | None, limit: int) -> list[Value]:
    """The arguments of a page of a conversation's records, which has the form of a history."""
    score, key = (microseconds(as_moment(after[0])), after[1]) if after else ("", "")
    return [f"pombo:of_conversation:{id}", "-inf", "+inf", score, key, limit]


def as_history(answer: Sequence[Any]) -> Page:
    """The page from that script's answer."""
    found, ends_at = answer
    records: list[Delivery] = []
    for each in found:
        with suppress(UnknownState):
            stored = as_stored(each)
            records += [stored.record] if stored else []
    cursor = (moment(as_time(ends_at[0])), ends_at[1]) if ends_at else None
    return Page(records, len(found) - len(records), cursor)


@dataclass(frozen=True, slots=True)
class StateLoad:
    """The records of one state: how many there are, how many wait for a later time, since when the oldest waits."""

    events: int = 0
    messages: int = 0
    later: int = 0
    oldest: datetime | None = None


def as_state_load(pages: Iterable[Sequence[Any]]) -> StateLoad:
    """The sum of the pages from a script's answers. The first that has an oldest one has the oldest of all."""
    total = StateLoad()
    for events, messages, later, oldest in pages:
        total = StateLoad(
            total.events + events,
            total.messages + messages,
            total.later + later,
            total.oldest or (as_time(oldest) if oldest else None),
        )
    return total


def ids_in(name: str) -> Sequence[str]:
    """The key of a record, or the correlation id of an index; empty for any other name in the server."""
    _, sort, id = name.split(":", 2)
    return [id] if sort in ("record", "correlation") else []
