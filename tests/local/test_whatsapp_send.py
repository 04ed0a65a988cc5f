"""What the simulator accepts as a message, and how it refuses the rest.

Limits: notes by third parties on Meta's messages reference (September 2026). Error bodies:
developers.facebook.com/documentation/business-messaging/whatsapp/support/error-codes (June 2026).
"""

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.whatsapp_harness import BSUID, CUSTOMER, SENDER, Simulator, message, running


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    with running(tmp_path_factory.mktemp("simulator")) as (started, _):
        yield started


@pytest.fixture(autouse=True)
def _empty_ledger(simulator: Simulator) -> None:
    simulator.control("DELETE", "ledger")


def button(place: int = 1, **reply: str) -> dict:
    return {"type": "reply", "reply": {"id": f"b{place}", "title": f"Choice {place}"} | reply}


def buttons(*several: dict, text: str = "Choose") -> dict:
    return {"interactive": {"type": "button", "body": {"text": text}, "action": {"buttons": list(several)}}}


def row(place: int = 1, **fields: str) -> dict:
    return {"id": f"r{place}", "title": f"Row {place}"} | fields


def rows(*several: dict, button: str = "Open", text: str = "Choose") -> dict:
    sections = [{"title": "All", "rows": list(several)}]
    action = {"button": button, "sections": sections}
    return {"interactive": {"type": "list", "body": {"text": text}, "action": action}}


def link(**fields: str) -> dict:
    parameters = {"display_text": "Open", "url": "https://example.com/a?b=c"} | fields
    action = {"name": "cta_url", "parameters": parameters}
    return {"interactive": {"type": "cta_url", "body": {"text": "Choose"}, "action": action}}


def cards(count: int) -> dict:
    return {"contacts": [{"name": {"formatted_name": "Ana", "first_name": "Ana"}}] * count}


def headed(message: dict, **header: object) -> dict:
    return {"interactive": message["interactive"] | {"header": header}}


def template(**fields: object) -> dict:
    return {"template": {"name": "reminder", "language": {"code": "pt_BR"}} | fields}


PARAMETERS = [{"type": "text", "text": "9:30"}, {"type": "text", "text": "Monday"}]

VALID = {
    "a text of 4096 characters": {"text": {"body": "ã" * 4096, "preview_url": True}},
    "an image by id": {"image": {"id": "900000000000001", "caption": "c" * 1024}},
    "a document by link": {"document": {"link": "https://example.com/a.pdf", "filename": "a.pdf"}},
    "a voice note": {"audio": {"id": "900000000000001", "voice": True}},
    "a sticker": {"sticker": {"id": "900000000000001"}},
    "a video": {"video": {"link": "https://example.com/a.mp4"}},
    "a location": {"location": {"latitude": -23.5, "longitude": "-46.6", "name": "Clinic", "address": "Rua 1"}},
    "257 contact cards": cards(257),
    "an image above buttons": headed(buttons(button()), type="image", image={"id": "1"}),
    "a text above a list": headed(rows(row()), type="text", text="t" * 60),
    "a contact card": {
        "contacts": [{"name": {"formatted_name": "Ana", "first_name": "Ana"}, "phones": [{"phone": "+15550002222"}]}]
    },
    "a reaction": {"reaction": {"message_id": "wamid.A", "emoji": "👍"}},
    "a reaction taken back": {"reaction": {"message_id": "wamid.A", "emoji": ""}},
    "three buttons": buttons(button(1, id="i" * 256, title="t" * 20), button(2), button(3), text="t" * 1024),
    "ten rows": rows(*[row(n, description="d" * 72) for n in range(10)], button="b" * 20, text="t" * 4096),
    "a link": link(display_text="d" * 20),
    "another interactive type": {"interactive": {"type": "location_request_message", "action": {"name": "x"}}},
    "a request for a number": {
        "interactive": {
            "type": "request_contact_info",
            "body": {"text": "Your number?"},
            "action": {"name": "request_contact_info"},
        }
    },
    "a template with a target": template(
        components=[
            {
                "type": "tap_target_configuration",
                "parameters": [{"type": "tap_target_configuration", "tap_target_configuration": [{"title": "Offer"}]}],
            }
        ]
    ),
    "a template": template(),
    "a template with values": template(components=[{"type": "body", "parameters": PARAMETERS}]),
    "an answer to a message": {"text": {"body": "hi"}, "context": {"message_id": "wamid.A"}},
    "an echo of 512 characters": {"text": {"body": "hi"}, "biz_opaque_callback_data": "e" * 512},
}

