"""One message from Meta: who sent it, and the fields around its content."""

# https://developers.facebook.com/documentation/business-messaging/whatsapp/business-scoped-user-ids (updated
# 2026-11-05): since April 2026 a customer with a username may come without a phone number; the business-scoped user id
# is in every message. Meta's text says that missing fields are omitted, an example shows them empty: both count as
# absent here. The form of a user id is not checked, because Meta's examples disagree about it.

import re
from collections.abc import Mapping
from typing import Any

from shared.channels.meta.fields import LONGEST_ID, customer_ids, identifier, mapping, moment, text_value
from shared.channels.meta.kinds import UNSUPPORTED, with_content
from shared.domain.errors import ItemUnparsable
from shared.domain.message_parts import Product, Referral, Unsupported
from shared.domain.messages import Contact, Message
from shared.domain.record import Delivery
from shared.net import bounded_json

REFERRAL = (
    "source_url",
    "source_id",
    "source_type",
    "headline",
    "body",
    "media_type",
    "image_url",
    "video_url",
    "thumbnail_url",
    "ctwa_clid",
)
"""Fields with the same name at Meta and here."""


_TYPE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""The form of Meta's type names. Any other text is not shown, because it may hold private data."""


def read(record: Delivery) -> Message | None:
    """The message in a stored event; None if the event is not a customer's message. Raises ItemUnparsable."""
    kept = record.payload
    if "unparsable" in kept:
        kept = _unwrapped(kept["unparsable"], record)
    elif "value" in kept:
        return None  # a change
    return None if kept.get("echo") is True else _message(kept, record)


def remark(record: Delivery) -> str | None:
    """What an operator must know of a stored event: why no handler may have been called for it. None if nothing."""
    kept = record.payload
    value = mapping(kept.get("value"))
    if "truncated" in value and type(value.get("bytes")) is int:
        return f"Its value of {value['bytes']} bytes is too large; Pombo stores only its beginning."
    try:
        message = read(record)
    except ItemUnparsable:
        return None
    if message is None or message.unsupported is None:
        return None
    return (
        f"Pombo does not support its content ({_named(message.unsupported, message.raw)}); "
        "only a handler that accepts unsupported messages gets it."
    )


def _named(unsupported: Unsupported, item: Mapping[str, Any]) -> str:
    """The type's name; an `interactive` has its type inside."""
    given = (unsupported.type, mapping(item.get("interactive")).get("type"))
    types = [type_ for type_ in given if isinstance(type_, str) and _TYPE.fullmatch(type_)]
    code = f", code {unsupported.code}" if unsupported.code is not None else ""
    return f"type {' '.join(types) or 'unknown'}{code}"


def contact_of(item: Mapping[str, Any], contact: Mapping[str, Any]) -> Contact | None:
    """Who sent this item. `contact` is their entry in contacts[], or empty."""
    user_id, number = customer_ids(item, contact)
    stable = user_id or number
    profile = mapping(contact.get("profile"))
    name = profile.get("name")
    if stable is None:
        return None
    return Contact(
        stable, number, user_id, name if isinstance(name, str) else None, text_value(profile.get("username"))
    )


def _message(kept: Mapping[str, Any], record: Delivery) -> Message:
    item = mapping(kept.get("item"))
    sender = identifier(kept.get("phone_number_id"))
    message_id, type_ = identifier(item.get("id")), identifier(item.get("type"))
    contact = contact_of(item, mapping(kept.get("contact")))
    if not (sender and message_id and type_ and contact):
        raise ItemUnparsable
    context = mapping(item.get("context"))
    bare = Message(
        kind=UNSUPPORTED,
        text=None,
        id=message_id,
        contact=contact,
        sender=sender,
        tenant=record.tenant,
        received_at=moment(item.get("timestamp")) or record.received_at,
        reply_to=identifier(context.get("id")),
        raw=item,
        referral=_referral(mapping(item.get("referral"))),
        product=_product(mapping(context.get("referred_product"))),
        forwarded=context.get("forwarded") is True or context.get("frequently_forwarded") is True,
        frequently_forwarded=context.get("frequently_forwarded") is True,
        group_id=_group(item.get("group_id")),
    )
    return with_content(bare, type_, item)


def _referral(referral: Mapping[str, Any]) -> Referral | None:
    if not referral:
        return None
    welcome = text_value(mapping(referral.get("welcome_message")).get("text"))
    return Referral(**{name: text_value(referral.get(name)) for name in REFERRAL}, welcome_text=welcome)


def _product(product: Mapping[str, Any]) -> Product | None:
    if not product:
        return None
    return Product(text_value(product.get("catalog_id")), text_value(product.get("product_retailer_id")))


def _group(value: Any) -> str | None:
    """The group's id. Any value means that the message was written to a group, even an unreadable id."""
    return identifier(value) or (bounded_json.dumps(value)[:LONGEST_ID] if value else None)


def _unwrapped(raw: Any, record: Delivery) -> Mapping[str, Any]:
    """The stored form of an item that could not be read, with or without its surrounding fields."""
    kept = mapping(raw)
    return kept if "item" in kept else {"item": kept, "phone_number_id": record.sender}
