"""Every kind of reply, from a handler through the running stack to WhatsApp's ledger."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.stack import Stack

LINK = "https://example.com/a"
CARD = {"name": {"formatted_name": "Ana Lima", "first_name": "Ana Lima"}, "phones": [{"phone": "+15550009999"}]}


def everything(about: str) -> list[tuple[str, Any]]:
    """What `!everything` is to bring, read and typing aside: they are no messages."""
    yes, no = ({"type": "reply", "reply": {"id": id, "title": title}} for id, title in (("y", "Yes"), ("n", "No")))
    sections = [
        {"title": "Today", "rows": [{"id": "9", "title": "9:00"}]},
        {"title": "Later", "rows": [{"id": "10", "title": "10:00", "description": "a late one"}]},
    ]
    value = {"type": "text", "text": "Monday", "parameter_name": "day"}
    body = {"type": "body", "parameters": [value]}
    return [
        ("text", {"body": "a text"}),
        ("image", {"link": LINK, "caption": "an image"}),
        ("video", {"id": "900000000000001"}),
        ("audio", {"id": "900000000000002", "voice": True}),
        ("document", {"link": LINK, "filename": "a.pdf"}),
        ("sticker", {"link": LINK}),
        ("location", {"latitude": -23.5, "longitude": -46.6, "name": "a place"}),
        ("contacts", [CARD]),
        (
            "interactive",
            {
                "type": "button",
                "header": {"type": "text", "text": "H"},
                "body": {"text": "buttons"},
                "footer": {"text": "F"},
                "action": {"buttons": [yes, no]},
            },
        ),
        (
            "interactive",
            {"type": "list", "body": {"text": "a list"}, "action": {"button": "Open", "sections": sections}},
        ),
        (
            "interactive",
            {
                "type": "cta_url",
                "body": {"text": "a link"},
                "action": {"name": "cta_url", "parameters": {"display_text": "Open", "url": LINK}},
            },
        ),
        ("template", {"name": "reminder", "language": {"code": "pt_BR"}, "components": [body]}),
        ("reaction", {"message_id": about, "emoji": "👍"}),
        ("reaction", {"message_id": about, "emoji": ""}),
        ("interactive", {"type": "flow", "body": {"text": "a flow"}, "action": {"name": "flow"}}),
        ("text", {"body": "the end"}),
    ]


def calls(stack: Stack) -> list[tuple[str, int | None]]:
    """Read and typing calls, with what they were answered."""
    return [(one["call"], one["status"]) for one in stack.control("GET", "calls") if one["call"] in ("read", "typing")]


def answers(stack: Stack, message_id: str, index: int) -> list[str]:
    reply = stack.reply(message_id, index)
    return [attempt.answer for attempt in reply.attempts_log] if reply else []


def test_every_kind_of_reply_reaches_whatsapp_in_order(stack: Stack, contact: str) -> None:
    before = len(calls(stack))
    about = f"wamid.everything{contact}"

    (message_id,) = stack.inbound(
        **{"from": contact, "type": "text", "content": {"body": f"!everything {about}"}, "id": about}
    )

    stack.wait_settled([message_id], 60)
    ledger = stack.ledger(contact)
    assert [(entry["type"], entry["body"]) for entry in ledger] == everything(about)
    assert all(entry["echo"].startswith("pombo1.") for entry in ledger)
    assert calls(stack)[before:] == [("read", 200), ("typing", 200)]
    assert {reply["shown"] for reply in stack.timeline(message_id)["replies"]} == {"sent"}
    assert len(stack.timeline(message_id)["replies"]) == len(everything(about)) + 2


def test_customer_without_a_phone_gets_every_kind_too(stack: Stack) -> None:
    """The address is `recipient`, without `to`."""
    user_id = "US.10000000000000077001"
    (message_id,) = stack.inbound(
        user_id=user_id, type="text", content={"body": "!everything wamid.x"}, id="wamid.everyone"
    )
    stack.wait_settled([message_id], 60)
    ledger = stack.ledger(user_id)
    assert [entry["type"] for entry in ledger] == [type for type, _ in everything("")]
    assert {entry["to"] for entry in ledger} == {None}


def test_read_comes_to_whatsapp_before_typing_however_fast_time_goes(stack: Stack, contacts: Callable[[], str]) -> None:
    """The stack's time goes 20 times as fast, and so does what keeps two calls apart."""
    before = len(calls(stack))
    people = [contacts() for _ in range(10)]
    for person in people:
        about = f"wamid.seen{person}"
        content = {"body": f"!seen {about}"}
        stack.wait_settled(stack.inbound(**{"from": person, "type": "text", "content": content, "id": about}), 60)
    assert calls(stack)[before:] == [("read", 200), ("typing", 200)] * len(people)
    assert [stack.texts(person) for person in people] == [["seen"]] * len(people)


