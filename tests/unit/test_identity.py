"""Identity: derivations never change once released. Every vector is computed here by other means."""

import hashlib
import hmac
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.domain.conversations import conversation_id, lane_id
from shared.domain.events import Change, MessageReceived, Unparsable
from shared.domain.identity import (
    Echo,
    backend_id,
    canonical_json,
    change_event_id,
    is_correlation_id,
    keyed_hash,
    message_event_id,
    outbound_key,
    parse_echo,
    provider_id_hash,
    sender_id,
    stable_hash,
    task_name,
)
from shared.domain.turns import turn_id

BOUNDED = settings(max_examples=50, deadline=None, derandomize=True, database=None)


def vector(*parts: str | int) -> str:
    """The hash of docs/protocol.md, written out: compact JSON array, UTF-8, SHA-256, 40 digits."""
    array = "[" + ",".join(json.dumps(part, ensure_ascii=False) for part in parts) + "]"
    return hashlib.sha256(array.encode("utf-8")).hexdigest()[:40]


EVENT = message_event_id("meta", "100000000000001", "wamid.HBgL=")
VECTORS = [
    pytest.param(EVENT, ("meta", "100000000000001", "message", "wamid.HBgL="), id="event id of a message"),
    pytest.param(outbound_key(EVENT, 2), ("out", EVENT, 2), id="key of a reply"),
    pytest.param(task_name(EVENT, 3, 1), ("task", EVENT, 3, 1), id="name of a task"),
    pytest.param(provider_id_hash("meta", "wamid.X"), ("meta", "wamid.X"), id="hash of a provider's id"),
    pytest.param(
        change_event_id("meta", "waba-1", "account_update", {"event": "BAN", "a": [1, {"z": 0, "b": "é"}]}, 170),
        ("meta", "waba-1", "account_update", '{"a":[1,{"b":"é","z":0}],"event":"BAN"}', 170),
        id="event id of a change",
    ),
    pytest.param(
        change_event_id("meta", "waba-1", "flows", "plain", None),
        ("meta", "waba-1", "flows", '"plain"'),
        id="event id of a change without a time",
    ),
    pytest.param(stable_hash("São 🕊", 'a"b\\'), ("São 🕊", 'a"b\\'), id="UTF-8 and quotes"),
    pytest.param(stable_hash("a", "b"), ("a", "b"), id="two parts"),
]


def keyed_vector(key: bytes, *parts: str | int) -> str:
    """The same bytes as in `vector`, under HMAC-SHA256."""
    array = "[" + ",".join(json.dumps(part, ensure_ascii=False) for part in parts) + "]"
    return hmac.new(key, array.encode("utf-8"), hashlib.sha256).hexdigest()[:40]


def test_keyed_ids_are_the_hmac_of_their_parts() -> None:
    """Another derivation would lose every conversation and turn."""
    ids = ("meta", "100000000000001", "US.900000000000000 é")
    assert turn_id(b"a key", "default", *ids) == keyed_vector(b"a key", "turn", *ids)
    assert conversation_id(b"a key", "default", *ids) == keyed_vector(b"a key", "conversation", *ids)
    assert turn_id(b"a key", "acme", *ids) == keyed_vector(b"a key", "turn", *ids, "acme")
    assert conversation_id(b"a key", "acme", *ids) == keyed_vector(b"a key", "conversation", *ids, "acme")
    assert lane_id("default", "meta", "1") == sender_id("meta", "1")
    assert lane_id("acme", "meta", "1") == vector("lane", "meta", "1", "acme")


@BOUNDED
@given(st.binary(min_size=1, max_size=80), st.lists(st.text(st.characters(codec="utf-8")) | st.integers()))
def test_any_parts_and_key_give_the_keyed_vector(key: bytes, parts: list[str | int]) -> None:
    assert keyed_hash(key, *parts) == keyed_vector(key, *parts)


@pytest.mark.parametrize(("derived", "parts"), VECTORS)
def test_derived_id_is_the_hash_of_its_parts(derived: str, parts: tuple[str | int, ...]) -> None:
    assert derived == vector(*parts)
    assert len(derived) == 40


