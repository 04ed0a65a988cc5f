"""Messages: what a customer wrote, as a handler gets it."""

from collections.abc import Collection, Iterable, Mapping
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

DEFAULT_KINDS = frozenset({"text", "media", "location", "contacts", "interactive", "button", "order"})
"""The kinds a handler is called for by default: those that expect an answer."""

KINDS = DEFAULT_KINDS | {"reaction", "request_welcome", "system", "edit", "revoke", "unsupported"}
"""Every kind. A message has what its kind says: a `media` message has media, a `text` message has text."""

EVERY_KIND = "*"
"""Names all kinds, including those that later versions add."""


class UnknownKind(ValueError):
    """A name is not a kind of message. The error's text completes a sentence about the place of the name; `wrong` holds
    the wrong names, if any.
    """

    def __init__(self, wrong: tuple[object, ...] = ()) -> None:
        kinds = ", ".join(sorted(KINDS))
        super().__init__(f"must name one or more of the kinds {kinds}, or {EVERY_KIND} for every kind")
        self.wrong = wrong


def kinds_named(names: Iterable[object]) -> frozenset[str]:
    """The kinds by these names; EVERY_KIND stands for itself. Raises UnknownKind, which lists all kinds."""
    given = tuple(names)
    named = frozenset(name for name in given if isinstance(name, str) and (name in KINDS or name == EVERY_KIND))
    wrong = tuple(name for name in given if not isinstance(name, str) or name not in named)
    if wrong or not given:
        raise UnknownKind(wrong)
    return named


def includes(kinds: Collection[str], kind: str) -> bool:
    """Whether a handler of these kinds is called for a message of this kind."""
    return EVERY_KIND in kinds or kind in kinds


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
