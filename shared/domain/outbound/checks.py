"""Outbound checks: find what WhatsApp would refuse in a message before it is sent.

`check` is one pure function over a type and its content, so that it works for every source: a maker method, a handler
by hand, or a backend in JSON. An error names the part, what was given and what is allowed, and repeats no value.
Unknown types, of a message or of a part, are not checked: Meta decides.
"""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from shared.domain.calls import CALLS
from shared.domain.outbound.fields import (
    Fields,
    address,
    distinct,
    flag,
    id_of_message,
    name_of,
    number,
    one_emoji,
    only_keys,
    open_type,
    optional,
    part,
    parts,
    text,
)
from shared.domain.outbound.templates import template
from shared.domain.outbound.types import MEDIA

CAPTIONED = frozenset({"image", "video", "document"})
WITHOUT_REPLY_TO = CALLS | {"reaction"}

KEYS: Mapping[str, frozenset[str]] = {
    "text": frozenset({"body", "preview_url"}),
    **dict.fromkeys(MEDIA, frozenset({"link", "id", "caption", "filename", "provider", "voice"})),
    "location": frozenset({"latitude", "longitude", "name", "address"}),
    "reaction": frozenset({"message_id", "emoji"}),
}
"""Every key of a content, by Meta's reference (November 2026), for types that have hardly changed since 2022. Types to
which Meta often adds keys are left open: interactive, template, contacts."""

REQUEST_FIELDS = frozenset(
    {
        "biz_opaque_callback_data",
        "context",
        "message_id",
        "messaging_account_id",
        "messaging_product",
        "recipient",
        "recipient_identity_key_hash",
        "recipient_type",
        "status",
        "to",
        "type",
        "typing_indicator",
    }
)
"""Fields that a request has beside the content. The content's key is its type, which must not replace one of them."""

_TYPE_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")

OTHER_INTERACTIVE = frozenset(
    {
        "address_message",
        "call_permission_request",
        "carousel",
        "catalog_message",
        "flow",
        "location_request_message",
        "order_details",
        "order_status",
        "product",
        "product_list",
        "request_contact_info",
        "voice_call",
    }
)
"""Interactive types without a maker method: Meta checks what is specific to them."""


def check(type: str, content: Any, reply_to: str | None = None) -> None:
    """Raises TypeError or ValueError with one sentence if WhatsApp would not accept the message."""
    checked = _CHECKS.get(_type_of_message(type))
    if reply_to is not None:
        id_of_message({"reply_to": reply_to}, "reply_to", "The id in reply_to")
    if reply_to is not None and type in WITHOUT_REPLY_TO:
        raise ValueError(f"A message of type {type} takes no reply_to: it names the message that it is about.")
    if checked is None:
        return
    if type != "contacts" and not isinstance(content, Mapping):
        raise TypeError(f"The content of type {type} is a mapping, not {name_of(content)}.")
    if type in KEYS:
        only_keys(content, f"The content of type {type}", KEYS[type])
    checked(content)


def _type_of_message(type: str) -> str:
    what = "The type of the message"
    open_type({"type": type}, "type", what, _CHECKS)
    if not _TYPE_NAME.fullmatch(type):
        raise ValueError(f"{what} must begin with a lower-case letter and hold only letters, digits and _.")
    if type in REQUEST_FIELDS:
        raise ValueError(f"{what} is the name of another field of the request.")
    return type


def _text(content: Fields) -> None:
    text(content, "body", "The text of a message", "text")
    flag(content, "preview_url", "preview_url")


def _media(kind: str) -> Callable[[Fields], None]:
    def checked(content: Fields) -> None:
        what = f"The {kind}"
        _source(content, what)
        if content.get("caption") is not None:
            if kind not in CAPTIONED:
                raise ValueError(f"{what} has a caption; WhatsApp takes one with {', '.join(sorted(CAPTIONED))} only.")
            optional(content, "caption", f"The caption of the {kind}", "caption")
        if content.get("filename") is not None:
            if kind != "document":
                raise ValueError(f"{what} has a filename; WhatsApp takes one with a document only.")
            optional(content, "filename", f"The filename of the {kind}")
        if content.get("voice") is not None and kind != "audio":
            raise ValueError(f"{what} is marked as voice; WhatsApp takes that with audio only.")
        flag(content, "voice", "voice")

    return checked


def _source(content: Fields, what: str) -> None:
    """Exactly one of a link, which Meta fetches, and the id of a file that was uploaded to Meta."""
    given = [name for name in ("link", "id") if content.get(name) is not None]
    if len(given) != 1:
        found = "both a link and an id" if given else "neither a link nor an id"
        raise ValueError(f"{what} has {found}; WhatsApp takes exactly one of them.")
    if given == ["link"]:
        address(content, "link", f"{what}'s link")
    else:
        text(content, "id", f"{what}'s id")


def _location(content: Fields) -> None:
    number(content, "latitude", "The latitude", 90)
    number(content, "longitude", "The longitude", 180)
    optional(content, "name", "The name of the location")
    optional(content, "address", "The address of the location")


