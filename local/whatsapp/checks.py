"""Checks of single fields, refused in Meta's words: 131008 if something is missing, 131009 if it is not valid."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from local.whatsapp.errors import INVALID, INVALID_REQUEST, MISSING, GraphError

Fields = Mapping[str, Any]


def present(holder: Fields, name: str, path: str) -> Any:
    """The field's value, of any type."""
    value = holder.get(name)
    if value is None:
        raise GraphError(MISSING, f"{_join(path, name)} is required.")
    return value


def part(holder: Fields, name: str, path: str) -> Fields:
    """A required object."""
    value = present(holder, name, path)
    if not isinstance(value, dict):
        raise GraphError(INVALID, f"{_join(path, name)} must be an object.")
    return value


def parts(holder: Fields, name: str, path: str, most: int | None = None) -> list[Fields]:
    """A required list of objects, not empty."""
    value = present(holder, name, path)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise GraphError(INVALID, f"{_join(path, name)} must be a list of objects.")
    if not value or (most is not None and len(value) > most):
        raise GraphError(INVALID, f"{_join(path, name)} must hold 1 to {most or 'any number of'} items.")
    return value


def string(holder: Fields, name: str, path: str, most: int | None = None, least: int = 1) -> str:
    """A required string of this many characters."""
    value = present(holder, name, path)
    if not isinstance(value, str):
        raise GraphError(INVALID, f"{_join(path, name)} must be a string.")
    if (least and not value.strip()) or len(value) < least or (most is not None and len(value) > most):
        raise GraphError(INVALID, f"{_join(path, name)} must be {least} to {most or 'any number of'} characters long.")
    return value


def optional_string(holder: Fields, name: str, path: str, most: int | None = None) -> str | None:
    return None if holder.get(name) is None else string(holder, name, path, most, least=0)


def optional_flag(holder: Fields, name: str, path: str) -> None:
    if holder.get(name) is not None and not isinstance(holder[name], bool):
        raise GraphError(INVALID, f"{_join(path, name)} must be true or false.")


def number(holder: Fields, name: str, path: str, bound: float) -> None:
    """A required number of at most `bound` either way. Like Meta, accepts it as a string of decimal digits too."""
    value = present(holder, name, path)
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,3}(\.[0-9]+)?", value):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not -bound <= value <= bound:
        raise GraphError(INVALID, f"{_join(path, name)} must be a number from {-bound:.0f} to {bound:.0f}.")


def one_of(holder: Fields, name: str, path: str, options: Collection[str]) -> str:
    value = string(holder, name, path)
    if value not in options:
        raise GraphError(INVALID, f"{_join(path, name)} must be one of {', '.join(sorted(options))}.")
    return value


def absent(holder: Fields, name: str, path: str) -> None:
    if holder.get(name) is not None:
        raise GraphError(INVALID, f"{_join(path, name)} is not allowed here.")


def only(holder: Fields, path: str, *keys: str) -> None:
    """Meta: (#100) Unexpected key "x" on param "text" (users' reports, 2023 to 2026). A null counts as absent."""
    if any(value is not None and name not in keys for name, value in holder.items()):
        raise GraphError(INVALID_REQUEST, f"Unexpected key on param {path}.")


def no_nul(fields: Fields) -> None:
    """No text in it, at any depth, contains NUL, which ends a string elsewhere."""
    waiting: list[Any] = [fields]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str) and "\0" in value:
            raise GraphError(INVALID, "The request holds a NUL (U+0000).")
        if isinstance(value, dict):
            waiting += [*value.keys(), *value.values()]
        elif isinstance(value, list):
            waiting += value


def distinct(values: list[str], what: str) -> None:
    if len(set(values)) < len(values):
        raise GraphError(INVALID, f"{what} must be unique.")


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
