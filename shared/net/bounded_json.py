"""Bounded JSON: parses untrusted input in linear time, into values that every store can hold."""

import json
import math
import re
from typing import Any

import orjson

DEEPEST = 64
"""Meta nests about 15 levels; the C scanner of json gives up near 1,000, and a store may give up before that."""

LONGEST_NUMBER = 64
"""No sensible number has more characters. int() refuses 4,300 digits, and takes quadratic time below that."""

_INT64 = range(-(2**63), 2**63)
_REPLACEMENT = "\ufffd"

# An unterminated string goes to the end. Possessive, so that it never backtracks and is linear on any text.
_STRING = r'"(?:[^"\\]++|\\.)*+"?'
_STRINGS = re.compile(_STRING.encode(), re.DOTALL)
_TOKEN = re.compile(_STRING + r"|[\[{]++|[\]}]++", re.DOTALL)

_DIGITS_AS_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER = b"0" * 19
"""So many digits in a row are in every number beyond 64 bits, and in every number of more than LONGEST_NUMBER
characters: it has a whole part, a fraction and an exponent at most.
"""

_AS_SQUARE = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


class NotJson(ValueError):
    """The bytes are not a JSON text."""


def loads(body: bytes) -> Any:
    """The value of a JSON text, made storable as UTF-8 JSON. Raises only NotJson.

    It changes only what a store cannot hold: a value nested deeper than 64 becomes None; an integer beyond 64 bits, a
    number beyond a float and NaN become their text; NUL, lone surrogates and invalid UTF-8 become U+FFFD. It accepts
    raw control characters in strings and a byte order mark. The last value of a repeated key counts.
    """
    is_too_deep = _may_be_too_deep(body)
    if not is_too_deep and _LONG_NUMBER not in body.translate(_DIGITS_AS_ZEROS) and b"\\u0000" not in body:
        try:
            return orjson.loads(body)
        except orjson.JSONDecodeError:
            pass  # it takes no invalid UTF-8, lone surrogate, control character, byte order mark, or huge float
    return _lenient(body, is_too_deep)


def _lenient(body: bytes, is_too_deep: bool) -> Any:
    text = body.decode("utf-8", "replace").removeprefix("\ufeff")
    if is_too_deep:
        text = _cut(text)
    try:
        value = _DECODER.decode(text)
    except ValueError as error:
        raise NotJson("not a JSON text") from error
    return _storable(value) if _may_be_unstorable(text) else value


def size(value: Any) -> int:
    """Bytes of a value from `loads` as compact JSON in UTF-8, but for the form of a float."""
    return len(orjson.dumps(value))


def dumps(value: Any) -> str:
    return _ENCODER.encode(value)


def _may_be_too_deep(body: bytes) -> bool:
    """A fast check, so that few texts need the cut: remove the innermost pairs as often as depth is allowed."""
    if body.count(b"[") + body.count(b"{") <= DEEPEST:
        return False
    brackets = _STRINGS.sub(b"", body).translate(_AS_SQUARE, _NO_BRACKETS)
    for _ in range(DEEPEST):
        if not brackets:
            break
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


def _cut(text: str) -> str:
    """The text with null in place of every array and object that lies deeper than DEEPEST."""
    kept: list[str] = []
    depth, copied = 0, 0
    for token in _TOKEN.finditer(text):
        first, start, end = text[token.start()], *token.span()
        if first == '"':
            continue
        before = depth
        if first in "[{":
            depth += end - start
            if before <= DEEPEST < depth:
                kept += (text[copied : start + DEEPEST - before], "null")
                copied = len(text)  # until it is closed
        else:
            depth -= end - start
            if depth <= DEEPEST < before:
                copied = start + before - DEEPEST
    kept.append(text[copied:])
    return "".join(kept)


def _integer(digits: str) -> int | str:
    if len(digits) > LONGEST_NUMBER:
        return digits
    number = int(digits)
    return number if number in _INT64 else digits


def _float(digits: str) -> float | str:
    if len(digits) > LONGEST_NUMBER:
        return digits
    number = float(digits)
    return number if math.isfinite(number) else digits


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_DECODER = json.JSONDecoder(strict=False, parse_int=_integer, parse_float=_float, parse_constant=str)


def _may_be_unstorable(text: str) -> bool:
    """A cheap check, which saves most webhooks the walk. A False is always right."""
    return "\x00" in text or "\\u0000" in text or _SURROGATE_ESCAPE.search(text) is not None


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return _UNSTORABLE.sub(_REPLACEMENT, value)
    if isinstance(value, list):
        return [_storable(item) for item in value]
    if isinstance(value, dict):
        return {_storable(key): _storable(item) for key, item in value.items()}
    return value