@pytest.mark.parametrize(
    ("derived", "released"),
    [
        (stable_hash("task", "k", 0, 0), hashlib.sha256(b'["task","k",0,0]').hexdigest()[:40]),
        (stable_hash("out", "e", 0), hashlib.sha256(b'["out","e",0]').hexdigest()[:40]),
        (stable_hash("é"), hashlib.sha256(b'["\xc3\xa9"]').hexdigest()[:40]),
    ],
)
def test_hash_is_computed_over_the_documented_bytes(derived: str, released: str) -> None:
    assert derived == released


@BOUNDED
@given(st.lists(st.one_of(st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 10**9)), max_size=4))
def test_any_parts_give_the_vector(parts: list[str | int]) -> None:
    assert stable_hash(*parts) == vector(*parts)


def test_parts_do_not_run_into_each_other() -> None:
    assert len({stable_hash("ab", "c"), stable_hash("a", "bc"), stable_hash("abc"), stable_hash("ab", "c", "")}) == 4
    assert task_name("k", 1, 11) != task_name("k", 11, 1)


def test_the_same_message_at_two_numbers_is_two_events() -> None:
    assert message_event_id("meta", "1", "wamid.A") != message_event_id("meta", "2", "wamid.A")


# ---- changes without an id

VALUE = {
    "messaging_product": "whatsapp",
    "metadata": {"phone_number_id": "1"},
    "contacts": [{"profile": {"name": "Ana"}, "wa_id": "15550002222"}, "odd"],
    "errors": [{"code": 131051}],
}


def changed(**parts: Any) -> str:
    return change_event_id("meta", "1", "messages", {**VALUE, **parts}, None)


