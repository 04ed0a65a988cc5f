"""Each of Meta's types, whole and broken: a kind that promises something has it, or the message is `unsupported`."""

import json
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.channels.meta.fields import LONGEST_ID
from shared.channels.meta.kinds import ANSWERS, MEDIA_TYPES, READERS
from shared.channels.meta.messages import remark
from shared.channels.meta.webhook import parse
from shared.domain.events import MessageReceived
from shared.domain.message_kinds import DEFAULT_KINDS, KINDS
from shared.domain.message_parts import (
    Button,
    ContactCard,
    Interactive,
    Location,
    Media,
    Order,
    OrderItem,
    Phone,
    Product,
    Reaction,
    Referral,
    System,
    Unsupported,
)
from shared.domain.messages import Message, to_json
from shared.handlers import handles
from shared.handlers.loader import TeamFunction
from shared.pipeline.ports import HandlerCall
from tests.unit.test_meta_parse import RECORDED, envelope, message_of, stored, text_message, value_of

PROMISES = {
    "text": "text",
    "media": "media",
    "location": "location",
    "contacts": "contacts",
    "interactive": "interactive",
    "button": "button",
    "order": "order",
    "reaction": "reaction",
    "request_welcome": "contact",
    "system": "system",
    "edit": "original_id",
    "revoke": "original_id",
    "unsupported": "unsupported",
}
"""What a message of each kind has, whatever came."""

WHOLE: dict[str, Any] = {
    "text": {"body": "Bom dia"},
    **{type_: {"id": "900000000000001", "mime_type": "x/y", "sha256": "AAAA"} for type_ in MEDIA_TYPES},
    "voice": {"id": "900000000000009", "mime_type": "audio/ogg; codecs=opus", "sha256": "AAAA"},
    "location": {"latitude": -23.5, "longitude": -46.6},
    "contacts": [{"name": {"formatted_name": "Caio Exemplo"}}],
    "interactive": {"type": "button_reply", "button_reply": {"id": "yes", "title": "Sim"}},
    "button": {"payload": "YES", "text": "Sim"},
    "order": {"catalog_id": "7", "product_items": [{"product_retailer_id": "CAFE"}]},
    "reaction": {"message_id": "wamid.ours", "emoji": "👍"},
    "request_welcome": None,
    "system": {"type": "user_changed_number", "wa_id": "15550100003"},
    "edit": {"original_message_id": "wamid.old", "message": {"type": "text", "text": {"body": "fixed"}}},
    "revoke": {"original_message_id": "wamid.old"},
}


def received(type_: str, content: Any = None, **more: Any) -> Message:
    """The message that comes of an item of this type, through the store."""
    item = {name: part for name, part in text_message().items() if name != "text"} | {"type": type_}
    item |= ({} if content is None else {type_: content}) | more
    (event,) = parse(envelope(value_of(item))).events
    message = message_of(event)
    assert message.raw == item
    return message


def interactive(answer: Any) -> Message:
    return received("interactive", answer)


# ---- what every kind keeps to


def test_tables_of_types_and_kinds_agree() -> None:
    assert set(READERS) == set(WHOLE)
    assert {received(type_, content).kind for type_, content in WHOLE.items()} | {"unsupported"} == KINDS
    assert set(PROMISES) == KINDS


@pytest.mark.parametrize("type_", WHOLE)
def test_a_whole_message_is_of_its_kind_and_has_what_that_promises(type_: str) -> None:
    message = received(type_, WHOLE[type_])
    assert message.kind == ("media" if type_ in (*MEDIA_TYPES, "voice") else type_)
    assert getattr(message, PROMISES[message.kind])


BROKEN: list[Any] = [None, {}, [], "x", 7, True, [None], [{}], {"id": None}, {"type": "text"}, {"type": {"a": 1}}]


@pytest.mark.parametrize("content", BROKEN, ids=repr)
@pytest.mark.parametrize("type_", WHOLE)
def test_broken_message_never_lacks_the_part_of_its_kind(type_: str, content: Any) -> None:
    message = received(type_, content)
    assert getattr(message, PROMISES[message.kind]) not in (None, ())
    if type_ == "request_welcome":
        assert message.kind == "request_welcome", "it has no object that could be broken"
    elif not content:
        assert (message.kind, message.unsupported) == ("unsupported", Unsupported(type_))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def _near_misses(draw: st.DrawFn) -> tuple[str, Any]:
    """A type and its whole object, of which one value somewhere is something else."""
    type_ = draw(st.sampled_from(sorted(WHOLE)))
    content = json.loads(json.dumps({"": WHOLE[type_]}))
    holder, key = draw(st.sampled_from(list(_places(content))))
    holder[key] = draw(_JSON)
    return type_, content[""]


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    pairs = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ())
    for key, part in pairs:
        yield value, key
        yield from _places(part)


