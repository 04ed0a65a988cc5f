"""Records in the form of the Redis store's scripts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from shared.domain.dead_letters import Listing, mark_of
from shared.domain.delivery.answers import Step
from shared.domain.errors import UnknownState
from shared.domain.events import ReceiptReceived
from shared.domain.identity import Echo, provider_id_hash
from shared.domain.record import OPEN_STATES, Delivery, ReceiptKind, Receipts, State
from shared.pipeline.ports import Cursor, Page
from shared.stores.codec import FIELDS, decode, encode, from_json, to_json
from shared.stores.records import new_version, receipts_of, with_receipts, without_content, written

COUNTED = (*sorted(OPEN_STATES), State.DEAD)

LEAST_LIFE = timedelta(seconds=60)
"""A record that expires now still exists for its writer, however far our clock and Redis's are apart."""

_UNREAD = "unread"
"""A version that no record has: a write based on it is refused and gets what is stored."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

Value = str | int


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record as found, everything stored of it, and the version that a write based on it must name."""

    record: Delivery
    plain: Mapping[str, Any]
    version: str


def seen_before(record: Delivery) -> StoredRecord:
    """The record as a caller has seen it. It has a version only if writing `plain` would lose nothing."""
    return StoredRecord(record, {}, _UNREAD if record.version is None else str(record.version))


def as_stored(found: Sequence[Sequence[str]] | None) -> StoredRecord | None:
    """The record from a script's answer. Raises UnknownState."""
    if found is None:
        return None
    fields, unechoed = (pairs(flat) for flat in found)
    plain = from_json(fields["body"])
    # A record with fields of a newer version is returned without a version: its `seen` would lack those fields, so the
    # record must be read again before it is written.
    record = decode(plain, version=None if _newer(plain) else int(fields["version"]))
    echoed = [_echoed(name, value) for name, value in fields.items() if name.startswith("receipt:")]
    by_id = [_receipts(kind, value, _id_hash(record)) for kind, value in unechoed.items()]
    return StoredRecord(with_receipts(record, echoed, by_id), plain, fields["version"])


def creation(record: Delivery, version: int, now: datetime) -> list[Value]:
    """The arguments of a commit that creates one record if it does not exist."""
    return [record.key, "", version, 1, *_row(record, now)]


def commit(key: str, before: StoredRecord | None, step: Step, version: int, now: datetime) -> list[Value]:
    """The arguments of a commit. Raises TypeError or ValueError for what cannot be stored."""
    rows = [_row(record, now) for record in step.create]
    if step.write is not None:
        if step.write.key != key:
            raise ValueError("A change writes the record that it was asked to change.")
        rows = [_row(step.write, now, before.plain if before else None), *rows]
    flat = (value for row in rows for value in row)
    return [key, before.version if before else "", version, int(step.write is not None), *flat]


def handed_on(step: Step, before: StoredRecord | None, version: int, joins: bool) -> Step:
    """The step once it is stored. Its record is current for the next change, unless the store has more than the step
    knows: receipts that waited for this provider's id, or fields of a newer version.
    """
    if step.write is None:
        return step
    if before is None:
        return written(step, None if joins else version)
    was, now = before.record, step.write
    joined = joins and (was.provider_id, was.round) != (now.provider_id, now.round)
    knows_all = not joined and was.receipts == now.receipts and not _newer(before.plain)
    return written(step, version if knows_all else None)


def noted(echo: Echo, receipt: ReceiptReceived, id_hash: str) -> list[Value]:
    field = f"receipt:{echo.round}:{receipt.kind.value}:{id_hash}"
    return [echo.key, field, _receipt(receipt), new_version(), int(receipt.kind is ReceiptKind.FAILED)]


def noted_unechoed(receipt: ReceiptReceived, id_hash: str, retention: timedelta) -> list[Value]:
    return [id_hash, receipt.kind.value, _receipt(receipt), new_version(), _milliseconds(retention)]


def asking_for(listing: Listing, after: Cursor | None, limit: int) -> list[Value]:
    """The arguments of a page of a listing."""
    name = f"pombo:state:{listing}" if listing is Listing.DEAD else f"pombo:listed:{listing}"
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


def microseconds(at: datetime) -> int:
    """Since 1970: a score, which Redis keeps as a double, exact up to 2^53 (the year 2255)."""
    return (at - _EPOCH) // _MICROSECOND


def as_time(since_1970: str | int) -> datetime:
    return _EPOCH + int(since_1970) * _MICROSECOND


def _row(record: Delivery, now: datetime, over: Mapping[str, Any] | None = None) -> list[Value]:
    plain = encode(record, over)
    return [
        record.key,
        to_json(plain),
        plain["state"],
        _id_hash(record),
        record.correlation_id,
        microseconds(record.received_at) if record.state in COUNTED else "",
        microseconds(record.sweep_at) if record.sweep_at and record.state in OPEN_STATES else "",
        # The time left, not the moment, so that a difference between our clock and Redis's shortens no retention.
        _milliseconds(record.expire_at - now) if record.expire_at else "",
        mark_of(record) or "",
    ]


def _newer(plain: Mapping[str, Any]) -> bool:
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
