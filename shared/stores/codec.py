"""The codec: converts a record to a plain dict that JSON can hold, and back. All stores share it.

Fields that a newer version of Pombo added are ignored on reading and kept on writing, so an older version that runs
beside it (a rollout, a rollback) loses nothing. This holds for the fields of a record, not for parts inside a field.
The codec leaves out the version and the receipts: each store keeps those in its own way.
"""

import json
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

import orjson

from shared.domain.errors import UnknownState
from shared.domain.record import Attempt, Delivery, Kind, Retries, State

Plain = dict[str, Any]

_KEPT_APART = frozenset({"receipts", "version"})
FIELDS = tuple(field.name for field in fields(Delivery) if field.name not in _KEPT_APART)
"""All fields, always written, None included: a field absent from a stored record was unknown to its writer."""

MOMENTS = frozenset(
    {
        "received_at",
        "lease_until",
        "due_at",
        "sweep_at",
        "give_up_at",
        "doubt_until",
        "started_at",
        "finished_at",
        "expire_at",
        "send_at",
    }
)
MICROSECOND = timedelta(microseconds=1)

TROUBLES = ("refused", "block", "receipt_block", "disconnected")
"""The marks that make a sender troubled, by name: those of `shared.domain.marks.is_troubled`."""

_ATTEMPT_FIELDS = tuple(field.name for field in fields(Attempt))
_TO_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_NOTHING_ELSE = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS
"""What has no form in JSON is refused, as json refuses it."""


def encode(record: Delivery, over: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The record as plain values. `over` is what is stored now; its fields of a newer version are kept."""
    newer = {name: value for name, value in (over or {}).items() if name not in FIELDS}
    return newer | {name: _plain(getattr(record, name)) for name in FIELDS}


def decode(plain: Mapping[str, Any], version: int | None = None) -> Delivery:
    """The record, without its receipts. Raises UnknownState if this version cannot read it."""
    try:
        known = {name: _typed(name, plain[name]) for name in FIELDS if name in plain}
        return Delivery(**known, version=version)
    except (KeyError, TypeError, ValueError) as error:
        raise UnknownState from error


def encode_mark(mark: Any) -> Plain:
    """The fields of a mark, without those that are None: times as text, waits in microseconds."""
    values = {field.name: getattr(mark, field.name) for field in fields(mark)}
    return {name: _plain(value) for name, value in values.items() if value is not None}


def to_json(plain: Any) -> str:
    """Compact JSON. Raises TypeError or ValueError for what JSON or UTF-8 cannot hold."""
    try:
        quick = orjson.dumps(plain, option=_NOTHING_ELSE)
    except TypeError:  # also for a key that is no text, an integer beyond 64 bits, and what is nested deeply
        return storable(_TO_JSON(plain))
    # Of what is no number it makes null.
    return storable(_TO_JSON(plain)) if b"null" in quick else quick.decode()


def storable(text: str) -> str:
    """The text. Raises UnicodeEncodeError, a ValueError, if it holds a lone surrogate."""
    if not text.isascii():
        text.encode()
    return text


def from_json(text: str) -> Any:
    """What `to_json` wrote. Raises UnknownState."""
    try:
        return json.loads(text)
    except (TypeError, ValueError) as error:
        raise UnknownState from error


def moment(at: datetime) -> str:
    """A time as text of fixed width, in UTC to the microsecond. The texts sort in the order of the times."""
    if at.tzinfo is None:
        raise ValueError("A time without a zone cannot be stored.")
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def moment_or_none(at: datetime | None) -> str | None:
    return None if at is None else moment(at)


def as_moment(text: str) -> datetime:
    """The time that `moment` wrote."""
    return datetime.fromisoformat(text)


def plain_attempts(attempts: tuple[Attempt, ...]) -> list[dict[str, Any]]:
    """The log of attempts as plain values."""
    return [{name: _plain(getattr(attempt, name)) for name in _ATTEMPT_FIELDS} for attempt in attempts]


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            return moment(value)
        case timedelta():
            return value // MICROSECOND
        case Enum():
            return value.value
        case tuple():
            return plain_attempts(value)
        case frozenset():
            return sorted(value)
        case Retries():
            return {"attempts": value.attempts, "wait": _plain(value.wait)}
        case Mapping():
            return dict(value)
        case _:
            return value


def _typed(name: str, value: Any) -> Any:
    if name in MOMENTS:
        return None if value is None else as_moment(value)
    match name:
        case "kind":
            return Kind(value)
        case "state":
            return State(value)
        case "attempts_log":
            return tuple(_attempt(attempt) for attempt in value)
        case "bell":
            return frozenset(value or ())
        case "retry":
            return value and Retries(value["attempts"], value["wait"] * MICROSECOND)
        case _:
            return value


def _attempt(plain: Mapping[str, Any]) -> Attempt:
    known = {name: plain[name] for name in _ATTEMPT_FIELDS if name in plain}
    return Attempt(**known | {"at": as_moment(known["at"])})
