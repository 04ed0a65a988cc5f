"""The kinds of message: converts each of Meta's message types, with its object, to our kinds and parts."""

# https://developers.facebook.com/documentation/business-messaging/whatsapp/webhooks/reference/messages (each type has
# its page; seen November 2026). docs/inbound.md has the table for handler authors.

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from shared.channels.meta.fields import code_number, decimal, identifier, mapping, moment, objects, phone, text_value
from shared.domain.message_parts import (
    Button,
    ContactCard,
    Interactive,
    Location,
    Media,
    Order,
    OrderItem,
    Phone,
    Reaction,
    System,
    Unsupported,
)
from shared.domain.messages import Message
from shared.net import bounded_json

UNSUPPORTED = "unsupported"
"""The kind of content that Meta or Pombo cannot read. The message has its raw form."""

MEDIA_TYPES = ("image", "video", "audio", "document", "sticker")

Item = Mapping[str, Any]
Reader = Callable[[Message, Item], Message | None]
"""Fills in the item's content. None if it lacks what its type requires: a handler never gets an incomplete message."""


def with_content(bare: Message, type_: str, item: Item) -> Message:
    """The message with its kind and parts. An unknown type, or one without its object, is `unsupported`."""
    reader = READERS.get(type_)
    return (reader(bare, item) if reader else None) or _unsupported(bare, type_, item)


def _text(bare: Message, item: Item) -> Message | None:
    body = mapping(item.get("text")).get("body")
    return replace(bare, kind="text", text=body) if isinstance(body, str) else None


def _media(type_: str) -> Reader:
    def read(bare: Message, item: Item) -> Message | None:
        file = mapping(item.get(type_))
        media = Media(
            type_,
            id=identifier(file.get("id")),
            mime_type=text_value(file.get("mime_type")),
            sha256=text_value(file.get("sha256")),
            filename=text_value(file.get("filename")),
            voice=file.get("voice") is True,
            animated=file.get("animated") is True,
            url=text_value(file.get("url")),
        )
        there = media.id or media.url
        return replace(bare, kind="media", text=text_value(file.get("caption")), media=media) if there else None

    return read


def _voice(bare: Message, item: Item) -> Message | None:
    """A voice message as a separate type (reported by users); Meta's page has `audio` with `voice` true."""
    return READERS["audio"](bare, {"audio": {**mapping(item.get("voice")), "voice": True}})


def _request_welcome(bare: Message, _item: Item) -> Message:
    """The customer opened the chat for the first time and wrote nothing. There is no object."""
    return replace(bare, kind="request_welcome")


def _location(bare: Message, item: Item) -> Message | None:
    place = mapping(item.get("location"))
    latitude, longitude = decimal(place.get("latitude")), decimal(place.get("longitude"))
    if latitude is None or longitude is None:
        return None
    rest = (text_value(place.get(name)) for name in ("name", "address", "url"))
    return replace(bare, kind="location", location=Location(latitude, longitude, *rest))


def _contacts(bare: Message, item: Item) -> Message | None:
    cards = tuple(_card(card) for card in objects(item.get("contacts")))
    return replace(bare, kind="contacts", contacts=cards) if cards else None


def _card(card: Item) -> ContactCard:
    name = mapping(card.get("name"))
    parts = [part for key in ("first_name", "last_name") if (part := text_value(name.get(key)))]
    phones = [
        Phone(text_value(one.get("phone")), text_value(one.get("wa_id")), text_value(one.get("type")))
        for one in objects(card.get("phones"))
    ]
    return ContactCard(
        name=text_value(name.get("formatted_name")) or " ".join(parts) or None,
        phones=tuple(phones),
        emails=tuple(email for one in objects(card.get("emails")) if (email := text_value(one.get("email")))),
        company=text_value(mapping(card.get("org")).get("company")),
        birthday=text_value(card.get("birthday")),
        origin=text_value(card.get("origin")),
        vcard=text_value(card.get("vcard")),
    )


def _interactive(bare: Message, item: Item) -> Message | None:
    whole = mapping(item.get("interactive"))
    type_ = identifier(whole.get("type")) or ""
    reader, answer = ANSWERS.get(type_), mapping(whole.get(type_))
    interactive = reader(type_, answer) if reader and answer else None
    if interactive is None:
        return None
    return replace(bare, kind="interactive", text=interactive.title or interactive.id, interactive=interactive)


def _choice(type_: str, answer: Item) -> Interactive | None:
    id_, title = text_value(answer.get("id")), text_value(answer.get("title"))
    chosen = Interactive(type_, id=id_, title=title, description=text_value(answer.get("description")))
    return chosen if id_ or title else None


def _flow(type_: str, answer: Item) -> Interactive:
    """A completed form. Meta sends its object as a JSON string, which may be invalid through the flow's author."""
    given = answer.get("response_json")
    text = bounded_json.dumps(given) if isinstance(given, dict) else text_value(given)
    try:
        parsed = bounded_json.loads(text.encode()) if text else None
    except bounded_json.NotJson:
        parsed = None
    response = parsed if isinstance(parsed, dict) else None
    return Interactive(type_, name=text_value(answer.get("name")), response_json=text, response=response)


