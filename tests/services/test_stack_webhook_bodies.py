"""Whatever a POST holds, it gets the answer that is promised, and the good parts of it are never lost."""

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.payloads import envelope, of_texts, receipt, text, value, wire
from tests.support.stack import SECRET, Stack, signed

CAP = 3211264


@pytest.mark.slow  # test_end_to_end has two hundred on every store
def test_three_hundred_messages_in_one_post_get_three_hundred_replies(stack: Stack, contact: str) -> None:
    items = [text(contact, f"wamid.many.{number}", f"number {number}") for number in range(300)]

    stack.wait_until(lambda: stack.post(of_texts(*items)).status_code == 200, "it is taken", 60)

    ids = [item["id"] for item in items]
    assert all(stack.event(one) for one in ids), "answered 200 before all of it was stored"
    stack.wait_settled(ids, 90)
    assert sorted(stack.texts(contact)) == sorted(f"number {number}" for number in range(300))
    calls = [call["id"] for call in stack.handler_calls() if call["id"].startswith("wamid.many.")]
    assert sorted(calls) == sorted(ids)


@pytest.mark.slow
def test_a_thousand_messages_and_a_thousand_receipts_in_one_post_are_all_stored(stack: Stack, contact: str) -> None:
    people = [f"{contact}{number:02}" for number in range(40)]  # the messages of one go one after another
    items = [text(people[number % len(people)], f"wamid.thousand.{number}", "x") for number in range(1000)]
    statuses = [receipt(f"wamid.unknown.{number}", "read") for number in range(1000)]

    answer = stack.post(wire(envelope(value(items), value(statuses=statuses))))

    ids = [item["id"] for item in items]
    assert answer.status_code in (200, 500)  # on a slow machine it may take more than one delivery
    stack.wait_until(
        lambda: stack.post(wire(envelope(value(items), value(statuses=statuses)))).status_code == 200, "it is taken", 60
    )
    stack.wait_settled(ids, 120)
    assert [stack.texts(person) for person in people] == [["x"] * 25] * 40


def test_body_of_three_megabytes_is_accepted(stack: Stack, contact: str) -> None:
    items = [text(contact, f"wamid.large.{number}", f"{number} " + "x" * 200_000) for number in range(15)]
    body = of_texts(*items)
    assert 3_000_000 < len(body) <= CAP

    assert stack.post(body).status_code == 200

    stack.wait_settled([item["id"] for item in items])
    assert sorted(int(one.split()[0]) for one in stack.texts(contact)) == list(range(15))


def test_body_of_exactly_the_cap_is_accepted_and_one_byte_more_is_refused(stack: Stack, contact: str) -> None:
    body = of_texts(text(contact, "wamid.cap", "hello"))
    body += b" " * (CAP - len(body))

    assert stack.post(body + b" ").status_code == 413
    assert stack.event("wamid.cap") is None

    assert stack.post(body).status_code == 200
    stack.wait_texts(contact, ["hello"])


def test_a_body_over_the_cap_is_refused_without_a_content_length_too(stack: Stack, contact: str) -> None:
    body = of_texts(text(contact, "wamid.chunked.large", "hello")) + b" " * CAP

    def pieces() -> Iterator[bytes]:
        for start in range(0, len(body), 100_000):
            yield body[start : start + 100_000]

    answer = stack.http.post(f"{stack.described['webhook']}/webhooks/whatsapp", content=pieces(), headers=signed(body))

    assert answer.status_code == 413
    assert stack.event("wamid.chunked.large") is None


def test_chunked_body_is_accepted(stack: Stack, contact: str) -> None:
    body = of_texts(text(contact, "wamid.chunked", "hello"))

    def pieces() -> Iterator[bytes]:
        for start in range(0, len(body), 50):
            yield body[start : start + 50]

    answer = stack.http.post(f"{stack.described['webhook']}/webhooks/whatsapp", content=pieces(), headers=signed(body))

    assert answer.status_code == 200
    stack.wait_texts(contact, ["hello"])


