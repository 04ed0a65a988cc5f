"""Mutation: what an enemy, or a mistake, makes of a document, at one place in it or of its bytes.

All that is random comes from one `Random`, so that hypothesis can make what it found smaller.
"""

import copy
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import strategies as st

randoms = st.randoms(use_true_random=False)


@dataclass(frozen=True)
class Raw:
    """Stands in a document as it is, whether JSON or not."""

    text: str


@dataclass(frozen=True)
class Pairs:
    """An object whose keys may repeat."""

    pairs: tuple[tuple[str, Any], ...]


def nested(opening: str, closing: str, depth: int) -> Raw:
    return Raw(opening * depth + "1" + closing * depth)


NUMBERS = (
    0, -1, 1, 1.5, -0.0, 1e308, 5e-324, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 10**30, 253402300799,
    253402300800, 15550002222, Raw("1e400"), Raw("-1e400"), Raw("1e-400"), Raw("NaN"), Raw("-Infinity"),
    Raw("9" * 10_000), Raw("0." + "1" * 10_000), Raw("1e" + "9" * 100), Raw("01"), Raw("+1"), Raw("0x1F"), Raw("1_000"),
    Raw("-"),
)  # fmt: skip
TEXTS = (
    "", " ", "\x00", "a\x00b", "\ud800", "a\udc00\ud800b", "\ufeff", "\ufffe", "\u202e\u2066", "\u0661\u0662",
    "é" * 1024, "😀" * 1025, "x" * 1024, "x" * 1025, "x" * 5000, "x" * 300_000, "\x1b[31m", "\r\nX-Injected: 1",
    '\n{"severity":"ERROR"}', "\u2028", "'; DROP TABLE records; --", "pombo:record:*", "../../etc/passwd", "..", "a/b",
    "__name__", "`", "%00", "%s%n", "${7*7}", f"pombo1.{'0' * 40}.0.abcdefgh",
    f"pombo1.{'f' * 40}.999999999.{'a' * 64}", "pombo1.", "wamid.x", "messages", "text", "system", "interactive",
    "nfm_reply", "account_update", "failed", "read", "ACCOUNT_RESTRICTION", "DISABLED_UPDATE", '{"a":', "[" * 500,
    '{"a":1e400,"b":"\\ud800"}',
)  # fmt: skip
DIGITS = (
    "0", "-1", "007", "1e400", "nan", "inf", "9" * 9, "9" * 11, "9" * 400, "253402300799", "253402300800",
    "15550002222", "+15550002222", "1_0", "\u0661\u0662", "\u00b2", " 1 ", "1.0", "0x1F",
)  # fmt: skip
DATES = (
    "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-01-01T00:00:00+99:99", "2026-W01-1",
    "20260101T000000Z", "2026-02-30", "24:00", "2026-01-01T24:00:00Z", "Mon, 1 Jan 0001 00:00:00 +1400",
    "Fri, 31 Dec 9999 23:59:59 -1400", "Mon, 32 Jan 2026 25:61:61 +9999", "1 Jan 99", "-1", "May 1, 2026", "now",
)  # fmt: skip
OTHERS = (
    None, True, False, [], {}, [[]], [{}], [None] * 70, {"": ""}, {"\x00": "\ud800"}, {"x" * 5000: 1}, ["x"] * 2000,
    nested("[", "]", 63), nested("[", "]", 64), nested("[", "]", 70), nested('{"a":', "}", 200),
    nested('[{"a":', "}]", 40), Raw("[" * 3000), Raw("]"), Raw("{"), Raw('"'), Raw(""), Raw("nul"), Raw("'x'"),
    Raw('"\\u12"'), Raw('"\\x"'), Raw('"\x01"'), Raw("/**/1"), Pairs((("a", 1), ("a", 2))),
)  # fmt: skip
VALUES = (*NUMBERS, *TEXTS, *DIGITS, *DATES, *OTHERS)


def mutated(document: Any, random: Random, donors: Sequence[Any], most: int = 3) -> Any:
    """A copy with up to `most` places changed, perhaps into a part of one of the `donors`."""
    holder = [copy.deepcopy(document)]
    for _ in range(random.randint(1, most)):
        places = _places(holder)
        parent, key = places[random.randrange(len(places))]
        random.choice(CHANGES)(parent, key, random, donors)
    return holder[0]


def _places(holder: Any) -> list[tuple[Any, Any]]:
    """Every place of a value: what holds it, and its key or index there."""
    found: list[tuple[Any, Any]] = []
    waiting = [holder]
    while waiting:
        parent = waiting.pop()
        keys = list(parent) if isinstance(parent, dict) else range(len(parent))
        for key in keys:
            found.append((parent, key))
            if isinstance(parent[key], dict | list):
                waiting.append(parent[key])
    return found


