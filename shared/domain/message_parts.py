"""Message parts: what a message has beside its text, one class per kind. An unknown value is None."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Media:
    """A file, by its id; the caption is the message's text.

    `type` is image, video, audio, document or sticker. It has an `id` or a `url`. A `url` needs the access token and
    is valid for minutes.
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
    """A number on a contact card; it has a `wa_id` if it is on WhatsApp."""

    phone: str | None = None
    wa_id: str | None = None
    type: str | None = None


@dataclass(frozen=True, slots=True)
class ContactCard:
    """A contact that the customer shared. Addresses and links are in the message's raw form."""

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
    received and `response` if that is a JSON object), call_permission_reply (`permission`: accept or reject;
    `expires_at`), or payment_method (the customer agreed to pay: `response` is the provider's object).
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
    """A quick reply of a template; its label is also the message's text."""

    payload: str | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class OrderItem:
    """A product of an order. `price` is per unit."""

    product_id: str | None = None
    quantity: float | None = None
    price: float | None = None
    currency: str | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """The customer's cart; the text that came with it is the message's text."""

    catalog_id: str | None = None
    items: tuple[OrderItem, ...] = ()


@dataclass(frozen=True, slots=True)
class Reaction:
    """An emoji on a message, or (None) its removal."""

    message_id: str
    emoji: str | None = None


@dataclass(frozen=True, slots=True)
class System:
    """A change of the customer's identity: a new number (`wa_id`), or a new user id in place of `previous_user_id`."""

    type: str | None = None
    body: str | None = None
    wa_id: str | None = None
    user_id: str | None = None
    previous_user_id: str | None = None
    parent_user_id: str | None = None


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A message of an unsupported type: the provider's name for it, and the provider's error if it has one."""

    type: str | None = None
    code: int | None = None
    title: str | None = None


@dataclass(frozen=True, slots=True)
class Referral:
    """The advertisement or post from which the customer came (click to WhatsApp)."""

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
    """The product that the customer asks about."""

    catalog_id: str | None = None
    product_id: str | None = None
