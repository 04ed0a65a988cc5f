"""POST /v1/messages: what is stored, what is refused, and the same request again."""

import hashlib
import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from services.api.callers import Caller
from services.api.message_types import NewMessage, Retry
from services.api.new_messages import NewMessages
from shared.bootstrap.channels import reading
from shared.domain.marks import Block, Credential, RefusedCredential
from shared.domain.record import Retries, State
from shared.domain.tenants import Scope, Sender
from shared.operations.senders import remove_sender
from shared.tenants.environment import EnvironmentTenants
from tests.support.api_service import ApiService, problem
from tests.support.parts import SENDER, step

TEXT = {"to": "+15550002222", "text": "Your appointment is at nine."}
DEFAULT = Sender("default", "meta", SENDER)


def send(api: ApiService, body: Any, key: str | None = None, **headers: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return api.call("POST", "/v1/messages", body, key=key, headers=named)


# ---- what is stored


def test_text_is_stored_and_its_task_is_made(api: ApiService) -> None:
    answer = send(api, TEXT, X_Correlation_Id="order-17-reminder")
    accepted = answer.get_json()
    assert answer.status_code == 202
    assert accepted == {
        "id": accepted["id"],
        "state": "pending",
        "shown": "pending",
        "correlation_id": "order-17-reminder",
    }
    record = api.stored(accepted["id"])
    assert (record.tenant, record.sender, record.contact) == ("default", SENDER, "15550002222")
    assert record.payload == {"type": "text", "content": {"body": TEXT["text"]}, "to": "+15550002222"}
    assert [task.key for task, _ in api.made] == [record.key]


def test_message_costs_a_read_of_its_conversation_one_commit_and_one_task(api: ApiService) -> None:
    key = api.key()
    send(api, TEXT, key)
    api.store.calls.clear()
    api.queue.calls.clear()
    send(api, TEXT, key)
    assert [call[0] for call in api.store.calls] == ["conversation_entries", "create"]
    assert [call[0] for call in api.queue.calls] == ["ensure"]


def test_named_number_costs_no_read_more_while_it_is_in_the_cache(api: ApiService) -> None:
    (registered,) = api.tenant("bakery", "201")
    key = api.key(None)
    for name in (DEFAULT.id, SENDER, registered.id, "201"):
        send(api, TEXT | {"from": name}, key)
        api.store.calls.clear()
        assert send(api, TEXT | {"from": name}, key).status_code == 202
        assert [call[0] for call in api.store.calls] == ["conversation_entries", "create"], name


def test_type_and_content_are_sent_as_given(api: ApiService) -> None:
    content = {"name": "reminder", "language": {"code": "en"}}
    body = {"to": "US.13491208655302741918", "type": "template", "content": content}
    record = api.stored(send(api, body).get_json()["id"])
    assert record.payload == {"type": "template", "content": content, "recipient": "US.13491208655302741918"}


def test_every_option_is_kept_with_the_message(api: ApiService) -> None:
    options = {
        "reply_to": "wamid.1",
        "delay": "15s",
        "retry": {"attempts": 3, "wait": "15s"},
        "metadata": {"order": 17, "note": "Größe"},
    }
    record = api.stored(send(api, TEXT | options).get_json()["id"])
    assert record.payload["reply_to"] == "wamid.1"
    assert record.due_at == record.send_at == api.clock.now() + timedelta(seconds=15)
    assert record.retry == Retries(3, timedelta(seconds=15))
    assert record.metadata == {"caller": {"order": 17, "note": "Größe"}}
    assert api.made[0][1] == record.due_at


@pytest.mark.parametrize(
    ("delay", "wait"),
    [("1s", timedelta(seconds=1)), ("2m", timedelta(minutes=2)), ("3h", timedelta(hours=3)), ("30d", timedelta(30))],
)
def test_delay_is_in_seconds_minutes_hours_or_days(api: ApiService, delay: str, wait: timedelta) -> None:
    record = api.stored(send(api, TEXT | {"delay": delay}).get_json()["id"])
    assert record.send_at == api.clock.now() + wait


def test_durations_of_a_request_are_divided_by_the_time_scale(api: ApiService) -> None:
    """As every duration of the protocol is."""
    tenants = EnvironmentTenants.of(("meta", SENDER))
    new = NewMessages(tenants, reading(), api.clock, time_scale=10)  # type: ignore[arg-type] # what it asks
    body = NewMessage(to="+15550002222", text="hello", delay="100s", retry=Retry(attempts=3, wait="50s"))
    request = new.request(Caller("k", "default", frozenset(Scope)), body, {}, None, None)
    assert request.send_at == api.clock.now() + timedelta(seconds=10)
    assert request.retry == Retries(3, timedelta(seconds=5))


def test_send_at_takes_any_offset_and_any_fraction(api: ApiService) -> None:
    at = (api.clock.now() + timedelta(hours=1)).replace(microsecond=0)
    for given in (at.strftime("%Y-%m-%dT%H:%M:%S.123456789z"), f"{at:%Y-%m-%d %H:%M:%S}.123456+00:00"):
        record = api.stored(send(api, TEXT | {"send_at": given}).get_json()["id"])
        assert record.send_at == at + timedelta(microseconds=123456)
    east = at.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert api.stored(send(api, TEXT | {"send_at": east.isoformat()}).get_json()["id"]).send_at == at


def test_time_that_has_passed_means_now(api: ApiService) -> None:
    record = api.stored(send(api, TEXT | {"send_at": "2001-01-01T00:00:00Z"}).get_json()["id"])
    assert (record.send_at, record.due_at) == (None, api.clock.now())


def test_thirty_days_ahead_is_the_most(api: ApiService) -> None:
    latest = api.clock.now() + timedelta(days=30)
    assert send(api, TEXT | {"send_at": latest.isoformat()}).status_code == 202
    late = send(api, TEXT | {"send_at": (latest + timedelta(seconds=1)).isoformat()})
    assert problem(late) == (400, "INVALID_REQUEST", "send_at")
    assert "30 days" in late.get_json()["detail"]


def test_retries_that_end_after_the_message_is_given_up_are_refused(api: ApiService) -> None:
    """24 h after it is due; the waits are scattered by a fifth."""
    assert send(api, TEXT | {"retry": {"attempts": 3, "wait": "10h"}, "delay": "3d"}).status_code == 202
    assert send(api, TEXT | {"retry": {"attempts": 1, "wait": "30d"}}).status_code == 202, "it has no retry"
    refused = send(api, TEXT | {"retry": {"attempts": 3, "wait": "11h"}})
    assert problem(refused) == (400, "INVALID_REQUEST", "retry.wait")
    assert "MESSAGE_MAX_AGE" in refused.get_json()["detail"]


# ---- which number sends


def test_sender_may_be_named_by_its_id_or_the_providers(api: ApiService) -> None:
    for name in (DEFAULT.id, SENDER):
        assert api.stored(send(api, TEXT | {"from": name}).get_json()["id"]).sender == SENDER


def test_tenant_with_one_number_may_leave_it_out(api: ApiService) -> None:
    (sender,) = api.tenant("bakery", "201")
    record = api.stored(send(api, TEXT, api.key("bakery")).get_json()["id"])
    assert (record.tenant, record.sender) == ("bakery", sender.provider_id)


def test_tenant_with_two_numbers_or_none_must_name_one(api: ApiService) -> None:
    api.tenant("bakery", "201", "202")
    api.tenant("clinic")
    for tenant in ("bakery", "clinic"):
        assert problem(send(api, TEXT, api.key(tenant))) == (400, "INVALID_REQUEST", "from")


def test_operator_names_any_number_and_must_name_one(api: ApiService) -> None:
    (sender,) = api.tenant("bakery", "201")
    assert problem(send(api, TEXT, api.key(None))) == (400, "INVALID_REQUEST", "from")
    record = api.stored(send(api, TEXT | {"from": sender.id}, api.key(None)).get_json()["id"])
    assert record.tenant == "bakery"


def test_number_of_another_tenant_is_answered_like_one_that_does_not_exist(api: ApiService) -> None:
    (theirs,) = api.tenant("bakery", "201")
    key = api.key("default")
    answers = [send(api, TEXT | {"from": name}, key) for name in (theirs.id, "201", "999", "0a" * 20)]
    assert {answer.data for answer in answers} == {answers[0].data}
    assert problem(answers[0]) == (404, "NOT_FOUND", "from")
    assert (api.store.asked("create"), api.made) == ([], [])


# ---- bad input: a 400 that names the field, and nothing is stored

LONG = "x" * 5000
BAD: list[tuple[str, dict[str, Any]]] = [
    ("to", {"text": "hello"}),
    *(
        ("to", TEXT | {"to": to})
        for to in (None, 15550002222, "", "15550002222", "+0555", "+1555000222a", "a b", "+", LONG, "x\ny")
    ),
    *(("from", TEXT | {"from": name}) for name in (1, [], "x" * 65)),
    ("text", {"to": "+15550002222"}),
    *(("text", {"to": "+15550002222", "text": text}) for text in ("", LONG, 7, ["x"], "a\x00b")),
    ("text", TEXT | {"type": "text", "content": {"body": "hello"}}),
    ("type", {"to": "+15550002222", "content": {"body": "hello"}}),
    *(
        ("type", {"to": "+15550002222", "type": type, "content": {"body": "hello"}})
        for type in ("", "Text", "recipient_type", "tetx", 1, "x" * 65, "text\n")
    ),
    ("content", {"to": "+15550002222", "type": "text"}),
    *(
        ("content", {"to": "+15550002222", "type": "text", "content": content})
        for content in ("hello", 1, [], {}, {"body": ""}, {"body": 1}, {"body": "hello", "colour": "red"}, [1])
    ),
    ("content", {"to": "+15550002222", "type": "interactive", "content": {"type": "button"}}),
    *(("reply_to", TEXT | {"reply_to": id}) for id in (1, "", "x" * 600)),
    (
        "reply_to",
        {"to": "+1555000222", "type": "reaction", "content": {"message_id": "w", "emoji": "👍"}, "reply_to": "w"},
    ),
    *(
        ("send_at", TEXT | {"send_at": at})
        for at in ("", "soon", 1772366400, "1772366400", "2026-03-01", "2026-13-01T00:00:00Z", "2026-03-01T12:00:00")
    ),
    ("send_at", TEXT | {"send_at": "0001-01-01T00:00:00+23:59"}),
    *(
        ("delay", TEXT | {"delay": delay})
        for delay in ("", "15", "s", "0s", "1w", "31d", "-1s", 15, "9999999d", "1.5h")
    ),
    ("delay", TEXT | {"delay": "15s", "send_at": "2030-01-01T00:00:00Z"}),
    *(("retry", TEXT | {"retry": retry}) for retry in (3, [], "15s")),
    ("retry.attempts", TEXT | {"retry": {"wait": "15s"}}),
    ("retry.wait", TEXT | {"retry": {"attempts": 3}}),
    *(("retry.attempts", TEXT | {"retry": {"attempts": n, "wait": "15s"}}) for n in (0, 51, -1, "3", 1.5, True)),
    *(("retry.wait", TEXT | {"retry": {"attempts": 3, "wait": wait}}) for wait in ("0s", "x", 15, "31d")),
    ("retry.every", TEXT | {"retry": {"attempts": 3, "wait": "15s", "every": "1s"}}),
    *(("metadata", TEXT | {"metadata": metadata}) for metadata in (1, [], "x", {"x": "y" * 4090}, {"x": "a\x00"})),
    ("metadata", TEXT | {"metadata": {"x": 1 << 70}}),
    ("subject", TEXT | {"subject": "hello"}),
    ("from_", TEXT | {"from_": SENDER}),
]


@pytest.mark.parametrize(("field", "body"), BAD)
def test_bad_field_is_named_and_nothing_is_stored(api: ApiService, field: str, body: dict[str, Any]) -> None:
    answer = send(api, body)
    assert problem(answer) == (400, "INVALID_REQUEST", field), answer.text
    assert (api.store.asked("create"), api.made) == ([], [])


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"delay": "2 hours"}, "delay: Input should be whole seconds, minutes, hours or days, like 15s or 2h."),
        ({"metadata": []}, "metadata: Input should be an object."),
        ({"retry": 3}, "retry: Input should be an object."),
        ({"subject": "hello"}, "subject: There is no such field here."),
    ],
)
def test_refusal_says_what_is_allowed_in_words_of_json(api: ApiService, fault: dict[str, Any], said: str) -> None:
    assert send(api, TEXT | fault).get_json()["detail"] == said


