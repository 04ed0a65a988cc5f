"""process_inbound over HTTP: the rows of its tables, with a real store and a handler."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from shared.domain.errors import QueueUnavailable, StoreUnavailable
from shared.domain.identity import outbound_key
from shared.domain.record import Delivery, State, Task
from shared.handlers import Drop, Message, OutboundMessage
from tests.support import parts
from tests.support.internal_service import LAST, OLDER, PLUS, Make, Service, said
from tests.support.parts import NOW, PERSON, STRANGER, a_reply, an_event, ended, held, text

# ---- process_inbound: what a task finds


def test_missing_event_is_answered_200(service: Service, capfd: pytest.CaptureFixture[str]) -> None:
    assert service.arrive(an_event()) == (200, {"state": "gone"})
    assert said(capfd, "task_gone")["inbound_event_id"] == an_event().key


@pytest.mark.parametrize("state", [State.DROPPED, State.DEAD])
def test_final_event_is_answered_200(service: Service, state: State) -> None:
    record = service.put(an_event(**ended(state)))
    assert service.arrive(record) == (200, {"state": state})
    assert (service.handler.called, service.made) == ([], [])


def test_done_event_ensures_its_replies_without_calling_the_handler(service: Service) -> None:
    record = service.put(an_event(**ended(State.DONE, plan_size=3)))
    assert service.arrive(record) == (200, {"state": "done"})
    assert [task.key for task, _ in service.made] == [outbound_key(record.key, index) for index in range(3)]
    assert service.handler.called == []


def test_reply_that_cannot_be_enqueued_stops_no_other_and_is_answered_503(service: Service) -> None:
    record = service.put(an_event(**ended(State.DONE, plan_size=3)))
    poisoned = outbound_key(record.key, 1)
    service.internal.queue.before = lambda _, task, *__: QueueUnavailable() if task.key == poisoned else None
    assert service.arrive(record) == (503, {"state": "done"})
    assert len(service.made) == 3


def test_event_leased_by_another_attempt_is_answered_409(service: Service) -> None:
    record = service.put(an_event(**held(10)))
    assert service.arrive(record) == (409, {"state": "leased"})
    assert service.get(record) == record


@pytest.mark.parametrize("fields", [{"attempt": LAST}, held(-1, attempt=LAST)], ids=["pending", "leased expired"])
def test_an_event_without_attempts_left_is_dead(
    service: Service, fields: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    record = service.put(an_event(**fields))
    assert service.arrive(record) == (200, {"state": "dead"})
    assert service.get(record).reason == "attempts"
    assert said(capfd, "dead_lettered")["severity"] == "ERROR"


def test_older_task_of_an_event_that_is_not_due_ensures_the_current_one(service: Service) -> None:
    record = service.put(an_event(generation=2, due_at=NOW + PLUS))
    assert service.arrive(record, OLDER) == (200, {"state": "waiting"})
    assert service.made == [(Task.of(record), record.due_at)]
    assert service.handler.called == []


def test_an_older_task_of_an_event_that_is_due_does_the_work(service: Service) -> None:
    record = service.put(an_event(generation=2, due_at=NOW))
    assert service.arrive(record, OLDER) == (200, {"state": "done"})
    assert len(service.handler.called) == 1


# ---- process_inbound: what the handler says


def test_the_handler_is_given_the_message(service: Service) -> None:
    service.arrive(service.put(an_event()))
    (message,) = service.handler.called
    assert (message.kind, message.text, message.id, message.tenant) == ("text", "hello 1", "wamid.1", "default")
    assert (message.contact.id, message.sender) == (PERSON, parts.SENDER)


def test_the_end_and_the_replies_are_one_commit_and_then_the_tasks_are_made(service: Service) -> None:
    record = service.put(an_event())
    service.handler.answer = lambda _: ["one", "two"]
    service.internal.store.calls.clear()
    assert service.arrive(record) == (200, {"state": "done"})
    assert [name for name, *_ in service.internal.store.calls] == ["get", "change", "conversation_entries", "change"]
    event, *replies = service.internal.store.port.by_correlation(record.correlation_id)
    assert (event.state, event.plan_size, event.attempt, event.finished_at) == (State.DONE, 2, 1, NOW)
    assert [(reply.state, reply.generation, reply.attempt) for reply in replies] == [(State.PENDING, 0, 0)] * 2
    assert [reply.payload for reply in replies] == [
        {"type": "text", "content": {"body": body}, "reply_to": None, "to": f"+{PERSON}"} for body in ("one", "two")
    ]
    assert [reply.after for reply in replies] == [None, replies[0].key]
    assert service.made == [(Task.of(replies[0]), NOW), (Task.of(replies[1]), NOW + timedelta(seconds=1))]


def test_generator_output_is_stored_and_sent_only_when_it_ends(service: Service) -> None:
    """So a "typing…" that it yields first does not show while it works: docs/handlers.md says so."""
    record = service.put(an_event())
    there_meanwhile: list[int] = []

    def working(message: Message) -> Iterator[OutboundMessage | str]:
        yield OutboundMessage.typing(message.id)
        there_meanwhile.append(len(service.internal.store.port.by_correlation(record.correlation_id)) - 1)
        there_meanwhile.append(len(service.made))
        yield "done"

    service.handler.answer = working
    assert service.arrive(record) == (200, {"state": "done"})
    assert there_meanwhile == [0, 0]
    assert [task.key for task, _ in service.made] == [outbound_key(record.key, index) for index in range(2)]


def test_one_reply_that_cannot_be_sent_keeps_no_other_from_being_sent(
    service: Service, capfd: pytest.CaptureFixture[str]
) -> None:
    record = service.put(an_event())
    service.handler.answer = lambda _: ["one", "c4n4ry" * 1000, "two"]
    assert service.arrive(record) == (200, {"state": "done"})
    logged = {line["event"]: line for line in parts.lines(capfd.readouterr().out)}
    event, one, invalid, two = service.internal.store.port.by_correlation(record.correlation_id)
    assert (event.state, event.plan_size, event.attempt) == (State.DONE, 3, 1)
    assert [reply.state for reply in (one, invalid, two)] == [State.PENDING, State.DEAD, State.PENDING]
    assert (invalid.reason, invalid.key) == ("invalid", outbound_key(record.key, 1))
    assert invalid.last_error == "The text of a message has 6000 characters; WhatsApp takes 4096."
    assert invalid.payload == {"type": "invalid", "given": "c4n4ry" * 1000}
    assert (invalid.tenant, invalid.contact, invalid.correlation_id) == ("default", PERSON, record.correlation_id)
    assert two.after == one.key
    assert [task.key for task, _ in service.made] == [one.key, invalid.key, two.key]
    finished, dead = logged["inbound_processing_finished"], logged["dead_lettered"]
    assert (finished["outbound_planned"], finished["outbound_invalid"], finished["outbound_enqueued"]) == (3, 1, 3)
    assert (dead["severity"], dead["reason"], dead["delivery"]) == ("ERROR", "invalid", invalid.key)
    assert (dead["reply"], dead["cause"]) == (2, invalid.last_error)
    assert (dead["correlation_id"], dead["tenant"], dead["stage"]) == (record.correlation_id, "default", "outbound")
    assert "c4n4ry" not in str(logged)


def test_the_task_of_a_reply_that_cannot_be_sent_does_nothing(service: Service) -> None:
    record = service.put(an_event())
    service.handler.answer = lambda _: ["", "two"]
    service.arrive(record)
    (invalid,) = [task for task, _ in service.made if task.key == outbound_key(record.key, 0)]
    assert service.process(invalid) == (200, {"state": "dead"})
    assert service.arrive(record) == (200, {"state": "done"})
    assert len(service.handler.called) == 1


def test_valid_plan_logs_no_invalid_replies(service: Service, capfd: pytest.CaptureFixture[str]) -> None:
    service.handler.answer = lambda _: ["one", "two"]
    service.arrive(service.put(an_event()))
    logged = {line["event"]: line for line in parts.lines(capfd.readouterr().out)}
    assert logged["inbound_processing_finished"]["outbound_planned"] == 2
    assert "outbound_invalid" not in logged["inbound_processing_finished"]
    assert "dead_lettered" not in logged


def test_with_all_or_nothing_one_reply_that_cannot_be_sent_fails_the_handler(make: Make) -> None:
    service = make(PLAN_ALL_OR_NOTHING="true")
    record = service.put(an_event())
    service.handler.answer = lambda _: ["one", "", "two"]
    assert service.arrive(record) == (200, {"state": "rescheduled"})
    after = service.get(record)
    assert (after.state, after.attempt) == (State.PENDING, 1)
    assert after.last_error == "Reply 2 cannot be sent: The text of a message is empty."
    assert service.internal.store.port.by_correlation(record.correlation_id) == [after]


def test_expired_lease_is_replaced_by_a_new_attempt(service: Service) -> None:
    record = service.put(an_event(**held(-1)))
    assert service.arrive(record) == (200, {"state": "done"})
    assert service.get(record).attempt == 2


def test_plan_without_tasks_is_answered_503_and_enqueued_on_redelivery(service: Service) -> None:
    record = service.put(an_event())
    service.handler.answer = lambda _: "one"
    service.internal.queue.before = lambda *_: QueueUnavailable()
    assert service.arrive(record) == (503, {"state": "done"})
    service.internal.queue.before = lambda *_: None
    assert service.arrive(record) == (200, {"state": "done"})
    assert len(service.handler.called) == 1
    assert service.made[-1][0].key == outbound_key(record.key, 0)


def test_dropping_handler_ends_the_event_as_dropped(service: Service, capfd: pytest.CaptureFixture[str]) -> None:
    def drop(_: Message) -> None:
        raise Drop("c4n4ry")

    record = service.put(an_event())
    service.handler.answer = drop
    assert service.arrive(record) == (200, {"state": "dropped"})
    after = service.get(record)
    assert (after.reason, after.metadata) == ("handler", {"handler_said": "c4n4ry"})
    line = said(capfd, "inbound_processing_finished")
    assert (line["state"], line["reason"], "c4n4ry" in str(line)) == ("dropped", "handler", False)
    assert "status" not in line, "it counts neither as a success nor as a failure"


@pytest.mark.parametrize("earlier", [0, 3])
def test_started_line_has_the_attempt_number(service: Service, capfd: pytest.CaptureFixture[str], earlier: int) -> None:
    service.arrive(service.put(an_event(attempt=earlier)))
    assert said(capfd, "inbound_processing_started")["attempt"] == earlier + 1


def failing(_: Message) -> None:
    raise LookupError("c4n4ry")


@pytest.mark.parametrize(
    "answer", [failing, lambda _: 5, lambda _: ["x"] * 31], ids=["raises", "no answer", "too many"]
)
def test_failed_handler_is_retried_later(
    service: Service, answer: Callable[..., Any], capfd: pytest.CaptureFixture[str]
) -> None:
    record = service.put(an_event())
    service.handler.answer = answer
    assert service.arrive(record) == (200, {"state": "rescheduled"})
    after = service.get(record)
    assert (after.state, after.generation, after.attempt) == (State.PENDING, 1, 1)
    assert after.due_at == NOW + timedelta(seconds=10)
    assert service.made == [(Task.of(after), after.due_at)]
    assert after.last_error
    assert "c4n4ry" not in capfd.readouterr().out


def test_a_failed_attempt_is_logged_at_once_by_type_line_and_function(
    service: Service, capfd: pytest.CaptureFixture[str]
) -> None:
    record = service.put(an_event())
    service.handler.answer = failing
    service.arrive(record)
    line = said(capfd, "inbound_rescheduled")
    place = f"tests/services/internal/test_process_inbound.py:{failing.__code__.co_firstlineno + 1}"
    assert (line["error_type"], line["place"], line["function"]) == ("LookupError", place, "failing")
    assert line["stack_trace"].endswith("in failing\nLookupError")
    assert "cause" not in line
    (kept,) = service.get(record).attempts_log
    assert (kept.error_type, kept.place, kept.function) == ("LookupError", place, "failing")
    assert (kept.error, service.get(record).last_error) == ("LookupError: c4n4ry", "LookupError: c4n4ry")


def test_overrun_is_logged_in_our_own_text(make: Make, capfd: pytest.CaptureFixture[str]) -> None:
    service = make(HANDLER_TIMEOUT="1", TIME_SCALE="20")
    released = threading.Event()
    service.handler.answer = lambda _: released.wait(30)
    service.arrive(service.put(an_event()))
    released.set()
    line = said(capfd, "inbound_rescheduled")
    assert line["cause"] == "The handler took longer than 0.05 s."
    assert line["place"].startswith("tests/services/internal/test_process_inbound.py:")
    assert not {"error_type", "stack_trace"} & line.keys()


def test_overrunning_handler_is_retried_later(make: Make) -> None:
    service = make(HANDLER_TIMEOUT="1", TIME_SCALE="20")
    released = threading.Event()
    record = service.put(an_event())
    service.handler.answer = lambda _: released.wait(30)
    assert service.arrive(record) == (200, {"state": "rescheduled"})
    assert "longer than" in str(service.get(record).last_error)
    released.set()


def test_handler_failing_its_last_attempt_makes_a_dead_letter(
    service: Service, capfd: pytest.CaptureFixture[str]
) -> None:
    record = service.put(an_event(attempt=LAST - 1))
    service.handler.answer = failing
    assert service.arrive(record) == (200, {"state": "dead"})
    assert (service.get(record).reason, service.made) == ("error", [])
    said_all = capfd.readouterr().out
    logged = {line["event"]: line for line in parts.lines(said_all)}
    for event in ("inbound_failed", "dead_lettered"):
        told = logged[event]
        assert (told["error_type"], told["function"]) == ("LookupError", "failing")
        assert told["place"].startswith("tests/services/internal/test_process_inbound.py:")
    assert logged["inbound_failed"]["stack_trace"]
    assert "c4n4ry" not in said_all


NOT_FOR_IT = {
    "an account change": {"field": "account_update", "value": {"event": "X"}},
    "a kind that it does not handle": {"field": "messages", "item": text("wamid.1") | {"type": "reaction"}},
}


@pytest.mark.parametrize("payload", NOT_FOR_IT.values(), ids=NOT_FOR_IT)
def test_event_of_another_kind_ends_without_the_handler(service: Service, payload: dict[str, Any]) -> None:
    record = service.put(an_event(payload={**payload, "contact": {}, "phone_number_id": parts.SENDER}))
    assert service.arrive(record) == (200, {"state": "done"})
    assert (service.handler.called, service.get(record).plan_size) == ([], 0)


def test_item_that_is_still_invalid_is_dead_again(service: Service) -> None:
    record = service.put(an_event(payload={"field": "messages", "unparsable": {"item": {"id": 5}}}))
    assert service.arrive(record) == (200, {"state": "dead"})
    assert service.get(record).reason == "unparsable"


def test_still_unknown_sender_is_dropped_again(service: Service) -> None:
    record = service.put(an_event(tenant="", sender=STRANGER))
    assert service.arrive(record) == (200, {"state": "dropped"})
    assert service.get(record).reason == "unknown_sender"
    assert service.handler.called == []


def test_sender_with_a_new_owner_gives_event_and_reply_their_tenant(service: Service) -> None:
    """It was replayed: without this its replies would be nobody's, beside the marks and the queue of their tenant."""
    record = service.put(an_event(tenant="", round=1))
    service.handler.answer = lambda _: "one"
    assert service.arrive(record) == (200, {"state": "done"})
    (message,) = service.handler.called
    event, reply = service.internal.store.port.by_correlation(record.correlation_id)
    assert (message.tenant, event.tenant, reply.tenant) == ("default", "default", "default")


