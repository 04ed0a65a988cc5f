"""Outbound messages: what each maker makes, where each limit is, and that WhatsApp's simulator draws the same lines."""

import json
import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import pytest

from local.whatsapp.errors import GraphError
from local.whatsapp.messages import ReadCall, parse_call
from local.whatsapp.messages import SentMessage as SimulatedMessage
from shared.channels.meta.requests import request_body
from shared.domain.identity import Echo
from shared.domain.outbound.checks import _CHECKS, KEYS
from shared.domain.outbound.limits import LIMITS, MESSAGE_BYTES
from shared.domain.outbound.messages import OutboundMessage, from_json
from shared.domain.outbound.types import TYPES

ECHO = Echo("0123456789abcdef0123456789abcdef01234567", 0, "corr_0001")
LINK = "https://example.com/a.png"
NAN, INFINITY = float("nan"), float("inf")
make = OutboundMessage


def interactive(kind: str, action: Any, **more: Any) -> dict[str, Any]:
    return {"type": kind, "body": {"text": "Choose"}, "action": action, **more}


def reply(id: str, title: str) -> dict[str, Any]:
    return {"type": "reply", "reply": {"id": id, "title": title}}


def buttons(*replies: Any, **more: Any) -> dict[str, Any]:
    return interactive("button", {"buttons": list(replies) or [reply("y", "Yes")]}, **more)


def a_list(*rows: Any, button: str = "Open", title: str | None = None, **more: Any) -> dict[str, Any]:
    section = {"rows": list(rows) or [row()]} | ({"title": title} if title else {})
    return interactive("list", {"button": button, "sections": [section]}, **more)


def row(place: int = 0, **fields: Any) -> dict[str, Any]:
    return {"id": f"r{place}", "title": f"Row {place}"} | fields


def cta_url(display_text: Any = "Open", url: Any = LINK, **more: Any) -> dict[str, Any]:
    return interactive("cta_url", {"name": "cta_url", "parameters": {"display_text": display_text, "url": url}}, **more)


def template(*components: Any, name: str = "reminder") -> dict[str, Any]:
    return {"name": name, "language": {"code": "pt_BR"}} | ({"components": list(components)} if components else {})


def card(**name: str) -> dict[str, Any]:
    return {"name": {"formatted_name": "Ana Lima", "first_name": "Ana"} | name}


def carousel(*components: dict[str, Any]) -> dict[str, Any]:
    """A carousel with one card for each component."""
    cards = [{"card_index": place, "components": [one]} for place, one in enumerate(components)]
    return {"type": "carousel", "cards": cards}


def value(text: str, **more: str) -> dict[str, str]:
    return {"type": "text", "text": text, **more}


TWO = [reply("Yes", "Yes"), reply("No", "No")]
YES_NO = [reply("y", "Yes"), reply("n", "No")]
TODAY = {"title": "Today", "rows": [{"id": "9", "title": "9:00"}]}
LATER = {"title": "Later", "rows": [{"id": "10:00", "title": "10:00"}]}

# ---- what each maker makes

MADE: Mapping[str, tuple[OutboundMessage, str, Any]] = {
    "a text": (make.text("hi"), "text", {"body": "hi"}),
    "a text with a preview": (make.text("hi", preview_url=True), "text", {"body": "hi", "preview_url": True}),
    "an image by link": (make.image(LINK), "image", {"link": LINK}),
    "an image by id": (make.image(id="9", caption="c"), "image", {"id": "9", "caption": "c"}),
    "a video": (make.video(link=LINK, caption="c"), "video", {"link": LINK, "caption": "c"}),
    "an audio": (make.audio(LINK), "audio", {"link": LINK}),
    "a voice note": (make.audio(id="9", voice=True), "audio", {"id": "9", "voice": True}),
    "a document": (
        make.document(LINK, caption="c", filename="a.pdf"),
        "document",
        {"link": LINK, "caption": "c", "filename": "a.pdf"},
    ),
    "a sticker": (make.sticker(id="9"), "sticker", {"id": "9"}),
    "a place": (make.location(-23.5, -46), "location", {"latitude": -23.5, "longitude": -46}),
    "a place with a name": (
        make.location(0, 180, name="Clinic", address="Rua 1"),
        "location",
        {"latitude": 0, "longitude": 180, "name": "Clinic", "address": "Rua 1"},
    ),
    "a contact": (
        make.contacts({"Ana": "+15550002222"}),
        "contacts",
        [{"name": {"formatted_name": "Ana", "first_name": "Ana"}, "phones": [{"phone": "+15550002222"}]}],
    ),
    "contacts as Meta has them": (make.contacts([card(), card()]), "contacts", [card(), card()]),
    "buttons by title": (make.buttons("Choose", ["Yes", "No"]), "interactive", buttons(*TWO)),
    "buttons by mapping": (make.buttons("Choose", {"y": "Yes", "n": "No"}), "interactive", buttons(*YES_NO)),
    "buttons by pairs": (make.buttons("Choose", [("y", "Yes"), ("n", "No")]), "interactive", buttons(*YES_NO)),
    "buttons as Meta has them": (
        make.buttons("Choose", ({"id": "y", "title": "Yes"}, ["n", "No"])),
        "interactive",
        buttons(*YES_NO),
    ),
    "buttons between texts": (
        make.buttons("Choose", ["Yes", "No"], header="H", footer="F"),
        "interactive",
        buttons(*TWO, header={"type": "text", "text": "H"}, footer={"text": "F"}),
    ),
    "buttons below an image": (
        make.buttons("Choose", ["Yes", "No"], header={"type": "image", "image": {"link": LINK}}),
        "interactive",
        buttons(*TWO, header={"type": "image", "image": {"link": LINK}}),
    ),
    "a list of titles": (
        make.list("Choose", "Open", ["A", "B"]),
        "interactive",
        a_list({"id": "A", "title": "A"}, {"id": "B", "title": "B"}),
    ),
    "a list of pairs and triples": (
        make.list("Choose", "Open", [("a", "A"), ("b", "B", "the second")], header="H", footer="F"),
        "interactive",
        a_list(
            {"id": "a", "title": "A"},
            {"id": "b", "title": "B", "description": "the second"},
            header={"type": "text", "text": "H"},
            footer={"text": "F"},
        ),
    ),
    "a list by mapping": (
        make.list("Choose", "Open", {"a": "A", "b": "B"}),
        "interactive",
        a_list({"id": "a", "title": "A"}, {"id": "b", "title": "B"}),
    ),
    "sections by mapping": (
        make.list("Choose", "Open", {"Today": {"9": "9:00"}, "Later": ["10:00"]}),
        "interactive",
        interactive("list", {"button": "Open", "sections": [TODAY, LATER]}),
    ),
    "sections by pairs, and as Meta has them": (
        make.list("Choose", "Open", [("Today", [("9", "9:00")]), LATER]),
        "interactive",
        interactive("list", {"button": "Open", "sections": [TODAY, LATER]}),
    ),
    "a link": (make.cta_url("Choose", "Open", LINK), "interactive", cta_url()),
    "a link between texts": (
        make.cta_url("Choose", "Open", LINK, header="H", footer="F"),
        "interactive",
        cta_url(header={"type": "text", "text": "H"}, footer={"text": "F"}),
    ),
    "a template": (make.template("reminder", "pt_BR"), "template", template()),
    "a template with no values": (make.template("reminder", "pt_BR", []), "template", template()),
    "a template with values in order": (
        make.template("reminder", "pt_BR", ["Ana", 9.5]),
        "template",
        template({"type": "body", "parameters": [value("Ana"), value("9.5")]}),
    ),
    "a template with named values": (
        make.template("reminder", "pt_BR", {"who": "Ana", "when": value("9:30")}),
        "template",
        template(
            {"type": "body", "parameters": [value("Ana", parameter_name="who"), value("9:30", parameter_name="when")]}
        ),
    ),
    "a template with components": (
        make.template("reminder", "pt_BR", components=[{"type": "HEADER", "parameters": [value("x")]}]),
        "template",
        template({"type": "HEADER", "parameters": [value("x")]}),
    ),
    "a reaction": (make.reaction("wamid.A", "👍🏽"), "reaction", {"message_id": "wamid.A", "emoji": "👍🏽"}),
    "a reaction of a family": (
        make.reaction("wamid.A", "👨‍👩‍👧‍👦"),
        "reaction",
        {"message_id": "wamid.A", "emoji": "👨‍👩‍👧‍👦"},
    ),
    "a reaction taken back": (make.reaction("wamid.A", ""), "reaction", {"message_id": "wamid.A", "emoji": ""}),
    "read": (make.read("wamid.A"), "read", {"message_id": "wamid.A"}),
    "typing": (make.typing("wamid.A"), "typing", {"message_id": "wamid.A"}),
}
CALLS = ("read", "typing")