def test_typing_call_with_a_lost_answer_is_repeated_and_delays_no_message(stack: Stack, contact: str) -> None:
    stack.fault("send", "drop", times=2, match={"type": "typing"})

    message_id = stack.say(contact, "!typing wamid.1")

    stack.wait_settled([message_id], 60)
    assert stack.texts(contact) == ["before", "after"]
    assert answers(stack, message_id, 1) == ["provider_down", "provider_down", "accepted"]
    typing, after = stack.reply(message_id, 1), stack.reply(message_id, 2)
    assert typing is not None
    assert after is not None
    assert (typing.state, typing.attempt, typing.doubts, typing.provider_id) == ("done", 1, 0, None)
    assert after.finished_at is not None
    assert typing.finished_at is not None
    assert after.finished_at < typing.finished_at, "the text waited for the call"


def test_call_on_an_unknown_message_is_refused_permanently(stack: Stack, contact: str) -> None:
    message_id = stack.say(contact, '!reply {"type": "read", "content": {"message_id": "nothing"}}')
    stack.wait_settled([message_id])
    reply = stack.reply(message_id)
    assert reply is not None
    assert (reply.state, reply.reason, reply.attempts_log[-1].code) == ("dead", "permanent", 131009)


@pytest.mark.parametrize(
    ("reply", "sentence"),
    [
        ({"type": "image", "content": {}}, "ValueError: The image has neither a link nor an id"),
        (
            {
                "type": "interactive",
                "content": {"type": "button", "action": {"buttons": [{}] * 4}, "body": {"text": "?"}},
            },
            "ValueError: There are 4 buttons; WhatsApp takes 3.",
        ),
    ],
    ids=["no source", "too many buttons"],
)
def test_reply_beyond_a_limit_is_not_sent_and_the_timeline_names_the_limit(
    stack: Stack, contact: str, reply: dict[str, Any], sentence: str
) -> None:
    message_id = stack.say(contact, f"!reply {json.dumps(reply)}")
    stack.wait_settled([message_id])
    assert stack.ledger(contact) == []
    told = stack.timeline(message_id)
    assert told["shown"] == "failed"
    assert any(sentence in moment["sentence"] for moment in told["events"])


# ---- handlers/menu.py


@pytest.fixture(scope="module")
def cafe(make_stack: Callable[..., Stack]) -> Iterator[Stack]:
    with make_stack(HANDLER="handlers.menu:handle") as stack:
        yield stack


def tap(stack: Stack, contact: str, kind: str, id: str) -> str:
    content = {"type": kind, kind: {"id": id, "title": id.title()}}
    (message_id,) = stack.inbound(**{"from": contact, "type": "interactive", "content": content})
    stack.wait_settled([message_id])
    return message_id


def test_menu_answers_a_customer_who_taps_its_buttons(cafe: Stack, contact: str) -> None:
    cafe.wait_settled([cafe.say(contact, "hello")])
    (welcome,) = cafe.ledger(contact)
    for button in welcome["body"]["action"]["buttons"][:2]:
        tap(cafe, contact, "button_reply", button["reply"]["id"])
    drinks = cafe.ledger(contact)[1]["body"]["action"]["sections"][0]["rows"]
    tap(cafe, contact, "list_reply", drinks[0]["id"])
    bye = tap(cafe, contact, "button_reply", "bye")

    assert [entry["type"] for entry in cafe.ledger(contact)] == [
        *("interactive", "interactive", "location", "reaction", "text")
    ]
    assert cafe.ledger(contact)[-1]["body"] == {"body": "One Espresso, coming right up."}
    assert calls(cafe) == [("typing", 200)] * 4
    assert cafe.timeline(bye)["shown"] == "ignored"
