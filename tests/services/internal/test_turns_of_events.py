"""Turns in the internal service: events of one contact are handled one at a time, in order."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from shared.domain.delivery.answers import Answer, Step, TaskResult
from shared.domain.errors import StoreUnavailable, TaskInvalid, UnknownState
from shared.domain.record import WAKE, Delivery, Kind, State, Task, waiter
from shared.domain.tasks import own_task, parse_task, task_body
from shared.domain.turns import position, turn_id
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


def test_event_whose_time_ends_while_it_gives_its_lease_back_ends_at_its_next_task(service: Service) -> None:
    """Ended there it would be in no conversation."""
    event = service.put(in_turn(2, give_up_at=NOW + 5 * PLUS))
    other = replace(in_turn(1), **handled(attempt=2))

    def lease_the_other(name: str, key: str = "", *_: Any) -> None:
        if name == "change" and key == event.key:
            service.internal.store.before = pass_the_time
            service.put(other)

    def pass_the_time(name: str, *_: Any) -> None:
        if name == "change":
            service.internal.store.before = lambda *_: None
            service.internal.clock.at += 9 * PLUS

    service.internal.store.before = lease_the_other
    assert (service.arrive(event)[0], service.get(event).state) == (503, State.PENDING)
    assert service.arrive(event) == (200, {"state": "dead"})
    assert service.get(event).conversation is not None


@pytest.mark.parametrize("error", [StoreUnavailable("busy"), UnknownState("newer")])
def test_event_that_cannot_look_again_after_its_lease_gives_it_back(service: Service, error: Exception) -> None:
    event = service.put(in_turn(1))

    def fail(name: str, *_: Any) -> None:
        if name == "in_turn" and service.get(event).state is State.LEASED:
            raise error

    service.internal.store.before = fail
    status, _ = service.arrive(event)
    found = service.get(event)
    assert (status >= 400, found.state, found.attempt, found.lease_until) == (True, State.PENDING, 0, None)
    assert service.handler.called == []
    service.internal.store.before = lambda *_: None
    assert service.arrive(found) == (200, {"state": "done"})


def test_two_events_that_step_back_from_each_other_come_back_at_different_times(service: Service) -> None:
    times = []
    for jitter in (0.0, 1.0):
        event, retry = service.put(in_turn(2 + len(times))), in_turn(8 + len(times), attempt=1)

        def lease_the_other(name: str, key: str = "", *_: Any, mine: str = event.key, other: Any = retry) -> None:
            if name == "change" and key == mine:
                service.internal.store.before = lambda *_: None
                service.put(replace(other, turn_id=f"{len(times)}" * 40, **handled(attempt=2)))

        moved = replace(event, turn_id=f"{len(times)}" * 40)
        service.internal.store.port.change(event.key, lambda _, now=moved: Step(Answer(TaskResult.ACK, ""), write=now))
        service.internal.store.before = lease_the_other
        service.internal.clock.jitter = lambda now=jitter: now  # type: ignore[method-assign]
        service.internal.queue.calls.clear()
        assert service.arrive(moved) == (200, {"state": "waiting"})
        times.append(service.made[0][1])
    assert times == [NOW + 0.8 * PLUS, NOW + 1.2 * PLUS]


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


def overdue(record: Delivery, **changes: Any) -> Task:
    return replace(Task.of(record), hop=9, alone_since=NOW - timedelta(minutes=10), **changes)


@pytest.mark.parametrize("first", [{}, handled()], ids=["waits too", "is handled"])
def test_event_overtakes_none_that_waits_itself(service: Service, first: Any) -> None:
    """Else a contact whose events take longer than ten minutes together would be answered in no order."""
    two(service, **first)
    third = service.put(in_turn(3))
    assert service.process(overdue(third)) == (200, {"state": "waiting"})
    assert service.made[-1] == (replace(overdue(third), hop=10, alone_since=None), NOW + 32 * PLUS)
    assert (service.handler.called, service.get(third)) == ([], third)


def test_event_is_patient_from_when_it_sees_that_the_one_before_it_is_the_first(service: Service) -> None:
    """Its own task may be late in a queue: ten minutes in which it could not move are no reason to go past it."""
    first, second = two(service)
    third, minutes = service.put(in_turn(3)), timedelta(minutes=1)
    service.arrive(third)
    ((hop, _),) = service.made
    assert hop.alone_since is None, "the second one waits for the first"
    service.internal.clock.at += 20 * minutes
    assert service.arrive(service.get(first)) == (200, {"state": "done"})
    service.internal.queue.calls.clear()
    assert service.process(hop) == (200, {"state": "waiting"})
    ((hop, _),) = service.made
    assert hop.alone_since == NOW + 20 * minutes
    for waited, answer in ((9, "waiting"), (10, "done")):
        service.internal.clock.at = NOW + (20 + waited) * minutes
        assert service.process(hop) == (200, {"state": answer})
    assert service.get(third).overtook == second.key


def test_event_needs_no_further_look_to_see_what_the_one_before_it_waits_for(service: Service) -> None:
    two(service)
    third = service.put(in_turn(3))
    service.arrive(third)
    service.internal.store.calls.clear()
    service.process(placed(third))
    assert [name for name, *_ in service.internal.store.calls] == ["in_turn", "change"]


def test_event_overtakes_none_with_the_patience_of_an_earlier_generation(service: Service) -> None:
    service.put(in_turn(1))
    second = service.put(in_turn(2, generation=1))
    assert service.process(overdue(second, generation=0)) == (200, {"state": "waiting"})
    ((task, _),) = service.made
    assert (task.generation, task.alone_since) == (1, None)


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


def test_change_of_a_number_waits_for_what_was_written_by_that_number(service: Service) -> None:
    """It calls no handler. Before them, it would make of their writer the number's next owner."""
    payload = an_event(2).payload
    system = {"type": "system", "system": {"type": "user_changed_number", "wa_id": "15550003333"}}
    first = service.put(in_turn(1))
    change = service.put(in_turn(2, payload={**payload, "item": {**payload["item"], **system}}))
    assert service.arrive(change) == (200, {"state": "waiting"})
    assert service.get(first).bell == {waiter(change)}
    assert service.arrive(service.get(first)) == (200, {"state": "done"})
    assert service.arrive(service.get(change)) == (200, {"state": "done"})
    assert service.get(change).conversation == service.get(first).conversation is not None


