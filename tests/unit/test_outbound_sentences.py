"""What the checks of outbound messages look at, part by part: each says which part, and where it is."""

import json
import re
from typing import Any

import pytest

from shared.domain.outbound.checks import check
from shared.domain.outbound.limits import MESSAGE_BYTES
from shared.domain.outbound.messages import OutboundMessage, from_json
from tests.unit.test_outbound_messages import (
    a_list,
    buttons,
    card,
    carousel,
    cta_url,
    interactive,
    reply,
    row,
    template,
    value,
)

PLACE = {"latitude": 0, "longitude": 0}


def sections(*of_rows: Any) -> dict[str, Any]:
    return interactive("list", {"button": "Open", "sections": list(of_rows)})


@pytest.mark.parametrize(
    ("type", "content", "sentence"),
    [
        ("text", {"body": "hi", "preview_url": "yes"}, "preview_url is true or false, not str."),
        ("document", {"id": "9", "filename": 9}, "The filename of the document is a str, not int."),
        ("document", {"id": "9", "filename": " "}, "The filename of the document is empty."),
        ("document", {"id": "9", "caption": 9}, "The caption of the document is a str, not int."),
        ("image", {"id": "9", "voice": True}, "The image is marked as voice; WhatsApp takes that with audio only."),
        ("audio", {"id": "9", "voice": 1}, "voice is true or false, not int."),
        ("location", PLACE | {"name": 9}, "The name of the location is a str, not int."),
        ("location", PLACE | {"address": 9}, "The address of the location is a str, not int."),
        ("contacts", [{"name": {"first_name": "Ana"}}], "The formatted_name of contact 1 is missing."),
        ("contacts", [card() | {"addresses": ["Lisbon"]}], "The addresses of contact 1 are a list of mappings."),
        ("contacts", [card() | {"phones": [{"wa_id": "1", "phone": 9}]}], "Phone 1 of contact 1 is a str, not int."),
        ("interactive", sections(), "There are no sections; WhatsApp needs at least one."),
        ("interactive", sections({"rows": []}), "There are no rows in section 1; WhatsApp needs at least one."),
        ("interactive", sections({"title": "A", "rows": [row(n) for n in range(11)]}), "There are 11 rows; WhatsApp"),
        ("interactive", a_list(row(1), row(2, id="")), "The id of row 2 is empty."),
        ("interactive", a_list(row(1, title="")), "The title of row 1 is empty."),
        ("interactive", a_list(row(1, description=9)), "The description of row 1 is a str, not int."),
        ("interactive", buttons(reply("a", "A"), reply("b", "")), "The title of button 2 is empty."),
        (
            "interactive",
            interactive("cta_url", cta_url()["action"] | {"name": "open_url"}),
            "The name of the action is not one of cta_url.",
        ),
        ("template", template() | {"components": {"type": "body"}}, "The components are a list of mappings."),
        ("template", template({"sub_type": "url"}), "The type of component 1 of the template is missing."),
        ("template", template({"type": "body"}, {"type": 7}), "The type of component 2 of the template is a str, not"),
        (
            "template",
            template({"type": "body", "parameters": [value("a", parameter_name="x"), value("b")]}),
            "Some parameters of component 1 of the template have names and some have not",
        ),
        (
            "template",
            template({"type": "body", "parameters": [value("a"), {"type": "text", "text": ""}]}),
            "The text of parameter 2 of component 1 of the template is empty.",
        ),
    ],
)
def test_a_wrong_part_is_named_with_its_place(type: str, content: Any, sentence: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{re.escape(sentence)}"):
        check(type, content)


CANARY = "c4n4ry"
OF_CANARIES: tuple[Any, ...] = (
    CANARY,
    CANARY * 2000,
    [CANARY],
    {CANARY: CANARY},
    {"type": CANARY, "content": CANARY},
    {"type": "text", "content": {"body": CANARY, CANARY: 1}},
    {"type": "text", "content": {"body": CANARY * 2000}},
    {"type": "text", "content": {"body": "x"}, "reply_to": CANARY * 2000},
    {"type": f"Image-{CANARY}", "content": {"link": CANARY}},
    {"type": f"text {CANARY}", "content": {"body": "x"}},
    {"type": "image", "content": {"link": CANARY, "caption": CANARY}},
    {"type": "contacts", "content": [{"name": {"formatted_name": CANARY}, "phones": CANARY}]},
    {"type": "interactive", "content": {"type": CANARY, "body": {"text": CANARY}, "action": {CANARY: CANARY}}},
    {"type": "interactive", "content": {"type": "button", "body": {"text": CANARY}, "action": {"buttons": [CANARY]}}},
    {"type": "template", "content": {"name": f"{CANARY}!", "language": {"code": CANARY}}},
    {"type": "template", "content": {"name": CANARY, "language": {"code": CANARY}, "components": [{"type": CANARY}]}},
    {"type": "location", "content": {"latitude": CANARY, "longitude": CANARY}},
    {"type": "reaction", "content": {"message_id": CANARY, "emoji": CANARY}},
)


def refusal(given: Any) -> str | None:
    """The sentence that a reply in its wire form is refused with."""
    try:
        from_json(given)
    except ValueError as error:
        return str(error)
    return None


def test_no_error_sentence_quotes_its_input() -> None:
    sentences = [said for said in map(refusal, OF_CANARIES) if said]
    assert len(sentences) >= 14, "nearly all of these are refused"
    assert [said for said in sentences if CANARY in said.lower()] == []


@pytest.mark.parametrize(
    ("type", "content"),
    [
        ("document", {"id": "9", "filename": ""}),
        ("audio", {"id": "9", "voice": True}),
        ("image", {"id": "9", "voice": None}),
        ("text", {"body": "hi", "preview_url": False}),
        ("location", PLACE | {"name": "", "address": None}),
        ("contacts", [card() | {"addresses": [{}]}]),
        ("template", template({"type": "body", "parameters": [value("a"), value("b")]})),
        ("template", template({"type": "body", "parameters": [value("a", parameter_name="x")]})),
        ("template", template({"type": "BODY"})),
    ],
)
def test_optional_part_is_accepted(type: str, content: Any) -> None:
    check(type, content)


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([("a", "b", "c", "d")], "One of the rows is a title, (id, title) or (id, title, description)."),
        ([("Section", [("a", "b", "c", "d")])], "One of the rows is a title, (id, title) or (id, title, description)."),
        ([("Section", [7])], "One of the rows is a title, (id, title) or (id, title, description)."),
        ([{"title": "Section", "rows": [7]}], "One of the rows is a title, (id, title) or (id, title, description)."),
        (
            [("Section", ["a"]), "b"],
            "Either all items of a list are sections, each a pair of a title and rows, or none",
        ),
        ([("Section", ["a"]), 7], "Either all items of a list are sections, each a pair of a title and rows, or none"),
        ([("Section", ["a"]), ("b", "B")], "Either all items of a list are sections, each a pair of a title and rows"),
        ("rows", "The sections are a list or a mapping, not str."),
        (7, "The sections are a list or a mapping, not int."),
    ],
)
def test_malformed_rows_are_refused_with_their_form(rows: Any, sentence: str) -> None:
    with pytest.raises(TypeError, match=f"^{re.escape(sentence)}"):
        OutboundMessage.list("Choose", "Open", rows)


