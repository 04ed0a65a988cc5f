"""Turns in the internal service: events of one contact are handled one at a time, in order."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from shared.domain.delivery.answers import Answer, Step, TaskResult
from shared.domain.record import WAKE, Delivery, State, Task, waiter
from shared.domain.turns import position
from tests.support.internal_service import PLUS, Service, said
from tests.support.one_handler import OneHandler
from tests.support.parts import NOW, an_event

TURN = "7" * 40


def in_turn(number: int, **changes: Any) -> Delivery:
    record = an_event(number)
    where = position(NOW + timedelta(seconds=number), NOW, 0, record.key)
    return replace(record, **{"turn_id": TURN, "position": where, **changes})


def two(service: Service, **changes: Any) -> tuple[Delivery, Delivery]:
    return service.put(in_turn(1, **changes)), service.put(in_turn(2))


def handled(**changes: Any) -> dict[str, Any]:
    return {"state": State.LEASED, "attempt": 1, "token": "another", "lease_until": NOW + PLUS * 30, **changes}


def test_later_event_waits_without_a_lease_until_the_earlier_one_has_ended(
    service: Service, capfd: pytest.CaptureFixture[str]
) -> None:
    first, second = two(service)
    assert service.arrive(second) == (200, {"state": "waiting"})
    assert said(capfd, "inbound_waiting")["reason"] == "turn"
    assert service.get(second) == second
    assert service.made == [(replace(Task.of(second), hop=1, alone_since=NOW), NOW + PLUS)]
    assert service.get(first).bell == {waiter(second)}
    service.internal.queue.calls.clear()
    assert service.arrive(service.get(first)) == (200, {"state": "done"})
    ((wake, at),) = service.made
    assert (wake.key, wake.generation, at) == (second.key, WAKE, None)
    assert service.process(wake) == (200, {"state": "done"})
    assert [message.id for message in service.handler.called] == ["wamid.1", "wamid.2"]


def test_event_that_fails_lets_the_next_one_go(service: Service) -> None:
    first, second = two(service)
    service.arrive(second)

    def fail(message: Any) -> None:
        if message.id == "wamid.1":
            raise RuntimeError

    service.handler.answer = fail
    service.internal.queue.calls.clear()
    assert service.arrive(service.get(first)) == (200, {"state": "rescheduled"})
    assert service.get(first).bell == frozenset()
    wake = next(task for task, _ in service.made if task.generation == WAKE)
    assert service.process(wake) == (200, {"state": "done"})


def test_retry_waits_for_the_event_that_is_handled_now_at_any_position(service: Service) -> None:
    retry, other = service.put(in_turn(1, attempt=1)), service.put(in_turn(2, **handled()))
    assert service.arrive(retry) == (200, {"state": "waiting"})
    assert service.get(other).bell == {waiter(retry)}


def test_event_whose_predecessor_ends_before_it_is_in_the_bell_goes_at_once(service: Service) -> None:
    first, second = two(service)

    def end_first(name: str, key: str = "", *_: Any) -> None:
        if name == "change" and key == first.key:
            service.internal.store.before = lambda *_: None
            assert service.arrive(first) == (200, {"state": "done"})

    service.internal.store.before = end_first
    assert service.arrive(second) == (200, {"state": "done"})


def test_of_two_events_that_look_at_the_same_time_one_gives_its_lease_back(service: Service) -> None:
    """A retry and an event that was never tried see nobody before their leases; the second look sees the other."""
    event, retry = service.put(in_turn(2)), in_turn(1, attempt=1)

    def lease_the_other(name: str, key: str = "", *_: Any) -> None:
        if name == "change" and key == event.key:
            service.internal.store.before = lambda *_: None
            service.put(replace(retry, **handled(attempt=2)))

    service.internal.store.before = lease_the_other
    assert service.arrive(event) == (200, {"state": "waiting"})
    after = service.get(event)
    assert (after.state, after.attempt, service.handler.called) == (State.PENDING, 0, [])
    assert service.made == [(replace(Task.of(event), hop=1), NOW + PLUS)]


def test_event_whose_lease_was_taken_before_it_gives_it_back_leaves_it_alone(service: Service) -> None:
    event, other = service.put(in_turn(2)), in_turn(1, **handled(attempt=2))

    def take_its_lease(name: str, *_: Any) -> None:
        if name == "in_turn" and service.get(event).state is State.LEASED:
            service.internal.store.before = lambda *_: None
            service.put(other)
            taken = replace(service.get(event), token="another")
            service.internal.store.port.change(event.key, lambda _: Step(Answer(TaskResult.ACK, ""), write=taken))

    service.internal.store.before = take_its_lease
    assert service.arrive(event) == (409, {"state": "leased"})
    assert (service.get(event).token, service.handler.called, service.made) == ("another", [], [])


def test_event_enters_the_bell_again_that_was_emptied_before_it_looked_again(service: Service) -> None:
    """The backend was down for the earlier one, which is first in line as before."""
    first, second = two(service)

    def empty_the_bell(name: str, *_: Any) -> None:
        found = service.get(first)
        if name == "in_turn" and found.bell:
            service.internal.store.before = lambda *_: None
            emptied = replace(found, bell=frozenset())
            service.internal.store.port.change(first.key, lambda _: Step(Answer(TaskResult.ACK, ""), write=emptied))

    service.internal.store.before = empty_the_bell
    assert service.arrive(second) == (200, {"state": "waiting"})
    assert service.get(first).bell == {waiter(second)}


def test_event_that_has_waited_ten_minutes_goes_and_says_which_one_it_overtook(service: Service) -> None:
    first, second = two(service)
    late = replace(Task.of(second), hop=9, alone_since=NOW - timedelta(minutes=10))
    assert service.process(late) == (200, {"state": "done"})
    assert service.get(second).overtook == first.key


def test_event_never_goes_while_another_of_its_contact_is_handled(service: Service) -> None:
    _, second = two(service, **handled())
    late = replace(Task.of(second), hop=9, alone_since=NOW - timedelta(hours=2))
    assert service.process(late) == (200, {"state": "waiting"})
    assert service.handler.called == []


def test_event_without_a_turn_waits_for_none(service: Service) -> None:
    service.put(in_turn(1))
    alone = service.put(in_turn(2, turn_id=None, position=None))
    assert service.arrive(alone) == (200, {"state": "done"})


def test_event_that_calls_no_handler_waits_for_none(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OneHandler, "handles", lambda *_: False)
    service.put(in_turn(1))
    assert service.arrive(service.put(in_turn(2))) == (200, {"state": "done"})


def test_event_that_calls_no_handler_runs_beside_one_that_is_handled(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OneHandler, "handles", lambda *_: False)
    service.put(in_turn(1, **handled()))
    assert service.arrive(service.put(in_turn(2))) == (200, {"state": "done"})


def test_waiting_event_holds_no_handler_place(service: Service) -> None:
    _, second = two(service)
    service.arrive(second)
    assert not service.internal.parts.process_inbound.places._taken