CANARY = "canary 5550009"


@pytest.mark.parametrize(
    "fault",
    [
        {"to": CANARY},
        {"from": CANARY * 9},
        {"from": CANARY},
        {"text": CANARY * 999},
        {"text": None, "type": CANARY, "content": {}},
        {"text": None, "type": "text", "content": {"body": "hello", CANARY: 1}},
        {"reply_to": CANARY * 99},
        {"send_at": CANARY},
        {"delay": CANARY},
        {"retry": CANARY},
        {"metadata": CANARY},
        {CANARY: 1},
        {"15550009": 1},
        {CANARY: "a\x00"},
        {"retry": {"attempts": 1, "wait": "15s", "15550009": 1}},
    ],
)
def test_refusal_repeats_no_value_of_the_request(api: ApiService, fault: dict[str, Any]) -> None:
    answer = send(api, TEXT | fault)
    assert answer.status_code in (400, 404)
    assert "5550009" not in answer.text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Idempotency-Key", ""),
        ("Idempotency-Key", "x" * 256),
        ("Idempotency-Key", "a b"),
        ("Idempotency-Key", "ä"),
        ("X-Correlation-Id", "short"),
        ("X-Correlation-Id", "x" * 65),
        ("X-Correlation-Id", "with space"),
    ],
)
def test_bad_header_is_named_and_nothing_is_stored(api: ApiService, name: str, value: str) -> None:
    assert problem(send(api, TEXT, **{name: value})) == (400, "INVALID_REQUEST", name)
    assert api.store.asked("create") == []


