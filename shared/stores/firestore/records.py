"""Documents: how a record and its receipts are stored, and the writes that change them.

A record's fields are fields of its document and times are timestamps, so that queries, TTL and an operator at the
console can use them. Payload, metadata and the log of attempts are JSON text: Firestore has no arrays in arrays, no
integers over 64 bits and at most 20 levels (https://cloud.google.com/firestore/quotas, 2026-09). None is an absent
field, because an index would hold a null. Requests are plain dicts in the form of google.firestore.v1; this module does
not need the library. The webhook service sends them as JSON (shared.stores.firestore.rest_json).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from shared.domain.identity import provider_id_hash
from shared.domain.listings import Listing, mark_of
from shared.domain.record import Delivery, ReceiptKind, Receipts, State
from shared.domain.turns import place
from shared.stores.codec import FIELDS, MOMENTS, as_moment, decode, encode, from_json, moment, storable, to_json
from shared.stores.firestore.schema import RECEIPTS, RECORDS
from shared.stores.records import receipts_of, without_content

Fields = Mapping[str, Any]
Write = dict[str, Any]

TEXTS = frozenset({"payload", "metadata", "attempts_log"})

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Document:
    """A document as it was read, with plain values. None stands for a kind of value that this version never writes."""

    name: str
    fields: Fields
    version: int
    """When it was last changed, in nanoseconds. A document that is deleted and recreated has a later time."""


# ---- names


def record_name(key: str) -> str:
    return f"{RECORDS.name}/{key}"


def receipts_name(id_hash: str) -> str:
    return f"{RECEIPTS.name}/{id_hash}"


# ---- a record


def fields_of(record: Delivery) -> dict[str, Any]:
    """All fields of a record's document. Raises TypeError or ValueError for what cannot be stored."""
    plain = encode(record)
    del plain["key"]
    for name in MOMENTS:
        plain[name] = plain[name] and as_moment(plain[name])
    for name in TEXTS:
        plain[name] = to_json(plain[name])
    plain["bell"] = plain["bell"] or None
    plain["id_hash"] = id_hash_of(record)
    plain["pending_since"] = record.waits_since if record.state is State.PENDING else None
    plain["dead_since"] = record.waits_since if record.state is State.DEAD else None
    plain["mark"] = mark_of(record)
    plain["turn"] = place(record)
    return {name: value_of(value) for name, value in plain.items() if value is not None}


def record_of(document: Document) -> Delivery:
    """The record in a document, without its receipts. Raises UnknownState."""
    stored = {name: value for name, value in document.fields.items() if name in FIELDS}
    for name in TEXTS & stored.keys():
        stored[name] = from_json(stored[name])
    for name, value in stored.items():
        if name in MOMENTS and isinstance(value, datetime):
            stored[name] = moment(value)
    stored["key"] = document.name.rpartition("/")[2]
    return decode(stored, version=document.version)


def lean_record_of(document: Document) -> Delivery:
    """The record in a document that was read without payload and metadata. Raises UnknownState."""
    return without_content(record_of(replace(document, fields={**document.fields, "payload": "{}"})))


def document_of(message: Any) -> Document:
    """A document as the gRPC library has it."""
    fields = {name: plain_of(value) for name, value in message.fields.items()}
    return Document(message.name, fields, version_of(message.update_time))


def id_hash_of(record: Delivery) -> str | None:
    """The hash that finds a record, and its receipts without an echo, by the provider's id."""
    return provider_id_hash(record.provider, record.provider_id) if record.provider_id else None


def version_of(update_time: Any) -> int:
    """A timestamp of the gRPC library in nanoseconds."""
    return int(update_time.seconds) * 1_000_000_000 + int(update_time.nanos)


def name_of(write: Write) -> str:
    name: str = write["update"]["name"]
    return name


def creating(record: Delivery) -> Write:
    """The write that creates a record, refused if it exists."""
    return {"update": _document(record_name(record.key), fields_of(record)), "current_document": {"exists": False}}


def changing(before: Delivery, after: Delivery) -> Write:
    """The write of what differs, refused unless the stored record is `before`. The payload never changes and is not
    sent again. Fields that a newer version added stay as they are.
    """
    old, new = fields_of(before), fields_of(after)
    mask = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    return {
        "update": _document(record_name(before.key), {name: new[name] for name in mask if name in new}),
        "update_mask": {"field_paths": mask},
        "current_document": unless_changed(before.version or 0),
    }


def unless_changed(version: int | None) -> dict[str, Any]:
    """The precondition that a document still has this version; for None, that it does not exist."""
    if version is None:
        return {"exists": False}
    seconds, nanos = divmod(version, 1_000_000_000)
    return {"update_time": {"seconds": seconds, "nanos": nanos}}


# ---- receipts: a map from kind, provider id and code to the earliest time, which the server itself keeps the least


