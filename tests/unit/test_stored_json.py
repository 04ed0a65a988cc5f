"""JSON of the stores: the quick writer writes what the strict one writes, and what that refuses is still refused."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.stores.codec import from_json, to_json

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


def storable_by_utf8(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


@given(value=values.filter(storable_by_utf8))
def test_every_json_value_is_read_as_it_was_written(value: Any) -> None:
    text = to_json(value)
    assert from_json(text) == value
    assert text == text.encode().decode()


@pytest.mark.parametrize(
    "value",
    [{"a": 2**70}, {"a": -(2**63) - 1}, json.loads("[" * 400 + "]" * 400), {"a": None}],
    ids=["an integer beyond 64 bits", "a negative one", "deeply nested", "null"],
)
def test_what_the_quick_writer_lacks_is_written_too(value: Any) -> None:
    assert from_json(to_json(value)) == value


def test_text_is_compact_and_keeps_its_letters_and_the_order_of_keys() -> None:
    assert to_json({"b": "São Paulo", "a": [1, 1.5, True, None]}) == '{"b":"São Paulo","a":[1,1.5,true,null]}'


@dataclass
class ADataclass:
    text: str = "hello"


@pytest.mark.parametrize(
    "inner",
    [
        float("nan"),
        float("inf"),
        float("-inf"),
        "\ud800",
        object(),
        {1, 2},
        b"bytes",
        datetime(2026, 11, 30, tzinfo=UTC),
        datetime(2026, 11, 30, tzinfo=UTC).date(),
        ADataclass(),
    ],
    ids=[
        "NaN",
        "infinity",
        "minus infinity",
        "half of a pair",
        "an object",
        "a set",
        "bytes",
        "a time",
        "a date",
        "a class",
    ],
)
def test_what_json_cannot_hold_is_refused(inner: Any) -> None:
    for value in (inner, [inner], {"a": {"b": inner}}):
        with pytest.raises((TypeError, ValueError)):
            to_json(value)
