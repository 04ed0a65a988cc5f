"""The channel of the second provider keeps the port's promises: what it makes of any body, and of any answer."""

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import pytest

from shared.domain.errors import ItemUnparsable
from shared.domain.events import MessageReceived, Parsed, ReceiptReceived, Unparsable
from shared.domain.identity import Echo
from shared.domain.record import Kind, ReceiptKind
from shared.domain.retention import RAW_PAYLOAD_BYTES
from shared.domain.send_errors import AnswerLost
from shared.pipeline.intake import Incoming
from tests.support.builders import pending
from tests.support.second_channel import TIME_UNKNOWN, AcmeChannel

OURS, PERSON = "+15550001111", "+15550002222"
CHANNEL = AcmeChannel("secret", "https://pombo.example.com", "http://127.0.0.1:9")
MESSAGE = {"Sid": "IM1", "From": PERSON, "To": OURS, "Body": "hello"}
RECEIPT = {"Sid": "SM1", "From": OURS, "Status": "failed", "Code": "63024", "At": "1750000000"}
AT = datetime.fromtimestamp(1750000000, UTC)


def parsed(path: str, body: bytes) -> Parsed:
    return CHANNEL.parse(Incoming("acme", "POST", f"/webhooks/{path}", {}, body))


def without(form: dict[str, str], name: str) -> dict[str, str]:
    return {key: value for key, value in form.items() if key != name}


def of_message(form: dict[str, str]) -> Parsed:
    return parsed("acme", urlencode(form).encode())


def of_receipt(form: dict[str, str]) -> Parsed:
    return parsed("acme/status", urlencode(form).encode())


def test_a_message_and_a_receipt_are_read() -> None:
    assert of_message(MESSAGE) == Parsed((MessageReceived("acme", OURS, "IM1", PERSON, {"item": MESSAGE}),))
    sent = MESSAGE | {"At": "1750000000"}
    assert of_message(sent) == Parsed((MessageReceived("acme", OURS, "IM1", PERSON, {"item": sent}, AT),))
    assert of_receipt(RECEIPT) == Parsed((ReceiptReceived("acme", OURS, "SM1", ReceiptKind.FAILED, AT, 63024),))


def test_receipt_is_read_with_any_query_string() -> None:
    body = urlencode(RECEIPT).encode()
    assert parsed("acme/status?instance=1", body) == of_receipt(RECEIPT)


@pytest.mark.parametrize("status", ["undelivered", "", "Failed", PERSON])
def test_unknown_status_is_counted_as_unknown_receipt(status: str) -> None:
    assert of_receipt(RECEIPT | {"Status": status}) == Parsed((), {"unknown_receipt": 1})


@pytest.mark.parametrize("code", ["", "x", "-1", "1e3", "\u0663", "9" * 7, "9" * 5000])
def test_code_that_is_not_a_short_number_is_ignored(code: str) -> None:
    (receipt,) = of_receipt(RECEIPT | {"Code": code}).events
    assert isinstance(receipt, ReceiptReceived)
    assert receipt.code is None


@pytest.mark.parametrize("at", ["", "x", "-1", "\u0663", "9" * 5000])
def test_a_receipt_without_a_readable_time_counts_and_its_repeat_is_equal(at: str) -> None:
    first, again = (of_receipt(RECEIPT | {"At": at}) for _ in range(2))
    assert first == again == Parsed((ReceiptReceived("acme", OURS, "SM1", ReceiptKind.FAILED, TIME_UNKNOWN, 63024),))


@pytest.mark.parametrize("name", ["Sid", "From", "To"])
@pytest.mark.parametrize("value", [None, "", " ", "9" * 5000], ids=["absent", "empty", "blank", "too long"])
def test_message_without_a_required_field_is_unparsable(name: str, value: str | None) -> None:
    form = without(MESSAGE, name) if value is None else MESSAGE | {name: value}
    ours = "" if name == "To" else OURS
    assert of_message(form) == Parsed((Unparsable("acme", ours, "messages", form),))


@pytest.mark.parametrize("name", ["Sid", "From", "Status"])
def test_receipt_without_a_required_field_is_unparsable(name: str) -> None:
    form = without(RECEIPT, name)
    assert of_receipt(form) == Parsed((Unparsable("acme", "" if name == "From" else OURS, "status", form),))


HOSTILE = [
    b"",
    b"&&&===",
    b"%",
    b"%ff%00=%00",
    b"\xff\xfe",
    b'{"Sid": "IM1"}',
    b"Sid=IM1&Sid=IM2",
    b"Sid=%00&To=%00",
    b"a=1&" * 10_000,
    b"x" * (RAW_PAYLOAD_BYTES + 1),
    b"%00" * RAW_PAYLOAD_BYTES,
]


@pytest.mark.parametrize("path", ["acme", "acme/status"])
@pytest.mark.parametrize("body", HOSTILE, ids=range(len(HOSTILE)))
def test_no_body_raises_and_unparsable_ones_are_storable(path: str, body: bytes) -> None:
    for event in parsed(path, body).events:
        assert isinstance(event, Unparsable)
        kept = json.dumps(event.raw, ensure_ascii=False)
        assert len(kept.encode()) <= RAW_PAYLOAD_BYTES + 1024
        assert "\\u0000" not in kept


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"item": None},
        {"item": "text"},
        {"item": {}},
        {"item": without(MESSAGE, "From")},
        {"item": without(MESSAGE, "Sid")},
        {"field": "messages", "unparsable": {}},
        {"truncated": "{"},
    ],
)
def test_unreadable_record_raises_item_unparsable(payload: dict[str, Any]) -> None:
    record = replace(pending(Kind.INBOUND, payload=payload), provider="acme")
    with pytest.raises(ItemUnparsable):
        CHANNEL.read(record)


def test_a_message_without_a_text_is_of_the_kind_unsupported() -> None:
    message = CHANNEL.read(pending(Kind.INBOUND, payload={"item": without(MESSAGE, "Body")}))
    assert message is not None
    assert (message.kind, message.text, message.id) == ("unsupported", None, "IM1")


@dataclass
class Answering:
    """A poster that always gets this answer."""

    status: int
    body: bytes | None

    def post(self, *_: object) -> "Answering":
        return self


def sent(status: int, body: bytes | None) -> str | None:
    channel: Any = AcmeChannel("secret", "https://pombo.example.com", "http://127.0.0.1:9")
    channel._poster = Answering(status, body)
    record = pending(payload={"type": "text", "content": {"body": "hello"}, "to": "acme:+15550002222"})
    answer: str | None = channel.send(record, Echo(record.key, 0, record.correlation_id), "token")
    return answer


@pytest.mark.parametrize("body", [None, b"", b"<html>", b"[]", b"{}", b'{"sid": 7}', b'{"sid": ""}'])
def test_a_success_without_a_readable_id_is_a_message_sent_without_one(body: bytes | None) -> None:
    assert sent(201, body) is None
    assert sent(201, b'{"sid": "SM1"}') == "SM1"


@pytest.mark.parametrize("body", [None, b"", b"<html>", b"[]", b'{"code": []}', b'{"code": "20503"}', b'{"code": 1}'])
def test_an_error_that_cannot_be_read_is_an_answer_lost_with_its_status(body: bytes | None) -> None:
    with pytest.raises(AnswerLost) as error:
        sent(503, body)
    assert (error.value.status, error.value.provider_code) == (503, None)
