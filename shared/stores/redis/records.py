"""Records in the form of the Redis store's scripts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from shared.domain.events import ReceiptBlock, ReceiptReceived
from shared.domain.identity import Echo, provider_id_hash
from shared.domain.listings import mark_of
from shared.domain.record import COUNTED_STATES, OPEN_STATES, Delivery, ReceiptKind, Receipts
from shared.domain.turns import place
from shared.stores.codec import FIELDS, decode, encode, encode_mark, from_json, to_json
from shared.stores.records import new_version, receipts_of, with_receipts

LEAST_LIFE = timedelta(seconds=60)
"""A record that expires now still exists for its writer, however far our clock and Redis's are apart."""


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

Value = str | int


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record as found, everything stored of it, and the version that a write based on it must name."""

    record: Delivery
    plain: Mapping[str, Any]
    version: str


def as_stored(found: Sequence[Sequence[str]] | None) -> StoredRecord | None:
    """The record from a script's answer. Raises UnknownState."""
    if found is None:
        return None
    fields, unechoed = (pairs(flat) for flat in found)
    plain = from_json(fields["body"])
    # A record with fields of a newer version is returned without a version: its `seen` would lack those fields, so the
    # record must be read again before it is written.
    record = decode(plain, version=None if is_newer(plain) else int(fields["version"]))
    echoed = [_echoed(name, value) for name, value in fields.items() if name.startswith("receipt:")]
    by_id = [_receipts(kind, value, _id_hash(record)) for kind, value in unechoed.items()]
    return StoredRecord(with_receipts(record, echoed, by_id), plain, fields["version"])


def creation(record: Delivery, version: int, now: datetime, entries: Sequence[Value] = ()) -> list[Value]:
    """The arguments of a commit that creates one record if it does not exist, with these rows of entries."""
    return [record.key, "", version, 1, 1, *row_of(record, now), *entries]


def noted(echo: Echo, receipt: ReceiptReceived, id_hash: str) -> list[Value]:
    field = f"receipt:{echo.round}:{receipt.kind.value}:{id_hash}"
    return [echo.key, field, _receipt(receipt), new_version(), int(receipt.kind is ReceiptKind.FAILED)]


def marks_name(id: str) -> str:
    return f"pombo:marks:{id}"


def noted_block(id: str, noted: ReceiptBlock) -> list[Value]:
    """The arguments of the write of what a failed receipt says, with a new version beside it."""
    return [id, new_version(), to_json(encode_mark(noted))]


def noted_unechoed(receipt: ReceiptReceived, id_hash: str, retention: timedelta) -> list[Value]:
    """All receipts of a message expire together with the last one."""
    return [id_hash, receipt.kind.value, _receipt(receipt), new_version(), _milliseconds(retention)]


def microseconds(at: datetime) -> int:
    """Since 1970: a score, which Redis keeps as a double, exact up to 2^53 (the year 2255)."""
    return (at - _EPOCH) // _MICROSECOND


def as_time(since_1970: str | int) -> datetime:
    return _EPOCH + int(since_1970) * _MICROSECOND


def row_of(record: Delivery, now: datetime, over: Mapping[str, Any] | None = None) -> list[Value]:
    plain = encode(record, over)
    return [
        record.key,
        to_json(plain),
        plain["state"],
        _id_hash(record),
        record.correlation_id,
        record.tenant,
        microseconds(record.received_at),
        microseconds(record.waits_since) if record.state in COUNTED_STATES else "",
        microseconds(record.sweep_at) if record.sweep_at and record.state in OPEN_STATES else "",
        # The time left, not the moment, so that a difference between our clock and Redis's shortens no retention.
        _milliseconds(record.expire_at - now) if record.expire_at else "",
        mark_of(record) or "",
        record.turn_id or "",
        place(record) or "",
        record.conversation or "",
    ]


def is_newer(plain: Mapping[str, Any]) -> bool:
    """Whether it has fields of a newer version."""
    return not plain.keys() <= frozenset(FIELDS)


def _milliseconds(life: timedelta) -> int:
    return max(life, LEAST_LIFE) // timedelta(milliseconds=1)


def _id_hash(record: Delivery) -> str:
    return provider_id_hash(record.provider, record.provider_id) if record.provider_id else ""


def _receipt(receipt: ReceiptReceived) -> str:
    return f"{microseconds(receipt.at)}:{'' if receipt.code is None else receipt.code}"


def _echoed(name: str, value: str) -> tuple[int, Receipts]:
    _, round_, kind, id_hash = name.split(":")
    return int(round_), _receipts(kind, value, id_hash)


def _receipts(kind: str, value: str, id_hash: str) -> Receipts:
    at, code = value.split(":")
    return receipts_of(kind, as_time(at), int(code) if code else None, id_hash)


def pairs(flat: Iterable[str]) -> dict[str, str]:
    """A hash from Redis's flat list of names and values in turn."""
    each = iter(flat)
    return dict(zip(each, each, strict=True))
