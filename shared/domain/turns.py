"""Turns: the events of one contact at one sender are handled one at a time, in the order of their positions.

An event has a place in the index of its turn while it is in another's way: by its position until it is first tried, by
its lease while it is handled. A failed try that waits, an expired lease and a replayed event are in nobody's way. The
places sort so that one query finds what is in an event's way: the last one of a range.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from shared.domain.identity import BEYOND_IDS, keyed_hash
from shared.domain.record import Delivery, State
from shared.domain.tenants import apart

HANDLED, UNTRIED = "0", "1"
"""In a place: those that are handled sort before those that were never tried."""

LOOKED_AT = 3
"""How many records one look at a turn finds: the event itself, the one in its way, and the one in that one's way."""


def turn_id(id_key: bytes, tenant: str, provider: str, sender: str, contact: str) -> str:
    """The id of a contact's turn at a tenant's sender, by the contact's id as it came."""
    return keyed_hash(id_key, "turn", provider, sender, contact, *apart(tenant))


def position(sent_at: datetime | None, received_at: datetime, index: int, key: str) -> str:
    """Where an event is in its turn: by the provider's time; then by when it was received, the same for all of a POST;
    then by its place in the POST, and its key.
    """
    return f"{_moment(sent_at or received_at)} {_moment(received_at)} {index:05d} {key}"


def place(record: Delivery) -> str | None:
    """Its place in the index of turns; None if it is in nobody's way."""
    if record.turn_id is None:
        return None
    if record.state is State.LEASED and record.lease_until:
        return f"{record.turn_id}/{HANDLED}/{_moment(record.lease_until)}"
    return untried_place(record)


def untried_place(record: Delivery) -> str | None:
    """Its place while it was never tried; None if it was, or takes no turn."""
    return _untried_place(record) if record.turn_id is not None and _is_untried(record) else None


def places_in_the_way(record: Delivery, now: datetime) -> tuple[str, str]:
    """The places that are in this event's way: from the first to before the second. Those that are handled now, for
    all; and for one that was never tried, the earlier ones that were never tried.
    """
    beyond = _untried_place(record) if _is_untried(record) else f"{record.turn_id}/{UNTRIED}"
    return _first_in_the_way(str(record.turn_id), now), beyond


def places_up_to(place: str, now: datetime) -> tuple[str, str]:
    """The places that are in the way of an event that was never tried, and its own `place`: one query finds both."""
    turn, _, _ = place.partition("/")
    return _first_in_the_way(turn, now), place + BEYOND_IDS


def in_the_way(record: Delivery, found: Sequence[Delivery], now: datetime) -> Sequence[Delivery]:
    """Those that the index has found that are in the way, the nearest one first. If that was never tried, the others
    are in its way too. An earlier version of Pombo changes a record and leaves its place as it was.
    """
    first, beyond = places_in_the_way(record, now)
    return [
        other
        for other in found
        if other.key != record.key and (its := place(other)) is not None and first <= its < beyond
    ]


def _first_in_the_way(turn_id: str, now: datetime) -> str:
    return f"{turn_id}/{HANDLED}/{_moment(now)}"


def _is_untried(record: Delivery) -> bool:
    return record.state is State.PENDING and record.attempt == 0 and record.round == 0


def _untried_place(record: Delivery) -> str:
    return f"{record.turn_id}/{UNTRIED}/{record.position}"


def _moment(at: datetime) -> str:
    """A time as text of fixed width. The texts sort in the order of the times."""
    at = at if at.tzinfo is UTC else at.astimezone(UTC)
    return at.isoformat(timespec="microseconds")