def test_item_that_became_readable_is_handled_and_answered(service: Service) -> None:
    """As an older parser left it, which did not know whose it was; this one does."""
    kept = {"item": text("wamid.1", "hello"), "contact": {}, "phone_number_id": parts.SENDER}
    record = service.put(an_event(contact="", round=1, payload={"field": "messages", "unparsable": kept}))
    service.handler.answer = lambda _: "one"
    assert service.arrive(record) == (200, {"state": "done"})
    (message,) = service.handler.called
    event, reply = service.internal.store.port.by_correlation(record.correlation_id)
    assert (message.text, event.contact, reply.contact) == ("hello", PERSON, PERSON)
    assert reply.payload["to"] == f"+{PERSON}"


def test_a_shutdown_before_the_handler_gives_the_attempt_back(service: Service) -> None:
    record = service.put(an_event(attempt=2))
    service.internal.parts.shutdown.begin()
    assert service.arrive(record) == (409, {"state": "pending"})
    after = service.get(record)
    assert (after.state, after.attempt, after.generation, after.token) == (State.PENDING, 2, 0, None)
    assert service.handler.called == []


def test_a_shutdown_while_the_handler_works_gives_the_attempt_back(service: Service) -> None:
    released = threading.Event()

    def work(_: Message) -> None:
        service.internal.parts.shutdown.begin()
        released.wait(30)

    record = service.put(an_event())
    service.handler.answer = work
    assert service.arrive(record) == (409, {"state": "pending"})
    assert service.get(record).attempt == 0
    released.set()


