"""The recipient of a message that answers no event: a phone number, or the provider's id of a user."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

NUMBER = re.compile(r"\+[1-9][0-9]{6,14}")
"""E.164: + and 7 to 15 digits, of which the first ones are the country's."""

_USER_ID = re.compile(r"[^\s+\x00-\x1f\x7f]{3,160}")
_LOOKS_LIKE_NUMBER = re.compile(r"[+0-9().\s-]*")


@dataclass(frozen=True, slots=True)
class Recipient:
    """`contact` is the customer as an event names them, so that both directions have the same; `address` is what the
    provider's request has.
    """

    contact: str
    address: Mapping[str, str]


def phone_number(to: str) -> str | None:
    """The digits of a phone number; None if `to` is a user id. Raises ValueError with a sentence for neither."""
    if NUMBER.fullmatch(to):
        return to[1:]
    if _LOOKS_LIKE_NUMBER.fullmatch(to):
        raise ValueError("to is a phone number with + and its country code, and digits only, like +15550002222.")
    if not _USER_ID.fullmatch(to):
        raise ValueError("to is a phone number with + and its country code, like +15550002222, or a user id.")
    return None
