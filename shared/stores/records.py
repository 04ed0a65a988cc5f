"""Records as every store hands them out: with their receipts, in order, and with the version just written."""

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from shared.domain.deadline import Deadline
from shared.domain.delivery.answers import Ensure, EnsureReplies, Run, Step
from shared.domain.errors import StoreUnavailable
from shared.domain.events import ReceiptReceived
from shared.domain.identity import outbound_key, provider_id_hash
from shared.domain.record import Delivery, Kind, ReceiptKind, Receipts

T = TypeVar("T")
S = TypeVar("S")
R = TypeVar("R")


def receipts_of(kind: str, at: datetime, code: int | None, id_hash: str) -> Receipts:
    """One receipt alone, ready to be merged with others. A kind that only a newer version knows says nothing."""
    if kind not in frozenset(ReceiptKind):
        return Receipts()
    times: dict[str, Any] = {kind: at}
    failed_code = code if kind == ReceiptKind.FAILED else None
    return Receipts(**times, failed_code=failed_code, provider_ids=frozenset({id_hash}))


def with_receipts(record: Delivery, echoed: Iterable[tuple[int, Receipts]], unechoed: Iterable[Receipts]) -> Delivery:
    """The record with what the provider said of each round; what carried no echo counts for the round it is in."""
    by_round: dict[int, Receipts] = {}
    for round_, receipts in [*echoed, *((record.round, receipts) for receipts in unechoed)]:
        by_round[round_] = by_round.get(round_, Receipts()).merged(receipts)
    return replace(record, receipts=by_round)


def id_hash_of(receipt: ReceiptReceived) -> str:
    return provider_id_hash(receipt.provider, receipt.provider_id)


def portions(items: Sequence[T], most: int, size: Callable[[T], int] = lambda _: 0, bytes_: int = 0) -> list[list[T]]:
    """The items in order, at most so many together, and of so many bytes unless a single one has more."""
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
    """What is said of the rest once a deadline has passed."""
    return StoreUnavailable("The store is too slow.")


def one_after_another(
    items: Sequence[T], most: int, work: Callable[[list[T]], list[R | Exception]], deadline: Deadline
) -> list[R | Exception]:
    """What `work` makes of each item, portion by portion. After an outage, or once the deadline has passed, the rest is
    not begun.
    """
    results: list[R | Exception] = []
    outage: StoreUnavailable | None = None
    for portion in portions(items, most):
        if outage is None and deadline.has_passed:
            outage = too_slow()
        if outage is None:
            try:
                results += work(portion)
                continue
            except StoreUnavailable as error:
                outage = error
        results += [outage] * len(portion)
    return results


def each_storable(
    items: Sequence[T], encode: Callable[[T], S], write: Callable[[list[S]], list[R]]
) -> list[R | Exception]:
    """What `write` makes of the encoded items; for one that cannot be encoded, why."""
    encoded: list[S | Exception] = []
    for item in items:
        try:
            encoded.append(encode(item))
        except (TypeError, ValueError) as error:
            encoded.append(error)
    written_ = iter(write([each for each in encoded if not isinstance(each, Exception)]))
    return [each if isinstance(each, Exception) else next(written_) for each in encoded]


def new_version() -> int:
    """Random, so that a record that was deleted and made anew is no earlier version of itself."""
    return secrets.randbits(62)


def written(step: Step, version: int | None) -> Step:
    """The step once its record is stored: the record it hands on may be the `seen` of the next change."""
    if step.write is None:
        return step
    record = replace(step.write, version=version)
    follows = step.next
    if isinstance(follows, Ensure | EnsureReplies | Run) and follows.record.key == record.key:
        follows = replace(follows, record=record)
    return replace(step, write=record, next=follows)


def without_content(record: Delivery) -> Delivery:
    """A record as listings hand it out. Without a version: whoever brings it as `seen` has it read again."""
    return replace(record, payload={}, metadata={}, version=None)


def in_order(records: Iterable[Delivery]) -> list[Delivery]:
    """Events first, then messages as they came to be; those of one plan, made at once, in its order.

    Told from the records alone, so that no store needs to remember an order. `due_at` would not do: a retry moves it.
    A plan's order follows from its event; where that has expired, from which message waits for which.
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
    """How many of these come before it; bounded by their number, so that no loop of records can hold it up."""
    before = 0
    while record.after is not None and record.after in by_key and before < len(by_key):
        record = by_key[record.after]
        before += 1
    return before