def test_a_change_is_hashed_without_the_profiles_of_its_contacts() -> None:
    stripped = {**VALUE, "contacts": [{"wa_id": "15550002222"}, "odd"]}
    text = json.dumps(stripped, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    assert changed() == vector("meta", "1", "messages", text)


@pytest.mark.parametrize("profile", [{"name": "Ana Maria"}, {}, None, "odd"], ids=str)
def test_a_profile_renamed_between_two_deliveries_is_the_same_change(profile: Any) -> None:
    assert changed(contacts=[{"profile": profile, "wa_id": "15550002222"}, "odd"]) == changed()


@pytest.mark.parametrize(
    "other",
    [
        {"contacts": [{"profile": {"name": "Ana"}, "wa_id": "15550003333"}, "odd"]},
        {"contacts": []},
        {"contacts": {"profile": {"name": "Ana"}}},
        {"profile": {"name": "Ana"}},
        {"errors": [{"code": 131052}]},
    ],
    ids=str,
)
def test_anything_else_makes_another_change(other: dict[str, Any]) -> None:
    assert changed(**other) != changed()


def test_a_profile_elsewhere_is_part_of_the_value() -> None:
    assert changed(profile={"name": "Ana"}) != changed(profile={"name": "Eva"})


def test_order_of_fields_does_not_change_the_change_id() -> None:
    backwards = dict(reversed(VALUE.items()))
    assert change_event_id("meta", "1", "messages", backwards, None) == changed()


def test_time_changes_the_id_of_an_account_change() -> None:
    ids = {change_event_id("meta", "1", "account_update", {"event": "BAN"}, time) for time in (None, 0, 170, 171)}
    assert len(ids) == 4


def test_hashed_value_is_not_modified() -> None:
    value = {"contacts": [{"profile": {"name": "Ana"}}]}
    change_event_id("meta", "1", "messages", value, None)
    assert value == {"contacts": [{"profile": {"name": "Ana"}}]}


@pytest.mark.parametrize("value", [None, [], "text", 7, {"contacts": None}, [{"contacts": []}]], ids=str)
def test_a_value_of_any_shape_has_an_id(value: Any) -> None:
    text = json.dumps(value, separators=(",", ":"))
    assert change_event_id("meta", "1", "odd", value, None) == vector("meta", "1", "odd", text)


def test_canonical_json_sorts_at_every_depth() -> None:
    assert canonical_json({"b": {"d": 1, "c": [{"f": 1, "e": "é"}]}, "a": None}) == (
        '{"a":null,"b":{"c":[{"e":"é","f":1}],"d":1}}'
    )


# ---- events know their keys


def test_event_key_is_the_hash_in_the_contract() -> None:
    message = MessageReceived("meta", "1", "wamid.A", "15550002222", {})
    assert message.key == vector("meta", "1", "message", "wamid.A")
    change = Change("meta", "waba", "account_update", {"event": "BAN"}, 170)
    assert change.key == vector("meta", "waba", "account_update", '{"event":"BAN"}', 170)


def test_unparsable_item_preserves_its_id_if_it_has_one() -> None:
    assert Unparsable("meta", "1", "messages", {"id": 7}, "wamid.A").key == vector("meta", "1", "message", "wamid.A")
    assert Unparsable("meta", "1", "messages", {"id": 7}).key == vector("meta", "1", "messages", '{"id":7}')


# ---- correlation ids and echoes


@pytest.mark.parametrize("text", ["a" * 8, "Z" * 64, "abc-DEF_123"])
def test_valid_correlation_id_is_recognised(text: str) -> None:
    assert is_correlation_id(text)


@pytest.mark.parametrize(
    "text", ["", "a" * 7, "a" * 65, "abcdefg.", "abcdefgé", "abcdefgh\n", " abcdefgh", "a b c d e"]
)
def test_invalid_correlation_id_is_rejected(text: str) -> None:
    assert not is_correlation_id(text)


KEY, CORRELATION = "0f" * 20, "correlation-1"
ECHO = f"pombo1.{KEY}.0.{CORRELATION}"


def test_echo_has_the_form_in_the_contract() -> None:
    assert str(Echo(KEY, 12, CORRELATION)) == f"pombo1.{KEY}.12.{CORRELATION}"
    assert parse_echo(ECHO) == Echo(KEY, 0, CORRELATION)


CORRELATIONS = st.text("abcXYZ019-_", min_size=8, max_size=64)


@BOUNDED
@given(st.text("0123456789abcdef", min_size=40, max_size=40), st.integers(0, 10**9 - 1), CORRELATIONS)
def test_echo_survives_the_round_trip(key: str, number: int, correlation: str) -> None:
    assert parse_echo(str(Echo(key, number, correlation))) == Echo(key, number, correlation)


FOREIGN = {
    "absent": None,
    "empty": "",
    "somebody else's": "order-4711",
    "JSON": '{"key":"0f"}',
    "another version": ECHO.replace("pombo1", "pombo2"),
    "another case": ECHO.replace("pombo1", "Pombo1"),
    "a key too short": ECHO.replace(KEY, KEY[1:]),
    "a key too long": ECHO.replace(KEY, KEY + "0"),
    "a key in capitals": ECHO.replace(KEY, KEY.upper()),
    "no round": f"pombo1.{KEY}.{CORRELATION}",
    "an empty round": f"pombo1.{KEY}..{CORRELATION}",
    "a round below zero": f"pombo1.{KEY}.-1.{CORRELATION}",
    "a round with a leading zero": f"pombo1.{KEY}.01.{CORRELATION}",
    "a round in other digits": f"pombo1.{KEY}.\u0661.{CORRELATION}",
    "a round beyond counting": f"pombo1.{KEY}.{'9' * 10}.{CORRELATION}",
    "a correlation id too short": f"pombo1.{KEY}.0.short",
    "a correlation id too long": f"pombo1.{KEY}.0.{'a' * 65}",
    "more behind": ECHO + ".more",
    "a line break behind": ECHO + "\n",
    "space before": " " + ECHO,
    "dots that are none": ECHO.replace(".", "x"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_echo_is_none(name: str) -> None:
    assert parse_echo(FOREIGN[name]) is None


@BOUNDED
@given(st.text(max_size=120) | st.from_regex(r"pombo1\.[0-9a-f]{40}\.\d{1,10}\.[\w-]{6,70}", fullmatch=True))
def test_parsed_echo_is_exactly_the_text_or_none(text: str) -> None:
    echo = parse_echo(text)
    assert echo is None or str(echo) == text


def test_marks_of_a_backend_are_named_by_its_address_and_its_tenant() -> None:
    """The deployment's name must stay as it was: its marks are stored."""
    url = "https://backend.example.com/pombo"
    assert backend_id(url) == vector("backend", url)
    assert backend_id(url, "acme") == vector("backend", url, "acme")