def test_a_body_that_breaks_off_is_never_answered_with_200(stack: Stack, contact: str) -> None:
    body = of_texts(text(contact, "wamid.broken.off", "hello"))
    host = stack.described["webhook"].removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=20)
    connection.putrequest("POST", "/webhooks/whatsapp")
    connection.putheader("Content-Length", str(len(body)))
    for name, given in signed(body).items():
        connection.putheader(name, given)
    connection.endheaders()
    connection.send(body[: len(body) // 2])
    connection.sock.shutdown(1)

    try:
        assert connection.getresponse().status != 200
    except (http.client.BadStatusLine, ConnectionError):
        pass
    finally:
        connection.close()
    assert stack.event("wamid.broken.off") is None
    assert stack.get("webhook", "/livez").status_code == 200


NO_WEBHOOK: dict[str, bytes] = {
    "not JSON": b"hello",
    "empty": b"",
    "null": b"null",
    "a number": b"1",
    "a string": b'"whatsapp_business_account"',
    "a list": b"[]",
    "an empty object": b"{}",
    "not UTF-8": b"\xff\xfe\x00",
    "NUL bytes": b"\x00" * 100,
    "a byte order mark alone": b"\xef\xbb\xbf",
    "half an object": b'{"object":"whatsapp_business_account","entry":[',
    "nested 100,000 deep": b"[" * 100_000,
    "nested 100,000 deep, closed": b"[" * 100_000 + b"]" * 100_000,
    "objects nested 100,000 deep": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "a number of 100,000 digits": b"9" * 100_000,
    "NaN": b"NaN",
    "no entry": b'{"object":"whatsapp_business_account"}',
    "entry is null": b'{"object":"whatsapp_business_account","entry":null}',
    "entry is empty": b'{"object":"whatsapp_business_account","entry":[]}',
    "entry is an object": b'{"object":"whatsapp_business_account","entry":{}}',
    "entry of nulls": b'{"object":"whatsapp_business_account","entry":[null,1,"x",[],{}]}',
    "another object": b'{"object":"user","entry":[{"id":"0","uid":"0","changed_fields":["location"]}]}',
    "object is a list": b'{"object":["whatsapp_business_account"],"entry":[]}',
}


@pytest.mark.parametrize("body", NO_WEBHOOK.values(), ids=NO_WEBHOOK)
def test_signed_body_without_events_is_answered_200_and_counted(stack: Stack, body: bytes) -> None:
    ignored = len(stack.logs("webhook_ignored"))

    answer = stack.post(body)

    assert answer.status_code == 200
    stack.wait_until(lambda: len(stack.logs("webhook_ignored")) > ignored, "it is counted")


def _nested(depth: int) -> Any:
    thing: Any = "deep"
    for _ in range(depth):
        thing = [thing]
    return thing


def _bad_items() -> dict[str, Any]:
    """Items of messages that are none, or nearly; each stands between two good ones."""
    whole = text("15550009999", "wamid.bad", "hello")
    return {
        "null": None,
        "a number": 7,
        "a string": "wamid",
        "a list": [],
        "an empty object": {},
        "no id": {name: whole[name] for name in ("type", "from", "text")},
        "the id is a number": whole | {"id": 5},
        "the id is an object": whole | {"id": {"a": 1}},
        "the id is too long": whole | {"id": "wamid." + "x" * 2000},
        "no type": {name: whole[name] for name in ("id", "from", "text")},
        "the type is a list": whole | {"type": ["text"]},
        "no sender": {name: whole[name] for name in ("id", "type", "text")},
        "the sender is an object": whole | {"from": {"phone": "1"}},
        "the text is missing": {name: whole[name] for name in ("id", "type", "from")},
        "the text is null": whole | {"text": None},
        "the text is a list": whole | {"text": ["hello"]},
        "the body is a number": whole | {"text": {"body": 5}},
        "the context is a string": whole | {"context": "wamid"},
        "the time is no number": whole | {"timestamp": "yesterday"},
        "the time is beyond every clock": whole | {"timestamp": "9" * 30},
        "a type nobody heard of": whole | {"type": "hologram", "hologram": {}},
        "an errors list of numbers": whole | {"errors": [1, 2]},
        "300 kB": whole | {"text": {"body": "x" * 300_000}},
    }


BAD_ITEMS = _bad_items()


@pytest.mark.parametrize("name", BAD_ITEMS)
def test_messages_beside_a_bad_item_are_answered(stack: Stack, contact: str, name: str) -> None:
    bad = BAD_ITEMS[name]
    if isinstance(bad, dict) and bad.get("id") == "wamid.bad":
        bad = bad | {"id": f"wamid.bad.{contact}"}
    good = [text(contact, f"wamid.{contact}.{number}", f"good {number}") for number in (1, 2)]

    answer = stack.post(of_texts(good[0], bad, good[1]))

    assert answer.status_code == 200
    stack.wait_settled([item["id"] for item in good])
    assert sorted(stack.texts(contact)) == ["good 1", "good 2"]


def _raw_texts(contact: str, body: bytes) -> bytes:
    """One message whose text is these raw bytes of JSON, between two good ones."""
    marked = of_texts(
        text(contact, f"wamid.{contact}.1", "good 1"),
        text(contact, f"wamid.{contact}.raw", "MARK"),
        text(contact, f"wamid.{contact}.2", "good 2"),
    )
    return marked.replace(b'"MARK"', body)


RAW_TEXTS: dict[str, tuple[bytes, str]] = {
    "a lone high surrogate": (rb'"a\ud800b"', "a\ufffdb"),
    "a lone low surrogate": (rb'"a\udc00b"', "a\ufffdb"),
    "NUL, escaped": (rb'"a\u0000b"', "a\ufffdb"),
    "NUL, raw": (b'"a\x00b"', "a\ufffdb"),
    "an emoji, escaped": (rb'"a\ud83d\ude00b"', "a\U0001f600b"),
    "an emoji, raw": ('"a\U0001f600b"'.encode(), "a\U0001f600b"),
    "escaped as Meta does": (rb'"J\u2019ai mang\u00e9 a\u0040b.c \/x \u003Cb>"', "J’ai mangé a@b.c /x <b>"),
    "invalid UTF-8": (b'"a\xffb"', "a\ufffdb"),
    "a raw line break": (b'"a\nb"', "a\nb"),
}


@pytest.mark.parametrize("name", RAW_TEXTS)
def test_a_text_is_read_and_what_cannot_be_stored_is_replaced(stack: Stack, contact: str, name: str) -> None:
    raw, read = RAW_TEXTS[name]

    assert stack.post(_raw_texts(contact, raw)).status_code == 200

    stack.wait_settled([f"wamid.{contact}.{one}" for one in ("1", "raw", "2")])
    assert sorted(stack.texts(contact)) == sorted(["good 1", "good 2", read])


STRANGE_VALUES: dict[str, Any] = {
    "a huge integer": 10**400,
    "a number beyond a float": "1e999",
    "nested 50 deep": _nested(50),
    "nested 500 deep": _nested(500),
    "a thousand keys": {f"key {number}": number for number in range(1000)},
    "a key of surrogates": {"\ud800": "\ud800"},
}


@pytest.mark.parametrize("name", STRANGE_VALUES)
def test_strange_values_in_unknown_fields_do_not_matter(stack: Stack, contact: str, name: str) -> None:
    strange = STRANGE_VALUES[name]
    items = [text(contact, f"wamid.{contact}.{n}", f"good {n}", unknown=strange) for n in (1, 2)]
    document = envelope(value(items, unknown=strange)) | {"unknown": strange}
    document["entry"][0]["unknown"] = strange
    body = wire(document).replace(b'"1e999"', b"1e999")

    assert stack.post(body).status_code == 200

    stack.wait_settled([item["id"] for item in items])
    assert sorted(stack.texts(contact)) == ["good 1", "good 2"]


STRANGE_CHANGES: dict[str, Any] = {
    "the value is null": {"field": "messages", "value": None},
    "the value is a list": {"field": "messages", "value": []},
    "no value": {"field": "messages"},
    "no metadata": {"field": "messages", "value": {"messages": [text("15550009999", "wamid.nowhere", "x")]}},
    "metadata is a list": {"field": "messages", "value": {"metadata": [], "messages": [{"id": "wamid.nowhere2"}]}},
    "messages is an object": {"field": "messages", "value": value() | {"messages": {"id": "wamid.object"}}},
    "messages is a string": {"field": "messages", "value": value() | {"messages": "wamid"}},
    "statuses of nonsense": {"field": "messages", "value": value(statuses=[None, 1, {}, {"id": 5, "status": []}])},
    "a status nobody heard of": {"field": "messages", "value": value(statuses=[receipt("wamid.x", "teleported")])},
    "the time of a status is nonsense": {
        "field": "messages",
        "value": value(statuses=[receipt("wamid.y", "read", timestamp={"a": 1})]),
    },
    "an echo that looks like ours and is not": {
        "field": "messages",
        "value": value(statuses=[receipt("wamid.z", "read", biz_opaque_callback_data=f"pombo1.{'0' * 40}.0.abcdefgh")]),
    },
    "an echo with a huge round": {
        "field": "messages",
        "value": value(
            statuses=[receipt("wamid.z", "read", biz_opaque_callback_data=f"pombo1.{'0' * 40}.{'9' * 40}.a")]
        ),
    },
    "contacts are numbers": {"field": "messages", "value": value([], contacts=[1, None, "x"])},
    "errors of the number": {
        "field": "messages",
        "value": value(errors=[{"code": 130429, "title": "Rate limit"}]),
    },
    "an unknown field": {"field": "weather", "value": {"rain": True}},
    "the field is a number": {"field": 5, "value": {}},
    "a template's news": {"field": "message_template_status_update", "value": {"event": "APPROVED"}},
    "an account's news": {"field": "account_update", "value": {"event": "VERIFIED_ACCOUNT"}},
    "an echo of the phone's app": {
        "field": "smb_message_echoes",
        "value": value() | {"message_echoes": [text("15550001111", "wamid.echo", "sent from phone", to="15550002222")]},
    },
}


@pytest.mark.parametrize("name", STRANGE_CHANGES)
def test_messages_beside_a_strange_change_are_answered(stack: Stack, contact: str, name: str) -> None:
    items = [text(contact, f"wamid.{contact}.{number}", f"good {number}") for number in (1, 2)]
    document = envelope(value([items[0]]), value([items[1]]))
    document["entry"][0]["changes"].insert(1, STRANGE_CHANGES[name])
    document["entry"] += [{"id": "1", "changes": [STRANGE_CHANGES[name]]}, None, {"id": 7, "changes": "none"}]

    assert stack.post(wire(document)).status_code == 200

    stack.wait_settled([item["id"] for item in items])
    assert sorted(stack.texts(contact)) == ["good 1", "good 2"]


def test_strange_changes_do_not_call_the_handler(stack: Stack) -> None:
    """Receipts, echoes, news of the account and what could not be read are none of the handler's business."""
    body = wire(envelope(*[change["value"] for change in STRANGE_CHANGES.values() if "value" in change]))
    calls, before, large = stack.handler_calls(), len(met(stack)), large_posts(stack)

    assert stack.post(body).status_code == 200

    stack.wait_until(lambda: large_posts(stack) > large, "the whole POST is stored")
    ours = met(stack)[before:]
    stack.wait_until(lambda: all(stack.store.get(key).final for key in ours), "all of it is handled")
    assert stack.handler_calls() == calls


def large_posts(stack: Stack) -> int:
    return sum(line["count"] > 10 for line in stack.logs("webhook_received"))


def met(stack: Stack) -> list[str]:
    """The keys of all events so far, each as often as it came."""
    events = ("inbound_new", "inbound_duplicate")
    return [line["inbound_event_id"] for line in stack.logs() if line["event"] in events]


# ---- who may, and what else there is


def test_the_handshake_echoes_the_challenge_as_plain_text(stack: Stack) -> None:
    """Unsigned, as Meta's is."""
    query = {"hub.mode": "subscribe", "hub.verify_token": "local-verify-token", "hub.challenge": "PROBE<b>123"}

    answer = stack.http.get(f"{stack.described['webhook']}/webhooks/whatsapp", params=query)

    assert (answer.status_code, answer.text) == (200, "PROBE<b>123")
    assert answer.headers["content-type"].startswith("text/plain")


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"hub.mode": "subscribe", "hub.challenge": "1"},
        {"hub.mode": "subscribe", "hub.verify_token": "", "hub.challenge": "1"},
        {"hub.mode": "subscribe", "hub.verify_token": "wrong", "hub.challenge": "1"},
        {"hub.mode": "subscribe", "hub.verify_token": "é\x00", "hub.challenge": "1"},
        {"hub.mode": "unsubscribe", "hub.verify_token": "local-verify-token", "hub.challenge": "1"},
        {"hub.verify_token": "local-verify-token", "hub.challenge": "1"},
    ],
)
def test_a_handshake_that_is_wrong_is_refused(stack: Stack, query: dict[str, str]) -> None:
    answer = stack.http.get(f"{stack.described['webhook']}/webhooks/whatsapp", params=query)

    assert answer.status_code == 403


