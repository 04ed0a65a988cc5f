"""Bounded JSON: what json reads it reads the same, and what no store could hold it changes, and only that."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.net.bounded_json import DEEPEST, NotJson, _lenient, dumps, loads, size

INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5)


GOOD = st.recursive(
    st.none() | st.booleans() | INT64 | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    containers,
    max_leaves=40,
)


@settings(max_examples=100, deadline=None)
@given(GOOD, st.booleans())
def test_storable_json_is_read_unchanged(value: Any, escaped: bool) -> None:
    assert loads(json.dumps(value, ensure_ascii=escaped).encode()) == value


NUMBER = st.from_regex(r"-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,5})?", fullmatch=True)
WRITTEN = st.one_of(NUMBER, st.text(max_size=12).map(json.dumps), st.sampled_from(['"\\u0000"', '"\x7f"', "NaN", "-0"]))


@settings(max_examples=300, deadline=None)
@given(st.lists(WRITTEN, max_size=4))
def test_quick_reader_reads_what_the_lenient_one_reads(texts: list[str]) -> None:
    body = f"[{','.join(texts)}]".encode()
    assert repr(loads(body)) == repr(_lenient(body, is_too_deep=False))


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b"9223372036854775807", 2**63 - 1),
        (b"9223372036854775808", "9223372036854775808"),
        (b"-9223372036854775808", -(2**63)),
        (b"-9223372036854775809", "-9223372036854775809"),
        (b"1" * 5000, "1" * 5000),
        (b"0." + b"1" * 70, "0." + "1" * 70),
        (b"1e" + b"0" * 70, "1e" + "0" * 70),
        (b"1e999", "1e999"),
        (b"-1e999", "-1e999"),
        (b"1e-999", 0.0),
        (b"NaN", "NaN"),
        (b"[Infinity,-Infinity]", ["Infinity", "-Infinity"]),
        (b'"\\ud800"', "\ufffd"),
        (b'"\\ud83d\\ude00"', "😀"),
        (b'"\\ud83d\\ud83d\\ude00"', "\ufffd😀"),
        (b'"\\\\ud800"', "\\ud800"),
        (b'"\\u0000\x00"', "\ufffd\ufffd"),
        (b'{"\\ud800\\u0000":["\\u0000"]}', {"\ufffd\ufffd": ["\ufffd"]}),
        (b'"\xff"', "\ufffd"),
        (b'"\n"', "\n"),
        (b"\xef\xbb\xbf[]", []),
        (b'{"a":1,"a":2}', {"a": 2}),
    ],
)
def test_only_unstorable_parts_of_json_are_changed(body: bytes, value: Any) -> None:
    assert loads(body) == value


@pytest.mark.parametrize(
    "body", [b"", b" ", b"nul", b"[", b"[1", b"]", b"1 2", b'"', b'"\\', b"\xff", b"'a'", b"[" * 99]
)
def test_invalid_json_is_rejected(body: bytes) -> None:
    with pytest.raises(NotJson):
        loads(body)


def nested(depth: int, inside: str = "1") -> str:
    return "[" * depth + inside + "]" * depth


def depth_of(value: Any) -> int:
    return 1 + max(map(depth_of, value), default=0) if isinstance(value, list) else 0


def test_nesting_up_to_the_bound_is_preserved_and_deeper_becomes_null() -> None:
    assert json.dumps(loads(nested(DEEPEST).encode())) == nested(DEEPEST)
    assert json.dumps(loads(nested(DEEPEST + 1).encode())) == nested(DEEPEST, "null")
    assert json.dumps(loads(nested(100_000).encode())) == nested(DEEPEST, "null")


@pytest.mark.parametrize(
    ("inside", "left"),
    [
        ("[],1,[[]],2", "null,1,null,2"),
        ('{"a":"]}"},"[",{}', 'null,"[",null'),
        ('[{"a":[["]"]]}],"\\"]",3', 'null,"\\"]",3'),
        ("[[[]]],[{}],{}", "null,null,null"),
    ],
)
def test_siblings_of_a_too_deep_part_are_preserved(inside: str, left: str) -> None:
    value = loads(f'[{nested(DEEPEST - 1, inside)},"after"]'.encode())
    assert value == json.loads(f'[{nested(DEEPEST - 1, left)},"after"]')


@settings(max_examples=100, deadline=None)
@given(st.text(st.sampled_from('[]{}",:\\a1 '), max_size=400), st.integers(60, 70))
def test_brackets_quotes_and_backslashes_in_any_order_are_read_or_refused(text: str, depth: int) -> None:
    try:
        value = loads(nested(depth, text).encode())
    except NotJson:
        return
    assert depth_of(value) <= DEEPEST


@settings(max_examples=100, deadline=None)
@given(GOOD)
def test_the_size_is_that_of_the_compact_text(value: Any) -> None:
    """But for floats, which have several forms: 1e-05 may be 0.00001."""
    whole = without_floats(value)
    assert size(whole) == len(dumps(whole).encode()) <= len(json.dumps(whole).encode())


def without_floats(value: Any) -> Any:
    if isinstance(value, list):
        return [without_floats(item) for item in value]
    if isinstance(value, dict):
        return {key: without_floats(item) for key, item in value.items()}
    return None if isinstance(value, float) else value