MISSING = {
    "no address": {"text": {"body": "hi"}, "to": ""},
    "no object": {"type": "text", "image": {"id": "1"}},
    "a text without a body": {"text": {}},
    "media without a source": {"image": {"caption": "c"}},
    "a location without a longitude": {"location": {"latitude": 1}},
    "a card with a formatted name alone": {"contacts": [{"name": {"formatted_name": "Ana"}}]},
    "a link without an address": {"interactive": link()["interactive"] | {"action": {"name": "cta_url"}}},
    "a card without a name": {"contacts": [{"phones": []}]},
    "a reaction without its message": {"reaction": {"emoji": "👍"}},
    "interactive without an action": {"interactive": {"type": "button"}},
    "a button without an id": buttons({"type": "reply", "reply": {"title": "Yes"}}),
    "a template without a language": {"template": {"name": "reminder"}},
    "two sections, one without a title": {
        "interactive": {
            "type": "list",
            "body": {"text": "Choose"},
            "action": {"button": "Open", "sections": [{"rows": [row(1)]}, {"title": "B", "rows": [row(2)]}]},
        }
    },
    "a context without a message": {"text": {"body": "hi"}, "context": {}},
}

INVALID = {
    "another product": {"text": {"body": "hi"}, "messaging_product": "messenger"},
    "an empty text": {"text": {"body": ""}},
    "a text of 4097 characters": {"text": {"body": "t" * 4097}},
    "a text that is a number": {"text": {"body": 1}},
    "a text that is a list": {"text": ["hi"]},
    "letters for a number": {"text": {"body": "hi"}, "to": BSUID},
    "a group": {"text": {"body": "hi"}, "recipient_type": "group"},
    "media by id and by link": {"image": {"id": "1", "link": "https://example.com/a.png"}},
    "a link to nowhere": {"image": {"link": "file:///a.png"}},
    "a caption of 1025 characters": {"image": {"id": "1", "caption": "c" * 1025}},
    "a caption on audio": {"audio": {"id": "1", "caption": "c"}},
    "a filename on an image": {"image": {"id": "1", "filename": "a.png"}},
    "an image that is a voice note": {"image": {"id": "1", "voice": True}},
    "a latitude beyond the pole": {"location": {"latitude": 90.1, "longitude": 0}},
    "no cards": {"contacts": []},
    "258 cards": cards(258),
    "a reaction of words": {"reaction": {"message_id": "wamid.A", "emoji": "ok"}},
    "a link that says 21 characters": link(display_text="d" * 21),
    "a link to another program": link(url="tel:15550002222"),
    "a link with a space": link(url="https://example.com/a b"),
    "an image above a list": headed(rows(row()), type="image", image={"id": "1"}),
    "a header of 61 characters": headed(buttons(button()), type="text", text="t" * 61),
    "a context on a reaction": {"reaction": {"message_id": "wamid.A", "emoji": "👍"}, "context": {"message_id": "w"}},
    "an unknown interactive type": {"interactive": {"type": "poll", "action": {}}},
    "no buttons": buttons(),
    "four buttons": buttons(button(1), button(2), button(3), button(4)),
    "a button's title of 21 characters": buttons(button(title="t" * 21)),
    "a button's id of 257 characters": buttons(button(id="i" * 257)),
    "two buttons with one id": buttons(button(1), button(2, id="b1")),
    "two buttons with one title": buttons(button(1), button(2, title="Choice 1")),
    "a button text of 1025 characters": buttons(button(), text="t" * 1025),
    "eleven rows": rows(*[row(n) for n in range(11)]),
    "a row's title of 25 characters": rows(row(title="t" * 25)),
    "a row's id of 201 characters": rows(row(id="i" * 201)),
    "a row's description of 73 characters": rows(row(description="d" * 73)),
    "a list button of 21 characters": rows(row(), button="b" * 21),
    "two rows with one id": rows(row(1), row(2, id="r1")),
    "an unknown component": template(components=[{"type": "tail"}]),
    "named beside positional values": template(
        components=[{"type": "body", "parameters": [PARAMETERS[0], PARAMETERS[1] | {"parameter_name": "day"}]}]
    ),
    "an echo of 513 characters": {"text": {"body": "hi"}, "biz_opaque_callback_data": "e" * 513},
    "an echo that is an object": {"text": {"body": "hi"}, "biz_opaque_callback_data": {}},
}


