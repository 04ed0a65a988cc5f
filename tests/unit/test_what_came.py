"""What a person sent, as `pombo trace` shows it to those who may read texts."""

import json
from dataclasses import replace
from typing import Any

import click
import pytest

from cli import trace
from cli.dead import show
from cli.trace import as_dict, as_text
from shared.bootstrap.channels import explain, read_message
from shared.domain.message_parts import ContactCard, Interactive, Location, Media, Reaction
from shared.domain.messages import Message
from shared.domain.record import Delivery, Kind, Receipts
from shared.handlers import message
from shared.operations.timeline.build import ReceivedContent, build
from tests.support.builders import at, dead, done
from tests.unit.test_meta_parse import text_message

EVENT = done(Kind.INBOUND, plan_size=0)


def came(given: Message) -> ReceivedContent | None:
    return build([EVENT], read=lambda _: given).came


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (message("hello"), "Received text: hello"),
        (message("look", media=Media("image", id="1")), "Received image: look"),
        (message(media=Media("audio", id="1")), "Received audio"),
        (message(media=Media("document", id="1", filename="bill.pdf")), "Received document: bill.pdf"),
        (
            message(interactive=Interactive("button_reply", id="drinks", title="Order a drink")),
            "Received interactive of type button_reply: Order a drink",
        ),
        (message(reaction=Reaction("wamid.1", "☕")), "Received reaction: ☕"),
        (message(reaction=Reaction("wamid.1")), "Received reaction (removed)"),
        (message(location=Location(38.7, -9.1, name="Café Pombo")), "Received location: Café Pombo"),
        (message(location=Location(38.7, -9.1)), "Received location: 38.7, -9.1"),
        (message(contacts=(ContactCard("Ana Lima"), ContactCard("Rui"))), "Received contacts: Ana Lima, Rui"),
        (message("two\nlines\x1b[2J"), "Received text: two\\nlines\\x1b[2J"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_the_timeline_shows_what_came_in(given: Message, line: str) -> None:
    assert f"  {line}" in as_text(build([EVENT], read=lambda _: given)).split("\n")


def test_the_json_has_the_kind_the_type_and_the_text() -> None:
    shown: Any = as_dict(build([EVENT], read=lambda _: message("look", media=Media("image", id="1"))))
    assert json.loads(json.dumps(shown))["message"] == {"kind": "media", "type": "image", "text": "look"}


@pytest.mark.parametrize(("tenant", "heading"), [("bakery", " of tenant bakery"), ("default", ""), ("", "")])
def test_timeline_names_the_tenant_unless_it_is_default(tenant: str, heading: str) -> None:
    timeline = build([replace(EVENT, tenant=tenant)])
    assert click.unstyle(as_text(timeline)).split("\n")[0] == f"Message {EVENT.correlation_id}{heading}: processed"
    assert (as_dict(timeline)["tenant"], as_dict(timeline)["sender"]) == (tenant, EVENT.sender)


def test_event_without_a_customer_message_shows_none() -> None:
    for timeline in (build([EVENT]), build([EVENT], read=lambda _: None)):
        assert timeline.came is None
        assert as_dict(timeline)["message"] is None
        assert "\n  Received " not in as_text(timeline)
    assert build([done()], read=lambda _: message("hello")).came is None, "a reply is not what came"


SENT = {"type": "text", "content": {"body": "hello"}}


def called(*records: Delivery) -> tuple[list[str], set[str]]:
    """The lines at the end that name a reply or a message, and what the moments are said to be of."""
    lines = as_text(build(records)).split("\n")[1:]
    said = [line.strip() for line in lines if " is sent: hello" in line]
    return said, {name for line in lines for name in ("reply 1", "reply 2", "message 2", "message ") if name in line}


def test_a_message_that_answers_no_event_is_called_a_message() -> None:
    said, names = called(done(payload=SENT))
    assert (said, names) == (["Message is sent: hello"], {"message "})


def test_several_messages_whose_event_was_deleted_are_numbered() -> None:
    said, _ = called(done(payload=SENT), done(payload=SENT, key="1f" * 20))
    assert said == ["Message 1 is sent: hello", "Message 2 is sent: hello"]


def test_the_replies_to_an_event_are_called_replies() -> None:
    said, names = called(EVENT, done(payload=SENT), done(payload=SENT, key="1f" * 20))
    assert said == ["Reply 1 is sent: hello", "Reply 2 is sent: hello"]
    assert {"reply 1", "reply 2"} <= names


def test_the_message_is_read_by_the_channel_of_its_provider() -> None:
    kept = {"item": text_message("Bom dia"), "contact": {}, "phone_number_id": "200000000000001"}
    read = read_message(done(Kind.INBOUND, payload=kept, provider="meta"))
    assert read is not None
    assert (read.kind, read.text) == ("text", "Bom dia")


@pytest.mark.parametrize("payload", [{}, {"item": {}}, {"unparsable": {"a": 1}}, {"value": {}}])
def test_an_event_that_cannot_be_read_shows_no_message(payload: dict[str, Any]) -> None:
    assert read_message(done(Kind.INBOUND, payload=payload, provider="meta")) is None
    assert read_message(done(Kind.INBOUND, provider="another")) is None


def test_every_colour_of_the_timeline_is_one_that_a_terminal_has() -> None:
    for colour in trace._COLOURS.values():
        assert click.style("x", fg=colour) != "x"


def test_dead_show_explains_the_code_of_a_failed_receipt() -> None:
    record = dead(Kind.OUTBOUND, receipts={0: Receipts(sent=at(1), failed=at(2), failed_code=131026)})
    sent, failed = show.as_dict(record, ())["receipts"]
    assert (sent["kind"], sent["code"], sent["sentence"]) == ("sent", None, None)
    assert (failed["kind"], failed["code"]) == ("failed", 131026)
    assert failed["sentence"] == explain("meta", 131026, "failed")
    assert failed["sentence"]


def test_times_of_a_timeline_are_utc_with_milliseconds() -> None:
    assert trace.stamp(at(1.5)) == "2026-03-01T12:00:01.500Z"
