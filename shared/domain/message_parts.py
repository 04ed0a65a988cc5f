"""Message parts: what a message holds beside its text, one small value for each kind. What is unknown is None."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Media:
    """A file, by its id; the caption is the message's text.

    `type` is image, video, audio, document or sticker. `url`, where it comes, needs the access token and lasts minutes.
    There is an `id` or a `url`.
    """

    type: str
    id: str | None = None
    mime_type: str | None = None
    sha256: str | None = None
    filename: str | None = None
    voice: bool = False
    animated: bool = False
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Location:
    """A place, in degrees."""

    latitude: float
    longitude: float
    name: str | None = None
    address: str | None = None
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Phone:
    """A number on a contact card; `wa_id` where it is on WhatsApp."""

    phone: str | None = None
    wa_id: str | None = None
    type: str | None = None


@dataclass(frozen=True, slots=True)
class ContactCard:
    """A contact that the person shared. Addresses and links are in the message's raw form."""

    name: str | None = None
    phones: tuple[Phone, ...] = ()
    emails: tuple[str, ...] = ()
    company: str | None = None
    birthday: str | None = None
    origin: str | None = None
    vcard: str | None = None


@dataclass(frozen=True, slots=True)
class Interactive:
    """The answer to buttons, a list, a flow, an order to pay or a request to call.

    `type` is button_reply or list_reply (`id`, `title`, `description`), nfm_reply (a flow: `name`, `response_json` as
    it came and `response` where that is a JSON object), call_permission_reply (`permission`: accept or reject;
    `expires_at`), or payment_method (the person agreed to pay: `response` is the provider's object).
    """

    type: str
    id: str | None = None
    title: str | None = None
    description: str | None = None
    name: str | None = None
    response_json: str | None = None
    response: Mapping[str, Any] | None = None
    permission: str | None = None
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Button:
    """A quick reply of a template; its words are the message's text too."""

    payload: str | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class OrderItem:
    """A product of an order. `price` is of one piece."""

    product_id: str | None = None
    quantity: float | None = None
    price: float | None = None
    currency: str | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """What the person put into the cart; what they wrote with it is the message's text."""

    catalog_id: str | None = None
    items: tuple[OrderItem, ...] = ()


@dataclass(frozen=True, slots=True)
class Reaction:
    """An emoji on a message, or (None) its removal."""

    message_id: str
    emoji: str | None = None


@dataclass(frozen=True, slots=True)
class System:
    """News of the person: another number (`wa_id`), or another user id in place of `previous_user_id`."""

    type: str | None = None
    body: str | None = None
    wa_id: str | None = None
    user_id: str | None = None
    previous_user_id: str | None = None
    parent_user_id: str | None = None


@dataclass(frozen=True, slots=True)
class Unsupported:
    """What cannot be read here: the provider's word for it, and the provider's error where it cannot read it either."""

    type: str | None = None
    code: int | None = None
    title: str | None = None


@dataclass(frozen=True, slots=True)
class Referral:
    """The advertisement or post from which the person came (click to WhatsApp)."""

    source_url: str | None = None
    source_id: str | None = None
    source_type: str | None = None
    headline: str | None = None
    body: str | None = None
    media_type: str | None = None
    image_url: str | None = None
    video_url: str | None = None
    thumbnail_url: str | None = None
    ctwa_clid: str | None = None
    welcome_text: str | None = None


@dataclass(frozen=True, slots=True)
class Product:
    """The product that the person asks about."""

    catalog_id: str | None = None
    product_id: str | None = None
