"""A kind: a type of message with the object that belongs to it, and Meta's limits on that object.

Limits: Meta's pages on messages, and notes by third parties on its reference (September 2026), not checked against Meta
itself. Lengths count characters. What needs Meta's own data is not checked: whether a media id, a template, a catalogue
or a flow exists. The numbers are repeated here on purpose: a test compares the two tables.
"""

import re
from collections.abc import Callable, Collection, Mapping
from unicodedata import category

from local.whatsapp.checks import (
    Fields,
    absent,
    distinct,
    number,
    one_of,
    only,
    optional_flag,
    optional_string,
    part,
    parts,
    present,
    string,
)
from local.whatsapp.errors import INVALID, MISSING, NO_TEMPLATE, TEMPLATE_PARAMETER, GraphError

CAPTION = 1024
TEXT = 4096
HEADER_FOOTER = 60  # Meta's page on direct send (31 July 2026) has these two
TEMPLATE_NAME = 512  # unconfirmed
SECTION_TITLE = 24
ID = 1024  # ours: a longer text is not a message id
LANGUAGE = r"[a-z]{2,3}(_([A-Z]{2}|[A-Z][a-z]{3}|[0-9]{3})){0,2}"
CARDS = 257  # Meta's page on contacts messages (21 May 2026)
NAME_PARTS = ("first_name", "last_name", "middle_name", "prefix", "suffix")

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
"""Interactive types whose action is not checked."""

HEADERS = frozenset({"text", "image", "video", "document"})

COMPONENTS = frozenset(
    {
        "header",
        "body",
        "footer",
        "button",
        "carousel",
        "limited_time_offer",
        "order_status",
        "tap_target_configuration",
    }
)


def text(holder: Fields) -> None:
    content = part(holder, "text", "")
    only(content, "text", "body", "preview_url")
    string(content, "body", "text", TEXT)
    optional_flag(content, "preview_url", "text")


def media(kind: str) -> Callable[[Fields], None]:
    """Exactly one of id and link; a caption unless it is audio or a sticker; a filename only for documents, and voice
    only for audio.
    """

    def check(holder: Fields) -> None:
        content = part(holder, kind, "")
        only(content, kind, "id", "link", "caption", "filename", "provider", "voice")
        source(content, kind)
        if kind in ("audio", "sticker"):
            absent(content, "caption", kind)
        optional_string(content, "caption", kind, CAPTION)
        if kind != "document":
            absent(content, "filename", kind)
        optional_string(content, "filename", kind)
        if kind != "audio":
            absent(content, "voice", kind)
        optional_flag(content, "voice", kind)

    return check


def source(content: Fields, path: str) -> None:
    if content.get("id") is not None:
        absent(content, "link", path)
        string(content, "id", path)
    else:
        link(content, "link", path)


def link(content: Fields, name: str, path: str) -> None:
    address = string(content, name, path)
    host = re.match(r"https?://([^\s/?#]+)", address, re.IGNORECASE)
    port = re.search(r":([^]:]*)$", host[1].rpartition("@")[2]) if host else None
    if not host or re.search(r"\s", address) or (port and not _is_port(port[1])):
        raise GraphError(INVALID, f"{path}.{name} must be an http or https address.")


def _is_port(written: str) -> bool:
    """Whether it is a port. Empty means the scheme's default."""
    return not written or (re.fullmatch(r"[0-9]{1,5}", written) is not None and 0 < int(written) < 1 << 16)


def location(holder: Fields) -> None:
    content = part(holder, "location", "")
    only(content, "location", "latitude", "longitude", "name", "address")
    number(content, "latitude", "location", 90)
    number(content, "longitude", "location", 180)
    optional_string(content, "name", "location")
    optional_string(content, "address", "location")


def contacts(holder: Fields) -> None:
    for place, card in enumerate(parts(holder, "contacts", "", CARDS)):
        name = part(card, "name", f"contacts[{place}]")
        string(name, "formatted_name", f"contacts[{place}].name")
        for other in NAME_PARTS:
            if name.get(other):
                string(name, other, f"contacts[{place}].name")
        if not any(name.get(other) for other in NAME_PARTS):
            raise GraphError(MISSING, f"contacts[{place}].name needs one of {', '.join(NAME_PARTS)} as well.")
        for several in ("phones", "emails", "urls", "addresses"):
            if card.get(several) is not None:
                for index, entry in enumerate(parts(card, several, f"contacts[{place}]")):
                    _entry(entry, several, f"contacts[{place}].{several}[{index}]")


def _entry(entry: Fields, several: str, path: str) -> None:
    """A wa_id is enough instead of a phone."""
    if several == "phones":
        string(entry, "wa_id" if entry.get("phone") in (None, "") and "wa_id" in entry else "phone", path)
    elif several in ("emails", "urls"):
        string(entry, several.removesuffix("s"), path)


def reaction(holder: Fields) -> None:
    """An empty emoji removes the reaction."""
    content = part(holder, "reaction", "")
    only(content, "reaction", "message_id", "emoji")
    string(content, "message_id", "reaction", ID)
    emoji = string(content, "emoji", "reaction", least=0)
    if emoji and not _is_one_emoji(emoji):
        raise GraphError(INVALID, "reaction.emoji must be one emoji, or empty.")
    absent(holder, "context", "")


