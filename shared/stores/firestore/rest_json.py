"""Firestore's REST JSON: writes from records or from their gRPC form, and documents back.

https://protobuf.dev/programming-guides/json (2026-11): names in lowerCamelCase, 64-bit integers as strings, timestamps
in RFC 3339. A new record is written without the gRPC form between, because that is most of what the webhook stores.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any

import orjson

from shared.domain.listings import mark_of
from shared.domain.record import Attempt, Delivery, Kind, State
from shared.domain.turns import place
from shared.stores.codec import FIELDS, plain_attempts, to_json
from shared.stores.firestore.records import TEXTS, Document, Write, id_hash_of, name_of, record_name

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)

_NAMES = tuple(name for name in FIELDS if name not in {"key", "bell", *TEXTS})
_values = attrgetter(*_NAMES)


@dataclass(frozen=True, slots=True)
class JsonWrite:
    """One write of a document, ready to be sent. `name` is relative to the database."""

    name: str
    json: bytes

    @property
    def size(self) -> int:
        return len(self.json)


# ---- writes


def creating(record: Delivery, root: str) -> JsonWrite:
    """The write that creates a record, refused if it exists. Equal to `shared.stores.firestore.records.creating`.
    Raises TypeError or ValueError for what cannot be stored.
    """
    try:
        fields = {
            name: {_KINDS[type(value)]: value} if type(value) is not datetime else _moment(value)
            for name, value in zip(_NAMES, _values(record), strict=True)
            if value is not None
        }
    except KeyError as error:
        raise TypeError("A value of this type cannot be stored.") from error
    fields["payload"] = {"stringValue": to_json(dict(record.payload))}
    fields["metadata"] = {"stringValue": to_json(dict(record.metadata)) if record.metadata else "{}"}
    fields["attempts_log"] = {"stringValue": _attempts(record.attempts_log) if record.attempts_log else "[]"}
    if record.bell:
        fields["bell"] = {"arrayValue": {"values": [{"stringValue": waiter} for waiter in sorted(record.bell)]}}
    if record.provider_id:
        fields["id_hash"] = {"stringValue": id_hash_of(record)}
    if record.state is State.PENDING:
        fields["pending_since"] = _moment(record.waits_since)
    elif record.state is State.DEAD:
        fields["dead_since"] = _moment(record.waits_since)
    if mark := mark_of(record):
        fields["mark"] = {"stringValue": mark}
    if turn := place(record):
        fields["turn"] = {"stringValue": turn}
    name = record_name(record.key)
    write = {"update": {"name": f"{root}/{name}", "fields": fields}, "currentDocument": {"exists": False}}
    return JsonWrite(name, orjson.dumps(write, option=orjson.OPT_UTC_Z))


def write_of(write: Write, root: str) -> JsonWrite:
    """Any of our writes, from its gRPC form."""
    name, update = name_of(write), write["update"]
    found: dict[str, Any] = {"update": {"name": f"{root}/{name}", "fields": _fields(update["fields"])}}
    if "update_mask" in write:
        found["updateMask"] = {"fieldPaths": write["update_mask"]["field_paths"]}
    if "update_transforms" in write:
        found["updateTransforms"] = [
            {"fieldPath": transform["field_path"], "minimum": _value(transform["minimum"])}
            for transform in write["update_transforms"]
        ]
    match write.get("current_document"):
        case {"exists": exists}:
            found["currentDocument"] = {"exists": exists}
        case {"update_time": time}:
            found["currentDocument"] = {"updateTime": _timestamp(time)}
    return JsonWrite(name, orjson.dumps(found))


def _attempts(attempts: tuple[Attempt, ...]) -> str:
    return to_json(plain_attempts(attempts))


def _moment(at: datetime) -> dict[str, datetime]:
    if at.tzinfo is not UTC:
        if at.tzinfo is None:
            raise ValueError("A time without a zone cannot be stored.")
        at = at.astimezone(UTC)
    return {"timestampValue": at}


_KINDS: Mapping[type, str] = {
    str: "stringValue",
    Kind: "stringValue",
    State: "stringValue",
    bool: "booleanValue",
    int: "integerValue",
}
"""The kinds of values that orjson writes as they are. An integer may be a number in place of a string."""


def _fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _value(value) for name, value in fields.items()}


def _value(value: Mapping[str, Any]) -> dict[str, Any]:
    ((kind, inner),) = value.items()
    match kind:
        case "string_value":
            return {"stringValue": inner}
        case "integer_value":
            return {"integerValue": str(inner)}
        case "boolean_value":
            return {"booleanValue": inner}
        case "timestamp_value":
            return {"timestampValue": _timestamp(inner)}
        case "map_value":
            return {"mapValue": {"fields": _fields(inner["fields"])}}
        case "array_value":
            return {"arrayValue": {"values": [_value(one) for one in inner["values"]]}}
        case _:
            raise TypeError(f"A {kind} is never written.")


def _timestamp(time: Mapping[str, int]) -> str:
    moment = _EPOCH + time["seconds"] * _SECOND
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time['nanos']:09d}Z"


# ---- documents


def document_of(plain: Mapping[str, Any], root: str) -> Document:
    """A document as the service sends it. Raises KeyError, TypeError or ValueError for another answer."""
    fields = {name: _plain(value) for name, value in plain.get("fields", {}).items()}
    return Document(plain["name"].removeprefix(f"{root}/"), fields, nanoseconds(plain["updateTime"]))


def nanoseconds(time: str) -> int:
    """A timestamp in nanoseconds since 1970."""
    whole, _, fraction = time.removesuffix("Z").partition(".")
    seconds = (datetime.fromisoformat(whole).replace(tzinfo=UTC) - _EPOCH) // _SECOND
    return seconds * 1_000_000_000 + int(fraction.ljust(9, "0"))


def _plain(value: Mapping[str, Any]) -> Any:
    match value:
        case {"stringValue": str(plain)} | {"booleanValue": bool(plain)}:
            return plain
        case {"integerValue": number}:
            return int(number)
        case {"timestampValue": time}:
            micros = nanoseconds(time) // 1000
            return _EPOCH + timedelta(microseconds=micros)
        case {"mapValue": inner}:
            return {name: _plain(one) for name, one in inner.get("fields", {}).items()}
        case {"arrayValue": inner}:
            return [_plain(one) for one in inner.get("values", [])]
        case _:
            return None
