"""Choices: convert buttons, rows, cards and parameters from an author's notation to Meta's shape.

Wrong content in the right shape passes through; the checks report it.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any

Choice = str | Sequence[str] | Mapping[str, Any]
"""A title that is also the id, a pair (id, title), a triple (id, title, description), or Meta's object."""
Choices = Mapping[str, str] | Iterable[Choice]
"""Choices in order, or a mapping from id to title."""

_PARTS = ("id", "title", "description")


def buttons(given: Choices) -> list[Mapping[str, Any]]:
    """Reply buttons."""
    return [{"type": "reply", "reply": choice} for choice in _choices(given, "buttons", 2)]


def sections(given: Any) -> list[Mapping[str, Any]]:
    """A list's sections: plain rows are one section without a title; a mapping or pairs (title, rows) are several."""
    if isinstance(given, Mapping):
        if all(isinstance(value, str) for value in given.values()):
            return [{"rows": _choices(given, "rows", 3)}]
        given = list(given.items())
    items = _items(given, "sections")
    if not any(_is_section(item) for item in items):
        return [{"rows": _choices(items, "rows", 3)}]
    return [_section(item) for item in items]


def header(given: str | Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The header of an interactive message: a text, or Meta's object for an image, a video, a document."""
    if given is None:
        return {}
    return {"header": {"type": "text", "text": given} if isinstance(given, str) else given}


def cards(given: Any) -> list[Any]:
    """Contact cards: a mapping from name to phone number, or Meta's objects."""
    if isinstance(given, Mapping):
        return [
            {"name": {"formatted_name": name, "first_name": name}, "phones": [{"phone": phone}]}
            for name, phone in given.items()
        ]
    return _items(given, "contacts")


def parameters(given: Any) -> list[Mapping[str, Any]]:
    """A template's parameters: values in order, or a mapping from name to value; a value may be Meta's object."""
    if isinstance(given, Mapping):
        return [{**_parameter(value), "parameter_name": name} for name, value in given.items()]
    return [_parameter(value) for value in _items(given, "parameters")]


def _parameter(value: Any) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        if isinstance(value, float) and not isfinite(value):
            raise ValueError("A parameter is NaN or infinite; give a finite number.")
        return {"type": "text", "text": str(value)}
    raise TypeError(f"A parameter is a str, a number or a mapping, not {type(value).__name__}.")


def _choices(given: Any, what: str, most: int) -> list[Mapping[str, Any]]:
    items = given.items() if isinstance(given, Mapping) else _items(given, what)
    return [_choice(item, what, most) for item in items]


def _choice(item: Any, what: str, most: int) -> Mapping[str, Any]:
    if isinstance(item, str):
        return {"id": item, "title": item}
    if isinstance(item, Mapping):
        return item
    if isinstance(item, list | tuple) and 2 <= len(item) <= most:
        return dict(zip(_PARTS, item, strict=False))
    raise TypeError(
        f"One of the {what} is a title, {' or '.join(('(id, title)', '(id, title, description)')[: most - 1])}."
    )


def _is_section(item: Any) -> bool:
    if isinstance(item, Mapping):
        return "rows" in item
    return isinstance(item, list | tuple) and len(item) == 2 and not isinstance(item[1], str)


def _section(item: Any) -> Mapping[str, Any]:
    if not _is_section(item):
        raise TypeError("Either all items of a list are sections, each a pair of a title and rows, or none is.")
    if isinstance(item, Mapping):
        return {**item, "rows": _choices(item["rows"], "rows", 3)}
    return {"title": item[0], "rows": _choices(item[1], "rows", 3)}


def _items(given: Any, what: str) -> list[Any]:
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise TypeError(f"The {what} are a list or a mapping, not {type(given).__name__}.")
    return list(given)
