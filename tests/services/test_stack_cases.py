"""What broke other WhatsApp software, driven through the whole of this one."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from shared.domain.identity import change_event_id
from shared.domain.record import Delivery
from tests.support.payloads import envelope, of_texts, receipt, text, value, wire
from tests.support.stack import SENDER, TASK_TOKEN, Stack


def sent_reply(stack: Stack, contact: str) -> Delivery:
    """A reply that WhatsApp took and said nothing of yet."""
    stack.fault("receipt", "withhold", match={"to": contact})
    message_id = stack.say(contact, "hello")
    stack.wait_settled([message_id])
    reply = stack.reply(message_id)
    assert reply is not None
    assert reply.provider_id is not None
    assert not reply.current_receipts.any
    return reply


def word(stack: Stack, reply: Delivery) -> Any:
    """What the provider has said of it."""
    now = stack.store.get(reply.key)
    assert now is not None
    return now.current_receipts


# ---- duplicates


def test_a_picture_that_comes_twice_is_given_to_the_handler_once(stack: Stack, contact: str) -> None:
    image = {"id": "900000000000001", "mime_type": "image/jpeg", "sha256": "AAAA", "caption": "x"}
    item = {"id": f"wamid.{contact}", "timestamp": "1790416800", "type": "image", "from": contact, "image": image}
    body = of_texts(item)

    assert [stack.post(body).status_code for _ in range(2)] == [200, 200]

    stack.wait_quiet(contact, ["x"])
    stack.wait_settled([f"wamid.{contact}"])
    assert stack.calls(f"wamid.{contact}") == 1


def test_two_deliveries_within_the_same_millisecond_make_one_reply(stack: Stack, contact: str) -> None:
    bodies = [of_texts(text(contact, f"wamid.{contact}.{number}", "hello")) for number in range(10)]
    with ThreadPoolExecutor(4) as pool:
        for body in bodies:
            answers = list(pool.map(stack.post, [body, body]))
            assert [answer.status_code for answer in answers] == [200, 200]

    stack.wait_settled([f"wamid.{contact}.{number}" for number in range(10)])
    assert stack.texts(contact) == ["hello"] * 10


def test_a_message_whose_task_was_lost_in_the_queue_is_handled_by_the_sweep(stack: Stack, contact: str) -> None:
    """It was noted as seen and never handled. (Stored and not queued: test_stack_health.py.)"""
    body = of_texts(text(contact, f"wamid.{contact}", "hello"))
    stack.lose_first_task(f"wamid.{contact}")
    assert stack.post(body).status_code == 200
    stack.wait_lost(f"wamid.{contact}")
    assert stack.state_of(stack.event_key(f"wamid.{contact}")) == "pending"

    def swept() -> bool:
        url = f"{stack.described['internal']}/internal/sweep"
        assert stack.http.post(url, headers={"X-Internal-Token": TASK_TOKEN}).status_code == 200
        event = stack.event(f"wamid.{contact}")
        return event is not None and event.generation > 0

    stack.wait_until(swept, "it is overdue and gets another task")
    stack.wait_texts(contact, ["hello"])
    assert stack.calls(f"wamid.{contact}") == 1


# ---- batches


def test_every_status_of_a_batch_is_applied(stack: Stack, contacts: Callable[[], str]) -> None:
    """Also beside one of a message that nobody here ever sent."""
    first, second = (sent_reply(stack, contacts()) for _ in range(2))
    statuses = [
        receipt("wamid.NEVER_SEEN", "delivered"),
        receipt(first.provider_id, "sent"),
        receipt(first.provider_id, "delivered"),
        receipt(second.provider_id, "read"),
    ]

    assert stack.post(wire(envelope(value(statuses=statuses)))).status_code == 200

    assert word(stack, first).sent
    assert word(stack, first).delivered
    assert not word(stack, first).read
    assert word(stack, second).read


def test_every_entry_and_change_counts_and_an_unknown_sender_is_dropped(stack: Stack, contact: str) -> None:
    items = [text(contact, f"wamid.{contact}.{number}", f"text {number}") for number in (1, 2, 3)]
    document = envelope(value([items[0]]), value([items[1]]))
    document["entry"] += envelope(value([items[2]], sender="200000000000008"), account="100000000000009")["entry"]

    assert stack.post(wire(document)).status_code == 200

    stack.wait_settled([items[0]["id"], items[1]["id"]])
    assert sorted(stack.texts(contact)) == ["text 1", "text 2"]
    lines = stack.wait_logs("inbound_new", state="dropped", reason="unknown_sender")
    strange = stack.store.get(lines[-1]["inbound_event_id"])
    assert strange is not None
    assert (strange.state, strange.reason, strange.sender) == ("dropped", "unknown_sender", "200000000000008")
    assert strange.expire_at is not None


def test_every_message_of_a_value_is_answered(stack: Stack, contact: str) -> None:
    """One poisonous message between two good ones is in test_stack_webhook_bodies.py."""
    assert stack.post(of_texts(*[text(contact, f"wamid.{contact}.{n}", str(n)) for n in range(3)])).status_code == 200

    stack.wait_settled([f"wamid.{contact}.{number}" for number in range(3)])
    assert sorted(stack.texts(contact)) == ["0", "1", "2"]


# ---- receipts


def test_a_receipt_with_contacts_that_have_no_profile_is_applied(stack: Stack, contact: str) -> None:
    reply = sent_reply(stack, contact)
    known = [{"wa_id": contact, "user_id": "US.10000000000000000001"}]

    body = wire(envelope(value(statuses=[receipt(reply.provider_id, "sent")], contacts=known)))

    assert stack.post(body).status_code == 200
    assert word(stack, reply).sent


def test_a_failed_receipt_shows_the_reply_as_failed_with_its_code(stack: Stack, contact: str) -> None:
    reply = sent_reply(stack, contact)
    errors = [{"code": 131026, "title": "Message undeliverable", "error_data": {"details": "Message Undeliverable."}}]
    status = receipt(reply.provider_id, "failed", errors=errors)

    assert stack.post(wire(envelope(value(statuses=[status], contacts=[{"wa_id": contact}])))).status_code == 200

    assert word(stack, reply).failed_code == 131026
    message_id = next(one for one in stack.sent if stack.event_key(one) == reply_event(stack, reply))
    timeline = stack.timeline(message_id)
    assert timeline["replies"][0]["shown"] == "failed"
    assert any("131026" in moment["sentence"] for moment in timeline["events"])


def reply_event(stack: Stack, reply: Delivery) -> str:
    """The key of the event that it answers."""
    return stack.store.by_correlation(reply.correlation_id)[0].key


def test_receipts_in_any_order_and_repeated_are_applied(stack: Stack, contact: str) -> None:
    reply = sent_reply(stack, contact)
    times = {"sent": "1790416801", "delivered": "1790416802", "read": "1790416803"}

    for status in ["delivered", "sent", "read", "delivered", "delivered", "failed", "sent"]:
        item = receipt(reply.provider_id, status, timestamp=times.get(status, "1790416804"))
        assert stack.post(wire(envelope(value(statuses=[item])))).status_code == 200

    said = word(stack, reply)
    assert [int(at.timestamp()) for at in (said.sent, said.delivered, said.read)] == [
        1790416801,
        1790416802,
        1790416803,
    ]
    (shown,) = {
        stack.timeline(one)["replies"][0]["shown"]
        for one in stack.sent
        if stack.event_key(one) == reply_event(stack, reply)
    }
    assert shown == "sent", "what was read has not failed"


def test_early_receipt_is_stored_before_the_answer_to_the_send(stack: Stack, contact: str) -> None:
    """The simulator's receipt comes after 50 ms, its answer after 200."""
    stack.fault("send", "slow", seconds=0.2, match={"to": contact})

    message_id = stack.say(contact, "hello")

    stack.wait_until(
        lambda: (reply := stack.reply(message_id)) and reply.final and reply.current_receipts.read, "it was read"
    )
    assert stack.texts(contact) == ["hello"]


