"""Conversations in the internal service: written with the end of a contact's message, and the lane of its replies."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from services.internal.main import create_app
from shared.domain.conversations import Conversation, LaneEnd
from shared.domain.delivery.answers import Answer, Step, TaskResult
from shared.domain.delivery.operator import cancel, replay
from shared.domain.errors import ConversationChanged, RegistryUnavailable
from shared.domain.identity import outbound_key
from shared.domain.record import Delivery, State, waiter
from shared.domain.tenants import Order, Sender
from tests.support.builders import LIMITS
from tests.support.fake_tenants import FakeTenants
from tests.support.internal_service import Make, Service
from tests.support.parts import NOW, PERSON, SENDER, Provider, an_event


def conversation(service: Service, record: Delivery) -> Conversation:
    found = service.get(record)
    assert found.conversation is not None
    kept = service.internal.store.port.conversation_entries([found.conversation])[found.conversation]
    assert isinstance(kept, Conversation)
    return kept


def answered(service: Service, number: int, **changes: Any) -> Delivery:
    """A text that the handler has answered: the record of its reply."""
    event = service.put(an_event(number, **changes))
    assert service.arrive(event) == (200, {"state": "done"})
    return service.get(replace(event, key=outbound_key(event.key, 0)))


@pytest.fixture(autouse=True)
def reply(service: Service) -> None:
    service.handler.answer = lambda message: message.text


def test_event_and_its_reply_are_in_one_conversation(service: Service) -> None:
    reply = answered(service, 1)
    kept = conversation(service, reply)
    assert (kept.tenant, kept.contact, kept.unread) == ("default", PERSON, 1)
    assert kept.last_outbound == LaneEnd(reply.key, reply.give_up_at or NOW)
    assert conversation(service, an_event(1)) == kept


def test_replies_to_both_forms_of_a_number_share_a_lane_and_go_as_written(service: Service) -> None:
    forms, replies = ("5511985502222", "551185502222"), list[Delivery]()
    for number, form in enumerate(forms, 1):
        payload = an_event(number).payload
        replies.append(answered(service, number, payload={**payload, "item": {**payload["item"], "from": form}}))
    first, second = replies
    assert (second.conversation, second.after) == (first.conversation, first.key)
    assert [reply.payload["to"] for reply in replies] == [f"+{form}" for form in forms]


def test_stranger_who_writes_by_a_changed_number_is_in_another_conversation(service: Service) -> None:
    first = answered(service, 1)
    payload = an_event(2).payload
    told = {"type": "user_changed_number", "wa_id": "15550003333"}
    change = service.put(
        an_event(2, payload={**payload, "item": {**payload["item"], "type": "system", "system": told}})
    )
    assert service.arrive(change) == (200, {"state": "done"})
    assert service.get(change).conversation == first.conversation
    stranger = answered(service, 3)
    assert stranger.conversation != first.conversation
    assert stranger.after is None


def test_conversation_has_the_providers_time_of_its_last_message(service: Service) -> None:
    payload, before = an_event(1).payload, NOW - timedelta(seconds=60)
    item = {**payload["item"], "timestamp": str(int(before.timestamp()))}
    reply = answered(service, 1, payload={**payload, "item": item})
    kept = conversation(service, reply)
    assert (kept.last_inbound_at, kept.last_message_at) == (before, NOW)


def test_reply_waits_for_the_reply_to_an_earlier_message(service: Service, provider: Provider) -> None:
    first, second = answered(service, 1), answered(service, 2)
    assert (first.after, second.after) == (None, first.key)
    assert service.arrive(second) == (200, {"state": "waiting"})
    assert service.arrive(first) == (200, {"state": "done"})
    assert service.arrive(service.get(second)) == (200, {"state": "done"})
    assert [sent["text"]["body"] for sent in provider.requests] == ["hello 1", "hello 2"]


def test_reply_whose_predecessor_ends_is_woken(service: Service) -> None:
    first, second = answered(service, 1), answered(service, 2)
    service.arrive(second)
    service.internal.queue.calls.clear()
    service.arrive(service.get(first))
    ((wake, _),) = service.made
    assert service.process(wake) == (200, {"state": "done"})
    assert service.get(second).state is State.DONE


def test_message_behind_a_cancelled_one_waits_for_the_message_before_that(service: Service) -> None:
    """Cancelled before its turn came, it says nothing about the messages before it."""
    first = answered(service, 1)
    cancelled = [answered(service, number) for number in (2, 3)]
    last = answered(service, 4)
    for record in cancelled:
        service.internal.store.port.change(record.key, lambda found: cancel(found, LIMITS, NOW))
    assert service.arrive(last) == (200, {"state": "waiting"})
    assert service.get(first).bell == {waiter(last)}
    assert service.arrive(service.get(first)) == (200, {"state": "done"})
    assert service.arrive(last) == (200, {"state": "done"})
    assert service.get(last).overtook is None


def test_message_behind_one_that_was_tried_and_refused_goes(service: Service, provider: Provider) -> None:
    first, second, third = (answered(service, number) for number in (1, 2, 3))
    service.arrive(first)
    provider.answers.append((400, {"error": {"code": 131026, "message": "no"}}))
    service.arrive(service.get(second))
    assert service.get(second).state is State.DEAD
    service.internal.store.calls.clear()
    assert service.arrive(third) == (200, {"state": "done"})
    assert [call[1] for call in service.internal.store.calls if call[0] == "get"] == [third.key, second.key]


def test_handler_is_not_asked_again_if_the_conversation_changes_meanwhile(service: Service) -> None:
    event, losses = service.put(an_event(2)), [ConversationChanged(), ConversationChanged()]
    first = answered(service, 1)
    asked = len(service.handler.called)

    def lose(name: str, key: str = "", *_: Any) -> Exception | None:
        is_end = name == "change" and key == event.key and len(service.handler.called) > asked
        return losses.pop() if is_end and losses else None

    service.internal.store.before = lose
    assert service.arrive(event) == (200, {"state": "done"})
    assert (losses, len(service.handler.called)) == ([], asked + 1)
    assert service.get(replace(event, key=outbound_key(event.key, 0))).after == first.key


def test_message_that_comes_between_the_read_and_the_commit_is_waited_for(service: Service) -> None:
    event, others = service.put(an_event(2)), list[Delivery]()

    def answer_another(name: str, *_: Any) -> None:
        if name == "conversation_entries" and service.get(event).state is State.LEASED:
            service.internal.store.after = lambda *_: None
            others.append(answered(service, 1))

    service.internal.store.after = answer_another
    assert service.arrive(event) == (200, {"state": "done"})
    assert service.get(replace(event, key=outbound_key(event.key, 0))).after == others[0].key


def test_event_that_nobody_handles_is_in_its_conversation_too(service: Service) -> None:
    event = service.put(an_event(1))
    item = {**event.payload["item"], "type": "reaction", "reaction": {"message_id": "wamid.0", "emoji": "+"}}
    other = service.put(an_event(2, payload={**event.payload, "item": item}))
    assert service.arrive(other) == (200, {"state": "done"})
    assert conversation(service, other).unread == 1


def test_event_that_fails_joins_its_conversation_when_it_is_dead(service: Service) -> None:
    def fail(_: Any) -> None:
        raise RuntimeError

    service.handler.answer = fail
    event = service.put(an_event(1))
    assert service.arrive(event) == (200, {"state": "rescheduled"})
    assert service.get(event).conversation is None
    last = service.put(an_event(2, attempt=7))
    assert service.arrive(last) == (200, {"state": "dead"})
    assert conversation(service, last).unread == 1


@pytest.mark.parametrize(
    ("reason", "fields"),
    [
        ("attempts", {"state": State.LEASED, "attempt": 8, "token": "killed", "lease_until": NOW}),
        ("waited", {"give_up_at": NOW}),
    ],
)
def test_event_that_its_lease_ends_joins_its_conversation(service: Service, reason: str, fields: Any) -> None:
    reply = answered(service, 1)
    event = service.put(an_event(2, **fields))
    assert service.arrive(event) == (200, {"state": "dead"})
    assert (service.get(event).reason, service.get(event).conversation) == (reason, reply.conversation)
    kept = conversation(service, event)
    assert (kept.unread, kept.last_outbound and kept.last_outbound.key) == (2, reply.key)
    before = len(service.internal.store.calls)
    assert service.arrive(event) == (200, {"state": "dead"})
    assert conversation(service, event) == kept
    assert [call[0] for call in service.internal.store.calls[before:]] == ["get", "change"]


def test_event_that_waits_for_its_turn_to_the_end_joins_its_conversation(service: Service) -> None:
    """Its guard would let it wait for longer, but its time is over."""
    service.put(an_event(1, turn_id="7" * 40, position="1"))
    event = service.put(an_event(2, turn_id="7" * 40, position="2", give_up_at=NOW))
    assert service.arrive(event) == (200, {"state": "dead"})
    assert conversation(service, event).unread == 1


def test_event_ends_once_in_its_conversation_though_that_changes_meanwhile(service: Service) -> None:
    event, losses = service.put(an_event(2, give_up_at=NOW)), [ConversationChanged(), ConversationChanged()]
    answered(service, 1)
    service.internal.store.before = lambda name, *_: losses.pop() if name == "change" and losses else None
    assert service.arrive(event) == (200, {"state": "dead"})
    assert (losses, conversation(service, event).unread) == ([], 2)


def test_event_whose_lease_was_lost_in_its_last_attempt_ends_at_its_next_task(service: Service) -> None:
    """The lease was taken, reported as refused, and has run out: this task knows no conversation to end it in."""
    event = service.put(an_event(1, attempt=7))
    leased = replace(event, state=State.LEASED, attempt=8, token="lost", lease_until=NOW)
    tries = [True]

    def refused(name: str, *_: Any) -> Exception | None:
        if name != "change" or not tries:
            return None
        tries.pop()
        service.internal.store.port.change(event.key, lambda _: Step(Answer(TaskResult.ACK, ""), write=leased))
        return ConversationChanged()

    service.internal.store.before = refused
    assert (service.arrive(event), service.get(event)) == ((503, {"state": "waiting"}), leased)
    assert service.arrive(event) == (200, {"state": "dead"})
    assert conversation(service, event).unread == 1


def test_event_ends_though_its_conversation_is_unreadable(service: Service) -> None:
    damage(service, answered(service, 1))
    event = service.put(an_event(2, give_up_at=NOW))
    assert service.arrive(event) == (200, {"state": "dead"})
    assert service.get(event).conversation is None


def test_replay_of_an_event_that_its_lease_ended_is_heard_once(service: Service) -> None:
    event = service.put(an_event(2, give_up_at=NOW))
    service.arrive(event)
    service.internal.store.port.change(event.key, lambda found: replay(found, LIMITS, NOW))
    assert service.arrive(service.get(event)) == (200, {"state": "done"})
    assert conversation(service, event).unread == 1


def test_message_of_a_group_is_in_no_conversation(service: Service) -> None:
    event = an_event(1)
    in_group = service.put(
        replace(event, payload={**event.payload, "item": {**event.payload["item"], "group_id": "g"}})
    )
    assert service.arrive(in_group) == (200, {"state": "done"})
    assert service.get(in_group).conversation is None


def all_in_order(service: Service) -> None:
    """From now on the number sends all of its messages in order."""
    parts = service.internal.parts
    tenants = FakeTenants(senders=[Sender("default", "meta", SENDER, order=Order.SENDER)])
    inbound, outbound = (replace(it, tenants=tenants) for it in (parts.process_inbound, parts.process_outbound))
    service.client = create_app(replace(parts, process_inbound=inbound, process_outbound=outbound)).test_client()


def answered_to_another(service: Service) -> Delivery:
    payload = an_event(2).payload
    return answered(service, 2, payload={**payload, "item": {**payload["item"], "from": "15550003333"}})


def test_number_that_sends_all_in_order_waits_for_messages_to_other_contacts(service: Service) -> None:
    all_in_order(service)
    first = answered(service, 1)
    other = answered_to_another(service)
    assert other.after == first.key
    assert other.conversation != first.conversation


def test_registry_that_is_away_costs_no_attempt_and_no_call_of_a_handler(service: Service) -> None:
    class Away(FakeTenants):
        def sender(self, provider: str, provider_id: str) -> Sender | None:  # noqa: ARG002 - as the port has it
            raise RegistryUnavailable

    parts = service.internal.parts
    inbound = replace(parts.process_inbound, tenants=Away())
    service.client = create_app(replace(parts, process_inbound=inbound)).test_client()
    event = service.put(an_event(1))
    assert service.arrive(event)[0] == 503
    assert (service.get(event), len(service.handler.called)) == (event, 0)


def test_without_turns_the_replies_to_two_messages_wait_for_nobody(make: Make) -> None:
    service = make(TURNS="none")
    service.handler.answer = lambda message: message.text
    first, second = answered(service, 1), answered(service, 2)
    assert (first.after, second.after) == (None, None)
    assert second.conversation == first.conversation is not None


# ---- messages for later


def scheduled(service: Service, like: Delivery, number: int) -> Delivery:
    """A message of a program, for a minute from now."""
    later = NOW + timedelta(seconds=60)
    return service.put(
        replace(like, key=f"{number:040}", after=None, joins_lane_later=True, send_at=later, due_at=later)
    )


def test_message_for_later_takes_its_place_when_it_is_due(service: Service) -> None:
    first = answered(service, 1)
    later = scheduled(service, first, 7)
    assert service.arrive(later) == (200, {"state": "waiting"})
    assert service.get(later).joins_lane_later
    service.internal.clock.go(60)
    assert service.arrive(later) == (200, {"state": "waiting"})
    joined = service.get(later)
    assert (joined.joins_lane_later, joined.after) == (False, first.key)
    assert answered(service, 2).after == later.key


def test_message_for_later_joins_the_lane_of_a_number_that_sends_all_in_order(service: Service) -> None:
    all_in_order(service)
    first, other = answered(service, 1), answered_to_another(service)
    later = scheduled(service, first, 7)
    service.internal.clock.go(60)
    assert service.arrive(later) == (200, {"state": "waiting"})
    assert service.get(later).after == other.key


def test_message_for_later_whose_task_is_a_little_early_joins_all_the_same(service: Service) -> None:
    first = answered(service, 1)
    later = scheduled(service, first, 7)
    service.internal.clock.go(60 - LIMITS.early.total_seconds())
    service.arrive(later)
    assert service.get(later).after == first.key


def test_message_for_later_joins_on_the_record_that_its_task_has_read(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Firestore each look at a record that was read already is a read more."""
    first, found, port = answered(service, 1), list[Delivery | None](), service.internal.store.port
    later, change = scheduled(service, first, 7), port.change

    def noted(key: str, decide: Any, seen: Delivery | None = None) -> Any:
        found.append(seen)
        return change(key, decide, seen)

    monkeypatch.setattr(port, "change", noted)
    service.internal.clock.go(60)
    service.arrive(later)
    assert found[0] == later


