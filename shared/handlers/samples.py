"""Samples: complete messages for the tests of a handler, as Pombo would pass them."""

import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from shared.domain.message_kinds import KINDS
from shared.domain.messages import Contact, Message

PERSON = "15550002222"
"""A fictitious number."""

_PROMISED: Mapping[str, str] = {
    "text": "text",
    "media": "media",
    "location": "location",
    "contacts": "contacts",
    "interactive": "interactive",
    "button": "button",
    "order": "order",
    "reaction": "reaction",
    "system": "system",
    "unsupported": "unsupported",
    "edit": "original_id",
    "revoke": "original_id",
}
"""The required field of a message of each kind."""


def message(
    text: str | None = None,
    *,
    kind: str | None = None,
    id: str | None = None,
    contact: Contact | str = PERSON,
    sender: str = "100000000000001",
    tenant: str = "default",
    received_at: datetime | None = None,
    **parts: Any,
) -> Message:
    """A message for the test of a handler.

    message("hello")
    message("look", media=Media("image", id="1"))
    message(kind="revoke", original_id="wamid.1")

    The kind follows from the given part, and is "text" if there is none. Each message gets a new id unless `id` is
    given: pass the same one twice to test that a repeated call does no harm. A `contact` may be a phone number. Raises
    ValueError for an unknown kind or a missing part, and TypeError for an unknown field.
    """
    kind = kind or next((name for name in _PROMISED if parts.get(name)), "text")
    if kind not in KINDS:
        raise ValueError(f"The kind of a message must be one of {', '.join(sorted(KINDS))}.")
    text = _words_of(parts) if text is None else text
    promised = _PROMISED.get(kind)
    if promised and {"text": text, **parts}.get(promised) in (None, ()):
        raise ValueError(f"A message of kind {kind} needs {promised}.")
    return Message(
        kind=kind,
        text=text,
        id=id or f"wamid.{secrets.token_hex(16)}",
        contact=Contact(contact, phone=contact) if isinstance(contact, str) else contact,
        sender=sender,
        tenant=tenant,
        received_at=received_at or datetime.now(UTC),
        **parts,
    )


def _words_of(parts: Mapping[str, Any]) -> str | None:
    """The label of a button or list row, which is also the message's text."""
    interactive, button = parts.get("interactive"), parts.get("button")
    words: str | None = interactive.title if interactive else button.text if button else None
    return words