def test_metadata_of_4_kilobytes_is_the_most(api: ApiService) -> None:
    beside = len(json.dumps({"x": ""}))
    assert send(api, TEXT | {"metadata": {"x": "y" * (4096 - beside)}}).status_code == 202
    assert problem(send(api, TEXT | {"metadata": {"x": "y" * (4097 - beside)}}))[2] == "metadata"
    assert problem(send(api, TEXT | {"metadata": {"x": "é" * 2040 + "y" * (17 - beside)}}))[2] == "metadata", "bytes"
    assert send(api, TEXT | {"metadata": {"x": "é" * 2040 + "y" * (16 - beside)}}).status_code == 202


# ---- the same request again


def test_same_key_and_body_gives_the_first_answer_byte_for_byte(api: ApiService) -> None:
    key = api.key()
    first = send(api, TEXT, key, Idempotency_Key="order-17")
    again = send(api, dict(reversed(TEXT.items())), key, Idempotency_Key="order-17", X_Correlation_Id="another-one")
    assert (again.status_code, again.data) == (first.status_code, first.data)
    assert len(api.store.asked("create")) == 2
    assert len({task.name for task, _ in api.made}) == 1, "the task is ensured again, by the same name"
    assert len(api.made) == 2


def test_first_answer_is_given_again_after_the_message_was_sent(api: ApiService) -> None:
    key = api.key()
    first = send(api, TEXT, key, Idempotency_Key="order-17")
    id = first.get_json()["id"]
    done = replace(api.stored(id), state=State.DONE, attempt=1)
    api.store.port.change(id, lambda _: step(done))
    again = send(api, TEXT, key, Idempotency_Key="order-17")
    assert again.data == first.data
    assert len(api.made) == 1