@settings(max_examples=300, deadline=None)
@given(_near_misses())
def test_message_with_any_value_in_one_place_is_read_and_serialisable(near: tuple[str, Any]) -> None:
    type_, content = near
    item = {name: part for name, part in text_message().items() if name != "text"} | {"type": type_, type_: content}
    (event,) = parse(envelope(value_of(item))).events
    message = message_of(event)
    assert getattr(message, PROMISES[message.kind]) not in (None, ())
    if message.kind in ("text", "button"):
        assert isinstance(message.text, str)
    json.dumps(to_json(message), allow_nan=False)


# ---- each kind


def test_media_has_its_details_and_its_caption_is_the_text() -> None:
    content = {
        "id": "9",
        "mime_type": "application/pdf",
        "sha256": "A",
        "filename": "a.pdf",
        "caption": "Aqui",
        "url": "u",
    }
    message = received("document", content)
    assert message.text == "Aqui"
    assert message.media == Media("document", "9", "application/pdf", "A", "a.pdf", url="u")


def test_voice_and_animated_flags_are_read() -> None:
    assert received("audio", {"id": "9", "voice": True}).media == Media("audio", "9", voice=True)
    assert received("audio", {"id": "9", "voice": False}).media == Media("audio", "9")
    assert received("sticker", {"id": "9", "animated": True}).media == Media("sticker", "9", animated=True)


def test_voice_message_can_have_its_own_type() -> None:
    file = {"id": "9", "mime_type": "audio/ogg; codecs=opus", "sha256": "A"}
    expected = Media("audio", "9", "audio/ogg; codecs=opus", "A", voice=True)
    assert received("voice", file).media == expected
    assert received("voice", file | {"voice": False}).media == expected
    assert received("voice", {"mime_type": "audio/ogg"}).unsupported == Unsupported("voice")


def test_first_visit_is_its_own_kind_without_text() -> None:
    message = received("request_welcome")
    assert (message.kind, message.text, message.contact.phone) == ("request_welcome", None, "15550100001")
    assert message.kind not in DEFAULT_KINDS


def test_media_without_a_source_is_unsupported_with_its_error() -> None:
    """A file that is too large for Meta: 131052."""
    message = received("video", {"mime_type": "video/mp4"}, errors=[{"code": 131052, "title": "Media download error"}])
    assert message.unsupported == Unsupported("video", 131052, "Media download error")
    assert received("video", {"url": "https://lookaside.example/1"}).kind == "media"


def test_location_has_degrees_and_an_optional_name() -> None:
    place = {"latitude": -23.5, "longitude": "-46.6", "name": "Praça", "address": "Rua 1", "url": "https://m.example"}
    assert received("location", place).location == Location(-23.5, -46.6, "Praça", "Rua 1", "https://m.example")


@pytest.mark.parametrize("latitude", [None, "north", "", "nan", "inf", True, [1], "1" * 100])
def test_location_without_coordinates_is_unsupported(latitude: Any) -> None:
    assert received("location", {"latitude": latitude, "longitude": 0}).kind == "unsupported"


def test_a_contact_card_has_a_name_phones_and_addresses() -> None:
    phones = [{"phone": "+1 555", "wa_id": "1555", "type": "CELL"}, 7]
    card = {"name": {"formatted_name": "Caio"}, "phones": phones, "emails": [{"email": "c@example.test"}, {}]}
    cards = [card | {"org": {"company": "Exemplo"}, "origin": "contact_request"}, "no card"]
    assert received("contacts", cards).contacts == (
        ContactCard(
            "Caio", (Phone("+1 555", "1555", "CELL"),), ("c@example.test",), "Exemplo", origin="contact_request"
        ),
    )


@pytest.mark.parametrize("type_", ["button_reply", "list_reply"])
def test_a_choice_has_its_id_and_its_title_is_the_text(type_: str) -> None:
    message = interactive({"type": type_, type_: {"id": "B1", "title": "1.000", "description": "d"}})
    assert message.text == "1.000"
    assert message.interactive == Interactive(type_, "B1", "1.000", "d")


def test_a_choice_without_a_title_still_has_a_text() -> None:
    assert interactive({"type": "list_reply", "list_reply": {"id": "B1"}}).text == "B1"


