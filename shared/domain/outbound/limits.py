"""Outbound limits: how much WhatsApp takes of each part of a message, in one table with its sources."""

from collections.abc import Mapping
from dataclasses import dataclass

_MESSAGES = "https://developers.facebook.com/documentation/business-messaging/whatsapp/messages"
TEXTS = f"{_MESSAGES}/text-messages"
BUTTONS = f"{_MESSAGES}/interactive-reply-buttons-messages"
LISTS = f"{_MESSAGES}/interactive-list-messages"
LINKS = f"{_MESSAGES}/interactive-cta-url-messages"
CARDS = f"{_MESSAGES}/contacts-messages"
REFERENCE = "https://developers.facebook.com/docs/whatsapp/cloud-api/reference/messages"
DIRECT_SEND = "https://developers.facebook.com/documentation/business-messaging/whatsapp/direct-send"


@dataclass(frozen=True, slots=True)
class Limit:
    """An upper bound. `seen` is when the source was read; not `confirmed`: third parties report it, not Meta."""

    most: int
    of: str
    source: str
    seen: str = "November 2026"
    confirmed: bool = True


LIMITS: Mapping[str, Limit] = {
    "text": Limit(4096, "characters in a text", TEXTS),
    "caption": Limit(1024, "characters in a caption", REFERENCE),
    "contacts": Limit(257, "contacts in a message", CARDS),
    "buttons": Limit(3, "buttons", BUTTONS),
    "button_id": Limit(256, "characters in the id of a button", BUTTONS),
    "button_title": Limit(20, "characters in the title of a button", BUTTONS),
    "button_body": Limit(1024, "characters in the body above buttons or a link", BUTTONS),
    "list_button": Limit(20, "characters on the button that opens a list", LISTS),
    "list_body": Limit(4096, "characters in the body above a list", LISTS, confirmed=False),
    "sections": Limit(10, "sections in a list", LISTS),
    "section_title": Limit(24, "characters in the title of a section", LISTS),
    "rows": Limit(10, "rows in a list, all sections together", LISTS),
    "row_id": Limit(200, "characters in the id of a row", LISTS),
    "row_title": Limit(24, "characters in the title of a row", LISTS),
    "row_description": Limit(72, "characters in the description of a row", LISTS),
    "link_title": Limit(20, "characters on the button with a link", LINKS, confirmed=False),
    "header": Limit(60, "characters in a header", DIRECT_SEND),
    "footer": Limit(60, "characters in a footer", DIRECT_SEND),
    "template_name": Limit(512, "characters in the name of a template", REFERENCE, confirmed=False),
}
"""Characters are code points: an emoji may be several. For everything else Meta states no bound."""

ID_CHARACTERS = 1024
"""The length of a message id that a reply refers to. Our bound: Meta's ids are far shorter."""

MESSAGE_BYTES = 64 * 1024
"""The size of a whole message as JSON. Our bound: every message within Meta's limits is far smaller, and the longest
plan, 30 messages, is written in one commit, which Firestore limits to 10 MiB."""