def test_same_key_with_another_body_is_a_conflict(api: ApiService) -> None:
    key = api.key()
    id = send(api, TEXT, key, Idempotency_Key="order-17").get_json()["id"]
    other = send(api, TEXT | {"text": "another"}, key, Idempotency_Key="order-17")
    assert problem(other) == (422, "IDEMPOTENCY_CONFLICT", None)
    assert api.stored(id).payload["content"] == {"body": TEXT["text"]}
    assert len(api.made) == 1


def test_message_keeps_the_hash_of_the_body_that_was_sent(api: ApiService) -> None:
    """Whatever fields the API has by then, the same request must not become a conflict."""
    record = api.stored(send(api, TEXT, Idempotency_Key="order-17").get_json()["id"])
    sent = b'{"text":"Your appointment is at nine.","to":"+15550002222"}'
    assert record.body_hash == hashlib.sha256(sent).hexdigest()[:40]


def test_same_key_of_two_tenants_is_two_messages(api: ApiService) -> None:
    api.tenant("bakery", "201")
    one = send(api, TEXT, Idempotency_Key="order-17").get_json()
    other = send(api, TEXT, api.key("bakery"), Idempotency_Key="order-17").get_json()
    assert one["id"] != other["id"]


def test_requests_without_a_key_are_two_messages(api: ApiService) -> None:
    key = api.key()
    assert send(api, TEXT, key).get_json()["id"] != send(api, TEXT, key).get_json()["id"]


# ---- a sender that cannot send


def mark(api: ApiService, **marks: Any) -> None:
    api.store.port.change_marks(DEFAULT.id, lambda before: replace(before, **marks))


def refused(api: ApiService, code: int, fingerprint: str = "f1", until: datetime | None = None) -> None:
    """WhatsApp refused this token, for good or until one message tries it again; the one in use is f1."""
    now = api.clock.now()
    mark(api, credential=Credential("f1", now), refused=RefusedCredential(fingerprint, code, now, until))


