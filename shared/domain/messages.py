"""Messages: what a customer wrote, as a handler gets it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import UTC, datetime
from typing import Any

from shared.domain.message_parts import (
    Button,
    ContactCard,
    Interactive,
    Location,
    Media,
    Order,
    Product,
    Reaction,
    Referral,
    System,
    Unsupported,
)


@dataclass(frozen=True, slots=True)
class Contact:
    """The customer. `id` is stable: the business-scoped user id if there is one, otherwise the phone number.

    Since 2026 a customer with a username may have no phone number here.
    """

    id: str
    phone: str | None = None
    user_id: str | None = None
    name: str | None = None
    username: str | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One message from a customer, in the same form for every provider.

    `text` is what they wrote: a text, a caption, the label of a button or list row, the text with an order, the new
    text of an edit. `reply_to` is the id of the message that theirs answers. `original_id` is the id of the message
    that an edit or a revoke changes. `raw` is the provider's complete form.
    """

    kind: str
    text: str | None
    id: str
    contact: Contact
    sender: str
    tenant: str
    received_at: datetime
    reply_to: str | None = None
    media: Media | None = None
    location: Location | None = None
    interactive: Interactive | None = None
    raw: Mapping[str, Any] = field(default_factory=dict)
    contacts: tuple[ContactCard, ...] = ()
    button: Button | None = None
    order: Order | None = None
    reaction: Reaction | None = None
    system: System | None = None
    unsupported: Unsupported | None = None
    original_id: str | None = None
    referral: Referral | None = None
    product: Product | None = None
    forwarded: bool = False
    frequently_forwarded: bool = False
    group_id: str | None = None


class Drop(Exception):
    """A handler raises it to drop this message; the timeline shows the reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def to_json(message: Message) -> dict[str, Any]:
    """The message as plain JSON values: every field by its name, times in RFC 3339, UTC."""
    plain: dict[str, Any] = _plain(message)
    return plain


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {part.name: _plain(getattr(value, part.name)) for part in fields(value)}
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
