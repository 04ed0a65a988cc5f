"""Turns: which events of one contact are in the way of which, and how long an event waits for them."""

from dataclasses import replace
from datetime import timedelta, timezone
from itertools import permutations
from typing import Any

import pytest

from shared.domain.guards import Go, Wait
from shared.domain.identity import stable_hash
from shared.domain.record import Delivery, Kind, State, Task
from shared.domain.tasks import own_task
from shared.domain.turn_guard import turn_guard
from shared.domain.turns import in_the_way, place, places_in_the_way, places_up_to, position, turn_id
from tests.support.builders import LIMITS, NOW, at, dead, done, leased, pending

IN = Kind.INBOUND
KEY = b"a key for ids"
TURN = turn_id(KEY, "default", "meta", "100000000000001", "15550002222")


def event(number: int = 1, **changes: Any) -> Delivery:
    """A pending event that was never tried, at this position of the turn."""
    where = position(at(number), NOW, 0, f"{number:040x}")
    base = {"key": f"{number:040x}", "turn_id": TURN, "position": where, "attempt": 0, "generation": 0}
    return replace(pending(IN), **base | changes)


def handled(number: int = 1, until: float = 9, **changes: Any) -> Delivery:
    return event(number, **{"state": State.LEASED, "attempt": 1, "lease_until": at(until), **changes})


def is_in_the_way(one: Delivery, of: Delivery) -> bool:
    """Whether a store's index would find `one` in the way of the other."""
    first, beyond = places_in_the_way(of, NOW)
    its = place(one)
    return its is not None and one.key != of.key and first <= its < beyond


def test_id_of_a_turn_is_of_the_key_and_of_each_part() -> None:
    """A plain hash of a number can be found by trying all numbers."""
    parts = ("meta", "100000000000001", "15550002222")
    others = [turn_id(KEY, "default", *parts[:place], "other", *parts[place + 1 :]) for place in range(3)]
    others += [turn_id(b"another key", "default", *parts), turn_id(KEY, "acme", *parts), turn_id(KEY, "globex", *parts)]
    assert len({TURN, stable_hash("turn", *parts), *others}) == 8
    assert len(TURN) == 40
    assert turn_id(KEY, "default", *parts) == TURN


def test_positions_sort_by_the_providers_time_then_the_post_then_the_place_in_it() -> None:
    in_order = [
        position(at(0), at(9), 7, "f"),
        position(at(1), at(5), 7, "e"),
        position(at(1), at(6), 2, "d"),
        position(at(1), at(6), 10, "c"),
        position(at(1), at(6), 11, "a"),
        position(at(1), at(6), 11, "b"),
    ]
    for shuffled in permutations(in_order):
        assert sorted(shuffled) == in_order


def test_event_without_the_providers_time_has_its_position_by_when_it_was_received() -> None:
    assert position(None, at(5), 0, "a") == position(at(5), at(5), 0, "a")


@pytest.mark.parametrize("hours", [-8, 5.75])
def test_position_is_the_same_in_every_time_zone(hours: float) -> None:
    """A store may give a time back in another one."""
    zone = timezone(timedelta(hours=hours))
    assert position(at(1).astimezone(zone), at(5).astimezone(zone), 0, "a") == position(at(1), at(5), 0, "a")


@pytest.mark.parametrize(
    "record",
    [
        event(state=State.PENDING, attempt=1),
        event(round=1),
        replace(done(IN), turn_id=TURN, position="p"),
        replace(dead(IN), turn_id=TURN, position="p"),
        event(turn_id=None),
    ],
    ids=["a failed try that waits", "replayed", "done", "dead", "without a contact"],
)
def test_event_has_no_place_when_it_is_in_nobodys_way(record: Delivery) -> None:
    assert place(record) is None


def test_own_task_of_an_event_has_its_place_until_it_is_tried() -> None:
    """With it the first look at the turn finds the record too, and saves a read."""
    assert own_task(event(), None)[0].place == place(event()) is not None
    assert own_task(handled(), None)[0].place is None


def test_earlier_event_that_was_never_tried_is_in_the_way_and_a_later_one_is_not() -> None:
    assert is_in_the_way(event(1), of=event(2))
    assert not is_in_the_way(event(3), of=event(2))


