"""The log fields of a task, a record, an event and a receipt: complete, of one place, and nothing private in them."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from shared.domain.events import Change, MessageReceived, ReceiptReceived, Unparsable
from shared.domain.identity import Echo, message_event_id, provider_id_hash, task_name
from shared.domain.outbound.types import TYPES
from shared.domain.record import Attempt, Kind, ReceiptKind, Task
from shared.pipeline import log_fields
from tests.support.builders import NOW, pending
from tests.support.pipelines import Channel, Queue

NUMBER, WAMID = "15550002222", "wamid.HBgLMTU1NTAwMDIyMjI="
KEY, SENDER = "0e" * 20, "100000000000001"
CHANNELS = {"meta": Channel()}
MESSAGE = {"field": "messages", "item": {"from": NUMBER, "id": WAMID}}


def receipt(provider_id: str = WAMID, **changes: Any) -> ReceiptReceived:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    return ReceiptReceived(**{"provider": "meta", "sender": SENDER, "provider_id": provider_id, "at": at, **changes})


@pytest.mark.parametrize(
    ("kind", "key_name"), [(Kind.INBOUND, "inbound_event_id"), (Kind.OUTBOUND, "delivery")], ids=["event", "message"]
)
def test_task_fields_have_its_record_name_and_queue(kind: Kind, key_name: str) -> None:
    task = Task(KEY, kind, "correlation-1", generation=2, hop=3)
    assert log_fields.of_task(task, Queue()) == {
        key_name: KEY,
        "correlation_id": "correlation-1",
        "stage": kind,
        "task_name": task_name(KEY, 2, 3),
        "queue": kind,
        "generation": 2,
        "hop": 3,
    }


def test_record_fields_have_key_owner_and_type() -> None:
    assert log_fields.of_record(pending(Kind.OUTBOUND, payload={"type": "template"}), CHANNELS) == {
        "delivery": "0f" * 20,
        "correlation_id": "correlation-1",
        "stage": "outbound",
        "event_type": "template",
        "tenant": "default",
        "provider": "meta",
        "phone_number_id": SENDER,
    }
    event = log_fields.of_record(pending(Kind.INBOUND, payload=MESSAGE), CHANNELS)
    assert (event["inbound_event_id"], event["event_type"], event["phone_number_id"]) == (KEY, "message", SENDER)
    assert "delivery" not in event


def test_an_account_is_not_logged_as_a_phone_number_id() -> None:
    record = pending(
        Kind.INBOUND, payload={"field": "account_update", "value": {}}, sender="300000000000003", tenant=""
    )
    fields = log_fields.of_record(record, CHANNELS)
    assert (fields["event_type"], fields["phone_number_id"], fields["tenant"]) == ("account_update", None, None)


def test_sender_id_is_logged_only_if_its_channel_marks_it_public() -> None:
    """An id of digits alone is harmless at one provider, and a person's telephone at another."""
    other = Channel()
    other.has_public_sender_ids = False
    record = pending(Kind.OUTBOUND, payload={"type": "text"}, provider="other", sender=NUMBER)
    for channels in ({"other": other}, CHANNELS):
        fields = log_fields.of_record(record, channels)
        assert (fields["provider"], fields["phone_number_id"]) == ("other", None)
    known = log_fields.of_record(record, {"other": Channel()})
    assert known["phone_number_id"] == NUMBER


@pytest.mark.parametrize("payload", [{"truncated": NUMBER}, {"field": ""}, {}])
def test_an_event_without_a_field_is_of_the_type_other(payload: dict[str, Any]) -> None:
    assert log_fields.type_of(pending(Kind.INBOUND, payload=payload)) == "other"


@pytest.mark.parametrize("type", sorted(TYPES))
def test_known_message_type_is_logged_unchanged(type: str) -> None:
    assert log_fields.type_of(pending(payload={"type": type})) == type


@pytest.mark.parametrize("type", [NUMBER, "Text", "", None, 7, ["text"], {}])
def test_a_type_that_a_team_made_up_is_logged_as_other(type: Any) -> None:
    assert log_fields.type_of(pending(payload={"type": type})) == "other"
    assert log_fields.type_of(pending(payload={})) == "other"