@pytest.mark.parametrize("fields", VALID.values(), ids=VALID)
def test_a_message_within_the_limits_is_accepted_and_in_the_ledger(simulator: Simulator, fields: dict) -> None:
    answer = simulator.call(message(**fields))
    assert answer.status_code == 200, answer.text
    (entry,) = simulator.ledger()
    assert entry["wamid"] == answer.json()["messages"][0]["id"]
    assert entry["body"] == fields[entry["type"]]


@pytest.mark.parametrize("fields", MISSING.values(), ids=MISSING)
def test_missing_required_part_is_refused_with_131008(simulator: Simulator, fields: dict) -> None:
    assert_refused(simulator, message(**fields), 400, 131008)


@pytest.mark.parametrize("fields", INVALID.values(), ids=INVALID)
def test_value_beyond_a_limit_is_refused_with_131009(simulator: Simulator, fields: dict) -> None:
    assert_refused(simulator, message(**fields), 400, 131009)


REFUSED = {
    "an unknown key of a text": ({"text": {"body": "hi", "previw_url": True}}, 400, 100),
    "an unknown key of an image": ({"image": {"id": "1", "captoin": "c"}}, 400, 100),
    "an unknown key of a location": ({"location": {"latitude": 1, "longitude": 2, "adress": "Rua 1"}}, 400, 100),
    "a line break in a value": (
        template(components=[{"type": "body", "parameters": [{"type": "text", "text": "a\nb"}]}]),
        400,
        132018,
    ),
    "a name that no template has": (template(name="Reminder"), 404, 132001),
    "a language that is none": (template(language={"code": "english"}), 404, 132001),
}


@pytest.mark.parametrize(("fields", "status", "code"), REFUSED.values(), ids=REFUSED)
def test_content_with_its_own_error_code_is_refused_with_it(
    simulator: Simulator, fields: dict, status: int, code: int
) -> None:
    assert_refused(simulator, message(**fields), status, code)


def test_an_unknown_type_is_refused_with_131051(simulator: Simulator) -> None:
    assert_refused(simulator, message(poll={}, type="poll"), 400, 131051)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"hi"', b"\xff"])
def test_body_that_is_not_a_json_object_is_refused_with_100(simulator: Simulator, body: bytes) -> None:
    assert_refused(simulator, body, 400, 100)


def test_a_wrong_token_is_401_with_code_190(simulator: Simulator) -> None:
    answer = simulator.call(message(text={"body": "hi"}), token="another")
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, 190)
    assert simulator.ledger() == []


def test_no_token_is_401_with_code_190(simulator: Simulator) -> None:
    answer = simulator.client.post(f"{simulator.address}/v25.0/{SENDER}/messages", json=message(text={"body": "hi"}))
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, 190)


def test_an_unknown_phone_number_id_is_code_100_with_subcode_33(simulator: Simulator) -> None:
    answer = simulator.call(message(text={"body": "hi"}), path="/v25.0/999/messages")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["error_subcode"]) == (400, 100, 33)