def test_a_receipt_by_the_providers_id_that_comes_before_the_answer_is_joined_to_it(stack: Stack, contact: str) -> None:
    """It has an echo that is not ours."""
    stack.fault("receipt", "withhold", match={"to": contact})
    stack.fault("send", "slow", seconds=0.2, match={"to": contact})
    message_id = stack.say(contact, "hello")
    (entry,) = stack.wait_until(lambda: stack.ledger(contact), "WhatsApp has it")

    status = receipt(entry["wamid"], "delivered", biz_opaque_callback_data="job-0001")
    assert stack.post(wire(envelope(value(statuses=[status])))).status_code == 200

    stack.wait_until(
        lambda: (
            (reply := stack.reply(message_id))
            and reply.provider_id == entry["wamid"]
            and reply.current_receipts.delivered
        ),
        "the receipt is joined",
    )
    stack.wait_settled([message_id])
    assert stack.texts(contact) == ["hello"]


def test_a_receipt_calls_no_handler_and_makes_no_message(stack: Stack, contact: str) -> None:
    reply = sent_reply(stack, contact)
    calls = len(stack.handler_calls())

    for status in ("sent", "delivered", "read", "played"):
        assert stack.post(wire(envelope(value(statuses=[receipt(reply.provider_id, status)])))).status_code == 200

    assert word(stack, reply).played
    assert len(stack.handler_calls()) == calls
    assert stack.texts(contact) == ["hello"]


# ---- identity