@pytest.mark.parametrize(
    ("event", "key", "event_type"),
    [
        (MessageReceived("meta", SENDER, WAMID, NUMBER, MESSAGE), message_event_id("meta", SENDER, WAMID), "message"),
        (Unparsable("meta", SENDER, "messages", {}, WAMID), message_event_id("meta", SENDER, WAMID), "messages"),
        (Unparsable("meta", "", "", "raw"), Unparsable("meta", "", "", "raw").key, "other"),
        (Change("meta", "3", "account_update", {}), Change("meta", "3", "account_update", {}).key, "account_update"),
    ],
    ids=["message", "unparsable message", "unparsable webhook", "change"],
)
def test_event_fields_name_its_first_task_with_or_without_a_record(
    event: MessageReceived | Change | Unparsable, key: str, event_type: str
) -> None:
    assert log_fields.of_event(event, "default", None, Queue()) == {
        "inbound_event_id": key,
        "correlation_id": None,
        "stage": "inbound",
        "provider": "meta",
        "event_type": event_type,
        "task_name": task_name(key, 0, 0),
        "queue": "inbound",
        "generation": 0,
        "hop": 0,
    }


def test_event_fields_name_the_queue_of_its_tenant() -> None:
    class Queues(Queue):
        def queue_of(self, task: Task) -> str:
            return f"{task.kind}-{task.pair}"

    event = MessageReceived("meta", SENDER, WAMID, NUMBER, MESSAGE)
    assert log_fields.of_event(event, "acme", 7, Queues())["queue"] == "inbound-7"


def test_receipt_fields_have_its_echo_and_a_hash_of_the_provider_id() -> None:
    echo = Echo(KEY, 0, "correlation-1")
    assert log_fields.of_receipt(receipt(kind=ReceiptKind.FAILED, code=131026), echo) == {
        "delivery": KEY,
        "correlation_id": "correlation-1",
        "stage": "outbound",
        "provider": "meta",
        "event_type": "failed",
        "message_hash": provider_id_hash("meta", WAMID),
        "code": 131026,
    }


def test_a_receipt_without_our_echo_or_without_an_id_lacks_what_it_does_not_name() -> None:
    fields = log_fields.of_receipt(receipt("", kind=ReceiptKind.READ), None)
    assert {name for name, value in fields.items() if value is None} == {
        "delivery", "correlation_id", "message_hash", "code",
    }  # fmt: skip


RAISED = Attempt(
    NOW, 1, "handler_failed", error="KeyError: c4n4ry", error_type="KeyError", place="handlers/mine.py:7", function="of"
)
OURS = Attempt(NOW, 1, "handler_failed", error="The handler took longer than 60 s.", place="handlers/mine.py:7")


@pytest.mark.parametrize(
    ("attempt", "told"),
    [
        (RAISED, {"error_type": "KeyError", "place": "handlers/mine.py:7", "function": "of"}),
        (OURS, {"place": "handlers/mine.py:7", "cause": "The handler took longer than 60 s."}),
        (Attempt(NOW, 1, "refused", 131026), {}),
    ],
    ids=["an exception", "a sentence of ours", "a message"],
)
def test_failure_fields_have_type_and_place_and_only_our_own_text(attempt: Attempt, told: dict[str, str]) -> None:
    record = pending(Kind.INBOUND, attempts_log=(replace(OURS, error="before"), attempt))
    assert {name: value for name, value in log_fields.of_failure(record).items() if value is not None} == told


def test_failure_of_an_earlier_round_is_not_logged() -> None:
    assert log_fields.of_failure(pending(Kind.INBOUND, attempts_log=(RAISED,), round=1)) == {}
    assert log_fields.of_failure(pending(Kind.INBOUND)) == {}


def test_no_fields_hold_the_number_or_the_providers_id() -> None:
    record = pending(Kind.INBOUND, payload=MESSAGE, contact=NUMBER, provider_id=WAMID)
    event = MessageReceived("meta", SENDER, WAMID, NUMBER, MESSAGE)
    fields = [
        log_fields.of_record(record, CHANNELS),
        log_fields.of_task(Task.of(record), Queue()),
        log_fields.of_event(event, "default", None, Queue()),
        log_fields.of_receipt(receipt(kind=ReceiptKind.SENT), None),
    ]
    assert NUMBER not in json.dumps(fields)
    assert "wamid" not in json.dumps(fields)
