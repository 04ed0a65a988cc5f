"""What the checks of outbound messages look at, part by part: each says which part, and where it is."""

import re
from typing import Any

import pytest

from shared.domain.outbound_checks import check
from tests.unit.test_outbound_messages import a_list, buttons, card, cta_url, interactive, reply, row, template, value

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
        ("image", {"id": "9", "voice": True}, "The image is marked as voice; WhatsApp takes that of audio only."),
        ("audio", {"id": "9", "voice": 1}, "voice is true or false, not int."),
        ("location", PLACE | {"name": 9}, "The name of the location is a str, not int."),
        ("location", PLACE | {"address": 9}, "The address of the location is a str, not int."),
        ("contacts", [{"name": {"first_name": "Ana"}}], "The formatted_name of contact 1 is missing."),
        ("contacts", [card() | {"addresses": ["Lisbon"]}], "The addresses of contact 1 are a list of mappings."),
        ("contacts", [card() | {"phones": [{"wa_id": "1", "phone": 9}]}], "Phone 1 of contact 1 is a str, not int."),
        ("interactive", sections(), "There are no sections; WhatsApp wants one at least."),
        ("interactive", sections({"rows": []}), "There are no rows in section 1; WhatsApp wants one at least."),
        ("interactive", sections({"title": "A", "rows": [row(n) for n in range(11)]}), "There are 11 rows; WhatsApp"),
        ("interactive", a_list(row(1), row(2, id="")), "The id of row 2 is empty."),
        ("interactive", a_list(row(1, title="")), "The title of row 1 is empty."),
        ("interactive", a_list(row(1, description=9)), "The description of row 1 is a str, not int."),
        ("interactive", buttons(reply("a", "A"), reply("b", "")), "The title of button 2 is empty."),
        (
            "interactive",
            interactive("cta_url", cta_url()["action"] | {"name": "open_url"}),
            "The name of the action is none of cta_url.",
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
def test_a_part_that_may_be_there_is_taken(type: str, content: Any) -> None:
    check(type, content)