def _value(random: Random) -> Any:
    """One of them, its own: another change may be made inside."""
    return copy.deepcopy(random.choice(VALUES))


Change = Callable[[Any, Any, Random, Sequence[Any]], None]


def _replace(parent: Any, key: Any, random: Random, donors: Sequence[Any]) -> None:
    parent[key] = _value(random)


def _graft(parent: Any, key: Any, random: Random, donors: Sequence[Any]) -> None:
    """Something well formed, at the wrong place."""
    places = _places([random.choice(donors)])
    holder, place = places[random.randrange(len(places))]
    parent[key] = copy.deepcopy(holder[place])


def _delete(parent: Any, key: Any, random: Random, donors: Sequence[Any]) -> None:
    if isinstance(parent, dict):
        del parent[key]
    else:
        parent[key] = None


def _rename(parent: Any, key: Any, random: Random, donors: Sequence[Any]) -> None:
    if isinstance(parent, dict):
        parent[random.choice(TEXTS)] = parent.pop(key)


def _repeat(parent: Any, key: Any, random: Random, donors: Sequence[Any]) -> None:
    """The same again: in a list many times; in an object the key, with another value before or after it."""
    value = parent[key]
    if isinstance(value, list):
        parent[key] = value * random.choice((2, 3, 50))
    elif isinstance(value, dict) and value:
        name = random.choice(list(value))
        pairs = [*value.items(), (name, _value(random))]
        parent[key] = Pairs(tuple(random.sample(pairs, len(pairs))))


def _wrap(parent: Any, key: Any, random: Random, donors: Sequence[Any]) -> None:
    """Where one is expected a list of it, or an object; where a list is, its first."""
    value = parent[key]
    inner = value[0] if isinstance(value, list) and value else {"0": value}
    parent[key] = random.choice(([value], {"x": value}, inner))


def _strain(parent: Any, key: Any, random: Random, donors: Sequence[Any]) -> None:
    """The same kind, at its ends or a little beyond."""
    value = parent[key]
    if isinstance(value, str) and _DATE.match(value):
        parent[key] = random.choice(DATES)
    elif isinstance(value, str) and value.isdecimal():
        parent[key] = random.choice((*DIGITS, *DATES))
    elif isinstance(value, str):
        other = random.choice(TEXTS)
        parent[key] = random.choice((value + other, other + value, value.upper(), value[::-1], value * 3))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        parent[key] = random.choice((-value, str(value), value * 10**6, float(value), *NUMBERS))
    else:
        parent[key] = _value(random)


_DATE = re.compile(r"\d{4}-\d\d|\d\d:\d\d|[A-Z][a-z]{2},? \d")

CHANGES: Sequence[Change] = (_replace, _replace, _graft, _delete, _rename, _repeat, _wrap, _strain)


def dumped(value: Any, random: Random | None = None) -> bytes:
    """The text of a document. Half a character is always escaped; whether another is, chance decides."""
    ascii_only = random is not None and random.random() < 0.3
    return _text(value, ascii_only).encode("utf-8", "backslashreplace")


def _text(value: Any, ascii_only: bool) -> str:
    match value:
        case Raw(text):
            return text
        case Pairs(pairs):
            return "{" + ",".join(f"{_text(name, ascii_only)}:{_text(held, ascii_only)}" for name, held in pairs) + "}"
        case dict():
            return _text(Pairs(tuple(value.items())), ascii_only)
        case list():
            return "[" + ",".join(_text(held, ascii_only) for held in value) + "]"
        case _:
            return json.dumps(value, ensure_ascii=ascii_only)


def quoted(text: bytes) -> bytes:
    """The text where it is JSON, else a string of it: what is no JSON would take along what it stands in."""
    try:
        json.loads(text, parse_int=str, parse_float=str, strict=False)
    except (ValueError, RecursionError):
        return json.dumps(text.decode("latin-1")).encode()
    return text


def corrupted(data: bytes, random: Random, most: int = 4) -> bytes:
    """The bytes with up to `most` places flipped, cut out, doubled, or filled with something else."""
    body = bytearray(data)
    for _ in range(random.randint(1, most)):
        at = random.randint(0, len(body))
        length = random.choice((1, 2, 8, 64))
        match random.randrange(5):
            case 0:
                body[at : at + 1] = bytes((random.randrange(256),))
            case 1:
                del body[at : at + length]
            case 2:
                body[at:at] = body[at : at + length]
            case 3:
                body[at:at] = random.choice(BYTES)
            case _:
                del body[at:]
    return bytes(body)


BYTES = (
    b"\x00", b"\xff", b"\xfe\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf5\x80\x80\x80", b'"', b"\\",
    b"\\u", b"{", b"}", b"[", b"]", b",", b":", b"\n", b"\r\n", b"\r\n\r\n", b"[" * 200, b"9" * 200, b"\\ud800",
    b"\\u0000", b" " * 100,
)  # fmt: skip