def test_replayed_event_of_an_unknown_sender_takes_its_turn(service: Service) -> None:
    """Its tenant was not known when it was stored, and without it no turn could be."""
    conversations = service.internal.parts.process_inbound.conversations
    assert conversations is not None
    early = service.put(an_event(1, tenant="", round=1))
    turn = turn_id(conversations.id_key, "default", early.provider, early.sender, early.contact)
    other = service.put(replace(in_turn(2), turn_id=turn, **handled()))
    assert service.arrive(early) == (200, {"state": "waiting"})
    assert service.get(other).bell == {waiter(early)}
    service.internal.clock.at += 31 * PLUS  # the other's lease ends
    assert service.arrive(early) == (200, {"state": "done"})
    assert service.get(early).turn_id == turn


def test_replayed_news_of_an_unknown_account_takes_no_turn(service: Service) -> None:
    news = an_event(1, tenant="", round=1, contact="", payload={"field": "account_update", "value": {}})
    service.arrive(service.put(news))
    assert (service.get(news).tenant, service.get(news).turn_id) == ("default", None)


def test_waiting_event_holds_no_handler_place(service: Service) -> None:
    _, second = two(service)
    service.arrive(second)
    assert not service.internal.parts.process_inbound.places._taken


# ---- the look that finds the event too


def placed(record: Delivery, **changes: Any) -> Task:
    """The task as the webhook service makes it."""
    return replace(own_task(record, None)[0], **changes)


def looks(service: Service) -> list[str]:
    return [name for name, *_ in service.internal.store.calls if name in ("get", "in_turn")]


def test_one_look_finds_the_event_and_what_is_in_its_way(service: Service) -> None:
    first, second = two(service)
    service.internal.store.calls.clear()
    assert service.process(placed(second)) == (200, {"state": "waiting"})
    assert looks(service) == ["in_turn", "in_turn"], "the second one comes after it is in the bell"
    assert service.get(first).bell == {waiter(second)}
    ((hop, _),) = service.made
    assert hop == placed(second, hop=1, alone_since=NOW)


def test_look_that_finds_no_event_to_handle_reads_its_record(service: Service) -> None:
    """It was tried meanwhile: its place in the turn is another one, or none."""
    tried = in_turn(1)
    task = placed(tried)
    service.put(replace(tried, attempt=1))
    assert service.process(task) == (200, {"state": "done"})
    assert looks(service)[:2] == ["in_turn", "get"]


def test_look_with_a_place_finds_the_event_that_is_handled_now(service: Service) -> None:
    event, other = service.put(in_turn(1)), service.put(in_turn(2, **handled()))
    assert service.process(placed(event)) == (200, {"state": "waiting"})
    assert service.get(other).bell == {waiter(event)}


def test_task_has_the_place_of_its_event_while_that_was_never_tried() -> None:
    event = in_turn(1)
    assert placed(event).place == f"{TURN}/1/{event.position}"
    assert parse_task(Kind.INBOUND, task_body(placed(event))) == placed(event)
    for tried in (replace(event, attempt=1), replace(event, round=1), replace(event, turn_id=None)):
        assert placed(tried).place is None
        assert "place" not in task_body(placed(tried))


@pytest.mark.parametrize("place", [7, "", "x/1/y", f"{TURN}/0/2026", f"{TURN}/1/\n", f"{TURN}/1/" + "x" * 201])
def test_task_with_the_place_of_no_event_is_invalid(place: Any) -> None:
    with pytest.raises(TaskInvalid, match="place"):
        parse_task(Kind.INBOUND, {**task_body(placed(in_turn(1))), "place": place})
