"""Messages: what a handler is given and what it gives back."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

TEXT_MAX = 4096
"""Characters in a text body. Source: Cloud API reference, text object, seen 2026-09."""

DEFAULT_KINDS = frozenset({"text", "media", "location", "contacts", "interactive", "button", "order"})
"""What a handler is called for unless it says otherwise: what a person wrote to get an answer."""


@dataclass(frozen=True, slots=True)
class Contact:
    """The person. `id` is stable: the business-scoped user id where there is one, else the phone number.

    Since 2026 a person with a username may have no phone number here.
    """

    id: str
    phone: str | None = None
    user_id: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a person, the same shape whatever the provider."""

    kind: str
    text: str | None
    id: str
    contact: Contact
    sender: str
    tenant: str
    received_at: datetime
    reply_to: str | None = None
    media: Mapping[str, Any] | None = None
    location: Mapping[str, Any] | None = None
    interactive: Mapping[str, Any] | None = None
    raw: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OutboundMessage:
    """One message to a person. Made by its makers, which check it against the provider's limits."""

    type: str
    content: Mapping[str, Any]
    reply_to: str | None = None

    def __post_init__(self) -> None:
        """Raises TypeError or ValueError for what cannot be stored: it is found here, not after the handler has run."""
        if not isinstance(self.type, str) or not isinstance(self.content, Mapping):
            raise TypeError("An OutboundMessage has a type, a str, and a content, a mapping.")
        if self.reply_to is not None and not isinstance(self.reply_to, str):
            raise TypeError(f"reply_to is the id of a message, a str, not {type(self.reply_to).__name__}.")
        try:
            json.dumps([self.type, dict(self.content), self.reply_to], ensure_ascii=False, allow_nan=False).encode()
        except UnicodeEncodeError as error:
            raise ValueError("The message holds half a character (a lone surrogate).") from error

    @classmethod
    def text(cls, body: str, *, reply_to: str | None = None, preview_url: bool = False) -> Self:
        """A text of 1 to 4096 characters; `reply_to` is the id of the message it quotes. Raises what is wrong."""
        if not isinstance(body, str):
            raise TypeError(f"The text of a message is a str, not {type(body).__name__}.")
        if not body.strip():
            raise ValueError("The text of a message is empty.")
        if len(body) > TEXT_MAX:
            raise ValueError(f"The text of a message has {len(body)} characters; WhatsApp takes {TEXT_MAX}.")
        content: dict[str, Any] = {"body": body}
        if preview_url:
            content["preview_url"] = True
        return cls("text", content, reply_to)


class Drop(Exception):
    """Raised by a handler that wants nothing more done with this message; the reason is shown in its timeline."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