def test_malformed_buttons_are_refused_with_their_form() -> None:
    with pytest.raises(TypeError, match=re.escape("One of the buttons is a title, (id, title).")):
        OutboundMessage.buttons("Choose", [("a", "b", "c")])


def test_rows_of_three_make_a_section_of_a_title_with_a_description() -> None:
    made = OutboundMessage.list("Choose", "Open", [("Section", [("id", "Title", "More")])])
    assert made.content["action"]["sections"] == [
        {"title": "Section", "rows": [{"id": "id", "title": "Title", "description": "More"}]}
    ]


def test_message_up_to_the_storable_bytes_is_accepted_and_no_larger() -> None:
    def of(length: int) -> OutboundMessage:
        return OutboundMessage("interactive", {"type": "product", "action": {"note": "a" * length}})

    around = len(json.dumps(["interactive", {"type": "product", "action": {"note": ""}}, None]))
    of(MESSAGE_BYTES - around)
    with pytest.raises(ValueError, match=f"The message has {MESSAGE_BYTES + 1} bytes as JSON"):
        of(MESSAGE_BYTES - around + 1)


@pytest.mark.parametrize(("latitude", "longitude"), [(-90, -180), (90, 180), (-90.0, 180.0)])
def test_the_poles_and_the_date_line_are_places(latitude: float, longitude: float) -> None:
    content = OutboundMessage.location(latitude, longitude, name="There", address="At the end").content
    assert content == {"latitude": latitude, "longitude": longitude, "name": "There", "address": "At the end"}


