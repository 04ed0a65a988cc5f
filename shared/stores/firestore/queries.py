"""The queries of the Firestore store, each served by an index of the schema; as google.firestore.v1.StructuredQuery."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from shared.domain.listings import BY_STATE, Listing
from shared.domain.record import Kind, State
from shared.domain.turns import LOOKED_AT
from shared.stores.codec import FIELDS, TROUBLES
from shared.stores.firestore.records import value_of
from shared.stores.firestore.schema import CONVERSATIONS, COUNTERS, MARKS, RECEIPTS, RECORDS

MOST_IN = 30
"""Values of one IN. https://cloud.google.com/firestore/docs/query-data/queries, 2026-09."""

_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
"""A bound of this type leaves out what is no time."""

_FROM = [{"collection_id": RECORDS.name}]
_LEAN = {
    "fields": [
        {"field_path": name} for name in (*FIELDS, "mark", "receipts") if name not in ("key", "payload", "metadata")
    ]
}


def equal(field: str, value: str, then: str | None = None) -> dict[str, Any]:
    """All records whose field has this value. `then`: the second field of a composite index, which serves the query."""
    query = {"from_": _FROM, "where": _where(field, value)}
    return query | ({"order_by": [_ascending(then)]} if then else {})


def overdue_page(before: datetime, limit: int, last: Any | None) -> dict[str, Any]:
    """State and time of the next records to sweep. `last` is the last document of the page before."""
    query = {
        "from_": _FROM,
        "select": {"fields": [{"field_path": "state"}, {"field_path": "sweep_at"}]},
        "where": _where("sweep_at", before, "LESS_THAN_OR_EQUAL"),
        "order_by": [_ascending("sweep_at"), _ascending("__name__")],
        "limit": limit,
    }
    if last is None:
        return query
    return _behind(query, [last.fields["sweep_at"], {"reference_value": last.name}])


def listed_page(listing: Listing, tenant: str | None, limit: int, last: tuple[str, str] | None) -> dict[str, Any]:
    """The next records of a listing, without their content. `last`: tenant and name of the last document before."""
    by = ("state" if listing in BY_STATE else "mark", listing.value)
    equal_to = dict([by] if tenant is None else [by, ("tenant", tenant)])
    query = {
        "from_": _FROM,
        "select": _LEAN,
        "where": _where_all(**equal_to),
        "order_by": [*([_ascending("tenant")] if tenant is None else []), _ascending("__name__")],
        "limit": limit,
    }
    if last is None:
        return query
    return _behind(query, [*([value_of(last[0])] if tenant is None else []), {"reference_value": last[1]}])


def history_page(
    tenant: str, since: datetime | None, until: datetime | None, limit: int, last: tuple[datetime, Any] | None
) -> dict[str, Any]:
    """The next records of a tenant, the newest first. `last`: time and reference of the last document before."""
    filters = [_where("tenant", tenant), _where("received_at", since or _EARLIEST, "GREATER_THAN_OR_EQUAL")]
    if until is not None:
        filters.append(_where("received_at", until, "LESS_THAN_OR_EQUAL"))
    return _newest_first(RECORDS.name, "received_at", filters, limit, last)


def of_conversation_page(id: str, limit: int, last: tuple[datetime, Any] | None) -> dict[str, Any]:
    """The next records of a conversation, as in `history_page`."""
    filters = [_where("conversation", id), _where("received_at", _EARLIEST, "GREATER_THAN_OR_EQUAL")]
    return _newest_first(RECORDS.name, "received_at", filters, limit, last)


def conversation_page(tenant: str, limit: int, last: tuple[datetime, Any] | None) -> dict[str, Any]:
    """The next conversations of a tenant, that with the newest message first. `last` as in `history_page`."""
    filters = [_where("tenant", tenant), _where("last_message_at", _EARLIEST, "GREATER_THAN_OR_EQUAL")]
    return _newest_first(CONVERSATIONS.name, "last_message_at", filters, limit, last)


def _newest_first(
    collection: str, time: str, filters: Sequence[Any], limit: int, last: tuple[datetime, Any] | None
) -> dict[str, Any]:
    query = {
        "from_": [{"collection_id": collection}],
        "where": _all(*filters),
        "order_by": [_descending(time), _descending("__name__")],
        "limit": limit,
    }
    return query if last is None else _behind(query, [value_of(last[0]), last[1]])


def refused_unechoed_page(limit: int, last: str | None) -> dict[str, Any]:
    """The names of the next documents that hold a failed receipt without an echo."""
    query = {
        "from_": [{"collection_id": RECEIPTS.name}],
        "select": {"fields": [{"field_path": "__name__"}]},
        "where": _where("mark", Listing.REFUSED.value),
        "order_by": [_ascending("__name__")],
        "limit": limit,
    }
    return query if last is None else _behind(query, [{"reference_value": last}])