def taken_over(service: Service, record: Delivery, **changes: Any) -> None:
    """Another attempt writes, while this one is at work."""
    now = service.get(record)
    service.internal.store.port.change(record.key, lambda _: parts.step(replace(now, **changes)))


@pytest.mark.parametrize(
    ("record", "state"), [(an_event(), "leased"), (a_reply(), "leased")], ids=["the handler", "the send"]
)
def test_an_attempt_whose_lease_was_lost_writes_nothing(
    service: Service, provider: parts.Provider, record: Delivery, state: str, capfd: pytest.CaptureFixture[str]
) -> None:
    service.put(record)

    def lose(*_: Any) -> str:
        taken_over(service, record, token="another", lease_until=NOW + PLUS)
        return "too late"

    service.handler.answer = lose
    provider.during = lose
    assert service.arrive(record) == (409, {"state": state})
    assert service.get(record).token == "another"
    assert len(service.internal.store.port.by_correlation(record.correlation_id)) == 1
    assert service.made == []
    assert said(capfd, "lease_lost")["severity"] == "WARNING"


@pytest.mark.parametrize("record", [an_event(), a_reply()], ids=["event", "reply"])
def test_an_end_that_was_written_and_not_reported_is_recognised(service: Service, record: Delivery) -> None:
    """The store says that it is away once the write is done; asked again, it shows our own token."""
    service.put(record)
    changed: list[str] = []

    def unreported(name: str, *_: Any) -> Exception | None:
        changed.append(name)
        return StoreUnavailable() if changed.count("change") == 2 and name == "change" else None

    service.internal.store.after = unreported
    assert service.arrive(record) == (200, {"state": "done"})
    assert service.get(record).state is State.DONE
    assert changed.count("change") == 3


@pytest.mark.parametrize("record", [an_event(), a_reply()], ids=["event", "reply"])
def test_store_outage_after_the_work_is_answered_503_and_the_lease_expires(service: Service, record: Delivery) -> None:
    service.put(record)
    seen: list[str] = []

    def away(name: str, *_: Any) -> Exception | None:
        seen.append(name)
        return StoreUnavailable() if name == "change" and seen.count("change") > 1 else None

    service.internal.store.before = away
    assert service.arrive(record) == (503, {"error": "store_unavailable"})
    assert service.get(record).state is State.LEASED
    assert service.internal.clock.seconds <= 90
