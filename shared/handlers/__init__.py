"""The handler API: messages in, messages out, `Drop` and `handles`, and what a handler's test needs."""

import json
from collections.abc import Callable
from typing import Any, TypeVar

from shared.domain.message_kinds import DEFAULT_KINDS, UnknownKind, kinds_named
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
from shared.domain.messages import Contact, Drop, Message
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
    """@handles names an unknown kind of message. The sentence gives the wrong name and all kinds."""


def _sentence(error: UnknownKind) -> str:
    """The error's sentence. It repeats a wrong name as in the code; for another value it gives only the type."""
    wrong = ", ".join(
        json.dumps(name, ensure_ascii=False) if isinstance(name, str) else f"a {type(name).__name__}"
        for name in error.wrong
    )
    return f"@handles {error}; it names {wrong}." if wrong else f"@handles {error}."


_Handle = TypeVar("_Handle", bound=Callable[..., Any])
KINDS_ATTRIBUTE = "pombo_kinds"


def handles(*kinds: str) -> Callable[[_Handle], _Handle]:
    """Set the kinds of message for which the handler is called, in place of the default ones; "*" is every kind.

    @handles("text", "reaction")
    def handle(message: Message) -> str: ...

    Raises WrongKinds for an unknown kind: the handler would never get such a message.
    """
    try:
        named = kinds_named(kinds)
    except UnknownKind as error:
        raise WrongKinds(_sentence(error)) from None

    def mark(handle: _Handle) -> _Handle:
        setattr(handle, KINDS_ATTRIBUTE, named)
        return handle

    return mark