def troubled_page(after: Any | None, limit: int) -> dict[str, Any]:
    """The next documents of troubled marks after this reference, with only what makes them so."""
    query = {
        "from_": [{"collection_id": MARKS.name}],
        "select": {"fields": [{"field_path": name} for name in TROUBLES]},
        "where": _where("troubled", True),
        "order_by": [_ascending("__name__")],
        "limit": limit,
    }
    return query if after is None else _behind(query, [after])


def entry_page(collection: str, tenant: str | None, after: Any | None, limit: int) -> dict[str, Any]:
    """The next entries of a kind after this reference, of one tenant or of all."""
    query: dict[str, Any] = {
        "from_": [{"collection_id": collection}],
        "order_by": [_ascending("__name__")],
        "limit": limit,
    }
    if tenant is not None:
        query["where"] = _where("tenant", tenant)
    return query if after is None else _behind(query, [after])


def of_provider_ids(hashes: Sequence[str]) -> dict[str, Any]:
    """The records with one of these hashes, without their content. Takes at most MOST_IN hashes."""
    values = {"array_value": {"values": [value_of(id_hash) for id_hash in hashes]}}
    where = {"field_filter": {"field": {"field_path": "id_hash"}, "op": "IN", "value": values}}
    return {"from_": _FROM, "select": _LEAN, "where": where}


def records_between(first: Any, beyond: Any, limit: int) -> dict[str, Any]:
    """The names of records from `first` on and before `beyond`, both as references."""
    return _ids_between("__name__", "GREATER_THAN_OR_EQUAL", first, beyond, limit)


def next_correlation_id(first: str, beyond: str, is_behind: bool) -> dict[str, Any]:
    """The next correlation id from `first` on (`is_behind`: after it) and before `beyond`: one record, that field."""
    op = "GREATER_THAN" if is_behind else "GREATER_THAN_OR_EQUAL"
    return _ids_between("correlation_id", op, value_of(first), value_of(beyond), 1)


def _ids_between(field: str, op: str, first: Any, beyond: Any, limit: int) -> dict[str, Any]:
    bounds = [
        {"field_filter": {"field": {"field_path": field}, "op": op, "value": first}},
        {"field_filter": {"field": {"field_path": field}, "op": "LESS_THAN", "value": beyond}},
    ]
    return {
        "from_": _FROM,
        "select": {"fields": [{"field_path": field}]},
        "where": _all(*bounds),
        "order_by": [_ascending(field)],
        "limit": limit,
    }


def in_state_of_kind(state: State, kind: Kind, tenant: str | None) -> dict[str, Any]:
    """The records in a state, only events or only messages, of one tenant or of all."""
    return {
        "from_": _FROM,
        "where": _where_all(state=state.value, kind=kind.value, **({} if tenant is None else {"tenant": tenant})),
        "order_by": [] if tenant else [_ascending("tenant")],
    }


def last_in_turn(first: str, beyond: str) -> dict[str, Any]:
    """The records with the last places in the index of turns from `first` to before `beyond`."""
    between = _all(_where("turn", first, "GREATER_THAN_OR_EQUAL"), _where("turn", beyond, "LESS_THAN"))
    return {"from_": _FROM, "where": between, "order_by": [_descending("turn")], "limit": LOOKED_AT}


def waiting_for(after: datetime, tenant: str | None) -> dict[str, Any]:
    """The pending records that their callers want sent after this time, of one tenant or of all."""
    later = _where("pending_since", after, "GREATER_THAN")
    return {"from_": _FROM, "where": later if tenant is None else _all(_where("tenant", tenant), later)}


def oldest_of(field: str, tenant: str | None = None) -> dict[str, Any]:
    """The record with the earliest pending_since or dead_since. Records have each field only in that state."""
    query = {
        "from_": _FROM,
        "select": {"fields": [{"field_path": field}]},
        "order_by": [_ascending(field)],
        "limit": 1,
    }
    return query if tenant is None else query | {"where": _where("tenant", tenant)}


def recent_counters(since: datetime, limit: int) -> dict[str, Any]:
    """The counters of processes that wrote them since then."""
    return {
        "from_": [{"collection_id": COUNTERS.name}],
        "where": _where("flushed_at", since, "GREATER_THAN_OR_EQUAL"),
        "order_by": [_ascending("flushed_at")],
        "limit": limit,
    }


def _behind(query: Mapping[str, Any], cursor: Sequence[Any]) -> dict[str, Any]:
    return {**query, "start_at": {"values": cursor, "before": False}}


def _where(field: str, value: Any, op: str = "EQUAL") -> dict[str, Any]:
    return {"field_filter": {"field": {"field_path": field}, "op": op, "value": value_of(value)}}


def _where_all(**values: str) -> dict[str, Any]:
    return _all(*(_where(*pair) for pair in values.items()))


def _all(*filters: Any) -> dict[str, Any]:
    return {"composite_filter": {"op": "AND", "filters": [*filters]}}


def _ascending(field: str) -> dict[str, Any]:
    return {"field": {"field_path": field}, "direction": "ASCENDING"}


def _descending(field: str) -> dict[str, Any]:
    return {"field": {"field_path": field}, "direction": "DESCENDING"}