@pytest.mark.parametrize(("message", "type", "content"), MADE.values(), ids=MADE)
def test_a_maker_makes_metas_object(message: OutboundMessage, type: str, content: Any) -> None:
    assert (message.type, message.content, message.reply_to) == (type, content, None)


@pytest.mark.parametrize("message", [message for message, _, _ in MADE.values()], ids=MADE)
def test_made_message_survives_json(message: OutboundMessage) -> None:
    wire = json.loads(json.dumps({"type": message.type, "content": message.content}))
    assert from_json(wire) == message


def test_every_type_has_a_maker() -> None:
    assert {type for _, type, _ in MADE.values()} == TYPES


def test_every_type_has_a_check() -> None:
    assert _CHECKS.keys() == TYPES


def simulate(type: str, content: Any, reply_to: str | None = None) -> SimulatedMessage | ReadCall:
    """What the simulator makes of it: the request is written as it is for Meta."""
    payload = {"type": type, "content": content, "reply_to": reply_to, "to": "+15550002222"}
    return parse_call(json.loads(request_body(payload, ECHO)))


@pytest.mark.parametrize(("message", "type", "content"), MADE.values(), ids=MADE)
def test_simulator_accepts_each_made_message_unchanged(message: OutboundMessage, type: str, content: Any) -> None:
    taken = simulate(message.type, message.content)
    if type in CALLS:
        assert taken == ReadCall(type)
    else:
        assert isinstance(taken, SimulatedMessage)
        assert (taken.type, taken.body, taken.echo) == (type, content, str(ECHO))


QUOTING = {
    "text": make.text("hi", reply_to="wamid.A"),
    "image": make.image(LINK, reply_to="wamid.A"),
    "video": make.video(LINK, reply_to="wamid.A"),
    "audio": make.audio(LINK, reply_to="wamid.A"),
    "document": make.document(LINK, reply_to="wamid.A"),
    "sticker": make.sticker(LINK, reply_to="wamid.A"),
    "location": make.location(1, 2, reply_to="wamid.A"),
    "contacts": make.contacts({"Ana": "1"}, reply_to="wamid.A"),
    "buttons": make.buttons("Choose", ["Yes"], reply_to="wamid.A"),
    "list": make.list("Choose", "Open", ["A"], reply_to="wamid.A"),
    "cta_url": make.cta_url("Choose", "Open", LINK, reply_to="wamid.A"),
    "template": make.template("reminder", "pt_BR", reply_to="wamid.A"),
}


@pytest.mark.parametrize("message", QUOTING.values(), ids=QUOTING)
def test_message_can_quote_another(message: OutboundMessage) -> None:
    assert message.reply_to == "wamid.A"
    request = json.loads(
        request_body({"type": message.type, "content": message.content, "reply_to": "wamid.A", "to": "+1555"}, ECHO)
    )
    assert request["context"] == {"message_id": "wamid.A"}


@pytest.mark.parametrize("type", ["reaction", "read", "typing"])
def test_type_that_names_a_message_takes_no_reply_to(type: str) -> None:
    content = {"message_id": "wamid.A", "emoji": "👍"}
    with pytest.raises(ValueError, match=f"type {type} takes no reply_to"):
        OutboundMessage(type, content, "wamid.B")
    assert OutboundMessage(type, content, None).reply_to is None


# ---- where each limit is