@pytest.mark.parametrize(
    ("given", "string", "response"),
    [
        ('{"rating":"5","flow_token":"t"}', '{"rating":"5","flow_token":"t"}', {"rating": "5", "flow_token": "t"}),
        ({"rating": 5}, '{"rating":5}', {"rating": 5}),
        ('{"rating":', '{"rating":', None),
        ("Sent", "Sent", None),
        ("[1]", "[1]", None),
        ("null", "null", None),
        ("", None, None),
        (None, None, None),
        (7, None, None),
        ("[" * 5000 + "]" * 5000, "[" * 5000 + "]" * 5000, None),
    ],
    ids=range(10),
)
def test_flow_answer_is_stored_unchanged_and_parsed_if_possible(given: Any, string: str | None, response: Any) -> None:
    """It is JSON in a string, which its author may have broken."""
    reply = {"name": "flow", "body": "Sent"} | ({} if given is None else {"response_json": given})
    message = interactive({"type": "nfm_reply", "nfm_reply": reply})
    assert message.kind == "interactive"
    assert message.interactive == Interactive("nfm_reply", name="flow", response_json=string, response=response)


def test_call_permission_has_its_expiry() -> None:
    reply = {"response": "accept", "expiration_timestamp": "1791021600", "response_source": "user_action"}
    answer = interactive({"type": "call_permission_reply", "call_permission_reply": reply}).interactive
    assert answer is not None
    assert (answer.permission, str(answer.expires_at)) == ("accept", "2026-10-03 10:00:00+00:00")


def test_an_agreement_to_pay_is_an_answer_with_the_object_whole() -> None:
    agreed = {
        "payment_method": "offsite_card_pay",
        "payment_timestamp": 1790416800,
        "reference_id": "ref-1",
        "last_four_digits": "0000",
        "credential_id": "1234567",
    }
    message = received(
        "interactive", {"type": "payment_method", "payment_method": agreed}, context={"id": "wamid.ORDER"}
    )
    assert message.kind == "interactive"
    assert message.interactive == Interactive("payment_method", response=agreed)
    assert (message.text, message.reply_to) == (None, "wamid.ORDER")
    assert to_json(message)["interactive"]["response"] == agreed
    assert message.kind in DEFAULT_KINDS


@pytest.mark.parametrize("agreed", [None, {}, [], "x", 7])
def test_an_agreement_to_pay_without_its_object_is_unsupported(agreed: Any) -> None:
    message = interactive({"type": "payment_method", "payment_method": agreed})
    assert (message.kind, message.unsupported) == ("unsupported", Unsupported("interactive"))


def test_unknown_interactive_answer_is_unsupported_with_its_raw_form() -> None:
    answer = {"type": "hologram_reply", "hologram_reply": {"id": "x"}}
    message = interactive(answer)
    assert message.unsupported == Unsupported("interactive")
    assert message.raw["interactive"] == answer


def test_every_answer_is_read_and_another_one_is_unsupported() -> None:
    for type_ in ANSWERS:
        assert interactive({"type": type_, type_: {"id": "x", "response": "accept"}}).kind == "interactive"
        assert interactive({"type": type_}).kind == "unsupported"
    assert interactive({"type": "hologram_reply", "hologram_reply": {"id": "x"}}).kind == "unsupported"


def test_a_quick_reply_of_a_template_needs_no_context() -> None:
    message = received("button", {"payload": "P1", "text": "Sim"})
    assert (message.text, message.button, message.reply_to) == ("Sim", Button("P1", "Sim"), None)
    assert received("button", {"payload": "P1"}).text == "P1"


def test_order_has_its_items_and_accepts_numbers_as_text() -> None:
    one = {"product_retailer_id": "A", "quantity": 2, "item_price": 29.9, "currency": "BRL"}
    two = {"product_retailer_id": "B", "quantity": "1", "item_price": "50.00", "currency": "BRL"}
    message = received("order", {"catalog_id": "7", "text": "De manhã", "product_items": [one, two]})
    assert message.text == "De manhã"
    assert message.order == Order("7", (OrderItem("A", 2, 29.9, "BRL"), OrderItem("B", 1, 50, "BRL")))


@pytest.mark.parametrize("emoji", [{}, {"emoji": ""}, {"emoji": None}])
def test_reaction_without_an_emoji_is_a_removal(emoji: dict[str, Any]) -> None:
    assert received("reaction", {"message_id": "wamid.o"} | emoji).reaction == Reaction("wamid.o", None)


