"""What the services log: JSON lines in one form, enough to follow a message by, and nothing private."""

from collections.abc import Callable
from datetime import datetime

import pytest

from shared.domain.identity import provider_id_hash, task_name
from shared.domain.record import Task
from shared.logs import EVENTS
from tests.support.payloads import of_texts, text
from tests.support.stack import Stack

SEVERITIES = {"DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"}


def of_services(stack: Stack) -> list[dict]:
    """The lines of the two services: they alone say what stage of Pombo, which event or which request they are of."""
    local = {"queue_created", "attempt_failed", "fault_made", "task_given_up", "webhook_failed", "call_refused"}
    return [
        line
        for line in stack.logs()
        if line["event"] not in local and not (line["event"] in ("started", "stopping") and "stage" not in line)
    ]


def test_every_log_line_is_json_with_time_severity_event_and_sentence(stack: Stack, contact: str) -> None:
    stack.wait_settled([stack.say(contact, "hello"), stack.say(contact, "!raise 1"), stack.say(contact, "!int")])

    lines = of_services(stack)

    assert len(lines) > 15
    for line in lines:
        assert line["severity"] in SEVERITIES
        assert line["message"] == EVENTS[line["event"]]
        assert datetime.fromisoformat(line["time"]).utcoffset() is not None
    stack.check_logs()


def test_correlation_id_follows_a_message_from_webhook_to_last_receipt(stack: Stack, contact: str) -> None:
    message_id = stack.say(contact, "!list 2")
    stack.wait_until(
        lambda: all((reply := stack.reply(message_id, index)) and reply.current_receipts.read for index in (0, 1)),
        "both were read",
    )
    event = stack.event(message_id)
    assert event is not None
    ours = {"correlation_id": event.correlation_id}
    stack.wait_until(lambda: len(stack.logs("receipt_applied", **ours)) >= 6, "all receipts are logged")

    lines = stack.logs(**ours)

    names = [line["event"] for line in lines]
    once = ["inbound_new", "inbound_processing_started", "inbound_processing_finished"]
    assert [name for name in names if name in once] == once
    assert names.count("inbound_enqueued") == 1, "anywhere after the first: its task may be quicker than its line"
    assert names[0] == "inbound_new"
    assert names.count("outbound_sent") == 2
    assert names.count("receipt_applied") == 6
    (finished,) = [line for line in lines if line["event"] == "inbound_processing_finished"]
    assert (finished["outbound_planned"], finished["outbound_enqueued"]) == (2, 2)
    for line in lines:
        if line["event"] == "outbound_sent":
            assert line["delivery"] in {stack.reply(message_id, index).key for index in (0, 1)}  # type: ignore[union-attr]
            assert line["state"] == "done"
            wide = {"tenant", "phone_number_id", "stage", "attempt", "task_name", "duration_ms", "latency_seconds"}
            assert wide <= line.keys()
            sent = stack.store.get(line["delivery"])
            assert line["message_hash"] == provider_id_hash("meta", sent.provider_id)
            assert line["task_name"] == task_name(sent.key, line["generation"], line["hop"])
            assert (line["queue"], line["event_type"]) == ("outbound", "text")
    assert (finished["queue"], finished["event_type"]) == ("inbound", "message")
    assert finished["task_name"] == Task.of(event).name
    (enqueued,) = [line for line in lines if line["event"] == "outbound_enqueued"]
    first = stack.reply(message_id)
    assert first is not None
    assert (enqueued["task_name"], enqueued["queue"]) == (Task.of(first).name, "outbound")


def test_handler_failure_is_logged_by_place_without_its_text(stack: Stack, contact: str) -> None:
    message_id = stack.say(contact, "!raise always")
    stack.wait_settled([message_id])
    stack.wait_logs("inbound_failed", inbound_event_id=stack.event_key(message_id))

    about = stack.logs(inbound_event_id=stack.event_key(message_id))

    assert [line["event"] for line in about].count("inbound_rescheduled") == 2
    assert "inbound_failed" in [line["event"] for line in about]
    everything = (stack.data_dir / "logs.jsonl").read_text()
    assert "the team's code is broken" not in everything


@pytest.mark.parametrize("what", ["number", "text", "message id", "user id"])
def test_nothing_private_is_in_any_file_but_the_stores(stack: Stack, contacts: Callable[[], str], what: str) -> None:
    contact, words = contacts(), "an unmistakable text"
    message_id = f"wamid.unmistakable.{contact}"
    item = text(contact, message_id, words, from_user_id=f"US.2000000000{contact}")
    assert stack.post(of_texts(item)).status_code == 200
    assert stack.post(of_texts(item | {"text": 5})).status_code == 200
    assert stack.post(of_texts(item), {"X-Hub-Signature-256": "sha256=00"}).status_code == 403
    stack.wait_settled([message_id])
    sought = {"number": contact, "text": words, "message id": "unmistakable.", "user id": "US.2000000000"}[what]

    for path in stack.data_dir.iterdir():
        if path.suffix in (".jsonl", ".log", ".json", ".stderr") and path.name != "calls.jsonl":
            assert sought not in path.read_text(errors="replace"), path.name
    assert sought.encode() not in (stack.data_dir / "tasks.sqlite").read_bytes()
