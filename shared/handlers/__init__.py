"""What a team's handler imports: messages in, messages out, the two words it may say instead, and what a test needs."""

import json
from collections.abc import Callable
from typing import Any, TypeVar

from shared.domain.message_parts import (
    Button,
    ContactCard,
    Interactive,
    Location,
    Media,
    Order,
    OrderItem,
    Product,
    Reaction,
    Referral,
)
from shared.domain.messages import DEFAULT_KINDS, Contact, Drop, Message, UnknownKind, kinds_named
from shared.domain.outbound.messages import OutboundMessage
from shared.handlers.samples import message

__all__ = [
    "DEFAULT_KINDS",
    "Button",
    "Contact",
    "ContactCard",
    "Drop",
    "Interactive",
    "Location",
    "Media",
    "Message",
    "Order",
    "OrderItem",
    "OutboundMessage",
    "Product",
    "Reaction",
    "Referral",
    "handles",
    "message",
]


class WrongKinds(ValueError):
    """@handles names what is no kind of message. The sentence says which name, and which kinds there are."""


def _told(error: UnknownKind) -> str:
    """A name is repeated as it stands in the code; of anything else only its type is told."""
    wrong = ", ".join(
        json.dumps(name, ensure_ascii=False) if isinstance(name, str) else f"a {type(name).__name__}"
        for name in error.wrong
    )
    return f"@handles {error}; it names {wrong}." if wrong else f"@handles {error}."


_Handle = TypeVar("_Handle", bound=Callable[..., Any])
KINDS_ATTRIBUTE = "pombo_kinds"


def handles(*kinds: str) -> Callable[[_Handle], _Handle]:
    """Say for which kinds of message the handler is called, in place of the default ones; "*" is every kind.

    @handles("text", "reaction")
    def handle(message: Message) -> str: ...

    Raises WrongKinds for a name that is no kind: the handler would wait in vain for such a message.
    """
    try:
        named = kinds_named(kinds)
    except UnknownKind as error:
        raise WrongKinds(_told(error)) from None

    def mark(handle: _Handle) -> _Handle:
        setattr(handle, KINDS_ATTRIBUTE, named)
        return handle

    return mark
