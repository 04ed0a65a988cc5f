"""The codec of marks: converts each mark to a plain dict that JSON can hold, and back. All stores share it.

A store keeps each mark by its name, and a change writes only the marks that differ, so a mark that a newer version of
Pombo added stays as it is. A field that a newer version added inside a mark is ignored when the mark is read, and lost
when the mark is written.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, get_type_hints

from shared.domain.errors import UnknownState
from shared.domain.events import ReceiptBlock
from shared.domain.marks import Block, Bucket, Credential, Disconnected, Marks, Outage, RefusedCredential
from shared.domain.rate_limit import RateLimit
from shared.stores.codec import MICROSECOND, Plain, as_moment, encode_mark

KINDS: Mapping[str, type] = {
    "down": Outage,
    "block": Block,
    "refused": RefusedCredential,
    "credential": Credential,
    "receipt_block": ReceiptBlock,
    "disconnected": Disconnected,
    "bucket": Bucket,
    "limited": RateLimit,
}
"""The class of each mark, by its name in `Marks`."""

_TYPES = {name: get_type_hints(kind) for name, kind in KINDS.items()}


def changes(before: Marks, after: Marks) -> dict[str, Plain | None]:
    """The marks that differ, by name; None for a removed mark."""
    pairs = {name: (getattr(before, name), getattr(after, name)) for name in KINDS}
    return {name: None if new is None else encode_mark(new) for name, (old, new) in pairs.items() if old != new}


def decode(plain: Mapping[str, Any], version: int | None) -> Marks:
    """The marks, from the `encode_mark` form of each. Raises UnknownState."""
    try:
        return Marks(**{name: _mark(name, plain[name]) for name in KINDS if name in plain}, version=version)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise UnknownState from error


def _mark(name: str, plain: Mapping[str, Any]) -> Any:
    types = _TYPES[name]
    return KINDS[name](**{field: _typed(types[field], plain[field]) for field in types if field in plain})


def _typed(wanted: Any, value: Any) -> Any:
    """Raises TypeError for a value of another type: an invalid mark must not reach the rules."""
    if wanted in (datetime, datetime | None):
        value = as_moment(value)
    elif wanted is timedelta:
        value = value * MICROSECOND
    if not isinstance(value, wanted):
        raise TypeError
    return value
