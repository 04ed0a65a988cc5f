"""What all stores do to records: add receipts, sort, and go through many in portions."""

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from shared.domain.deadline import Deadline
from shared.domain.errors import StoreUnavailable
from shared.domain.events import ReceiptReceived
from shared.domain.identity import outbound_key, provider_id_hash
from shared.domain.record import Delivery, Kind, ReceiptKind, Receipts

T = TypeVar("T")
S = TypeVar("S")
R = TypeVar("R")


def receipts_of(kind: str, at: datetime, code: int | None, id_hash: str) -> Receipts:
    """One receipt alone, to merge with others. A kind that only a newer version knows is ignored."""
    if kind not in frozenset(ReceiptKind):
        return Receipts()
    times: dict[str, Any] = {kind: at}
    failed_code = code if kind == ReceiptKind.FAILED else None
    return Receipts(**times, failed_code=failed_code, provider_ids=frozenset({id_hash}))


def with_receipts(record: Delivery, echoed: Iterable[tuple[int, Receipts]], unechoed: Iterable[Receipts]) -> Delivery:
    """The record with the receipts of each round. A receipt without an echo counts for the record's current round."""
    by_round: dict[int, Receipts] = {}
    for round_, receipts in [*echoed, *((record.round, receipts) for receipts in unechoed)]:
        by_round[round_] = by_round.get(round_, Receipts()).merged(receipts)
    return replace(record, receipts=by_round)


def id_hash_of(receipt: ReceiptReceived) -> str:
    return provider_id_hash(receipt.provider, receipt.provider_id)


def portions(items: Sequence[T], most: int, size: Callable[[T], int] = lambda _: 0, bytes_: int = 0) -> list[list[T]]:
    """The items in order, in portions of at most `most` items and `bytes_` bytes; a single item may be larger."""
    found: list[list[T]] = []
    held = 0
    for item in items:
        length = size(item)
        if not found or len(found[-1]) == most or held + length > bytes_ > 0:
            found.append([])
            held = 0
        found[-1].append(item)
        held += length
    return found


def too_slow() -> StoreUnavailable:
    """The error for the remaining items once a deadline has passed."""
    return StoreUnavailable("The store is too slow.")


def one_after_another(
    items: Sequence[T], most: int, work: Callable[[list[T]], list[R | Exception]], deadline: Deadline
) -> list[R | Exception]:
    """The result of `work` for each item, portion by portion. After an outage, of the portion or of one of its items,
    or past the deadline it does not begin the remaining portions.
    """
    results: list[R | Exception] = []
    outage: StoreUnavailable | None = None
    for portion in portions(items, most):
        if outage is None and deadline.has_passed:
            outage = too_slow()
        if outage is None:
            try:
                made = work(portion)
            except StoreUnavailable as error:
                outage = error
            else:
                results += made
                outage = next((one for one in made if isinstance(one, StoreUnavailable)), None)
                continue
        results += [outage] * len(portion)
    return results


def each_storable(
    items: Sequence[T], encode: Callable[[T], S], write: Callable[[list[S]], list[R]]
) -> list[R | Exception]:
    """The result of `write` for each encoded item; the error for an item that cannot be encoded."""
    encoded: list[S | Exception] = []
    for item in items:
        try:
            encoded.append(encode(item))
        except (TypeError, ValueError) as error:
            encoded.append(error)
    written_ = iter(write([each for each in encoded if not isinstance(each, Exception)]))
    return [each if isinstance(each, Exception) else next(written_) for each in encoded]


def new_version() -> int:
    """A random version, so that a record that was deleted and recreated never matches an earlier version of itself."""
    return secrets.randbits(62)


def without_content(record: Delivery) -> Delivery:
    """A record as listings return it. It has no version, so a change that gets it as `seen` reads the record again."""
    return replace(record, payload={}, metadata={}, version=None)


def in_order(records: Iterable[Delivery]) -> list[Delivery]:
    """Events first, then messages in the order of their creation; messages of one plan in the plan's order.

    The order follows from the records alone, so no store needs to keep one. `due_at` would not do: a retry moves it.
    The plan's order comes from its event. If the event has expired, it comes from which message waits for which.
    """
    by_key = {record.key: record for record in records}
    places = {
        outbound_key(record.key, place): place for record in by_key.values() for place in range(record.plan_size or 0)
    }
    return sorted(
        by_key.values(),
        key=lambda record: (
            record.kind is not Kind.INBOUND,
            record.received_at,
            places.get(record.key, 0),
            _predecessors(record, by_key),
            record.key,
        ),
    )


def _predecessors(record: Delivery, by_key: Mapping[str, Delivery]) -> int:
    """How many of these come before it; bounded by their number, so that a loop of records cannot hang it."""
    before = 0
    while record.after is not None and record.after in by_key and before < len(by_key):
        record = by_key[record.after]
        before += 1
    return before
