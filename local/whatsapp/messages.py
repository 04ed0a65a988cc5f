"""A message: what a business asks Meta to send, to one contact and of one kind, with a text that receipts repeat.

Sources: Meta's page on business-scoped user ids (5 November 2026), and notes by third parties on its messages reference
(September 2026).
"""

import re
from dataclasses import dataclass, field
from typing import Any

from local.whatsapp.checks import Fields, no_nul, one_of, optional_string, part, string
from local.whatsapp.errors import INVALID, MISSING, UNSUPPORTED_TYPE, GraphError
from local.whatsapp.message_kinds import ID, KINDS

COUNTRY_CODE = "1"
"""The country code of the simulated business's number."""

ECHO_LIMIT = 512
"""Meta's page states no figure; users report 512."""

BSUID_LIMIT = 160
"""A country, a dot, at most 128 characters, and room for the parent's `ENT.`; the format itself is not checked."""


@dataclass(frozen=True, slots=True)
class SentMessage:
    """One valid request to send. Exactly one of `wa_id` (digits) and `recipient` (a BSUID) is set.

    `given` is the address as the business wrote it. A number without its plus is not refused: Meta prefixes the
    business's own country code, and the message reaches someone else.
    """

    given: str
    wa_id: str | None
    recipient: str | None
    type: str
    body: Any
    echo: str | None

    @property
    def contact(self) -> str:
        return self.wa_id or self.recipient or ""


@dataclass(frozen=True, slots=True)
class ReadCall:
    """Marks a message as read, and may show "typing…". Not a message itself."""

    type: str
    message_id: str = field(default="", compare=False)


def parse_call(fields: Fields) -> SentMessage | ReadCall:
    """The request, parsed; GraphError if Meta would refuse it."""
    no_nul(fields)
    one_of(fields, "messaging_product", "", {"whatsapp"})
    return _read_call(fields) if "status" in fields else _message(fields)


def _read_call(fields: Fields) -> ReadCall:
    one_of(fields, "status", "", {"read"})
    message_id = string(fields, "message_id", "", ID)
    if not message_id.startswith("wamid."):
        raise unknown_message()
    if fields.get("typing_indicator") is None:
        return ReadCall("read", message_id)
    one_of(part(fields, "typing_indicator", ""), "type", "typing_indicator", {"text"})
    return ReadCall("typing", message_id)


def unknown_message() -> GraphError:
    return GraphError(INVALID, "message_id must be the id of a message that was received.")


def _message(fields: Fields) -> SentMessage:
    if fields.get("recipient_type") is not None:
        one_of(fields, "recipient_type", "", {"individual"})
    given, wa_id, recipient = _address(fields)
    kind = optional_string(fields, "type", "") or "text"
    if kind not in KINDS:
        raise GraphError(UNSUPPORTED_TYPE, f"type must be one of {', '.join(sorted(KINDS))}.")
    KINDS[kind](fields)
    if fields.get("context") is not None:
        string(part(fields, "context", ""), "message_id", "context", ID)
    echo = optional_string(fields, "biz_opaque_callback_data", "", ECHO_LIMIT)
    return SentMessage(given, wa_id, recipient, kind, fields[kind], echo)


def _address(fields: Fields) -> tuple[str, str | None, str | None]:
    """`to` wins if both are given; an empty one counts as absent."""
    if to := optional_string(fields, "to", ""):
        digits = re.sub(r"[ ()-]", "", to)
        if not re.fullmatch(r"\+?[0-9]{5,15}", digits):
            raise GraphError(INVALID, "to must be a phone number.")
        return to, digits[1:] if digits.startswith("+") else COUNTRY_CODE + digits, None
    if recipient := optional_string(fields, "recipient", "", BSUID_LIMIT):
        if not re.fullmatch(r"[!-~]+", recipient):
            raise GraphError(INVALID, "recipient must be a business-scoped user id.")
        return recipient, None, recipient
    raise GraphError(MISSING, "to or recipient is required.")
