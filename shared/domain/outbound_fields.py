"""One check of one field of an outbound message, and the sentence that says what is wrong with it.

`what` begins the sentence ("The title of button 2"); `limit` is a name in the table of limits. No sentence repeats a
value: it may be private, and it ends in a timeline.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from shared.domain.outbound_limits import LIMITS

Fields = Mapping[str, Any]

_NOT_IN_AN_ADDRESS = re.compile(r"[\x00-\x20\x7f]")


def name_of(value: Any) -> str:
    """Of its type."""
    return type(value).__name__


def text(holder: Fields, name: str, what: str, limit: str | None = None) -> str:
    """A str of one character or more that is not all blank, and of no more than the limit."""
    if name not in holder:
        raise ValueError(f"{what} is missing.")
    value = holder[name]
    if not isinstance(value, str):
        raise TypeError(f"{what} is a str, not {name_of(value)}.")
    if not value.strip():
        raise ValueError(f"{what} is empty.")
    if limit and len(value) > LIMITS[limit].most:
        raise ValueError(f"{what} has {len(value)} characters; WhatsApp takes {LIMITS[limit].most}.")
    return value


def optional(holder: Fields, name: str, what: str, limit: str | None = None) -> None:
    """A text, or none; an empty one is none."""
    if holder.get(name) not in (None, ""):
        text(holder, name, what, limit)


def flag(holder: Fields, name: str, what: str) -> None:
    """True or false, or not there."""
    value = holder.get(name)
    if value is not None and not isinstance(value, bool):
        raise TypeError(f"{what} is true or false, not {name_of(value)}.")


def number(holder: Fields, name: str, what: str, bound: int) -> None:
    """A number from -bound to bound; Meta takes it as a str as well."""
    value = holder.get(name)
    try:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise TypeError(f"{what} is a number, not {name_of(value)}.")
        within = -bound <= float(value) <= bound
    except (ValueError, OverflowError):
        within = False
    if not within:
        raise ValueError(f"{what} is no number from -{bound} to {bound}; WhatsApp takes no other.")


def address(holder: Fields, name: str, what: str) -> None:
    """An http or https URL with a host. Where it leads to is for Meta to see, which fetches it."""
    value = text(holder, name, what)
    try:
        is_address = value.startswith(("https://", "http://")) and bool(urlsplit(value).hostname)
    except ValueError:
        is_address = False
    if not is_address or _NOT_IN_AN_ADDRESS.search(value):
        raise ValueError(f"{what} is no http or https address.")


def part(holder: Fields, name: str, what: str) -> Fields:
    """A mapping that has to be there."""
    if name not in holder:
        raise ValueError(f"{what} is missing.")
    value = holder[name]
    if not isinstance(value, Mapping):
        raise TypeError(f"{what} is a mapping, not {name_of(value)}.")
    return value


def parts(holder: Fields, name: str, what: str, limit: str | None = None) -> Sequence[Fields]:
    """One mapping or more, and no more than the limit. `what` is their plural here."""
    value = holder.get(name)
    if value is None:
        raise ValueError(f"There are no {what}; WhatsApp wants one at least.")
    if not isinstance(value, list | tuple) or not all(isinstance(item, Mapping) for item in value):
        raise TypeError(f"The {what} are a list of mappings.")
    if not value:
        raise ValueError(f"There are no {what}; WhatsApp wants one at least.")
    if limit and len(value) > LIMITS[limit].most:
        raise ValueError(f"There are {len(value)} {what}; WhatsApp takes {LIMITS[limit].most}.")
    return value


def distinct(items: Sequence[Fields], name: str, what: str) -> None:
    """No two have the same value."""
    first: dict[str, int] = {}
    for place, item in enumerate(items, start=1):
        earlier = first.setdefault(item[name], place)
        if earlier != place:
            raise ValueError(f"{what.capitalize()}s {earlier} and {place} have the same {name}; WhatsApp wants others.")
