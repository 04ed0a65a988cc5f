"""The queries of the Firestore store, each served by an index of the schema; as google.firestore.v1.StructuredQuery."""

from datetime import datetime
from typing import Any

from shared.stores.firestore_documents import value_of
from shared.stores.firestore_schema import RECORDS

_FROM = [{"collection_id": RECORDS.name}]


def equal(field: str, value: str, then: str | None = None) -> dict[str, Any]:
    """All records whose field has this value. `then`: the second field of a composite index, which serves the query."""
    query = {"from_": _FROM, "where": _where(field, "EQUAL", value)}
    return query | ({"order_by": [_ascending(then)]} if then else {})


def overdue_page(before: datetime, limit: int, last: Any | None) -> dict[str, Any]:
    """State and time of the next records to be swept, behind `last`, the last document of the page before."""
    query = {
        "from_": _FROM,
        "select": {"fields": [{"field_path": "state"}, {"field_path": "sweep_at"}]},
        "where": _where("sweep_at", "LESS_THAN_OR_EQUAL", before),
        "order_by": [_ascending("sweep_at"), _ascending("__name__")],
        "limit": limit,
    }
    if last is None:
        return query
    cursor = [last.fields["sweep_at"], {"reference_value": last.name}]
    return query | {"start_at": {"values": cursor, "before": False}}


def oldest_pending() -> dict[str, Any]:
    """The record that has been pending the longest."""
    return {
        "from_": _FROM,
        "select": {"fields": [{"field_path": "pending_since"}]},
        "order_by": [_ascending("pending_since")],
        "limit": 1,
    }


def _where(field: str, op: str, value: Any) -> dict[str, Any]:
    return {"field_filter": {"field": {"field_path": field}, "op": op, "value": value_of(value)}}


def _ascending(field: str) -> dict[str, Any]:
    return {"field": {"field_path": field}, "direction": "ASCENDING"}