def _contacts(content: Any) -> None:
    for place, card in enumerate(parts({"contacts": content}, "contacts", "contacts", "contacts"), start=1):
        name = part(card, "name", f"The name of contact {place}")
        text(name, "formatted_name", f"The formatted_name of contact {place}")
        for other in NAME_PARTS:
            optional(name, other, f"The {other} of contact {place}")
        if not any(name.get(other) for other in NAME_PARTS):
            raise ValueError(
                f"The name of contact {place} has only a formatted_name; WhatsApp needs one more part, like first_name."
            )
        for several in ("phones", "emails", "urls", "addresses"):
            if card.get(several) is not None:
                entries = parts(card, several, f"{several} of contact {place}")
                for index, entry in enumerate(entries, start=1):
                    _entry(entry, several, f"{index} of contact {place}")


NAME_PARTS = ("first_name", "last_name", "middle_name", "prefix", "suffix")


def _entry(entry: Fields, several: str, where: str) -> None:
    """One way to reach a contact. A phone may be only a wa_id: Meta fills in the number."""
    name = ENTRIES.get(several)
    if name == "phone" and "wa_id" in entry:
        text(entry, "wa_id", f"The wa_id of phone {where}")
        optional(entry, name, f"Phone {where}")
    elif name:
        text(entry, name, f"{name.capitalize()} {where}")


ENTRIES: Mapping[str, str] = {"phones": "phone", "emails": "email", "urls": "url"}
"""The required field of a card's entries. An address has none."""


def _reaction(content: Fields) -> None:
    """An empty emoji removes the reaction."""
    id_of_message(content, "message_id", "The message_id of a reaction")
    one_emoji(content, "emoji", "The emoji of a reaction")


def _call(content: Fields) -> None:
    id_of_message(content, "message_id", "The message_id of the message that was read")


def _interactive(content: Fields) -> None:
    known = _ACTIONS.keys() | OTHER_INTERACTIVE
    kind = open_type(content, "type", "The type of the interactive message", known)
    if kind not in known:
        return
    action = part(content, "action", "The action of the interactive message")
    if content.get("header") is not None:
        _header(part(content, "header", "The header"), kind)
    if content.get("footer") is not None:
        text(part(content, "footer", "The footer"), "text", "The footer", "footer")
    if kind in _ACTIONS:
        limit = "list_body" if kind == "list" else "button_body"
        text(part(content, "body", "The body"), "text", "The body", limit)
        _ACTIONS[kind](action)


HEADERS = frozenset({"text", "image", "video", "document"})


def _header(header: Fields, interactive: str) -> None:
    what = "The type of the header"
    kind = (
        _one_of(header, "type", what, {"text"}) if interactive == "list" else open_type(header, "type", what, HEADERS)
    )
    if kind == "text":
        text(header, "text", "The header", "header")
    elif kind in HEADERS:
        _source(part(header, kind, f"The {kind} of the header"), f"The header's {kind}")


def _buttons(action: Fields) -> None:
    replies = []
    for place, button in enumerate(parts(action, "buttons", "buttons", "buttons"), start=1):
        if open_type(button, "type", f"The type of button {place}", {"reply"}) != "reply":
            continue
        reply = part(button, "reply", f"The reply of button {place}")
        text(reply, "id", f"The id of button {place}", "button_id")
        text(reply, "title", f"The title of button {place}", "button_title")
        replies.append(reply)
    distinct(replies, "id", "button")
    distinct(replies, "title", "button")


def _list(action: Fields) -> None:
    text(action, "button", "The button that opens the list", "list_button")
    sections = parts(action, "sections", "sections", "sections")
    rows: list[Fields] = []
    for place, section in enumerate(sections, start=1):
        if len(sections) > 1 or section.get("title"):
            text(section, "title", f"The title of section {place}", "section_title")
        rows.extend(parts(section, "rows", f"rows in section {place}"))
    parts({"rows": rows}, "rows", "rows", "rows")
    for place, row in enumerate(rows, start=1):
        text(row, "id", f"The id of row {place}", "row_id")
        text(row, "title", f"The title of row {place}", "row_title")
        optional(row, "description", f"The description of row {place}", "row_description")
    distinct(rows, "id", "row")


def _link(action: Fields) -> None:
    _one_of(action, "name", "The name of the action", {"cta_url"})
    parameters = part(action, "parameters", "The parameters of the action")
    text(parameters, "display_text", "The button with the link", "link_title")
    address(parameters, "url", "The button's link")


def _one_of(holder: Fields, name: str, what: str, options: Collection[str]) -> str:
    value = text(holder, name, what)
    if value not in options:
        raise ValueError(f"{what} is not one of {', '.join(sorted(options))}.")
    return value


_ACTIONS: Mapping[str, Callable[[Fields], None]] = {"button": _buttons, "list": _list, "cta_url": _link}

_CHECKS: Mapping[str, Callable[[Any], None]] = {
    "text": _text,
    **{kind: _media(kind) for kind in MEDIA},
    "location": _location,
    "contacts": _contacts,
    "interactive": _interactive,
    "template": template,
    "reaction": _reaction,
    **dict.fromkeys(sorted(CALLS), _call),
}