AT: Mapping[str, Callable[[int], tuple[str, Any]]] = {
    "text": lambda n: ("text", {"body": "🕊" * n}),
    "caption": lambda n: ("image", {"id": "9", "caption": "ã" * n}),
    "contacts": lambda n: ("contacts", [card()] * n),
    "buttons": lambda n: ("interactive", buttons(*[reply(f"b{i}", f"B {i}") for i in range(n)])),
    "button_id": lambda n: ("interactive", buttons(reply("i" * n, "Yes"))),
    "button_title": lambda n: ("interactive", buttons(reply("y", "ã" * n))),
    "button_body": lambda n: ("interactive", buttons(body={"text": "ã" * n})),
    "list_button": lambda n: ("interactive", a_list(button="ã" * n)),
    "list_body": lambda n: ("interactive", a_list(body={"text": "ã" * n})),
    "sections": lambda n: (
        "interactive",
        interactive("list", {"button": "Open", "sections": [{"title": f"S {i}", "rows": [row(i)]} for i in range(n)]}),
    ),
    "section_title": lambda n: ("interactive", a_list(title="ã" * n)),
    "rows": lambda n: ("interactive", a_list(*[row(i) for i in range(n)])),
    "row_id": lambda n: ("interactive", a_list(row(id="i" * n))),
    "row_title": lambda n: ("interactive", a_list(row(title="ã" * n))),
    "row_description": lambda n: ("interactive", a_list(row(description="ã" * n))),
    "link_title": lambda n: ("interactive", cta_url("ã" * n)),
    "header": lambda n: ("interactive", a_list(header={"type": "text", "text": "ã" * n})),
    "footer": lambda n: ("interactive", cta_url(footer={"text": "ã" * n})),
    "template_name": lambda n: ("template", template(name="n" * n)),
}


OPTIONAL = {"caption", "row_description", "section_title"}
TEXTS = {name for name in AT if "characters" in LIMITS[name].of} - OPTIONAL


def test_every_limit_is_tested() -> None:
    assert AT.keys() == LIMITS.keys()


@pytest.mark.parametrize("limit", AT)
def test_content_up_to_a_limit_is_accepted_by_pombo_and_simulator(limit: str) -> None:
    for many in (1, LIMITS[limit].most):
        type, content = AT[limit](many)
        OutboundMessage(type, content)
        simulate(type, content)


@pytest.mark.parametrize("limit", AT)
def test_first_value_beyond_a_limit_is_refused_by_pombo_and_simulator(limit: str) -> None:
    most = LIMITS[limit].most
    type, content = AT[limit](most + 1)
    with pytest.raises(ValueError, match=rf"\b{most + 1} .*; WhatsApp takes {most}\.$"):
        OutboundMessage(type, content)
    with pytest.raises(ValueError, match=rf"\b{most + 1} .*; WhatsApp takes {most}\.$"):
        from_json({"type": type, "content": content})
    with pytest.raises(GraphError) as refused:
        simulate(type, content)
    assert refused.value.code == 131009


@pytest.mark.parametrize("limit", sorted(TEXTS))
def test_empty_required_text_is_refused_by_pombo_and_simulator(limit: str) -> None:
    type, content = AT[limit](0)
    with pytest.raises((TypeError, ValueError), match=r" is empty\.$"):
        OutboundMessage(type, content)
    with pytest.raises(GraphError):
        simulate(type, content)


@pytest.mark.parametrize("limit", sorted(OPTIONAL))
def test_empty_optional_text_is_accepted(limit: str) -> None:
    type, content = AT[limit](0)
    OutboundMessage(type, content)
    simulate(type, content)


# ---- what else WhatsApp does not take