def noting(key: str, round_: int, kind: ReceiptKind, at: datetime, code: int | None, id_hash: str) -> Write:
    """The write of a receipt into its record, refused if the record does not exist."""
    path = f"receipts.{_quoted(str(round_))}.{_quoted(_entry(kind, code, id_hash))}"
    return {
        "update": _document(record_name(key), _marked(kind)),
        "update_mask": {"field_paths": [*_marked(kind)]},
        "update_transforms": [_earliest(path, at)],
        "current_document": {"exists": True},
    }


def noting_unechoed(kind: ReceiptKind, at: datetime, code: int | None, id_hash: str, expire_at: datetime) -> Write:
    """The write of a receipt that names no record, kept by the provider's id."""
    fields = {"expire_at": value_of(expire_at), **_marked(kind)}
    return {
        "update": _document(receipts_name(id_hash), fields),
        "update_mask": {"field_paths": [*fields]},
        "update_transforms": [_earliest(f"receipts.{_quoted(_entry(kind, code, id_hash))}", at)],
    }


def noting_together(one: Write, other: Write) -> Write:
    """Two such writes to one document, merged: the earlier of two times for a receipt is kept."""
    earliest: dict[str, Any] = {}
    for transform in (*one["update_transforms"], *other["update_transforms"]):
        path = transform["field_path"]
        if path not in earliest or _time_in(transform) < _time_in(earliest[path]):
            earliest[path] = transform
    fields = {**one["update"]["fields"], **other["update"]["fields"]}
    return one | {
        "update": _document(name_of(one), fields),
        "update_mask": {"field_paths": [*fields]},
        "update_transforms": [*earliest.values()],
    }


def _time_in(transform: Mapping[str, Any]) -> int:
    at: int = transform["minimum"]["integer_value"]
    return at


def _marked(kind: ReceiptKind) -> Fields:
    """The mark that a failed receipt sets. It is a blind write, so it may outlive its reason; readers check again."""
    return {"mark": value_of(Listing.REFUSED)} if kind is ReceiptKind.FAILED else {}


def echoed_in(document: Document) -> Iterator[tuple[int, Receipts]]:
    """The receipts in a record's document, each with its round."""
    for round_, entries in (document.fields.get("receipts") or {}).items():
        for receipts in _receipts_in(entries):
            yield int(round_), receipts


def unechoed_in(document: Document) -> Iterator[Receipts]:
    """The receipts in a document of those without an echo."""
    return _receipts_in(document.fields.get("receipts"))


def _entry(kind: ReceiptKind, code: int | None, id_hash: str) -> str:
    """Failures of different codes are kept apart: readers decide that, at equal times, the lower code counts."""
    return f"{kind}.{id_hash}" + (f".{code}" if kind is ReceiptKind.FAILED and code is not None else "")


def _receipts_in(entries: Mapping[str, int] | None) -> Iterator[Receipts]:
    for entry, micros in (entries or {}).items():
        at = _EPOCH + micros * _MICROSECOND
        match entry.split("."):
            case [kind, id_hash]:
                yield receipts_of(kind, at, None, id_hash)
            case [ReceiptKind.FAILED as kind, id_hash, code]:
                yield receipts_of(kind, at, int(code), id_hash)
            case _:  # a newer version's
                continue


def _earliest(path: str, at: datetime) -> dict[str, Any]:
    return {"field_path": path, "minimum": value_of((at - _EPOCH) // _MICROSECOND)}


# ---- values


def value_of(plain: Any) -> dict[str, Any]:
    """A plain value as a google.firestore.v1.Value. Raises TypeError, ValueError."""
    match plain:
        case bool():
            return {"boolean_value": plain}
        case int():
            return {"integer_value": plain}
        case str():
            return {"string_value": storable(plain)}
        case datetime():
            seconds, micros = divmod((plain - _EPOCH) // _MICROSECOND, 1_000_000)
            return {"timestamp_value": {"seconds": seconds, "nanos": micros * 1000}}
        case Mapping():
            return {"map_value": {"fields": {name: value_of(inner) for name, inner in plain.items()}}}
        case list():
            return {"array_value": {"values": [value_of(inner) for inner in plain]}}
        case _:
            raise TypeError(f"A {type(plain).__name__} cannot be stored.")


def plain_of(value: Any) -> Any:
    """The plain value of a google.firestore.v1.Value; None for a kind that we never write."""
    match value.WhichOneof("value_type"):
        case "boolean_value" | "integer_value" | "string_value" as kind:
            return getattr(value, kind)
        case "timestamp_value":
            return time_of(value.timestamp_value)
        case "map_value":
            return {name: plain_of(inner) for name, inner in value.map_value.fields.items()}
        case "array_value":
            return [plain_of(inner) for inner in value.array_value.values]
        case _:
            return None


def time_of(timestamp: Any) -> datetime:
    """A timestamp as a datetime in UTC, to the microsecond, which is Firestore's precision."""
    return _EPOCH + timedelta(seconds=timestamp.seconds, microseconds=timestamp.nanos // 1000)


def _document(name: str, fields: Fields) -> dict[str, Any]:
    return {"name": name, "fields": fields}


def _quoted(name: str) -> str:
    """One segment of a field path. Ours are words, digits and dots, so nothing in them needs an escape."""
    return f"`{name}`"