def test_event_that_is_handled_is_in_the_way_of_all_at_any_position() -> None:
    for other in (event(2), event(2, attempt=1), event(2, round=1, attempt=0)):
        assert is_in_the_way(handled(1), of=other)
        assert is_in_the_way(handled(3), of=other)


def test_expired_lease_is_in_nobodys_way() -> None:
    assert not is_in_the_way(handled(1, until=-1), of=event(2))


def test_retry_waits_for_no_event_that_was_never_tried() -> None:
    for retry in (event(2, attempt=1), event(2, round=1), handled(2, until=-1)):
        assert not is_in_the_way(event(1), of=retry)


def test_other_contacts_events_are_in_nobodys_way() -> None:
    other = turn_id(KEY, "default", "meta", "100000000000001", "15550003333")
    assert not is_in_the_way(event(1, turn_id=other), of=event(2))
    assert not is_in_the_way(handled(1, turn_id=other), of=event(2))


def test_last_place_in_the_way_is_the_nearest_earlier_event() -> None:
    places = [place(one) or "" for one in (handled(9), event(1), event(2), event(3))]
    first, beyond = places_in_the_way(event(3), NOW)
    assert max(its for its in places if first <= its < beyond) == place(event(2))


def test_place_that_an_earlier_version_left_behind_holds_nobody() -> None:
    """It changes the record and not the index, so what the index finds is looked at again."""
    assert in_the_way(event(2), [event(1)], NOW) == [event(1)]
    for stale in (event(2), event(1, attempt=1), replace(done(IN), turn_id=TURN), handled(1, until=-1)):
        assert in_the_way(event(2), [stale], NOW) == []
        assert in_the_way(event(2), [stale, event(1)], NOW) == [event(1)]
    assert in_the_way(event(2), [], NOW) == []


def test_all_that_are_in_the_way_are_there_the_nearest_one_first() -> None:
    found = [event(3), event(2), event(1), handled(9)]
    assert in_the_way(event(3), found, NOW) == [event(2), event(1), handled(9)]


def test_one_range_holds_an_event_and_what_is_in_its_way_and_nothing_after_it() -> None:
    first, beyond = places_up_to(place(event(2)) or "", NOW)
    placed = [event(1), event(2), handled(3)]
    assert all(first <= (place(one) or "") < beyond for one in placed)
    assert not first <= (place(event(3)) or "") < beyond
    assert not first <= (place(handled(1, until=-1)) or "") < beyond


def guard(*ahead: Delivery, hop: int = 0, alone: float | None = None) -> Any:
    since = None if alone is None else at(alone)
    return turn_guard(ahead, replace(Task.of(event(3)), hop=hop, alone_since=since), LIMITS, NOW)


def test_event_with_nothing_in_its_way_goes() -> None:
    assert guard() == Go()


@pytest.mark.parametrize(("hop", "wait"), list(enumerate((1, 2, 4, 8, 16, 32, 32))))
def test_event_looks_less_and_less_often(hop: int, wait: float) -> None:
    for blocker in (event(1), handled(1)):
        assert guard(blocker, hop=hop) == Wait("turn", at(wait), alone_since=NOW)


def test_event_waits_ten_minutes_for_one_that_was_never_tried_and_then_goes() -> None:
    assert LIMITS.order_patience == timedelta(minutes=10)
    assert guard(event(1), hop=9, alone=-590) == Wait("turn", at(10), alone_since=at(-590))
    assert guard(event(1), hop=9, alone=-600) == Go(overtakes=event(1).key)


@pytest.mark.parametrize("first", [event(1), handled(1)], ids=["waits too", "is handled"])
def test_patience_has_not_begun_while_the_one_before_waits_for_its_own_turn(first: Delivery) -> None:
    for alone in (None, -6000):
        assert guard(event(2), first, hop=9, alone=alone) == Wait("turn", at(32))


def test_event_never_goes_while_another_of_its_contact_is_handled() -> None:
    assert guard(handled(1), hop=9, alone=-6000) == Wait("turn", at(32), alone_since=at(-6000))
    assert leased(IN).leased_at(NOW)
