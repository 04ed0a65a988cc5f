"""Listings: what a store can list, and the listing that a record belongs to."""

from enum import StrEnum

from shared.domain.record import DROPPED_BY_HANDLER, Delivery, State

UNKNOWN_SENDER = "unknown_sender"


class Listing(StrEnum):
    """What a store can list. All but the first two are marks, set by the write that brought the record there."""

    DEAD = "dead"  # by its state
    PENDING = "pending"  # by its state: events and messages
    REFUSED = "refused"  # a failed receipt came; the record tells whether it still counts
    UNKNOWN_SENDER = "unknown_sender"  # dropped, and replayable until it expires
    REPLAYED = "replayed"  # and without an attempt since


BY_STATE = frozenset({Listing.DEAD, Listing.PENDING})
"""The listings of all records in a state, which has their name."""


def mark_of(record: Delivery) -> Listing | None:
    """The listing that a record belongs to besides its state."""
    if is_untried(record):
        return Listing.REPLAYED
    if is_of_unknown_sender(record):
        return Listing.UNKNOWN_SENDER
    return Listing.REFUSED if record.current_receipts.failed else None


def is_dropped_by_handler(record: Delivery) -> bool:
    """Decided by its last attempt, because a record of an earlier version has the handler's text as its reason."""
    last = record.attempts_log[-1] if record.attempts_log else None
    return record.state is State.DROPPED and last is not None and last.answer == DROPPED_BY_HANDLER


def is_of_unknown_sender(record: Delivery) -> bool:
    """Whether it was dropped because no tenant owns its sender, and not by a handler that gives that reason."""
    return record.state is State.DROPPED and record.reason == UNKNOWN_SENDER and not is_dropped_by_handler(record)


def is_untried(record: Delivery) -> bool:
    """Whether it was replayed without an attempt since: the command may have been killed before it made the task."""
    return record.state is State.PENDING and record.round > 0 and record.attempt == 0
