"""The index of turns, on each store: one query finds what is in an event's way, from the moment a write is reported."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shared.domain.delivery.answers import Answer, Step, TaskResult
from shared.domain.delivery.bell import enter
from shared.domain.delivery.lease import lease
from shared.domain.delivery.settle import settle
from shared.domain.guards import Go
from shared.domain.limits import Limits
from shared.domain.record import Delivery, Kind, State, Task, waiter
from shared.domain.tenants import DEFAULT_TENANT
from shared.domain.turns import in_the_way as blocking
from shared.domain.turns import place, places_in_the_way, places_up_to, position, turn_id
from shared.domain.verdicts import HandlerFailed, Released, Replied
from tests.support.together import together

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LIMITS = Limits()
MANY = 200


@pytest.fixture
def an_event(a_record: Callable[..., Delivery]) -> Callable[..., Delivery]:
    """Makes events of one contact, each at its position."""
    of_one = a_record()

    def make(number: int, contact: str = "15550002222", **changes: Any) -> Delivery:
        key = a_record().key
        turn = turn_id(b"a key", DEFAULT_TENANT, of_one.key, "100000000000001", contact)
        where = position(NOW + timedelta(seconds=number), NOW, 0, key)
        fields = {"key": key, "kind": Kind.INBOUND, "turn_id": turn, "position": where, "due_at": NOW}
        return replace(of_one, **fields | changes)

    return make


def in_the_way(store: Any, record: Delivery, now: datetime = NOW) -> str | None:
    found = blocking(record, store.in_turn(*places_in_the_way(record, now)), now)
    return found[0].key if found else None


def leases(store: Any, record: Delivery, token: str = "mine") -> Delivery:
    step = store.change(record.key, lambda now: lease(now, Task.of(record), token, Go(), LIMITS, NOW))
    return step.write


def settles(store: Any, record: Delivery, verdict: Any) -> None:
    store.change(record.key, lambda now: settle(now, "mine", verdict, LIMITS, NOW, 0.5))


def test_nearest_earlier_event_of_the_contact_is_found(store: Any, an_event: Callable[..., Delivery]) -> None:
    first, second, third = (an_event(number) for number in (1, 2, 3))
    for record in (third, first, second):
        store.create(record)
    assert [in_the_way(store, one) for one in (first, second, third)] == [None, first.key, second.key]


def test_one_look_finds_an_event_the_one_in_its_way_and_what_that_one_waits_for(
    store: Any, an_event: Callable[..., Delivery]
) -> None:
    events = [an_event(number) for number in range(6)]
    for record in events:
        store.create(record)
    found = store.in_turn(*places_up_to(place(events[4]) or "", NOW))
    assert [record.key for record in found] == [events[number].key for number in (4, 3, 2)]
    leases(store, events[0])
    found = store.in_turn(*places_up_to(place(events[1]) or "", NOW))
    assert [record.key for record in found] == [events[number].key for number in (1, 0)]


def test_event_that_is_handled_is_found_as_long_as_it_is(store: Any, an_event: Callable[..., Delivery]) -> None:
    first, second, third = (an_event(number) for number in (1, 2, 3))
    for record in (first, second, third):
        store.create(record)
    assert in_the_way(store, second) == first.key
    leases(store, first)
    assert in_the_way(store, second) == first.key
    settles(store, first, Replied(()))
    assert in_the_way(store, second) is None
    leases(store, third)
    assert in_the_way(store, second) == third.key, "one that went before its turn"


def test_event_of_another_contact_is_not_found(store: Any, an_event: Callable[..., Delivery]) -> None:
    store.create(an_event(1, contact="15550003333"))
    assert in_the_way(store, an_event(2)) is None


def test_event_that_is_handled_is_found_by_all_and_until_its_lease_expires(
    store: Any, an_event: Callable[..., Delivery]
) -> None:
    late, early = an_event(9), an_event(1)
    store.create(late)
    leased = leases(store, late)
    assert in_the_way(store, early) == late.key
    assert leased.lease_until is not None
    assert in_the_way(store, early, leased.lease_until + timedelta(microseconds=1)) is None


def test_event_that_is_handled_finds_another_one_whose_lease_expires_earlier(
    store: Any, an_event: Callable[..., Delivery]
) -> None:
    """Its own place is the last one; it must not hide the other's."""
    mine, other = an_event(1), an_event(2)
    store.create(other)
    leases(store, other)
    store.create(mine)
    later = NOW + timedelta(seconds=1)
    step = store.change(mine.key, lambda now: lease(now, Task.of(mine), "mine", Go(), LIMITS, later))
    assert in_the_way(store, step.write, later) == other.key
    assert in_the_way(store, leases(store, other) or other, later) == mine.key


@pytest.mark.parametrize(
    ("verdict", "is_there"), [(Replied(()), False), (HandlerFailed("no"), False), (Released(), True)]
)
def test_event_leaves_the_index_with_its_first_try(
    store: Any, an_event: Callable[..., Delivery], verdict: Any, is_there: bool
) -> None:
    first, second = an_event(1), an_event(2)
    store.create(first)
    leases(store, first)
    settles(store, first, verdict)
    assert in_the_way(store, second) == (first.key if is_there else None)


def test_what_is_found_is_the_record_as_it_is(store: Any, an_event: Callable[..., Delivery]) -> None:
    first, second = an_event(1), an_event(2)
    store.create(first)
    (found,) = store.in_turn(*places_in_the_way(second, NOW))
    assert found == first
    step = store.change(first.key, lambda record: enter(record, second), seen=found)
    assert step.write.bell == {waiter(second)}


def test_events_created_at_once_are_found_in_one_order(store: Any, an_event: Callable[..., Delivery]) -> None:
    events = [an_event(number) for number in range(20)]
    together([lambda record=record: store.create(record) for record in reversed(events)])
    assert [in_the_way(store, one) for one in events] == [None, *(one.key for one in events[:-1])]


def test_long_conversation_leaves_nothing_in_the_index(store: Any, an_event: Callable[..., Delivery]) -> None:
    for number in range(MANY):
        record = an_event(number)
        store.create(record)
        ended = replace(record, state=State.DONE, sweep_at=None, finished_at=NOW, expire_at=NOW + timedelta(days=8))
        store.change(record.key, lambda _, ended=ended: Step(Answer(TaskResult.ACK, "done"), write=ended))
    assert in_the_way(store, an_event(MANY)) is None
