"""What a person reads of a message, whatever became of it: every situation is brought about for real."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli import ids, running, trace
from shared.domain.delivery.lease import lease
from shared.domain.delivery.operator import replay
from shared.domain.guards import Go
from shared.domain.identity import message_event_id
from shared.domain.limits import Limits
from shared.domain.record import Delivery, Task
from shared.domain.tasks import task_body
from shared.pipeline.clock import SystemClock
from shared.stores.sqlite.store import SqliteStore
from tests.support.payloads import envelope, of_texts, receipt, text, value, wire
from tests.support.stack import SENDER, Stack

CLOCK = r"(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d UTC"


@pytest.fixture(scope="module")
def told(make_stack: Callable[..., Stack]) -> Iterator[Stack]:
    """Its doubt window is as short as it may be: 120 s, which is 6 here."""
    with make_stack(IN_DOUBT_SECONDS="120") as stack:
        yield stack


def story(stack: Stack, message_id: str) -> list[tuple[str, str]]:
    """Word and sentence of each moment, in order."""
    return [(moment["what"], moment["sentence"]) for moment in stack.timeline(message_id)["events"]]


def sentences(stack: Stack, message_id: str, what: str) -> list[str]:
    return [sentence for word, sentence in story(stack, message_id) if word == what]


def wait_for(stack: Stack, message_id: str, what: str, pattern: str = "", seconds: float = 30) -> str:
    """The first sentence of this kind that the pattern is found in, once there is one."""

    def found() -> str | None:
        said = sentences(stack, message_id, what) if stack.event(message_id) else []
        return next((sentence for sentence in said if re.search(pattern, sentence)), None)

    return stack.wait_until(found, f"{what!r} is told as {pattern!r}", seconds) or ""


def whats(stack: Stack, message_id: str) -> list[str]:
    return [what for what, _ in story(stack, message_id)]


# ---- in


def test_answered_and_read_message_is_shown(told: Stack, contact: str) -> None:
    message_id = told.say(contact, "hello")
    wait_for(told, message_id, "receipt_read")
    told.wait_logs("outbound_enqueued", inbound_event_id=told.event_key(message_id))

    assert story(told, message_id) == [
        ("received", "Received and stored (signature valid, first delivery)."),
        ("replied", "The handler answered."),
        ("done", "Handled: 1 reply to send. (enqueued 1)"),
        ("planned", "Planned as reply 1 of 1."),
        ("accepted", "Accepted by WhatsApp."),
        ("receipt_sent", "WhatsApp confirmed that it was sent."),
        ("receipt_delivered", "Delivered to the customer's phone."),
        ("receipt_read", "Read by the customer."),
    ]


def test_duplicates_are_counted_in_the_timeline(told: Stack, contact: str) -> None:
    body = of_texts(text(contact, f"wamid.{contact}", "hello"))
    assert told.post(body).status_code == 200
    told.wait_settled([f"wamid.{contact}"])
    for _ in range(3):
        assert told.post(body).status_code == 200

    said = wait_for(told, f"wamid.{contact}", "duplicate", "3 duplicates")
    assert re.fullmatch(rf"3 duplicates received, the last at {CLOCK}; not processed again\.", said)
    assert whats(told, f"wamid.{contact}").count("duplicate") == 1


def test_failed_and_repeated_handler_is_shown(told: Stack, contact: str) -> None:
    message_id = told.say(contact, "!raise 1")

    said = wait_for(told, message_id, "handler_failed")
    place = r"tests/support/team/scripted\.py:\d+ in _raise"
    assert re.match(rf"The handler failed at {place}: RuntimeError: the team's code is broken\.", said)
    told.wait_settled([message_id])
    assert whats(told, message_id)[:4] == ["received", "handler_failed", "replied", "done"]


def test_failed_handler_is_shown_with_the_time_of_the_retry(told: Stack, contact: str) -> None:
    message_id = told.say(contact, "!raise always")

    said = wait_for(told, message_id, "handler_failed", "Next attempt")
    assert re.search(rf"is broken\. Next attempt at {CLOCK}\. \(attempt 1\)", said)
    told.wait_settled([message_id])
    assert whats(told, message_id) == ["received", *["handler_failed"] * 3, "dead"]
    assert sentences(told, message_id, "dead") == [
        "The handler failed on the last attempt. Moved to dead letters; `pombo dead replay` retries it."
    ]
    assert told.timeline(message_id)["shown"] == "failed"


def test_killed_handler_is_shown(told: Stack, contact: str) -> None:
    message_id = told.say(contact, "!hang 9")
    assert wait_for(told, message_id, "started") == "The handler is running. (attempt 1)"
    killed = told.kill("internal")
    told.wait_back(killed)
    told.wait_settled([message_id], 60)

    assert whats(told, message_id)[:3] == ["received", "cut_off", "replied"]


def test_message_dropped_by_the_handler_is_shown(told: Stack, contact: str) -> None:
    message_id = told.say(contact, "!drop it is spam")
    told.wait_settled([message_id])

    assert story(told, message_id)[1:] == [("dropped", "The handler dropped it: it is spam.")]


def test_message_to_an_unknown_sender_is_shown_as_ignored(told: Stack, contact: str) -> None:
    stranger = "200000000000008"
    body = wire(envelope(value([text(contact, f"wamid.{contact}", "hello")], sender=stranger)))
    assert told.post(body).status_code == 200

    timeline = timeline_of(told, message_event_id("meta", stranger, f"wamid.{contact}"))
    (_, end) = timeline["events"]
    assert timeline["shown"] == "ignored"
    assert re.fullmatch(r"Dropped: no tenant owns this phone number ID\. Kept until \d{4}-\d\d-\d\d\.", end["sentence"])


def test_unreadable_item_is_shown(told: Stack, contact: str) -> None:
    broken = {"type": "text", "from": contact, "text": {"body": f"no id {contact}"}}
    assert told.post(of_texts(broken)).status_code == 200

    key = told.wait_logs("dead_lettered", reason="unparsable")[-1]["delivery"]
    timeline = timeline_of(told, key)
    assert timeline["events"][-1]["sentence"] == (
        "Parsing failed. Moved to dead letters as received; `pombo dead replay` parses it again."
    )


def timeline_of(stack: Stack, key: str) -> dict[str, Any]:
    """Of what no message id leads to."""
    found = running.Running(stack.store, SENDER, None, stack.data_dir / "logs.jsonl")
    known = ids.find(found, key)
    assert known is not None
    return trace.as_dict(trace.timeline_of(found, known.records))


# ---- out: what delays it


def test_retried_send_is_shown_with_its_time(told: Stack, contact: str) -> None:
    told.fault("send", "error", code=999999, transient=True, match={"to": contact})
    message_id = told.say(contact, "hello")

    said = wait_for(told, message_id, "retry")
    why = "for a reason that Pombo does not know"
    assert re.search(
        rf"did not accept it this time, {why}\.( Next attempt at {CLOCK}\.)? \(attempt 1, code 999999\)", said
    )
    told.wait_settled([message_id])
    assert whats(told, message_id)[3:6] == ["planned", "retry", "accepted"]


def test_limit_is_shown_with_its_scope_and_next_attempt(told: Stack, contact: str) -> None:
    told.fault("send", "error", code=131056, times=2, match={"to": contact})
    message_id = told.say(contact, "hello")

    said = wait_for(told, message_id, "limited", "Next attempt at")
    assert re.search(rf"one customer in a short time is reached\. Next attempt at {CLOCK}\. \(code 131056\)", said)
    told.wait_settled([message_id], 60)
    assert whats(told, message_id)[3:7] == ["planned", "limited", "limited", "accepted"]


def test_reply_waiting_for_the_one_before_it_is_shown(told: Stack, contact: str) -> None:
    told.fault("send", "error", code=131056, times=3, match={"to": contact})
    message_id = told.say(contact, "!list 2")

    assert re.match("Waiting for the message before it", wait_for(told, message_id, "waiting", "checked"))
    told.wait_settled([message_id], 90)
    (said,) = sentences(told, message_id, "waiting")
    assert re.fullmatch(rf"Waited for the message before it; checked \d+ times, the last at {CLOCK}\.", said)


@pytest.fixture(scope="module")
def unhurried(make_stack: Callable[..., Stack]) -> Iterator[Stack]:
    """In real time, or a wait may be over before it is read."""
    with make_stack(TIME_SCALE="1") as stack:
        yield stack


@pytest.fixture
def free(unhurried: Stack) -> Stack:
    """The same, with nothing that holds its number back."""
    unhurried.put_marks(block=None, refused=None)
    return unhurried


def test_messages_of_a_blocked_number_are_shown_as_waiting(free: Stack, contacts: Callable[[], str]) -> None:
    first, later = contacts(), contacts()
    free.fault("send", "error", code=368, match={"to": first})
    refused = free.say(first, "hello")
    said = wait_for(free, refused, "blocked")
    assert re.fullmatch(rf"Meta has blocked the WhatsApp account .*\. Waiting until {CLOCK}\. \(code 368\)", said)
    waiting = free.say(later, "hello")
    said = wait_for(free, waiting, "waiting")
    assert re.fullmatch(rf"Waiting: WhatsApp has blocked the business number; next check at {CLOCK}\.", said)
    assert [free.timeline(one)["replies"][0]["why"] for one in (refused, waiting)] == ["blocked", "blocked"]


def test_messages_with_a_refused_token_are_shown_as_waiting(free: Stack, contacts: Callable[[], str]) -> None:
    first, later = contacts(), contacts()
    free.fault("send", "error", code=190, match={"to": first})
    refused = free.say(first, "hello")
    assert "reconnect the number" in wait_for(free, refused, "credential_refused", "Next attempt at")
    waiting = free.say(later, "hello")
    assert "Waiting for the number to be reconnected" in wait_for(free, waiting, "waiting")
    why = [free.timeline(one)["replies"][0]["why"] for one in (refused, waiting)]
    assert why == ["WHATSAPP_REAUTH_REQUIRED", "WHATSAPP_REAUTH_REQUIRED"]


# ---- out: doubt


def test_lost_answer_confirmed_by_a_receipt_is_shown(told: Stack, contact: str) -> None:
    told.fault("send", "accept_then_drop", match={"to": contact})
    message_id = told.say(contact, "hello")
    told.wait_settled([message_id])

    assert sentences(told, message_id, "lost")[0].startswith("Sent, but WhatsApp's response was lost")
    assert sentences(told, message_id, "done")[-1] == (
        "A receipt confirms that WhatsApp has it. Pombo does not resend it."
    )


def test_lost_answer_without_a_receipt_is_shown_as_resent(told: Stack, contact: str) -> None:
    told.fault("receipt", "withhold", times=0, match={"to": contact})
    told.fault("send", "accept_then_drop", match={"to": contact})
    message_id = told.say(contact, "hello")

    said = wait_for(told, message_id, "lost", "receipt until")
    until = rf"Waiting for a delivery receipt until {CLOCK} before deciding whether to resend"
    assert re.fullmatch(rf"Sent, but WhatsApp's response was lost\. {until}\. \(attempt 1\)", said)
    told.wait_settled([message_id], 60)
    out = [what for what in whats(told, message_id)[3:] if what != "waiting"]
    assert out == ["planned", "lost", "resent", "accepted"]
    assert sentences(told, message_id, "resent") == [
        "No receipt arrived within the doubt window. Pombo resends the message, at most once."
    ]


def test_second_doubt_is_shown_as_an_operators_decision(told: Stack, contact: str) -> None:
    told.fault("receipt", "withhold", times=0, match={"to": contact})
    told.fault("send", "accept_then_drop", times=2, match={"to": contact})
    message_id = told.say(contact, "hello")
    told.wait_settled([message_id], 60)

    out = [what for what in whats(told, message_id)[3:] if what != "waiting"]
    assert out == ["planned", "lost", "resent", "lost", "dead"]
    assert sentences(told, message_id, "dead") == [
        "No receipt arrived: WhatsApp may or may not have the message. Moved to dead letters; "
        "`pombo dead replay --may-double` resends it."
    ]


def test_send_whose_process_disappeared_is_shown(told: Stack, contact: str) -> None:
    told.fault("receipt", "withhold", times=0, match={"to": contact})
    told.fault("task", "slow", seconds=2.0, match={"queue": "outbound"})
    message_id = told.say(contact, "hello")
    told.wait_until(lambda: told.reply(message_id), "the reply is planned")
    reply = told.reply(message_id)
    assert reply is not None
    assert lease_for_nobody(told, reply).state == "leased"
    assert wait_for(told, message_id, "started", "Sending") == "Sending to WhatsApp. (attempt 1)"

    said = wait_for(told, message_id, "in_doubt", "until")
    assert re.fullmatch(
        r"The worker stopped responding while sending: WhatsApp may or may not have the message\. "
        rf"Waiting for a delivery receipt until {CLOCK} before deciding whether to resend\. \(attempt 1\)",
        said,
    )
    told.wait_settled([message_id], 60)
    out = [what for what in whats(told, message_id)[3:] if what != "waiting"]
    assert out == ["planned", "in_doubt", "resent", "accepted"]
    at = {moment["what"]: moment["at"] for moment in told.timeline(message_id)["events"]}
    assert at["planned"] < at["in_doubt"] < at["resent"], "the log knows when the doubt began"


def lease_for_nobody(stack: Stack, reply: Delivery) -> Delivery:
    """Take the lease as a process would that is killed right after it."""
    limits, now = Limits().scaled(20), SystemClock().now()
    step = stack.store.change(
        reply.key, lambda record: lease(record, Task.of(reply), "a token of nobody's", Go(), limits, now)
    )
    assert step.write is not None
    return step.write


# ---- out: the end


def test_permanent_refusal_is_shown_with_its_reason(told: Stack, contact: str) -> None:
    told.fault("send", "error", code=131047, match={"to": contact})
    message_id = told.say(contact, "hello")
    told.wait_settled([message_id])

    (said,) = sentences(told, message_id, "refused")
    assert "more than 24 hours" in said
    assert said.endswith("(code 131047)")
    assert whats(told, message_id)[-1] == "dead"
    assert told.timeline(message_id)["replies"][0]["shown"] == "failed"


def test_send_without_attempts_left_is_shown(told: Stack, contact: str) -> None:
    told.fault("send", "error", code=999999, transient=True, times=0, match={"to": contact})
    message_id = told.say(contact, "hello")
    told.wait_settled([message_id], 60)

    assert whats(told, message_id)[3:] == ["planned", "retry", "retry", "retry", "dead"]
    assert sentences(told, message_id, "dead")[0].startswith("Failed after 3 attempts. Moved to dead letters;")


def test_accepted_message_that_was_not_delivered_is_shown_as_failed(told: Stack, contact: str) -> None:
    told.fault("receipt", "withhold", times=0, match={"to": contact})
    message_id = told.say(contact, "hello")
    told.wait_settled([message_id])
    reply = told.reply(message_id)
    assert reply is not None
    failed = receipt(reply.provider_id or "", "failed", errors=[{"code": 131026, "title": "Message undeliverable"}])
    assert told.post(wire(envelope(value(statuses=[failed])))).status_code == 200

    said = wait_for(told, message_id, "receipt_failed")
    assert said.startswith("Accepted by WhatsApp, but not delivered. ")
    assert said.endswith("(code 131026)")
    assert told.timeline(message_id)["replies"][0]["shown"] == "failed"


def test_played_voice_message_is_shown(told: Stack, contact: str) -> None:
    told.fault("receipt", "withhold", times=0, match={"to": contact})
    message_id = told.say(contact, "hello")
    told.wait_settled([message_id])
    reply = told.reply(message_id)
    assert reply is not None
    assert told.post(wire(envelope(value(statuses=[receipt(reply.provider_id or "", "played")])))).status_code == 200

    assert wait_for(told, message_id, "receipt_played") == "Played by the customer."


def test_replayed_message_shows_its_rounds(told: Stack, contact: str) -> None:
    told.fault("send", "error", code=131026, match={"to": contact})
    message_id = told.say(contact, "hello")
    told.wait_settled([message_id])
    reply = told.reply(message_id)
    assert reply is not None

    now = SystemClock().now()
    again = told.store.change(reply.key, lambda record: replay(record, Limits(), now)).write  # type: ignore[arg-type]
    assert again is not None
    assert told.task("outbound", task_body(Task.of(again))).status_code == 200

    wait_for(told, message_id, "receipt_read")
    assert whats(told, message_id)[3:] == [
        *("planned", "refused", "dead", "replayed", "accepted"),
        *("receipt_sent", "receipt_delivered", "receipt_read"),
    ]
    assert sentences(told, message_id, "accepted") == ["Accepted by WhatsApp. (round 1)"]
    assert sentences(told, message_id, "receipt_read") == ["Read by the customer. (round 1)"]


# ---- where no record is left


def test_duplicate_of_an_expired_record_is_shown_from_the_logs(told: Stack, contact: str, tmp_path: Path) -> None:
    body = of_texts(text(contact, f"wamid.{contact}", "hello"))
    assert told.post(body).status_code == 200
    told.wait_settled([f"wamid.{contact}"])  # before that the same again may make sure of its task instead
    assert told.post(body).status_code == 200
    key = told.event_key(f"wamid.{contact}")
    told.wait_logs("inbound_duplicate", inbound_event_id=key)
    lines = told.logs(inbound_event_id=key)
    empty = SqliteStore(tmp_path / "empty.sqlite", Limits(), SystemClock().now)
    try:
        found = running.Running(empty, SENDER, None, told.data_dir / "logs.jsonl")
        assert ids.find(found, f"wamid.{contact}") is None
        timeline = trace.from_logs(found, f"wamid.{contact}")
    finally:
        empty.close()
    assert timeline is not None
    assert timeline.shown == "gone"
    assert timeline.correlation_id == lines[0]["correlation_id"]
    assert {"inbound_new", "inbound_duplicate"} <= {moment.what for moment in timeline.events}
    assert "Its record was deleted" in trace.as_text(timeline)