@pytest.mark.parametrize("code", [0, 190, 102, 467])
def test_refused_token_that_is_in_use_is_answered_so_and_nothing_is_stored(api: ApiService, code: int) -> None:
    refused(api, code)
    assert problem(send(api, TEXT)) == (409, "WHATSAPP_REAUTH_REQUIRED", None)
    assert (api.store.asked("create"), api.made) == ([], [])


def test_other_refusals_and_other_tokens_let_the_message_wait(api: ApiService) -> None:
    refused(api, 10, until=api.clock.now() + timedelta(minutes=5))
    assert send(api, TEXT).status_code == 202
    refused(api, 190, fingerprint="an earlier token")
    assert send(api, TEXT).status_code == 202


def test_block_is_answered_while_its_end_is_ahead(api: ApiService) -> None:
    end = api.clock.now() + timedelta(minutes=5)
    mark(api, block=Block(end, timedelta(minutes=5), 131031))
    assert problem(send(api, TEXT)) == (409, "SENDER_BLOCKED", None)
    api.clock.at = end
    assert send(api, TEXT).status_code == 202


def test_message_for_later_is_stored_whatever_its_sender_can_do_now(api: ApiService) -> None:
    refused(api, 190)
    assert send(api, TEXT | {"delay": "15s"}).status_code == 202


def test_repeated_request_gets_its_first_answer_although_the_token_is_refused_now(api: ApiService) -> None:
    key = api.key()
    first = send(api, TEXT, key, Idempotency_Key="order-17")
    refused(api, 190)
    assert send(api, TEXT, key, Idempotency_Key="order-17").data == first.data


def test_repeated_request_gets_its_first_answer_although_its_number_is_gone(api: ApiService) -> None:
    (sender,) = api.tenant("bakery", "201")
    key = api.key("bakery")
    body = TEXT | {"from": "201"}
    first = send(api, body, key, Idempotency_Key="order-17")
    remove_sender(api.store.port, api.store.port, api.clock, sender.id)
    api.clock.go(6)

    assert send(api, body, key, Idempotency_Key="order-17").data == first.data
    assert problem(send(api, body | {"text": "other"}, key, Idempotency_Key="order-17"))[1] == "IDEMPOTENCY_CONFLICT"
    assert problem(send(api, body, key, Idempotency_Key="order-18")) == (404, "NOT_FOUND", "from")
    assert problem(send(api, body, key)) == (404, "NOT_FOUND", "from")
    assert problem(send(api, body, api.key("default"), Idempotency_Key="order-17")) == (404, "NOT_FOUND", "from")
    assert problem(send(api, body, api.key(None), Idempotency_Key="order-17")) == (404, "NOT_FOUND", "from")


# ---- look at one


def test_message_is_shown_with_its_timeline(api: ApiService) -> None:
    key = api.key()
    id = send(api, TEXT | {"metadata": {"order": 17}, "delay": "2h"}, key).get_json()["id"]
    shown = api.call("GET", f"/v1/messages/{id}", key=key).get_json()
    assert {name: shown[name] for name in ("id", "direction", "state", "shown", "why", "tenant", "sender")} == {
        "id": id,
        "direction": "outbound",
        "state": "pending",
        "shown": "pending",
        "why": "waiting",
        "tenant": "default",
        "sender": DEFAULT.id,
    }
    assert (shown["type"], shown["content"], shown["metadata"]) == ("text", {"body": TEXT["text"]}, {"order": 17})
    assert [one["what"] for one in shown["timeline"]] == ["planned"]
    assert shown["timeline"][0]["sentence"]


def test_message_of_another_tenant_is_answered_like_one_that_does_not_exist(api: ApiService) -> None:
    api.tenant("bakery", "201")
    id = send(api, TEXT, api.key("bakery")).get_json()["id"]
    key = api.key("default", Scope.READ, Scope.SEND)
    for method, path in (("GET", ""), ("POST", "/cancel")):
        theirs, nobodys = (api.call(method, f"/v1/messages/{one}{path}", key=key) for one in (id, "0a" * 20))
        assert problem(theirs) == (404, "NOT_FOUND", None)
        assert theirs.data == nobodys.data
    assert api.stored(id).state is State.PENDING
    assert api.call("GET", f"/v1/messages/{id}", key=api.key(None)).status_code == 200, "an operator sees it"