REFUSED: Mapping[str, tuple[str, Any, str]] = {
    "a type in capitals": ("Text", {"body": "hi"}, "The type of the message is a misspelling of text."),
    "a type that lacks a letter": ("txt", {"body": "hi"}, "The type of the message is a misspelling of text."),
    "a type with a letter too many": ("images", {"id": "9"}, "The type of the message is a misspelling of image."),
    "a type with another letter": ("documant", {"id": "9"}, "The type of the message is a misspelling of document."),
    "a type with swapped letters": ("vidoe", {"id": "9"}, "The type of the message is a misspelling of video."),
    "a type between blanks": (" text\n", {"body": "hi"}, "The type of the message is a misspelling of text."),
    "no type": ("", {}, "The type of the message is empty."),
    "a type of two words": ("big news", {}, "The type of the message must begin with a lower-case letter"),
    "a type that would change the address": ("to", {}, "The type of the message is the name of another field"),
    "a text without a body": ("text", {}, "The text of a message is missing."),
    "a misspelt key of a text": ("text", {"boddy": "hi"}, "The content of type text has a key that WhatsApp does not"),
    "a misspelt key beside a body": (
        "text",
        {"body": "hi", "previw_url": True},
        "The content of type text has a key that WhatsApp does not take; it takes body, preview_url.",
    ),
    "a misspelt key of an image": ("image", {"id": "9", "captoin": "c"}, "The content of type image has a key that"),
    "a misspelt key of a sound": ("audio", {"id": "9", "Voice": True}, "The content of type audio has a key that"),
    "a misspelt key of a place": (
        "location",
        {"latitude": 1, "longitude": 2, "adress": "Rua 1"},
        "The content of type location has a key that WhatsApp does not take; it takes address, latitude, longitude,",
    ),
    "a misspelt key of a reaction": (
        "reaction",
        {"message_id": "wamid.A", "emojy": "👍"},
        "The content of type reaction has a key that WhatsApp does not take; it takes emoji, message_id.",
    ),
    "an image that is a voice note": ("image", {"id": "9", "voice": True}, "The image is marked as voice; WhatsApp"),
    "a sticker that is no voice note": ("sticker", {"id": "9", "voice": False}, "The sticker is marked as voice"),
    "a preview that is a word": ("text", {"body": "hi", "preview_url": "yes"}, "preview_url is true or false, not str"),
    "an image from nowhere": ("image", {}, "The image has neither a link nor an id; WhatsApp takes exactly one"),
    "an image from two places": ("image", {"id": "9", "link": LINK}, "The image has both a link and an id"),
    "a link to a file": ("video", {"link": "file:///a.mp4"}, "The video's link is not an http or https address."),
    "a link to no host": ("video", {"link": "https:///a.mp4"}, "The video's link is not an http or https address."),
    "a link with a space": ("video", {"link": "https://example.com/a b"}, "The video's link is not an http or https"),
    "an id that is a number": ("image", {"id": 9}, "The image's id is a str, not int."),
    "a caption on a sticker": ("sticker", {"id": "9", "caption": "c"}, "The sticker has a caption; WhatsApp takes one"),
    "a caption on audio": ("audio", {"id": "9", "caption": "c"}, "The audio has a caption; WhatsApp takes one with"),
    "a filename on an image": ("image", {"id": "9", "filename": "a"}, "The image has a filename; WhatsApp takes one"),
    "a voice that is a word": ("audio", {"id": "9", "voice": "yes"}, "voice is true or false, not str."),
    "a place beyond the pole": (
        "location",
        {"latitude": 90.1, "longitude": 0},
        "The latitude is not a number from -90",
    ),
    "a place around the world": (
        "location",
        {"latitude": 0, "longitude": -181},
        "The longitude is not a number from -180",
    ),
    "a place nowhere": ("location", {"latitude": "here", "longitude": 0}, "The latitude is not a decimal number."),
    "a place beyond, in a string": (
        "location",
        {"latitude": "90.01", "longitude": "0"},
        "The latitude is not a number from -90",
    ),
    "a place in a fraction": ("location", {"latitude": "1/2", "longitude": 0}, "The latitude is not a decimal number."),
    "a place in Python's digits": (
        "location",
        {"latitude": "1_0", "longitude": 0},
        "The latitude is not a decimal number.",
    ),
    "a place between blanks": (
        "location",
        {"latitude": 0, "longitude": " 1 "},
        "The longitude is not a decimal number.",
    ),
    "a place in other digits": ("location", {"latitude": "١", "longitude": 0}, "The latitude is not a decimal number."),
    "a place far beyond": ("location", {"latitude": 10**400, "longitude": 0}, "The latitude is not a number from -90"),
    "a place by flag": ("location", {"latitude": True, "longitude": 0}, "The latitude is a number, not bool."),
    "a place without longitude": ("location", {"latitude": 0}, "The longitude is a number, not NoneType."),
    "no cards": ("contacts", [], "There are no contacts; WhatsApp needs at least one."),
    "cards that are words": ("contacts", ["Ana"], "The contacts are a list of mappings."),
    "a card without a name": ("contacts", [{}], "The name of contact 1 is missing."),
    "a card with half a name": (
        "contacts",
        [card(), {"name": {"formatted_name": "Ana"}}],
        "The name of contact 2 has only a formatted_name; WhatsApp needs one more part",
    ),
    "a card with a blank name": ("contacts", [card(last_name=" ")], "The last_name of contact 1 is empty."),
    "an empty phone": ("contacts", [card() | {"phones": [{"phone": ""}]}], "Phone 1 of contact 1 is empty."),
    "a phone of None": (
        "contacts",
        [card() | {"phones": [{"phone": None}]}],
        "Phone 1 of contact 1 is a str, not None",
    ),
    "no phone": (
        "contacts",
        [card(), card() | {"phones": [{"phone": "1"}, {"type": "HOME"}]}],
        "Phone 2 of contact 2 is missing.",
    ),
    "an empty wa_id": (
        "contacts",
        [card() | {"phones": [{"wa_id": ""}]}],
        "The wa_id of phone 1 of contact 1 is empty",
    ),
    "an empty email": ("contacts", [card() | {"emails": [{"email": ""}]}], "Email 1 of contact 1 is empty."),
    "no url": ("contacts", [card() | {"urls": [{"type": "HOME"}]}], "Url 1 of contact 1 is missing."),
    "a card with no phones": ("contacts", [card() | {"phones": []}], "There are no phones of contact 1"),
    "no buttons": (
        "interactive",
        interactive("button", {"buttons": []}),
        "There are no buttons; WhatsApp needs at least one",
    ),
    "buttons without a body": (
        "interactive",
        {k: v for k, v in buttons().items() if k != "body"},
        "The body is missing.",
    ),
    "buttons with one id": (
        "interactive",
        buttons(reply("y", "Yes"), reply("y", "No")),
        "Buttons 1 and 2 have the same id",
    ),
    "buttons with one title": (
        "interactive",
        buttons(reply("a", "Yes"), reply("b", "No"), reply("c", "Yes")),
        "Buttons 1 and 3 have the same title",
    ),
    "a button of a misspelt type": (
        "interactive",
        buttons({"type": "REPLY", "reply": {"id": "y", "title": "Yes"}}),
        "The type of button 1 is a misspelling of reply.",
    ),
    "a header of a misspelt type": (
        "interactive",
        buttons(header={"type": "Text", "text": "H"}),
        "The type of the header is a misspelling of text.",
    ),
    "rows with one id": ("interactive", a_list(row(1), row(2, id="r1")), "Rows 1 and 2 have the same id"),
    "two sections, one without a title": (
        "interactive",
        interactive("list", {"button": "Open", "sections": [{"rows": [row(1)]}, {"title": "B", "rows": [row(2)]}]}),
        "The title of section 1 is missing.",
    ),
    "a section without rows": (
        "interactive",
        interactive("list", {"button": "Open", "sections": [{"rows": []}]}),
        "There are no rows in section 1",
    ),
    "an image above a list": (
        "interactive",
        a_list(header={"type": "image", "image": {"id": "9"}}),
        "The type of the header is not one of text.",
    ),
    "an image from nowhere above buttons": (
        "interactive",
        buttons(header={"type": "image", "image": {}}),
        "The header's image has neither a link nor an id",
    ),
    "a link to another program": (
        "interactive",
        cta_url(url="tel:15550002222"),
        "The button's link is not an http or https",
    ),
    "a link to nothing": (
        "interactive",
        interactive("cta_url", {"name": "cta_url"}),
        "The parameters of the action is missing",
    ),
    "a misspelt interactive": (
        "interactive",
        interactive("buttons", {}),
        "The type of the interactive message is a misspelling of button.",
    ),
    "an interactive with a hyphen": (
        "interactive",
        interactive("cta-url", {}),
        "The type of the interactive message is a misspelling of cta_url.",
    ),
    "an interactive in words": (
        "interactive",
        interactive("Location request-message", {}),
        "The type of the interactive message is a misspelling of location_request_message.",
    ),
    "an interactive without a type": ("interactive", {"action": {}}, "The type of the interactive message is missing."),
    "interactive without an action": (
        "interactive",
        {"type": "flow"},
        "The action of the interactive message is missing",
    ),
    "a template without a language": ("template", {"name": "a"}, "The language of the template is missing."),
    "a template with a part without a type": (
        "template",
        template({"parameters": []}),
        "The type of component 1 of the template is missing.",
    ),
    "a template with capitals in its name": (
        "template",
        template(name="Reminder"),
        "The name of the template has other characters than lower-case letters, digits and _.",
    ),
    "a template with a hyphen in its name": ("template", template(name="a-b"), "The name of the template has other"),
    "a template with a blank in its name": ("template", template(name="a b"), "The name of the template has other"),
    "a template with an accent in its name": ("template", template(name="olá"), "The name of the template has other"),
    "a template in a code with a hyphen": (
        "template",
        {"name": "reminder", "language": {"code": "pt-BR"}},
        "The language code of the template is not like en, en_US or fil.",
    ),
    "a template in a language's name": (
        "template",
        {"name": "reminder", "language": {"code": "english"}},
        "The language code of the template is not like",
    ),
    "a template in a code in small letters": (
        "template",
        {"name": "reminder", "language": {"code": "en_us"}},
        "The language code of the template is not like",
    ),
    "a template in a code in capitals": (
        "template",
        {"name": "reminder", "language": {"code": "EN"}},
        "The language code of the template is not like",
    ),
    "a template with a line break in a value": (
        "template",
        template({"type": "body", "parameters": [value("fine"), value("a\nb")]}),
        "The text of parameter 2 of component 1 of the template has a line break, a tab or more than four blanks",
    ),
    "a template with a carriage return in a value": (
        "template",
        template({"type": "body", "parameters": [value("a\rb", parameter_name="day")]}),
        "The text of parameter 1 of component 1 of the template has a line break",
    ),
    "a template with a tab in its header": (
        "template",
        template({"type": "HEADER", "parameters": [{"type": "TEXT", "text": "a\tb"}]}),
        "The text of parameter 1 of component 1 of the template has a line break",
    ),
    "a template with five blanks in a value": (
        "template",
        template({"type": "body", "parameters": [value("a     b")]}),
        "The text of parameter 1 of component 1 of the template has a line break",
    ),
    "a template with a line break in a card": (
        "template",
        template(
            carousel({"type": "BODY", "parameters": [value("a")]}, {"type": "BODY", "parameters": [value("\na")]})
        ),
        "The text of parameter 1 of component 1 of card 2 of component 1 of the template has a line break",
    ),
    "a template with values of both sorts": (
        "template",
        template({"type": "body", "parameters": [value("a"), value("b", parameter_name="day")]}),
        "Some parameters of component 1 of the template have names and some have not",
    ),
    "a template with an empty value": (
        "template",
        template({"type": "body", "parameters": [value("a"), value("")]}),
        "The text of parameter 2 of component 1 of the template is empty.",
    ),
    "a template with a number for a text": (
        "template",
        template({"type": "body", "parameters": [{"type": "text", "text": 9}]}),
        "The text of parameter 1 of component 1 of the template is a str, not int.",
    ),
    "a template with an empty name of a value": (
        "template",
        template({"type": "body", "parameters": [value("a", parameter_name="")]}),
        "The parameter_name of parameter 1 of component 1 of the template is empty.",
    ),
    "a template with a button without a payload": (
        "template",
        template({"type": "button", "parameters": [{"type": "payload"}]}),
        "The payload of parameter 1 of component 1 of the template is missing.",
    ),
    "a reaction of words": ("reaction", {"message_id": "wamid.A", "emoji": "ok"}, "The emoji of a reaction is not one"),
    "a reaction with a long id": (
        "reaction",
        {"message_id": "w" * 1025, "emoji": "👍"},
        "The message_id of a reaction has 1025 characters; 1024 are taken.",
    ),
    "a reaction with a blank id": (
        "reaction",
        {"message_id": " ", "emoji": "👍"},
        "The message_id of a reaction is empty",
    ),
    "a NUL in a text": ("text", {"body": "a\0b"}, "The message holds a NUL (U+0000); no text may have one."),
    "a NUL behind a backslash": ("text", {"body": "a\\\0b"}, "The message holds a NUL (U+0000)"),
    "a NUL where nothing is checked": (
        "poll",
        {"more": [{"deep": ["\0"]}]},
        "The message holds a NUL (U+0",
    ),
    "a NUL in a key": ("poll", {"mo\0re": 1}, "The message holds a NUL (U+0000)"),
    "a reaction of nothing": (
        "reaction",
        {"message_id": "wamid.A"},
        "The emoji of a reaction is a str, empty to take it",
    ),
    "a reaction to nothing": ("reaction", {"emoji": "👍"}, "The message_id of a reaction is missing."),
}