def test_message_for_later_joins_once_and_never_waits_for_itself(service: Service) -> None:
    first = answered(service, 1)
    later = scheduled(service, first, 7)
    service.internal.clock.go(60)
    for hop in range(3):
        service.arrive(service.get(later), hop=hop)
    assert service.get(later).after == first.key
    changes = [call for call in service.internal.store.calls if call[:2] == ("change", later.key)]
    assert len(changes) == 1 + 3, "it joins once; each task asks for the lease"


def test_message_for_later_with_nobody_before_it_is_sent_by_the_same_task(service: Service, provider: Provider) -> None:
    first = answered(service, 1)
    later = scheduled(service, first, 7)
    service.arrive(first)
    service.internal.clock.go(60)
    assert service.arrive(later) == (200, {"state": "done"})
    assert len(provider.requests) == 2


def test_message_for_later_joins_again_if_its_conversation_changes_meanwhile(service: Service) -> None:
    first = answered(service, 1)
    later, losses = scheduled(service, first, 7), [ConversationChanged()]
    service.internal.clock.go(60)
    service.internal.store.before = lambda name, *_: losses.pop() if name == "change" and losses else None
    assert service.arrive(later) == (200, {"state": "waiting"})
    assert service.get(later).after == first.key


# ---- a conversation that cannot be read


def damage(service: Service, record: Delivery) -> str:
    """Of the conversation of this record: its id. A newer version has written it, or it was damaged."""
    id = service.get(record).conversation
    assert id is not None
    file = service.internal.store.port._file
    file.write(lambda db: db.execute('UPDATE conversations SET body = \'{"kind": "crowd"}\' WHERE id = ?', (id,)))
    return id


def test_answer_of_a_handler_is_kept_though_its_conversation_is_unreadable(
    service: Service, capfd: pytest.CaptureFixture[str]
) -> None:
    id = damage(service, answered(service, 1))
    asked = len(service.handler.called)
    assert answered(service, 2).state is State.PENDING
    assert (len(service.handler.called), service.get(an_event(2)).state) == (asked + 1, State.DONE)
    (line,) = (line for line in capfd.readouterr().out.splitlines() if '"state_unknown"' in line)
    assert f'"entry":"conversation {id}"' in line


def test_message_for_later_is_sent_though_its_conversation_is_unreadable(service: Service, provider: Provider) -> None:
    first = answered(service, 1)
    later = service.put(replace(first, key="b" * 40, joins_lane_later=True))
    damage(service, first)
    assert service.arrive(later) == (200, {"state": "done"})
    assert len(provider.requests) == 1