@pytest.mark.parametrize(
    "shape",
    ["only in the message", "only in contacts", "with an empty number", "with a number too"],
)
def test_customer_with_a_username_is_answered_by_user_id(stack: Stack, contact: str, shape: str) -> None:
    user_id = f"US.1000000000{contact}"
    item = text(contact, f"wamid.{contact}", "hello", from_user_id=user_id)
    known: dict[str, Any] = {"profile": {"name": "Test User", "username": "testuser"}, "user_id": user_id}
    match shape:
        case "only in the message":
            del item["from"]
            known = {}
        case "only in contacts":
            del item["from"], item["from_user_id"]
        case "with an empty number":
            item["from"] = ""
            known["wa_id"] = ""
        case "with a number too":
            known["wa_id"] = contact

    body = wire(envelope(value([item], **({"contacts": [known]} if known else {}))))
    assert stack.post(body).status_code == 200

    stack.wait_settled([f"wamid.{contact}"])
    by = contact if shape == "with a number too" else user_id
    (entry,) = stack.ledger(by)
    assert entry["body"]["body"] == "hello"
    if by == user_id:
        assert (entry["recipient"], entry["to"]) == (user_id, None)
    else:
        assert (entry["recipient"], entry["to"]) == (None, f"+{contact}")


def test_refusal_of_user_ids_is_final_and_explained(stack: Stack, contact: str) -> None:
    """Code 131062: it needs the phone number."""
    user_id = f"US.1000000000{contact}"
    stack.fault("send", "error", code=131062, match={"to": user_id})

    (message_id,) = stack.inbound(user_id=user_id, type="text", content={"body": "hello"})

    stack.wait_settled([message_id])
    assert stack.ledger(user_id) == []
    timeline = stack.timeline(message_id)
    assert timeline["replies"][0]["shown"] == "failed"
    assert any("131062" in moment["sentence"] for moment in timeline["events"])


# ---- an error of the number


def test_error_of_the_number_is_its_own_event(stack: Stack) -> None:
    error = {"code": 130429, "title": "Rate limit hit", "message": "Rate limit hit", "href": "/documentation"}
    one = value(errors=[error])

    assert [stack.post(wire(envelope(one, account="100000000000038"))).status_code for _ in range(2)] == [200, 200]

    key = change_event_id("meta", "100000000000038", "messages", one, None)
    stack.wait_until(lambda: stack.state_of(key) == "done", "it is applied")
    record = stack.store.get(key)
    assert record is not None
    assert (record.kind, record.payload["value"]["errors"][0]["code"]) == ("inbound", 130429)
    assert record.sender != SENDER


# ---- kinds


def a(type_: str, content: Any, contact: str, **more: Any) -> dict[str, Any]:
    """One item of messages, of any type."""
    item = {"id": f"wamid.{contact}", "timestamp": "1790416800", "type": type_, "from": contact}
    return item | ({} if content is None else {type_: content}) | more


FLOW = {"name": "flow", "body": "Sent", "response_json": '{"rating":"5","note":"ok"}'}
ANSWERED: dict[str, tuple[str, Any, str]] = {
    "a flow": ("interactive", {"type": "nfm_reply", "nfm_reply": FLOW}, "interactive"),
    "a flow, broken": (
        "interactive",
        {"type": "nfm_reply", "nfm_reply": FLOW | {"response_json": "{"}},
        "interactive",
    ),
    "a button": ("interactive", {"type": "button_reply", "button_reply": {"id": "B1", "title": "1.000"}}, "1.000"),
    "a row of a list": ("interactive", {"type": "list_reply", "list_reply": {"id": "L1", "title": "Row"}}, "Row"),
    "a template's button, no context": ("button", {"payload": "P1", "text": "Yes"}, "Yes"),
    "a voice message": ("audio", {"id": "900000000000001", "voice": True}, "media"),
    "a place": ("location", {"latitude": 1.5, "longitude": 2.5}, "location"),
    "contact cards": ("contacts", [{"name": {"formatted_name": "Ana"}}], "contacts"),
    "an order": ("order", {"catalog_id": "7", "product_items": [{"product_retailer_id": "A"}]}, "order"),
}


@pytest.mark.parametrize("name", ANSWERED)
def test_message_that_expects_an_answer_gets_one(stack: Stack, contact: str, name: str) -> None:
    type_, content, answer = ANSWERED[name]

    assert stack.post(of_texts(a(type_, content, contact))).status_code == 200

    stack.wait_texts(contact, [answer])
    assert stack.calls(f"wamid.{contact}") == 1