@pytest.mark.parametrize(("type", "content", "sentence"), REFUSED.values(), ids=REFUSED)
def test_invalid_content_is_refused_by_pombo_and_simulator(type: str, content: Any, sentence: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(sentence)) as raised:
        OutboundMessage(type, content)
    assert str(raised.value).endswith(".")
    with pytest.raises(ValueError, match=re.escape(sentence)):
        from_json({"type": type, "content": content})
    with pytest.raises(GraphError):
        simulate(type, content)


EMOJI = [
    "👍", "👍🏽", "❤️", "❤", "❤︎", "☝🏿", "☺️", "🫡", "🫨", "👨‍👩‍👧‍👦", "👩🏽‍🤝‍👨🏿",
    "🏳️‍🌈", "🏴‍☠️", "❤️‍🔥", "🧑🏾‍💻", "🕵️‍♀️", "🇵🇹", "🇧🇷", "🏴󠁧󠁢󠁳󠁣󠁴󠁿", "1️⃣", "#️⃣", "*⃣",
    "‼️", "⁉️", "™️", "©️", "ℹ️", "Ⓜ️", "㊗️", "〰️", "↔️", "⤴️", "⬅️",
    "▶️", "◾", "⭐", "🀄", "🃏", "🅰️", "🆎", "🈁", "🏽",
]  # fmt: skip
NO_EMOJI = [
    "👍👍",
    "❤️👍",
    "🇵🇹🇧🇷",
    "🇵",
    "1️⃣2️⃣",
    "👍 ",
    " ",
    "👍\u200d",
    "\u200d",
    "\ufe0f",
    "1",
    "a",
    "é",
    "!",
    "👍!",
    "👍🏽a",
    "1️⃣1",
]