def test_media_maker_sends_its_arguments() -> None:
    """Made here, and not while the tests are collected."""
    link, id = "https://example.com/a", "9"
    made = [
        OutboundMessage.image(link=link, caption="C"),
        OutboundMessage.image(id=id),
        OutboundMessage.video(link=link, caption="C"),
        OutboundMessage.video(id=id),
        OutboundMessage.audio(link=link),
        OutboundMessage.audio(id=id, voice=True),
        OutboundMessage.document(link=link, caption="C", filename="f.pdf"),
        OutboundMessage.document(id=id),
        OutboundMessage.sticker(link=link),
        OutboundMessage.sticker(id=id),
    ]
    assert [(message.type, message.content) for message in made] == [
        ("image", {"link": link, "caption": "C"}),
        ("image", {"id": id}),
        ("video", {"link": link, "caption": "C"}),
        ("video", {"id": id}),
        ("audio", {"link": link}),
        ("audio", {"id": id, "voice": True}),
        ("document", {"link": link, "caption": "C", "filename": "f.pdf"}),
        ("document", {"id": id}),
        ("sticker", {"link": link}),
        ("sticker", {"id": id}),
    ]


def test_a_footer_and_a_header_go_where_meta_reads_them() -> None:
    content = OutboundMessage.buttons("Choose", ["Yes"], header="Top", footer="End").content
    assert content["header"] == {"type": "text", "text": "Top"}
    assert content["footer"] == {"text": "End"}
    assert OutboundMessage.buttons("Choose", ["Yes"]).content.keys() == {"type", "body", "action"}


# ---- shapes that a maker accepts, made when the test runs


def test_largest_message_has_64_kibibytes() -> None:
    assert MESSAGE_BYTES == 65_536


ROWS = [{"id": "id", "title": "Title", "description": "More"}]


@pytest.mark.parametrize("given", ["a mapping", "tuples", "Meta's objects"])
def test_rows_without_sections_become_one_section_without_a_title(given: str) -> None:
    rows: Any = {
        "a mapping": {"id": "Title"},
        "tuples": [("id", "Title", "More")],
        "Meta's objects": ROWS,
    }[given]
    expected = [{"id": "id", "title": "Title"}] if given == "a mapping" else ROWS
    assert OutboundMessage.list("Choose", "Open", rows).content["action"]["sections"] == [{"rows": expected}]


@pytest.mark.parametrize("section", [None, "Section"], ids=["alone", "in a section"])
def test_row_with_four_parts_is_refused_with_the_forms_there_are(section: str | None) -> None:
    rows: Any = [("id", "Title", "More", "most")]
    with pytest.raises(TypeError, match=r"^One of the rows is a title, \(id, title\) or \(id, title, description\)\.$"):
        OutboundMessage.list("Choose", "Open", [{"title": section, "rows": rows}] if section else rows)


def test_row_of_a_mapping_with_four_parts_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^One of the rows is a title"):
        OutboundMessage.list("Choose", "Open", [{"title": "Section", "rows": [("id", "Title", "More", "most")]}])


def test_section_of_metas_form_keeps_its_title_and_gets_its_rows() -> None:
    made = OutboundMessage.list("Choose", "Open", [{"title": "Section", "rows": [("id", "Title", "More")]}])
    assert made.content["action"]["sections"] == [{"title": "Section", "rows": ROWS}]


def test_template_parameter_of_metas_form_is_sent_unchanged() -> None:
    currency = {"type": "currency", "currency": {"fallback_value": "EUR 5", "code": "EUR", "amount_1000": 5000}}
    made = OutboundMessage.template("receipt", "en", [currency])
    assert made.content["components"] == [{"type": "body", "parameters": [currency]}]


def test_part_that_is_not_a_mapping_is_refused_with_its_type() -> None:
    with pytest.raises(TypeError, match=r"^The language of the template is a mapping, not str\.$"):
        check("template", {"name": "reminder", "language": "en"})


def test_missing_list_is_refused_as_empty() -> None:
    with pytest.raises(ValueError, match=r"^There are no [a-z ]+; WhatsApp needs at least one\.$"):
        check("interactive", {"type": "button", "body": {"text": "Choose"}, "action": {}})


# ---- components of a template


def test_parameters_of_a_tap_target_are_checked() -> None:
    with pytest.raises(ValueError, match="line break"):
        check("template", template({"type": "tap_target_configuration", "parameters": [value("a\nb")]}))


def test_carousel_inside_a_card_is_left_to_meta() -> None:
    inner = carousel({"type": "body", "parameters": [value("a\nb")]})
    check("template", template(carousel(inner)))


@pytest.mark.parametrize("card", ["a card", 7, None, {"components": []}])
def test_card_without_components_is_left_to_meta(card: Any) -> None:
    check("template", template({"type": "carousel", "cards": [card]}))