def test_another_version_is_refused(simulator: Simulator) -> None:
    answer = simulator.call(message(text={"body": "hi"}), path=f"/v9.0/{SENDER}/messages")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, 2500)


def test_an_unknown_path_is_refused_in_metas_shape(simulator: Simulator) -> None:
    answer = simulator.call({}, path=f"/v25.0/{SENDER}/media")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, 2500)


def test_a_refusal_has_metas_shape_and_repeats_no_value(simulator: Simulator) -> None:
    answer = simulator.call(message(text={"body": "secret" * 1000}))
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "code", "error_data", "fbtrace_id"}
    assert error["message"] == "(#131009) Parameter value is not valid"
    assert error["type"] == "OAuthException"
    assert error["error_data"] == {
        "messaging_product": "whatsapp",
        "details": "text.body must be 1 to 4096 characters long.",
    }


def test_the_answer_names_the_contact_and_a_wamid_that_holds_the_number(simulator: Simulator) -> None:
    answer = simulator.send().json()
    wamid = answer["messages"][0]["id"]
    assert answer == {
        "messaging_product": "whatsapp",
        "contacts": [{"input": f"+{CUSTOMER}", "wa_id": CUSTOMER}],
        "messages": [{"id": wamid}],
    }
    assert CUSTOMER.encode() in base64.b64decode(wamid.removeprefix("wamid."), validate=True)


def test_two_equal_messages_are_two_messages(simulator: Simulator) -> None:
    """There is no idempotency key of any kind."""
    echo = "pombo1.aaaa.0.correlation"
    first, second = (simulator.send(biz_opaque_callback_data=echo).json()["messages"][0]["id"] for _ in range(2))
    assert first != second
    assert [entry["wamid"] for entry in simulator.ledger()] == [first, second]


def test_a_template_is_answered_with_its_message_status(simulator: Simulator) -> None:
    assert simulator.call(message(**template())).json()["messages"][0]["message_status"] == "accepted"


def test_a_bsuid_goes_into_recipient_and_comes_back_as_user_id(simulator: Simulator) -> None:
    fields = {"messaging_product": "whatsapp", "recipient": BSUID, "type": "text", "text": {"body": "hi"}}
    answer = simulator.call(fields)
    assert answer.json()["contacts"] == [{"input": BSUID, "user_id": BSUID}]
    (entry,) = simulator.ledger()
    assert (entry["to"], entry["recipient"]) == (None, BSUID)


def test_to_wins_over_recipient(simulator: Simulator) -> None:
    assert simulator.send(recipient=BSUID).json()["contacts"][0]["wa_id"] == CUSTOMER
    assert simulator.ledger()[0]["recipient"] is None


def test_number_without_its_plus_gets_a_country_code(simulator: Simulator) -> None:
    """Meta prepends the country code of the business's own number (notes by third parties, September 2026)."""
    assert simulator.send(to=CUSTOMER).json()["contacts"] == [{"input": CUSTOMER, "wa_id": f"1{CUSTOMER}"}]
    assert simulator.ledger()[0]["to"] == f"+1{CUSTOMER}"


def test_a_message_without_a_type_is_a_text(simulator: Simulator) -> None:
    fields = {"messaging_product": "whatsapp", "to": f"+{CUSTOMER}", "text": {"body": "hi"}}
    assert simulator.call(fields).status_code == 200
    assert simulator.ledger()[0]["type"] == "text"


@pytest.mark.parametrize(
    ("echo", "key"),
    [("pombo1.0a1b.2.correlation", "0a1b"), ("something else", None), ("pombo1.only", None), (None, None)],
)
def test_the_ledger_reads_the_key_from_our_echo(simulator: Simulator, echo: str | None, key: str | None) -> None:
    simulator.send(biz_opaque_callback_data=echo)
    (entry,) = simulator.ledger()
    fields = {"key", "echo", "to", "recipient", "type", "body", "wamid", "accepted_at", "answered"}
    assert set(entry) == {*fields, "phone_number_id"}
    assert (entry["key"], entry["echo"]) == (key, echo)
    assert entry["accepted_at"] <= entry["answered"]
    assert entry["accepted_at"].endswith("Z")