@pytest.mark.parametrize("emoji", EMOJI)
def test_reaction_of_one_emoji_is_accepted_by_pombo_and_simulator(emoji: str) -> None:
    message = make.reaction("wamid.A", emoji)
    simulate(message.type, message.content)


@pytest.mark.parametrize("emoji", [*NO_EMOJI, *[one + other for one, other in pairwise(EMOJI) if other != "🏽"]])
def test_reaction_that_is_not_one_emoji_is_refused_by_pombo_and_simulator(emoji: str) -> None:
    with pytest.raises(ValueError, match=r"^The emoji of a reaction is not one emoji; WhatsApp takes one, or none"):
        make.reaction("wamid.A", emoji)
    with pytest.raises(GraphError):
        simulate("reaction", {"message_id": "wamid.A", "emoji": emoji})


@pytest.mark.parametrize(
    "link",
    ["HTTPS://EXAMPLE.COM/a", "Http://example.com", "https://example.com:443/a", "https://example.com:/a",
     "http://example.com:1", "https://example.com:65535", "https://[2001:db8::1]:8443/a", "https://a:b@example.com/a:b"],
)  # fmt: skip
def test_link_is_accepted_by_pombo_and_simulator(link: str) -> None:
    message = make.image(link)
    assert message.content == {"link": link}
    simulate(message.type, message.content)
    simulate("interactive", make.cta_url("Choose", "Open", link).content)


@pytest.mark.parametrize(
    "link",
    ["https://example.com:65536", "https://example.com:0", "https://example.com:x/", "https://example.com:-1",
     "https://example.com:١", "https://example.com:99999999", "https://[::1]:70000", "HTTPS:///a", "ftp://example.com",
     "https:example.com", "https://example.com/a\u3000b", "https://example.com/\0"],
)  # fmt: skip
def test_invalid_link_is_refused_by_pombo_and_simulator(link: str) -> None:
    for type, content in (("image", {"link": link}), ("interactive", cta_url(url=link))):
        with pytest.raises(ValueError, match=r"link is not an http or https address\.$"):
            OutboundMessage(type, content)
        with pytest.raises(GraphError):
            simulate(type, content)