def test_system_message_has_the_new_identity() -> None:
    told = {"type": "user_changed_user_id", "body": "b", "user_id": "US.2", "previous_user_id": "US.1"}
    assert received("system", told).system == System("user_changed_user_id", "b", None, "US.2", "US.1")
    assert received("system", {"new_wa_id": "1555"}).system == System(wa_id="1555")


@pytest.mark.parametrize("number", ["", " ", "+1 555", "1" * 21, "1555x", 1555, None, ["1555"]])
def test_new_number_of_a_system_message_is_read_as_digits_or_absent(number: Any) -> None:
    assert received("system", {"wa_id": number, "body": "b"}).system == System(body="b")
    assert received("system", {"wa_id": number, "new_wa_id": "+15550003333"}).system == System(wa_id="15550003333")


@pytest.mark.parametrize("id", ["", " ", "U" * (LONGEST_ID + 1), 7, None, {"id": "US.1"}])
def test_user_id_of_a_system_message_that_cannot_be_one_is_absent(id: Any) -> None:
    told = {"body": "b", "user_id": id, "previous_user_id": id, "parent_user_id": id}
    assert received("system", told).system == System(body="b")


def test_system_message_can_name_its_contact_by_the_new_number_alone() -> None:
    contact = received("system", {"type": "user_changed_number", "wa_id": "15550003333"}, **{"from": ""}).contact
    assert (contact.id, contact.phone, contact.user_id) == ("15550003333", "15550003333", None)


def test_an_edit_has_the_new_text_and_the_id_of_the_old_message() -> None:
    """It is no text, so no bot answers it unasked."""
    message = received("edit", WHOLE["edit"])
    assert (message.kind, message.text, message.original_id) == ("edit", "fixed", "wamid.old")
    caption = {"type": "image", "image": {"id": "9", "caption": "new"}}
    edited = received("edit", {"original_message_id": "wamid.old", "message": caption})
    assert (edited.text, edited.media) == ("new", Media("image", "9"))
    alone = {"type": "image", "image": {"caption": "new"}}
    edited = received("edit", {"original_message_id": "wamid.old", "message": alone})
    assert (edited.kind, edited.text, edited.media) == ("edit", "new", None)


@pytest.mark.parametrize("inner", [None, {}, {"type": "edit"}, {"type": ["text"]}, {"type": "text", "text": {}}, "x"])
def test_an_edit_whose_new_content_cannot_be_read_is_still_an_edit(inner: Any) -> None:
    message = received("edit", {"original_message_id": "wamid.old", "message": inner})
    assert (message.kind, message.text, message.original_id) == ("edit", None, "wamid.old")


def test_unavailable_message_names_its_original_type() -> None:
    """Code 131051, and 131060 beside the phone's own app."""
    error = {"code": 131060, "title": "This message is unavailable", "error_data": {"details": "d"}}
    assert received("unsupported", {"type": "poll_creation"}, errors=[error]).unsupported == Unsupported(
        "poll_creation", 131060, "This message is unavailable"
    )
    assert received("unsupported").unsupported == Unsupported()
    assert received("unsupported", errors=["x"]).unsupported == Unsupported()


@pytest.mark.parametrize("type_", ["media_placeholder", "hologram", "Text", "text ", "__class__"])
def test_unknown_type_is_unsupported_by_its_name(type_: str) -> None:
    assert received(type_, {"x": 1}).unsupported == Unsupported(type_)


