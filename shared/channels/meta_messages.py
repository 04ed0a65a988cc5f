"""One message of Meta's: who sent it, and what it says in our words."""

# https://developers.facebook.com/documentation/business-messaging/whatsapp/business-scoped-user-ids (updated
# 2026-11-05): since April 2026 a person with a username may come without a phone number; the business-scoped user id
# is in every message. Meta's text says that the missing fields are omitted, an example shows them empty: both are
# absent here. The shape of a user id is not checked: Meta's own examples disagree about it.

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from shared.domain.errors import ItemUnparsable
from shared.domain.messages import Contact, Message
from shared.domain.record import Delivery

LONGEST_ID = 1024
"""Meta's ids have up to about 150 characters; a store indexes up to 1,500 bytes."""

UNSUPPORTED = "unsupported"
"""The kind of a message whose type we do not read (yet). Its raw form is in the message."""

_PHONE = re.compile(r"\+?([0-9]{1,20})")
_SECONDS = re.compile(r"[0-9]{1,11}")
_LAST_SECOND = 253_402_300_799  # the end of the year 9999, where datetime ends


def read(record: Delivery) -> Message | None:
    """The message in a stored event; None where the event is no message. Raises ItemUnparsable."""
    kept = record.payload
    if "unparsable" in kept:
        return _message(_unwrapped(kept["unparsable"], record), record)
    if "value" in kept:
        return None  # a change
    return _message(kept, record)


def person(item: Mapping[str, Any], contact: Mapping[str, Any]) -> Contact | None:
    """Who sent this item. `contact` is their entry in contacts[], or empty."""
    user_id = identifier(item.get("from_user_id")) or identifier(contact.get("user_id"))
    number = phone(item.get("from")) or phone(contact.get("wa_id"))
    name = mapping(contact.get("profile")).get("name")
    stable = user_id or number
    return Contact(stable, number, user_id, name if isinstance(name, str) else None) if stable else None


def identifier(value: Any) -> str | None:
    """An id as Meta gives it. Empty is absent; too long to be stored is no id."""
    return value if isinstance(value, str) and 0 < len(value) <= LONGEST_ID else None


def phone(value: Any) -> str | None:
    """The digits of a phone number."""
    match = _PHONE.fullmatch(value) if isinstance(value, str) else None
    return match[1] if match else None


def moment(value: Any) -> datetime | None:
    """A time in seconds since 1970, which Meta writes as a string."""
    if isinstance(value, str) and _SECONDS.fullmatch(value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= _LAST_SECOND:
        return None
    return datetime.fromtimestamp(value, UTC)


def mapping(value: Any) -> Mapping[str, Any]:
    """The value where it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def _message(kept: Mapping[str, Any], record: Delivery) -> Message:
    item = mapping(kept.get("item"))
    sender = identifier(kept.get("phone_number_id"))
    message_id, kind = identifier(item.get("id")), identifier(item.get("type"))
    contact = person(item, mapping(kept.get("contact")))
    if not (sender and message_id and kind and contact):
        raise ItemUnparsable
    kind, text = _content(kind, item)
    return Message(
        kind=kind,
        text=text,
        id=message_id,
        contact=contact,
        sender=sender,
        tenant=record.tenant,
        received_at=moment(item.get("timestamp")) or record.received_at,
        reply_to=identifier(mapping(item.get("context")).get("id")),
        raw=item,
    )


def _content(kind: str, item: Mapping[str, Any]) -> tuple[str, str | None]:
    """Our kind, and the text. Raises ItemUnparsable where the type promises what is not there."""
    match kind:
        case "text":
            body = mapping(item.get("text")).get("body")
            if not isinstance(body, str):
                raise ItemUnparsable
            return "text", body
        case _:
            return UNSUPPORTED, None


def _unwrapped(raw: Any, record: Delivery) -> Mapping[str, Any]:
    """What was kept of an item that could not be read: with what stood around it, or alone."""
    kept = mapping(raw)
    return kept if "item" in kept else {"item": kept, "phone_number_id": record.sender}