@pytest.mark.parametrize(
    ("reply_to", "sentence"),
    [
        ("", "The id in reply_to is empty."),
        (" \n", "The id in reply_to is empty."),
        ("w" * 1025, "The id in reply_to has 1025 characters; 1024 are taken."),
        ("w\0", "The message holds a NUL (U+0000); no text may have one."),
    ],
)
def test_invalid_reply_to_is_refused_by_pombo_and_simulator(reply_to: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        make.text("hi", reply_to=reply_to)
    with pytest.raises(ValueError, match=re.escape(sentence)):
        from_json({"type": "text", "content": {"body": "hi"}, "reply_to": reply_to})
    if reply_to:  # an empty one never leaves
        with pytest.raises(GraphError):
            simulate("text", {"body": "hi"}, reply_to)


def test_longest_id_is_accepted_by_pombo_and_simulator() -> None:
    assert simulate("text", make.text("hi", reply_to="w" * 1024).content, "w" * 1024)
    assert simulate("reaction", make.reaction("w" * 1024, "👍").content)


@pytest.mark.parametrize("text", ["a\nb\tc\r\n", "👨‍👩‍👧‍👦", "\\u0000", "\\\\u0000", "\u200e\u2066ok\u2069", "\x01"])
def test_no_other_character_is_mistaken_for_nul(text: str) -> None:
    message = make.text(text)
    assert message.content == {"body": text}
    simulate(message.type, message.content)


def test_phone_can_be_a_wa_id_alone() -> None:
    cards = [card() | {"phones": [{"wa_id": "15550002222"}, {"phone": "+1 555", "wa_id": "1555"}], "addresses": [{}]}]
    simulate("contacts", make.contacts(cards).content)


@pytest.mark.parametrize("content", [{}, {"message_id": ""}, {"message_id": 7}, {"message_id": "w" * 1025}])
@pytest.mark.parametrize("type", CALLS)
def test_a_call_names_its_message(type: str, content: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"The message_id of the message that was read (is|has 1025)"):
        OutboundMessage(type, content)


TAKEN: Mapping[str, tuple[str, Any]] = {
    "a request for a place": ("interactive", interactive("location_request_message", {"name": "send_location"})),
    "a request for a number": ("interactive", interactive("request_contact_info", {"name": "request_contact_info"})),
    "a template with a target": (
        "template",
        template(
            {
                "type": "tap_target_configuration",
                "parameters": [
                    {
                        "type": "tap_target_configuration",
                        "tap_target_configuration": [{"url": "https://example.com", "title": "Offer"}],
                    }
                ],
            }
        ),
    ),
    "a template with a value of an unknown type": (
        "template",
        template({"type": "body", "parameters": [{"type": "gif", "gif": {"text": "a\nb"}}]}),
    ),
    "a template with cards": ("template", template(carousel({"type": "BODY", "parameters": [value("a")]}))),
    "a template with four blanks": ("template", template({"type": "body", "parameters": [value("    a    b    ")]})),
    "a template with a payload of two lines": (
        "template",
        template({"type": "button", "sub_type": "quick_reply", "parameters": [{"type": "payload", "payload": "a\nb"}]}),
    ),
    "a place in strings": (
        "location",
        {"latitude": "37.44216", "longitude": "-122.16153", "name": "Cafe", "address": "1 Example Street"},
    ),
    "a place at the end of the world, in strings": ("location", {"latitude": "-90", "longitude": "180.000"}),
    "an image by another's credentials": ("image", {"link": LINK, "provider": {"name": "ours"}}),
    "keys without a value": ("text", {"body": "hi", "preview_url": None, "caption": None}),
}


@pytest.mark.parametrize(("type", "content"), TAKEN.values(), ids=TAKEN)
def test_content_without_a_maker_is_sent_unchanged(type: str, content: Any) -> None:
    assert from_json({"type": type, "content": content}).content == content
    assert simulate(type, content).body == content  # type: ignore[union-attr] # none of them is a call


UNKNOWN: Mapping[str, tuple[str, Any]] = {
    "a type": ("pin", {"message_id": "wamid.A", "action": "pin"}),
    "a type with a list": ("polls_2", [{"name": "Lunch?"}, "yes"]),
    "an interactive type": ("interactive", {"type": "hologram", "body": 1, "header": "H", "parts": []}),
    "a header": ("interactive", buttons(header={"type": "gif", "gif": {"id": "9"}})),
    "a button": ("interactive", buttons({"type": "call", "call": {}}, reply("y", "Yes"))),
    "a component": ("template", template({"type": "tail", "parameters": "any"})),
    "a component of a card": ("template", template(carousel({"type": "tail", "parameters": "any"}))),
    "a carousel": ("template", template({"type": "carousel", "cards": {"from": "a feed"}})),
}


@pytest.mark.parametrize(("type", "content"), UNKNOWN.values(), ids=UNKNOWN)
def test_unknown_type_is_sent_unchanged_under_its_own_name(type: str, content: Any) -> None:
    reply = from_json({"type": type, "content": content, "reply_to": "wamid.B"})
    payload = {"type": reply.type, "content": reply.content, "reply_to": reply.reply_to, "to": "+15550002222"}
    request = json.loads(request_body(payload, ECHO))
    assert (request["type"], request[type], request["to"]) == (type, content, "+15550002222")
    assert request["context"] == {"message_id": "wamid.B"}


def test_an_unknown_type_is_refused_by_the_simulator_as_unsupported() -> None:
    with pytest.raises(GraphError) as refused:
        simulate("pin", {"message_id": "wamid.A"})
    assert refused.value.code == 131051


CODES: Mapping[str, tuple[str, Any, int]] = {
    "a key": ("text", {"body": "hi", "previw_url": True}, 100),
    "a key of a reaction": ("reaction", {"message_id": "wamid.A", "emoji": "👍", "text": "x"}, 100),
    "a value": ("template", template({"type": "body", "parameters": [value("a\nb")]}), 132018),
    "a value of a card": ("template", template(carousel({"type": "body", "parameters": [value("a     b")]})), 132018),
    "a name": ("template", template(name="Reminder"), 132001),
    "a language": ("template", {"name": "reminder", "language": {"code": "english"}}, 132001),
    "a voice": ("image", {"id": "9", "voice": True}, 131009),
}


@pytest.mark.parametrize(("type", "content", "code"), CODES.values(), ids=CODES)
def test_the_simulator_refuses_with_metas_code(type: str, content: Any, code: int) -> None:
    with pytest.raises(GraphError) as refused:
        simulate(type, content)
    assert (refused.value.code, refused.value.http_status) == (code, 404 if code == 132001 else 400)
    assert refused.value.document()["error"]["message"] != f"(#{code}) Error"  # type: ignore[index] # it has a title


@pytest.mark.parametrize(
    "field", ["messaging_account_id", "recipient_identity_key_hash", "recipient", "recipient_type"]
)
def test_no_type_is_the_name_of_a_field_that_meta_s_reference_has(field: str) -> None:
    """Pombo sends some of them not yet."""
    with pytest.raises(ValueError, match=r"^The type of the message is the name of another field of the request\.$"):
        OutboundMessage(field, {})


@pytest.mark.parametrize("reply_to", [None, "wamid.B"])
@pytest.mark.parametrize("type", ["text", "read", "typing"])
def test_no_type_is_the_name_of_another_field_of_a_request(type: str, reply_to: str | None) -> None:
    """Its content would stand there in place of the recipient, say."""
    content = {"body": "hi", "message_id": "wamid.A"}
    payload = {"type": type, "content": content, "reply_to": reply_to, "to": "+1555", "recipient": "US.1"}
    for field in json.loads(request_body(payload, ECHO)).keys() - {"text"}:
        with pytest.raises(
            ValueError, match=r"^The type of the message is the name of another field of the request\.$"
        ):
            OutboundMessage(field, {})


def test_a_misspelt_type_is_not_repeated() -> None:
    """The sentence names what was meant, which is a word of ours."""
    meant = "text|image|document|video|reply|button|cta_url|location_request_message"
    for type, content, sentence in REFUSED.values():
        if "misspelling" in sentence:
            with pytest.raises(ValueError, match=rf" is a misspelling of ({meant})\.$"):
                OutboundMessage(type, content)


@pytest.mark.parametrize("type", sorted(KEYS))
def test_the_keys_of_a_type_are_those_of_its_maker(type: str) -> None:
    """A maker with a new key shows here that the table lacks it."""
    made = {key for message, kind, _ in MADE.values() if kind == type for key in message.content}  # type: ignore[union-attr]
    assert made <= KEYS[type]
    with pytest.raises(
        ValueError, match=rf"^The content of type {type} has a key that WhatsApp does not take; it takes"
    ):
        OutboundMessage(type, {"message_id": "wamid.A", "id": "9", "body": "hi", "other": 1})


@pytest.mark.parametrize("code", ["en", "en_US", "pt_BR", "fil", "zh_CN", "prs_AF", "es_419", "uz_Latn_UZ"])
def test_language_code_is_accepted_by_pombo_and_simulator(code: str) -> None:
    simulate("template", make.template("a_1", code).content)


@pytest.mark.parametrize("type", ["poll", "order", "event", "button", "list", "album", "payment", "hsm", "pin"])
def test_type_unlike_any_known_one_is_not_a_misspelling(type: str) -> None:
    assert OutboundMessage(type, {"a": 1}).type == type


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda: make.image(), "The image has neither a link nor an id"),
        (lambda: make.image(LINK, id="9"), "The image has both a link and an id"),
        (lambda: make.buttons("Choose", "Yes"), "The buttons are a list or a mapping, not str."),
        (lambda: make.buttons("Choose", [7]), "One of the buttons is a title, (id, title)."),
        (lambda: make.buttons("Choose", [("a", "A", "more")]), "One of the buttons is a title, (id, title)."),
        (lambda: make.buttons("Choose", ["a" * 27]), "The title of button 1 has 27 characters; WhatsApp takes 20."),
        (lambda: make.buttons("Choose", [("a", "A"), ("b", "B" * 27)]), "The title of button 2 has 27 char"),
        (lambda: make.list("Choose", "Open", 7), "The sections are a list or a mapping, not int."),
        (lambda: make.list("Choose", "Open", []), "There are no rows in section 1"),
        (lambda: make.list("Choose", "Open", [("Today", ["9:00"]), "10:00"]), "Either all items of a list"),
        (lambda: make.list("Choose", "Open", [("a", "b", "c", "d")]), "(id, title) or (id, title, description)."),
        (lambda: make.template("a", "pt_BR", ["x"], components=[]), "not both."),
        (lambda: make.template("a", "pt_BR", [None]), "A parameter is a str, a number or a mapping, not NoneType."),
        (lambda: make.template("a", "pt_BR", "x"), "The parameters are a list or a mapping, not str."),
        (lambda: make.reaction("wamid.A", None), "The emoji of a reaction is a str, empty to take it back"),
        (lambda: make.location(NAN, 0), "The latitude is not a number from -90 to 90"),
        (lambda: make.location(0, -INFINITY), "The longitude is not a number from -180 to 180"),
        (lambda: make.location("north", 0), "The latitude is not a decimal number."),
        (lambda: make.template("a", "pt_BR", ["a\nb"]), "The text of parameter 1 of component 1 of the template has a"),
        (lambda: make.template("a", "pt_BR", [NAN]), "A parameter is NaN or infinite; give a finite number"),
        (lambda: make.template("a", "pt_BR", {"day": -INFINITY}), "A parameter is NaN or infinite; give a finite"),
        (lambda: make.template("a", "pt_BR", [""]), "The text of parameter 1 of component 1 of the template is empty."),
        (lambda: make.template("a", "pt_BR", {"": "x"}), "The parameter_name of parameter 1 of component 1 of the"),
        (lambda: make.contacts({"Ana": ""}), "Phone 1 of contact 1 is empty."),
        (lambda: make.contacts({"Ana": None}), "Phone 1 of contact 1 is a str, not NoneType."),
        (lambda: make.contacts("Ana"), "The contacts are a list or a mapping, not str."),
    ],
)  # fmt: skip
def test_wrong_argument_raises_a_sentence_about_it(wrong: Callable[[], object], sentence: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(sentence)):
        wrong()


