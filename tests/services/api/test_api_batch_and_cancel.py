"""POST /v1/messages/batch, whose messages succeed or fail by themselves, and POST /v1/messages/{id}/cancel."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from shared.domain.errors import QueueUnavailable, StoreUnavailable
from shared.domain.identity import Echo
from shared.domain.record import ReceiptKind, State
from tests.support.api_service import ApiService, problem
from tests.support.blocking import Blocking
from tests.support.parts import NOW, a_receipt, an_event, step
from tests.support.receipts import note_receipt

TEXT = {"to": "+15550002222", "text": "Your appointment is at nine."}


def batch(api: ApiService, *messages: Any, key: str | None = None, **headers: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return api.call("POST", "/v1/messages/batch", {"messages": list(messages)}, key=key, headers=named)


def send(api: ApiService, key: str, **more: Any) -> str:
    id: str = api.call("POST", "/v1/messages", TEXT | more, key=key).get_json()["id"]
    return id


# ---- batch


def test_each_message_of_a_batch_succeeds_or_fails_by_itself(api: ApiService) -> None:
    results = batch(api, TEXT, TEXT | {"to": "x"}, "not a message", TEXT | {"from": "999"}, TEXT).get_json()["results"]
    found = [(one["status"], one.get("code"), one.get("field")) for one in results]
    assert found == [
        (202, None, None),
        (400, "INVALID_REQUEST", "to"),
        (400, "INVALID_REQUEST", "body"),
        (404, "NOT_FOUND", "from"),
        (202, None, None),
    ]
    assert [api.stored(results[place]["id"]).state for place in (0, 4)] == [State.PENDING] * 2
    assert len(api.made) == 2


def test_key_of_a_message_in_a_batch_is_the_header_and_its_place(api: ApiService) -> None:
    key = api.key()
    results = batch(api, TEXT, TEXT, key=key, Idempotency_Key="day-7").get_json()["results"]
    alone = api.call("POST", "/v1/messages", TEXT, key=key, headers={"Idempotency-Key": "day-7:1"}).get_json()
    assert results[0]["id"] != results[1]["id"] == alone["id"]


def test_repeated_batch_gives_the_same_answer_and_takes_in_what_was_mended(api: ApiService) -> None:
    key = api.key()
    first = batch(api, TEXT, TEXT | {"to": "x"}, key=key, Idempotency_Key="day-7").get_json()["results"]
    mended = batch(api, TEXT, TEXT, key=key, Idempotency_Key="day-7").get_json()["results"]
    other = batch(api, TEXT | {"text": "other"}, key=key, Idempotency_Key="day-7").get_json()["results"]
    assert mended[0] == first[0]
    assert mended[1]["status"] == 202
    assert (other[0]["status"], other[0]["code"]) == (422, "IDEMPOTENCY_CONFLICT")


def test_batch_has_1_to_100_messages(api: ApiService) -> None:
    assert [one["status"] for one in batch(api, *[TEXT] * 100).get_json()["results"]] == [202] * 100
    for messages in ([], [TEXT] * 101):
        assert problem(batch(api, *messages)) == (400, "INVALID_REQUEST", "messages")
    assert len(api.made) == 100


def test_marks_of_each_number_are_read_once_in_five_seconds(api: ApiService) -> None:
    api.tenant("bakery", "201", "202")
    key = api.key("bakery")
    messages = [TEXT | {"from": number} for number in ("201", "202") * 5]
    for seconds, asked in ((0, 2), (4.9, 2), (0.2, 4)):
        api.clock.go(seconds)
        assert {one["status"] for one in batch(api, *messages, key=key).get_json()["results"]} == {202}
        assert len(api.store.asked("marks")) == asked


def test_batch_with_another_field_is_refused_as_a_whole(api: ApiService) -> None:
    answer = api.call("POST", "/v1/messages/batch", {"messages": [TEXT], "dry_run": True})
    assert problem(answer) == (400, "INVALID_REQUEST", "dry_run")
    assert api.made == []


@pytest.mark.parametrize(
    ("field", "fault"),
    [
        ("messages.1.text", {"text": "a\0b"}),
        ("messages.1.metadata", {"metadata": {"x": 1 << 70}}),
        ("messages.1", "a\0b"),
        ("messages.1.content.0.name", {"content": [{"name": "a\0b"}]}),
    ],
)
def test_message_of_a_batch_that_cannot_be_kept_is_named_by_its_place(api: ApiService, field: str, fault: Any) -> None:
    answer = batch(api, TEXT, TEXT | fault if isinstance(fault, dict) else fault, TEXT)
    assert problem(answer) == (400, "INVALID_REQUEST", field)
    assert api.store.asked("create") == []


@pytest.mark.parametrize("error", [StoreUnavailable(), QueueUnavailable()])
def test_batch_does_not_try_the_rest_while_the_store_or_queue_is_away(api: ApiService, error: Exception) -> None:
    key = api.key()
    batch(api, TEXT, key=key)
    port = api.queue if isinstance(error, QueueUnavailable) else api.store
    port.calls.clear()
    api.is_down(port, error, "ensure", "conversation_entries")
    results = batch(api, TEXT, TEXT, TEXT, key=key, Idempotency_Key="day-7").get_json()["results"]
    assert [(one["status"], one["code"]) for one in results] == [(503, "UNAVAILABLE")] * 3
    assert len(port.calls) == 1
    port.before = lambda *_: None
    again = batch(api, TEXT, TEXT, TEXT, key=key, Idempotency_Key="day-7").get_json()["results"]
    assert [one["status"] for one in again] == [202] * 3


# ---- cancel


def cancel(api: ApiService, id: str, key: str) -> Any:
    return api.call("POST", f"/v1/messages/{id}/cancel", key=key)


def test_waiting_message_is_cancelled_and_again_with_the_same_answer(api: ApiService) -> None:
    key = api.key()
    id = send(api, key, delay="2h")
    first, again = cancel(api, id, key), cancel(api, id, key)
    assert (first.status_code, again.status_code) == (200, 200)
    assert first.get_json()["shown"] == "cancelled"
    assert (first.get_json()["state"], first.get_json()["reason"]) == ("dropped", "cancelled")
    assert again.data == first.data
    assert api.stored(id).state is State.DROPPED


@pytest.mark.parametrize(
    "change",
    [
        {"state": State.LEASED, "attempt": 1, "token": "t", "lease_until": NOW + timedelta(days=999)},
        {"state": State.IN_DOUBT, "attempt": 1, "doubts": 1, "doubt_until": NOW},
        {"state": State.DONE, "attempt": 1, "sweep_at": None},
        {"state": State.DEAD, "attempt": 1, "sweep_at": None},
        {"state": State.DROPPED, "reason": "discarded", "sweep_at": None},
        {"doubts": 1},
    ],
)
def test_message_that_is_being_sent_or_has_ended_is_not_cancellable(api: ApiService, change: dict[str, Any]) -> None:
    key = api.key()
    id = send(api, key)
    changed = replace(api.stored(id), **change)
    api.store.port.change(id, lambda _: step(changed))
    assert problem(cancel(api, id, key)) == (409, "NOT_CANCELLABLE", None)
    assert api.stored(id).state is changed.state


def test_message_that_a_receipt_confirms_is_not_cancellable(api: ApiService) -> None:
    key = api.key()
    record = api.stored(send(api, key))
    note_receipt(Blocking(api.store.port), Echo(record.key, 0, record.correlation_id), a_receipt("w", ReceiptKind.SENT))
    assert problem(cancel(api, record.key, key)) == (409, "NOT_CANCELLABLE", None)


def test_event_is_not_cancellable(api: ApiService) -> None:
    event = an_event()
    api.store.port.create(event)
    assert problem(cancel(api, event.key, api.key())) == (409, "NOT_CANCELLABLE", None)


def test_event_is_shown_as_the_provider_sent_it(api: ApiService) -> None:
    event = an_event()
    api.store.port.create(event)
    shown = api.call("GET", f"/v1/messages/{event.key}").get_json()
    assert (shown["direction"], shown["shown"], shown["type"]) == ("inbound", "received", "text")
    assert shown["content"] == event.payload["item"]