def test_the_example_of_the_page_handles_a_type_that_pombo_does_not_know() -> None:
    page = (Path(__file__).parents[2] / "docs" / "inbound.md").read_text()
    (source,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    told: dict[str, Any] = {"handles": handles, "Message": Message}
    exec(source, told)
    runner = TeamFunction(told["handle"], 30)
    said = {
        "You said: Bom dia": received("text", WHOLE["text"]),
        "You voted for red.": received("poll", {"option": "red"}),
        "Thank you for the rating.": interactive({"type": "rating_reply", "rating_reply": {"stars": 5}}),
        None: received("hologram", {"depth": 3}),
    }
    for text, message in said.items():
        assert message.kind in runner.kinds
        replies = runner(HandlerCall("key", "corr_0001", 1, message))
        assert [reply.content["body"] for reply in replies] == ([text] if text else [])


# ---- what an operator is told


@pytest.mark.parametrize(
    ("type_", "more", "said"),
    [
        ("hologram", {}, "type hologram"),
        ("text", {}, "type text"),
        ("interactive", {"interactive": {"type": "rating_reply"}}, "type interactive rating_reply"),
        ("interactive", {}, "type interactive"),
        ("interactive", {"interactive": {"type": ["x"]}}, "type interactive"),
        ("unsupported", {"unsupported": {"type": "gif"}, "errors": [{"code": 131051}]}, "type gif, code 131051"),
        ("unsupported", {}, "type unknown"),
        ("Ana wrote: call me", {}, "type unknown"),
        ("x" * 65, {}, "type unknown"),
    ],
)
def test_the_remark_on_a_message_that_cannot_be_read_names_its_type(type_: str, more: Any, said: str) -> None:
    item = {name: part for name, part in text_message().items() if name != "text"} | {"type": type_} | more
    (event,) = parse(envelope(value_of(item))).events
    assert remark(stored(event)) == (
        f"Pombo does not support its content ({said}); only a handler that accepts unsupported messages gets it."
    )


def test_readable_message_and_other_event_have_no_remark() -> None:
    for type_, content in WHOLE.items():
        item = {name: part for name, part in text_message().items() if name != "text"}
        (event,) = parse(envelope(value_of(item | {"type": type_, type_: content}))).events
        assert remark(stored(event)) is None
    for body in (
        envelope({"a": 1}, "history"),
        envelope({"truncated": "x", "bytes": "15550100001"}, "flows"),
        envelope(value_of({"id": "wamid.x"})),
    ):
        (event,) = parse(body).events
        assert remark(stored(event)) is None


def test_remark_on_truncated_news_has_its_size() -> None:
    (event,) = parse(envelope({"a": "x" * 300_000}, "history")).events
    assert remark(stored(event)) == "Its value of 300008 bytes is too large; Pombo stores only its beginning."


# ---- what stands around it


def test_message_has_its_quoted_id_and_forwarded_flags() -> None:
    assert received("text", {"body": "x"}, context={"from": "1", "id": "wamid.o"}).reply_to == "wamid.o"
    once = received("text", {"body": "x"}, context={"forwarded": True})
    often = received("text", {"body": "x"}, context={"frequently_forwarded": True})
    assert (once.reply_to, once.forwarded, once.frequently_forwarded) == (None, True, False)
    assert (often.reply_to, often.forwarded, often.frequently_forwarded) == (None, True, True)


def test_referral_and_product_are_read() -> None:
    product = {"referred_product": {"catalog_id": "7", "product_retailer_id": "CAFE"}}
    referral = {"source_url": "u", "source_type": "ad", "ctwa_clid": "c", "welcome_message": {"text": "Olá"}, "new": 1}
    message = received("text", {"body": "x"}, context=product, referral=referral)
    assert message.product == Product("7", "CAFE")
    assert message.referral == Referral("u", source_type="ad", ctwa_clid="c", welcome_text="Olá")


@pytest.mark.parametrize("around", [None, {}, [], "x", 7])
def test_missing_or_invalid_context_is_ignored(around: Any) -> None:
    message = received("text", {"body": "x"}, context=around, referral=around)
    assert (message.reply_to, message.product, message.referral, message.forwarded) == (None, None, None, False)


@pytest.mark.parametrize(("group", "expected"), [("G", "G"), ("", None), (None, None), ([], None), (7, "7")])
def test_group_message_has_its_group_id(group: Any, expected: str | None) -> None:
    assert received("text", {"body": "x"}, group_id=group).group_id == expected


def test_a_group_id_of_any_length_is_a_group() -> None:
    assert received("text", {"body": "x"}, group_id="g" * 5000).group_id is not None


# ---- sent on as JSON


@pytest.mark.parametrize("name", RECORDED)
def test_every_recorded_message_can_be_sent_on_as_json_with_every_field(name: str) -> None:
    for event in parse(json.dumps(RECORDED[name]["body"]).encode()).events:
        if isinstance(event, MessageReceived) and "echo" not in event.payload:
            message = message_of(event)
            plain = json.loads(json.dumps(to_json(message), allow_nan=False))
            assert set(plain) == {field.name for field in fields(Message)}
            assert plain["received_at"].endswith("Z")
            for value, field in ((getattr(message, field.name), field) for field in fields(Message)):
                if is_dataclass(value):
                    assert set(plain[field.name]) == {part.name for part in fields(value)}


def test_a_handler_is_called_by_default_for_nothing_that_opens_no_turn() -> None:
    assert {"reaction", "request_welcome", "system", "edit", "revoke", "unsupported"} == KINDS - DEFAULT_KINDS