BODY = of_texts(text("15550009998", "wamid.unsigned", "hello"))
GOOD = signed(BODY)["X-Hub-Signature-256"]
SIGNATURES: dict[str, Any] = {
    "none": {},
    "empty": {"X-Hub-Signature-256": ""},
    "no digest": {"X-Hub-Signature-256": "sha256="},
    "no prefix": {"X-Hub-Signature-256": GOOD.removeprefix("sha256=")},
    "another algorithm": {"X-Hub-Signature-256": GOOD.replace("sha256", "sha1")},
    "upper case": {"X-Hub-Signature-256": GOOD.upper()},
    "too short": {"X-Hub-Signature-256": GOOD[:-1]},
    "too long": {"X-Hub-Signature-256": GOOD + "0"},
    "not hexadecimal": {"X-Hub-Signature-256": "sha256=" + "z" * 64},
    "not ASCII": {"X-Hub-Signature-256": "sha256=é".encode()},
    "not UTF-8": {"X-Hub-Signature-256": b"sha256=" + b"\xff" * 64},
    "of other bytes": signed(BODY + b" "),
    "of another secret": signed(BODY, "another secret"),
    "of no secret": signed(BODY, ""),
    "under the old name": {"X-Hub-Signature": GOOD},
    "huge": {"X-Hub-Signature-256": "sha256=" + "0" * 7000},
}