@pytest.mark.parametrize("typing", [False, True], ids=["read", "typing"])
def test_read_call_succeeds_and_is_not_a_message(simulator: Simulator, typing: bool) -> None:
    (received,) = simulator.inbound()
    answer = simulator.read(received, typing)
    assert (answer.status_code, answer.json()) == (200, {"success": True})
    assert simulator.ledger() == []


def test_a_read_call_for_an_unknown_message_is_refused_with_131009(simulator: Simulator) -> None:
    answer = simulator.read("wamid.UNKNOWN")
    assert answer.json()["error"]["message"] == "(#131009) Parameter value is not valid"
    assert (answer.status_code, simulator.calls()) == (400, [("read", 400, 131009)])


def test_typing_call_can_be_for_an_unknown_message(simulator: Simulator) -> None:
    """examples/requests/send.py signs webhooks of its own, past the simulator."""
    assert simulator.read("wamid.UNKNOWN", typing=True).json() == {"success": True}


def test_every_message_of_a_batch_can_be_marked_as_read(simulator: Simulator) -> None:
    ids = simulator.inbound(batch=3)
    assert [simulator.read(id).status_code for id in ids] == [200] * 3


def test_a_message_that_was_sent_can_be_marked_as_read(simulator: Simulator) -> None:
    assert simulator.read(simulator.send().json()["messages"][0]["id"]).status_code == 200


def test_a_message_of_a_raw_webhook_can_be_marked_as_read(simulator: Simulator) -> None:
    value = {"messages": [{"id": "wamid.RAW"}, {"id": "wamid.\ud800"}, {"id": 5}, "no message"]}
    webhook = {"entry": [{"changes": [{"value": value}, None]}, {"changes": "none"}]}
    simulator.client.post(f"{simulator.control_address}/control/webhook", content=json.dumps(webhook))
    assert [simulator.read(id).status_code for id in ("wamid.RAW", "wamid.\ud800", "wamid.5")] == [200, 200, 400]


@pytest.mark.parametrize("body", [b"", b"[]", b"[" * 100_000, b'{"entry": {}}', b"\xff"])
def test_raw_webhook_can_be_anything(simulator: Simulator, body: bytes) -> None:
    assert simulator.client.post(f"{simulator.control_address}/control/webhook", content=body).json()["status"] == 200


def test_a_message_can_be_marked_as_read_after_a_restart_and_a_cleared_ledger(tmp_path: Path) -> None:
    with running(tmp_path) as (simulator, _):
        (received,) = simulator.inbound()
        simulator.control("DELETE", "ledger")
        simulator.kill()
        simulator.start()
        assert simulator.read(received).status_code == 200


@pytest.mark.parametrize(
    "fields",
    [{"message_id": "something"}, {"message_id": "wamid.A", "typing_indicator": {"type": "voice"}}, {"status": "seen"}],
)
def test_a_read_call_that_names_no_message_is_refused_with_131009(simulator: Simulator, fields: dict) -> None:
    assert_refused(simulator, {"messaging_product": "whatsapp", "status": "read"} | fields, 400, 131009)


def test_every_call_is_listed_without_private_data(simulator: Simulator) -> None:
    simulator.send("something private")
    simulator.call(message(text={}))
    simulator.read(*simulator.inbound())
    calls = simulator.control("GET", "calls")
    assert [(call["call"], call["type"], call["status"], call["code"]) for call in calls] == [
        ("message", "text", 200, None),
        ("refused", None, 400, 131008),
        ("read", "read", 200, None),
    ]
    assert not {"something private", CUSTOMER} & set(str(calls).split("'"))


def assert_refused(simulator: Simulator, fields: dict | bytes, status: int, code: int) -> None:
    answer = simulator.call(fields)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text
    assert simulator.ledger() == []
