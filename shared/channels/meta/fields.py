"""Fields of Meta's JSON, read without trust: a value of the wrong type counts as absent."""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

LONGEST_ID = 1024
"""Meta's ids have up to about 150 characters; a store indexes up to 1,500 bytes."""

_LONGEST_NUMBER = 64
_PHONE = re.compile(r"\+?([0-9]{1,20})")
_SECONDS = re.compile(r"[0-9]{1,11}")
_CODE_TEXT = re.compile(r"-?[0-9]{1,9}")
_LAST_SECOND = 253_402_300_799  # the end of the year 9999, where datetime ends


def mapping(value: Any) -> Mapping[str, Any]:
    """The value if it is an object, otherwise an empty one."""
    return value if isinstance(value, dict) else {}


def objects(value: Any) -> list[Mapping[str, Any]]:
    """The non-empty objects in a list. An object in place of the list counts as a list of one."""
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, dict) and item]


def identifier(value: Any) -> str | None:
    """An id as Meta gives it; absent if it is blank or too long to store."""
    return value if isinstance(value, str) and len(value) <= LONGEST_ID and value.strip() else None


def text_value(value: Any) -> str | None:
    """A text; an empty one is absent."""
    return value if isinstance(value, str) and value else None


def phone(value: Any) -> str | None:
    """The digits of a phone number."""
    match = _PHONE.fullmatch(value) if isinstance(value, str) else None
    return match[1] if match else None


def decimal(value: Any) -> float | None:
    """A number, or a number in a string: Meta's pages show both."""
    if isinstance(value, str) and len(value) <= _LONGEST_NUMBER:
        try:
            value = float(value)
        except ValueError:
            return None
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return value if math.isfinite(value) else None


def code_number(value: Any) -> int | None:
    """An error code as Meta may write it: a number, or a number in a string. It is logged, so a number as long as a
    phone number is not accepted.
    """
    text = value if isinstance(value, str) else str(value) if type(value) is int else ""
    return int(text) if _CODE_TEXT.fullmatch(text) else None


def moment(value: Any) -> datetime | None:
    """A time in seconds since 1970, which Meta writes as a string or as a number."""
    if isinstance(value, str) and _SECONDS.fullmatch(value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= _LAST_SECOND:
        return None
    return datetime.fromtimestamp(value, UTC)


def customer_ids(item: Mapping[str, Any], contact: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """The user id and the phone number of an item's sender. `contact` is their entry in contacts[], or empty.

    A system message may name its customer only in the part that reports a change of ids.
    """
    system = mapping(item.get("system")) if item.get("type") == "system" else {}
    user_id = identifier(item.get("from_user_id")) or identifier(contact.get("user_id"))
    number = phone(item.get("from")) or phone(contact.get("wa_id"))
    if user_id is None and number is None:
        user_id = identifier(system.get("previous_user_id")) or identifier(system.get("user_id"))
        number = phone(system.get("wa_id"))
    return user_id, number