@pytest.mark.parametrize("headers", SIGNATURES.values(), ids=SIGNATURES)
def test_a_webhook_that_is_not_rightly_signed_is_refused_unread(stack: Stack, headers: dict[str, Any]) -> None:
    answer = stack.post(BODY, headers)

    assert answer.status_code == 403
    assert stack.event("wamid.unsigned") is None


def test_signature_covers_the_bytes_and_not_the_decoded_json(stack: Stack) -> None:
    """Vectors by the secret test_app_secret."""
    assert SECRET == "test_app_secret"
    escaped = rb'{"text":{"body":"J\u2019ai mang\u00e9 \ud83d\ude00 a\u0040b.c \/x"}}'
    decoded = json.dumps(json.loads(escaped), ensure_ascii=False, separators=(",", ":")).encode()
    of_escaped = "sha256=6f46951cd2e85814bb4b76d8496481d437b028afc8ac1c37a288f729d3a5a42e"
    of_decoded = "sha256=11dae4beb287d191904508358db3a2e743c5c28bdb61b8453908e54ce3d918e1"
    tight, wide = (
        b'{"object":"whatsapp_business_account","entry":[]}',
        b'{"object": "whatsapp_business_account", "entry": []}',
    )
    of_tight = "sha256=dec6a680679a968e7e0319355b23599cbfc54502c0784668e9618baa0c633756"
    of_wide = "sha256=56cbbaf4961c6cfdae48b7f116c047e5eb513d2c931baae63a2bc1afd26f803a"

    for body, signature, status in [
        (escaped, of_escaped, 200),
        (decoded, of_decoded, 200),
        (decoded, of_escaped, 403),
        (escaped, of_decoded, 403),
        (tight, of_tight, 200),
        (wide, of_wide, 200),
        (wide, of_tight, 403),
    ]:
        assert stack.post(body, {"X-Hub-Signature-256": signature}).status_code == status


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"])
def test_other_methods_are_not_allowed(stack: Stack, method: str) -> None:
    answer = stack.http.request(method, f"{stack.described['webhook']}/webhooks/whatsapp", content=b"")

    assert answer.status_code == 405


@pytest.mark.parametrize("path", ["/", "/webhooks", "/webhooks/whatsapp/", "/webhooks/whatsapp/x", "/internal/sweep"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_other_paths_are_not_found(stack: Stack, path: str, method: str) -> None:
    answer = stack.http.request(method, stack.described["webhook"] + path, content=b"{}")

    assert answer.status_code == 404


@pytest.mark.parametrize(
    "content_type",
    [None, "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "nonsense; é"],
)
def test_the_content_type_is_ignored(stack: Stack, contact: str, content_type: str | None) -> None:
    body = of_texts(text(contact, f"wamid.{contact}", "hello"))
    headers: dict[str, Any] = signed(body)
    if content_type is not None:
        headers["Content-Type"] = content_type.encode()

    assert stack.post(body, headers).status_code == 200

    stack.wait_texts(contact, ["hello"])