def _is_one_emoji(emoji: str) -> bool:
    """Whether one character is left, or two that are a flag, without those that only modify the previous one."""
    rest = emoji[0] + re.sub(_CHANGES, "", emoji[1:])
    letters = ["\U0001f1e6" <= letter <= "\U0001f1ff" for letter in rest]
    if any(letters):
        return letters == [True, True]
    if len(rest) > 1:
        return False
    if rest.isascii():
        return rest in "0123456789#*" and emoji.endswith("\u20e3")
    return rest == "\u2139" or category(rest) in _SIGNS


_SIGNS = frozenset({"So", "Sm", "Sk", "Po", "Pd", "Cn"})
"""No letter, digit, space or mark. Cn: an emoji that is newer than this Python."""

_CHANGES = "\u200d.|[\ufe0e\ufe0f\u20e3\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]"
"""A joiner with the character it joins; variation selectors, keycaps, skin tones, tags."""


def interactive(holder: Fields) -> None:
    content = part(holder, "interactive", "")
    kind = one_of(content, "type", "interactive", OTHER_INTERACTIVE | ACTIONS.keys())
    action = part(content, "action", "interactive")
    if content.get("header") is not None:
        _header(part(content, "header", "interactive"), {"text"} if kind == "list" else HEADERS)
    if content.get("footer") is not None:
        string(part(content, "footer", "interactive"), "text", "interactive.footer", HEADER_FOOTER)
    if kind in ACTIONS:
        body = part(content, "body", "interactive")
        string(body, "text", "interactive.body", TEXT if kind == "list" else CAPTION)
        ACTIONS[kind](action)


def _header(header: Fields, options: Collection[str]) -> None:
    kind = one_of(header, "type", "interactive.header", options)
    if kind == "text":
        string(header, "text", "interactive.header", HEADER_FOOTER)
    else:
        source(part(header, kind, "interactive.header"), f"interactive.header.{kind}")


def _buttons(action: Fields) -> None:
    ids, titles = [], []
    for place, button in enumerate(parts(action, "buttons", "interactive.action", 3)):
        path = f"interactive.action.buttons[{place}]"
        one_of(button, "type", path, {"reply"})
        reply = part(button, "reply", path)
        ids.append(string(reply, "id", f"{path}.reply", 256))
        titles.append(string(reply, "title", f"{path}.reply", 20))
    distinct(ids, "Button ids")
    distinct(titles, "Button titles")


def _list(action: Fields) -> None:
    string(action, "button", "interactive.action", 20)
    sections = parts(action, "sections", "interactive.action", 10)
    ids = []
    for place, section in enumerate(sections):
        path = f"interactive.action.sections[{place}]"
        if len(sections) > 1:
            present(section, "title", path)
        optional_string(section, "title", path, SECTION_TITLE)
        for index, row in enumerate(parts(section, "rows", path)):
            ids.append(string(row, "id", f"{path}.rows[{index}]", 200))
            string(row, "title", f"{path}.rows[{index}]", 24)
            optional_string(row, "description", f"{path}.rows[{index}]", 72)
    if len(ids) > 10:
        raise GraphError(INVALID, "interactive.action.sections must hold 10 rows at most, all together.")
    distinct(ids, "Row ids")


def _cta_url(action: Fields) -> None:
    one_of(action, "name", "interactive.action", {"cta_url"})
    parameters = part(action, "parameters", "interactive.action")
    string(parameters, "display_text", "interactive.action.parameters", 20)
    link(parameters, "url", "interactive.action.parameters")


ACTIONS: Mapping[str, Callable[[Fields], None]] = {"button": _buttons, "list": _list, "cta_url": _cta_url}


def template(holder: Fields) -> None:
    content = part(holder, "template", "")
    name = string(content, "name", "template", TEMPLATE_NAME)
    code = string(part(content, "language", "template"), "code", "template.language")
    if not re.fullmatch(r"[a-z0-9_]+", name) or not re.fullmatch(LANGUAGE, code):
        raise GraphError(NO_TEMPLATE, "No template can have this name in this language.")
    if content.get("components"):
        _components(content, "template")


def _components(holder: Fields, path: str) -> None:
    for place, component in enumerate(parts(holder, "components", path)):
        here = f"{path}.components[{place}]"
        kind = string(component, "type", here).lower()
        if kind not in COMPONENTS:
            raise GraphError(INVALID, f"{here}.type must be one of {', '.join(sorted(COMPONENTS))}.")
        if kind == "carousel" and path == "template":
            for index, card in enumerate(parts(component, "cards", here)):
                _components(card, f"{here}.cards[{index}]")
        if component.get("parameters"):
            _parameters(component, here)


def _parameters(component: Fields, path: str) -> None:
    parameters = parts(component, "parameters", path)
    for index, parameter in enumerate(parameters):
        here = f"{path}.parameters[{index}]"
        kind = string(parameter, "type", here).lower()
        if "parameter_name" in parameter:
            string(parameter, "parameter_name", here)
        if kind in ("text", "payload"):
            value = string(parameter, kind, here)
            if kind == "text" and re.search(r"[\r\n\t]| {5}", value):
                raise GraphError(
                    TEMPLATE_PARAMETER,
                    "Param text cannot have new-line/tab characters or more than 4 consecutive spaces.",
                )
    if len({"parameter_name" in parameter for parameter in parameters}) > 1:
        raise GraphError(INVALID, f"{path}.parameters must be all named or all positional.")


KINDS: Mapping[str, Callable[[Fields], None]] = {
    "text": text,
    **{kind: media(kind) for kind in ("image", "video", "audio", "document", "sticker")},
    "location": location,
    "contacts": contacts,
    "reaction": reaction,
    "interactive": interactive,
    "template": template,
}