def _permission(type_: str, answer: Item) -> Interactive:
    expires_at = moment(answer.get("expiration_timestamp"))
    return Interactive(type_, permission=text_value(answer.get("response")), expires_at=expires_at)


def _payment(type_: str, answer: Item) -> Interactive:
    """The customer agreed to pay by a method on file.

    https://developers.facebook.com/documentation/business-messaging/whatsapp/payments/payments-br/one-click-payments
    (2026-05-21)
    """
    return Interactive(type_, response=answer)


def _button(bare: Message, item: Item) -> Message | None:
    button = mapping(item.get("button"))
    payload, text = text_value(button.get("payload")), text_value(button.get("text"))
    said = text or payload
    return replace(bare, kind="button", text=said, button=Button(payload, text)) if said else None


def _order(bare: Message, item: Item) -> Message | None:
    order = mapping(item.get("order"))
    items = tuple(
        OrderItem(
            product_id=text_value(one.get("product_retailer_id")),
            quantity=decimal(one.get("quantity")),
            price=decimal(one.get("item_price")),
            currency=text_value(one.get("currency")),
        )
        for one in objects(order.get("product_items"))
    )
    catalog_id = text_value(order.get("catalog_id"))
    return (
        replace(bare, kind="order", text=text_value(order.get("text")), order=Order(catalog_id, items))
        if items
        else None
    )


def _reaction(bare: Message, item: Item) -> Message | None:
    """Without an emoji, or with an empty one, the reaction is removed."""
    reaction = mapping(item.get("reaction"))
    message_id = identifier(reaction.get("message_id"))
    if message_id is None:
        return None
    return replace(bare, kind="reaction", reaction=Reaction(message_id, text_value(reaction.get("emoji"))))


def _system(bare: Message, item: Item) -> Message | None:
    system = mapping(item.get("system"))
    if not system:
        return None
    told = System(
        type=text_value(system.get("type")),
        body=text_value(system.get("body")),
        wa_id=phone(system.get("wa_id")) or phone(system.get("new_wa_id")),  # its name before 2022
        user_id=identifier(system.get("user_id")),
        previous_user_id=identifier(system.get("previous_user_id")),
        parent_user_id=identifier(system.get("parent_user_id")),
    )
    return replace(bare, kind="system", system=told)


def _edit(bare: Message, item: Item) -> Message | None:
    """The new content is in the same parts as in a new message; only the kind differs. With a file's new caption the
    file may be missing. An unreadable edit is still an edit, because the message has changed.
    """
    edit = mapping(item.get("edit"))
    original_id, message = identifier(edit.get("original_message_id")), mapping(edit.get("message"))
    if original_id is None:
        return None
    type_ = message.get("type")
    content = None
    if isinstance(type_, str) and type_ in EDITABLE:
        caption = text_value(mapping(message.get(type_)).get("caption"))
        content = READERS[type_](bare, message) or replace(bare, text=caption)
    return replace(content or bare, kind="edit", original_id=original_id)


def _revoke(bare: Message, item: Item) -> Message | None:
    original_id = identifier(mapping(item.get("revoke")).get("original_message_id"))
    return replace(bare, kind="revoke", original_id=original_id) if original_id else None


def _unsupported(bare: Message, type_: str, item: Item) -> Message:
    """Meta reports that it cannot pass it on (131051; 131060 beside the phone's app), or Pombo cannot read it."""
    error = next(iter(objects(item.get("errors"))), {})
    of_meta = text_value(mapping(item.get(UNSUPPORTED)).get("type"))
    what = of_meta if type_ == UNSUPPORTED else type_
    said = Unsupported(what, code_number(error.get("code")), text_value(error.get("title")))
    return replace(bare, kind=UNSUPPORTED, unsupported=said)


READERS: Mapping[str, Reader] = {
    "text": _text,
    **{type_: _media(type_) for type_ in MEDIA_TYPES},
    "voice": _voice,
    "location": _location,
    "contacts": _contacts,
    "interactive": _interactive,
    "button": _button,
    "order": _order,
    "reaction": _reaction,
    "request_welcome": _request_welcome,
    "system": _system,
    "edit": _edit,
    "revoke": _revoke,
}
"""The supported types. Any other is `unsupported`, such as a poll or a new type of Meta."""

ANSWERS: Mapping[str, Callable[[str, Item], Interactive | None]] = {
    "button_reply": _choice,
    "list_reply": _choice,
    "nfm_reply": _flow,
    "call_permission_reply": _permission,
    "payment_method": _payment,
}
"""The supported types of `interactive`."""

EDITABLE = frozenset({"text", *MEDIA_TYPES})
"""What a customer can edit: a text, or a file's caption."""