ERRORS = [{"code": 131051, "title": "Message type unknown", "error_data": {"details": "Not supported."}}]
UNANSWERED: dict[str, Any] = {
    "a poll": {"type": "unsupported", "unsupported": {"type": "poll_creation"}, "errors": ERRORS},
    "a type nobody knows": {"type": "hologram", "hologram": {}},
    "interactive without its object": {"type": "interactive"},
    "a picture without its object": {"type": "image"},
    "a text without a body": {"type": "text", "text": None},
    "a reaction": {"type": "reaction", "reaction": {"message_id": "wamid.OLD", "emoji": "👍"}},
    "an edit": {
        "type": "edit",
        "edit": {"original_message_id": "wamid.OLD", "message": {"type": "text", "text": {"body": "fixed"}}},
    },
    "a deletion": {"type": "revoke", "revoke": {"original_message_id": "wamid.OLD"}},
    "a changed number": {"type": "system", "system": {"type": "user_changed_number", "wa_id": "15550009997"}},
    "a message of our own": {"type": "text", "text": {"body": "hello"}, "from": "15550001111"},
    "a message to a group": {"type": "text", "text": {"body": "hello"}, "group_id": "Y2FwaV9ncm91cDox"},
}


@pytest.mark.parametrize("name", UNANSWERED)
def test_message_without_a_turn_is_stored_whole_and_not_answered(stack: Stack, contact: str, name: str) -> None:
    item = {"id": f"wamid.{contact}", "timestamp": "1790416800", "from": contact} | UNANSWERED[name]

    assert [stack.post(of_texts(item)).status_code for _ in range(2)] == [200, 200]

    stack.wait_settled([f"wamid.{contact}"])
    event = stack.event(f"wamid.{contact}")
    assert event is not None
    assert (event.state, event.plan_size, event.payload["item"]) == ("done", 0, item)
    assert stack.calls(f"wamid.{contact}") == 0
    assert stack.texts(contact) == []


@pytest.mark.parametrize("field", ["smb_message_echoes", "history", "standby", "messaging_handovers", "calls"])
def test_message_in_another_field_is_not_handled(stack: Stack, contact: str, field: str) -> None:
    item = text(contact, f"wamid.{contact}", "hello")
    items = {"message_echoes": [item], "messages": [item], "history": [{"threads": [{"messages": [item]}]}]}
    one = value(statuses=[receipt("wacid.1", "delivered")], **items)

    assert stack.post(wire(envelope(one, field=field))).status_code == 200

    key = change_event_id("meta", "100000000000001", field, one, None)
    stack.wait_until(lambda: stack.state_of(key) == "done", "it is kept and done")
    assert stack.event(f"wamid.{contact}") is None
    assert stack.calls(f"wamid.{contact}") == 0
    assert stack.texts(contact) == []


def test_news_of_a_partner_belong_to_the_account_that_they_name(stack: Stack) -> None:
    """In these `entry.id` is a business portfolio."""
    account = {"waba_id": "100000000000027", "owner_business_id": "400000000000004"}
    news = {"event": "PARTNER_REMOVED", "waba_info": account, "disconnection_info": {"reason": "PRIMARY_INACTIVITY"}}

    body = wire(envelope(news, account="400000000000009", field="account_update"))
    assert [stack.post(body).status_code for _ in range(2)] == [200, 200]

    key = change_event_id("meta", "100000000000027", "account_update", news, None)
    stack.wait_until(lambda: stack.state_of(key) == "done", "it is applied")
    record = stack.store.get(key)
    assert record is not None
    assert (record.tenant, record.sender) == ("default", "100000000000027")


def test_customer_is_answered_at_the_number_they_write_from(stack: Stack, contact: str) -> None:
    """Not at the other way of writing it, which Brazil, Mexico and Argentina have."""
    number = f"5511{contact[-8:]}"
    known = [{"wa_id": f"55119{contact[-8:]}", "user_id": f"BR.{contact}", "profile": {"name": "T"}}]
    item = text(number, f"wamid.{contact}", "hello", from_user_id=f"BR.{contact}")

    assert stack.post(wire(envelope(value([item], contacts=known)))).status_code == 200

    stack.wait_settled([f"wamid.{contact}"])
    (entry,) = stack.ledger(number)
    assert entry["to"] == f"+{number}"
    event = stack.event(f"wamid.{contact}")
    assert event is not None
    assert event.contact == f"BR.{contact}"


# ---- limits


def test_a_limit_is_waited_for_as_long_as_the_answer_asks(stack: Stack, contact: str) -> None:
    stack.fault("send", "error", code=130429, status=429, retry_after=2, match={"to": contact})

    message_id = stack.say(contact, "hello")

    stack.wait_texts(contact, ["hello"])
    stack.wait_settled([message_id])
    reply = stack.reply(message_id)
    assert reply is not None
    limited, accepted = reply.attempts_log
    assert (limited.answer, limited.code, accepted.answer) == ("limited", 130429, "accepted")
    assert (accepted.at - limited.at).total_seconds() >= 2
    assert reply.attempt == 1, "a limit spends no attempt"
    assert not stack.logs("dead_lettered", delivery=reply.key)