# ---- what comes as JSON, and by hand


def test_string_becomes_a_text() -> None:
    assert from_json("hi") == OutboundMessage.text("hi")


def test_json_reply_can_quote() -> None:
    reply = from_json({"type": "text", "content": {"body": "hi"}, "reply_to": "wamid.A"})
    assert reply == OutboundMessage.text("hi", reply_to="wamid.A")
    assert from_json({"type": "text", "content": {"body": "hi"}, "reply_to": None}).reply_to is None


@pytest.mark.parametrize(
    ("reply", "sentence"),
    [
        (None, "A reply is a string or an object with type and content, not NoneType."),
        (["hi"], "A reply is a string or an object with type and content, not list."),
        ({}, "A reply has a type and a content, perhaps a reply_to, and nothing else."),
        ({"type": "text"}, "A reply has a type and a content"),
        ({"type": "text", "content": {"body": "hi"}, "to": "+1555"}, "A reply has a type and a content"),
        ({"type": 7, "content": {}}, "An OutboundMessage has a type, a str, and a content"),
        ({"type": "text", "content": "hi"}, "An OutboundMessage has a type, a str, and a content"),
        ({"type": "text", "content": ["hi"]}, "The content of type text is a mapping, not list."),
        ({"type": "contacts", "content": {}}, "The contacts are a list of mappings."),
        (
            {"type": "text", "content": {"body": "hi"}, "reply_to": 7},
            "reply_to is the id of a message, a str, not int.",
        ),
        ("", "The text of a message is empty."),
    ],
)
def test_invalid_json_reply_has_one_sentence(reply: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        from_json(reply)


def nested(depth: int) -> Any:
    content: Any = {"body": "hi"}
    for _ in range(depth):
        content = {"deeper": content}
    return content


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"body": "half \ud83d"}, "half a character"),
        ({"more": float("nan")}, "not JSON compliant"),
        ({"more": object()}, "not JSON serializable"),
        ({"more": "x" * MESSAGE_BYTES}, f"bytes as JSON; at most {MESSAGE_BYTES} are allowed."),
        (nested(100_000), "nested too deeply"),
    ],
)
def test_unstorable_content_is_refused_at_creation(content: Any, sentence: str) -> None:
    with pytest.raises((TypeError, ValueError), match=sentence):
        OutboundMessage("poll", content)


def test_content_is_copied_when_it_is_checked() -> None:
    """Whatever mapping it was, and whatever becomes of it afterwards."""
    body = {"name": "hi", "more": ({"a": 1},)}
    message = OutboundMessage("poll", MappingProxyType(body))
    body["name"] = "x" * 5000
    assert message.content == {"name": "hi", "more": [{"a": 1}]}
    assert type(message.content) is dict


@pytest.mark.parametrize("limit", AT)
def test_the_largest_of_everything_can_be_stored(limit: str) -> None:
    type, content = AT[limit](LIMITS[limit].most)
    assert len(json.dumps([type, content], ensure_ascii=False).encode()) < MESSAGE_BYTES / 2


def test_error_sentence_never_repeats_a_value() -> None:
    secret = "Ana 15550002222 "
    wrongs: list[tuple[str, Any]] = [(type, content) for type, content, _ in REFUSED.values()]
    wrongs += [AT[limit](LIMITS[limit].most + 1) for limit in AT]
    for type, content in wrongs:
        hidden = json.loads(re.sub(r'(?<!"type)": "[^"]{4,}"', lambda _: f'": "{secret * 300}"', json.dumps(content)))
        with pytest.raises((TypeError, ValueError), match=r"^(?!.*(Ana|1555))"):
            OutboundMessage(type, hidden)
