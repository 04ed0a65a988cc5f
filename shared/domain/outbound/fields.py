"""Field checks: each checks one field of an outbound message and raises a sentence about what is wrong.

`what` begins the sentence ("The title of button 2"); `limit` is a name in the table of limits. No sentence repeats a
value, because the value may be private and the sentence goes into a timeline.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from shared.domain.outbound.limits import ID_CHARACTERS, LIMITS
from shared.domain.spelling import is_nearly

Fields = Mapping[str, Any]

_NOT_IN_AN_ADDRESS = re.compile(r"[\s\x00-\x20\x7f]")
_SCHEMES = frozenset({"http", "https"})
_DECIMAL = re.compile(r"-?[0-9]{1,3}(\.[0-9]+)?")

_PICTOGRAPH = (
    "[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u24c2\u25a0-\u27bf\u2900-\u297f\u2b00-\u2bff"
    "\u3030\u303d\u3297\u3299\U0001f000-\U0001f1e5\U0001f200-\U0001f3fa\U0001f400-\U0001faff]"
)
_ELEMENT = f"{_PICTOGRAPH}\ufe0f?[\U0001f3fb-\U0001f3ff]?[\ufe0e\ufe0f]?"
_EMOJI = re.compile(
    f"{_ELEMENT}(?:\u200d{_ELEMENT})*"  # a base, its look and skin tone, and what is joined to it
    "|[\U0001f1e6-\U0001f1ff]{2}"  # a flag, by the letters of its country
    "|\U0001f3f4[\U000e0020-\U000e007e]+\U000e007f"  # a flag of a region
    "|[0-9#*]\ufe0f?\u20e3"  # a keycap
    "|[\U0001f3fb-\U0001f3ff]"  # a skin tone alone
)
"""The sequences of https://www.unicode.org/reports/tr51/ (section 1.4.9, 2026-11-28). Pictographs are matched by their
blocks, which also hold other signs and room for future emoji: this only has to tell one emoji from two.
"""


def name_of(value: Any) -> str:
    """The name of the value's type."""
    return type(value).__name__


def text(holder: Fields, name: str, what: str, limit: str | None = None) -> str:
    """A non-blank str within the limit."""
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
    """A text, or none; an empty one counts as none."""
    if holder.get(name) not in (None, ""):
        text(holder, name, what, limit)


def open_type(holder: Fields, name: str, what: str, known: Collection[str]) -> str:
    """A type, known or not: Meta adds types, so an unknown one is sent as it is. But if it differs from a known type
    only in case, in - or a blank for _, in one letter, or in two swapped letters, it counts as a misspelling.
    """
    value = text(holder, name, what)
    meant = None if value in known else next((one for one in sorted(known) if _is_misspelling(value, one)), None)
    if meant is not None:
        raise ValueError(f"{what} is a misspelling of {meant}.")
    return value


def _is_misspelling(written: str, meant: str) -> bool:
    return is_nearly(re.sub(r"[-\s]", "_", written.strip().lower()), meant)


def only_keys(holder: Fields, what: str, known: Collection[str]) -> None:
    """Only these keys: Meta refuses any other (code 100), and its value would be lost."""
    if any(value is not None and name not in known for name, value in holder.items()):
        raise ValueError(f"{what} has a key that WhatsApp does not take; it takes {', '.join(sorted(known))}.")


def one_emoji(holder: Fields, name: str, what: str) -> None:
    """One emoji as displayed, of any number of characters; or none."""
    value = holder.get(name)
    if not isinstance(value, str):
        raise TypeError(f"{what} is a str, empty to take it back, not {name_of(value)}.")
    if value and not _EMOJI.fullmatch(value):
        raise ValueError(f"{what} is not one emoji; WhatsApp takes one, or none to take it back.")


def id_of_message(holder: Fields, name: str, what: str) -> None:
    """A text of any form, because the provider's ids are opaque, but not too long."""
    value = text(holder, name, what)
    if len(value) > ID_CHARACTERS:
        raise ValueError(f"{what} has {len(value)} characters; {ID_CHARACTERS} are taken.")


def flag(holder: Fields, name: str, what: str) -> None:
    """True or false, or absent."""
    value = holder.get(name)
    if value is not None and not isinstance(value, bool):
        raise TypeError(f"{what} is true or false, not {name_of(value)}.")


def number(holder: Fields, name: str, what: str, bound: int) -> None:
    """An int, a float or, as on Meta's own page, decimal digits in a str; from -bound to bound."""
    value = holder.get(name)
    if isinstance(value, str):
        if not _DECIMAL.fullmatch(value):
            raise ValueError(f"{what} is not a decimal number.")
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{what} is a number, not {name_of(value)}.")
    if not -bound <= value <= bound:  # true for NaN too
        raise ValueError(f"{what} is not a number from -{bound} to {bound}; WhatsApp takes no other.")


def address(holder: Fields, name: str, what: str) -> None:
    """An http or https URL with a host. Meta fetches it and checks where it leads."""
    value = text(holder, name, what)
    try:
        url = urlsplit(value)
        is_address = url.scheme in _SCHEMES and bool(url.hostname) and url.port != 0
    except ValueError:
        is_address = False
    if not is_address or _NOT_IN_AN_ADDRESS.search(value):
        raise ValueError(f"{what} is not an http or https address.")


def part(holder: Fields, name: str, what: str) -> Fields:
    """A required mapping."""
    if name not in holder:
        raise ValueError(f"{what} is missing.")
    value = holder[name]
    if not isinstance(value, Mapping):
        raise TypeError(f"{what} is a mapping, not {name_of(value)}.")
    return value


def parts(holder: Fields, name: str, what: str, limit: str | None = None) -> Sequence[Fields]:
    """One or more mappings, within the limit. `what` is their plural here."""
    value = holder.get(name)
    if value is None:
        raise ValueError(f"There are no {what}; WhatsApp needs at least one.")
    if not isinstance(value, list | tuple) or not all(isinstance(item, Mapping) for item in value):
        raise TypeError(f"The {what} are a list of mappings.")
    if not value:
        raise ValueError(f"There are no {what}; WhatsApp needs at least one.")
    if limit and len(value) > LIMITS[limit].most:
        raise ValueError(f"There are {len(value)} {what}; WhatsApp takes {LIMITS[limit].most}.")
    return value


def distinct(items: Sequence[Fields], name: str, what: str) -> None:
    """No two have the same value."""
    first: dict[str, int] = {}
    for place, item in enumerate(items, start=1):
        earlier = first.setdefault(item[name], place)
        if earlier != place:
            raise ValueError(f"{what.capitalize()}s {earlier} and {place} have the same {name}; each must be unique.")
