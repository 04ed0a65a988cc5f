"""Firestore's REST JSON says the same as the gRPC client's bytes, in both directions."""

import json
import time
from dataclasses import fields
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from google.cloud.firestore_v1 import types
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.events import ReceiptBlock, ReceiptReceived
from shared.domain.identity import Echo
from shared.domain.record import Attempt, Delivery, Kind, ReceiptKind, State
from shared.stores.firestore import records, rest_json
from shared.stores.firestore.receipts import Notes, noting_block

ROOT = "projects/a-project/databases/pombo/documents"
NOW = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["", "👩‍👩‍👧‍👦", "\u2028\0\x7f", 'a "b" \\']
)
zones = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=45)), timezone(timedelta(hours=-8))])
moments = st.builds(
    lambda ago, zone: (NOW + ago).astimezone(zone),
    st.timedeltas(timedelta(days=-20_000), timedelta(days=60_000)),
    zones,
)
numbers = st.integers(-(2**63), 2**63 - 1)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
keys = st.text("0123456789abcdef", min_size=40, max_size=40)
attempts = st.builds(
    Attempt,
    **{
        field.name: {"at": moments, "code": st.none() | numbers, "detail": words, "round": numbers}.get(
            field.name, words
        )
        for field in fields(Attempt)
    },
)
TYPES: dict[Any, Any] = {
    str: words,
    int: numbers,
    bool: st.booleans(),
    datetime: moments,
    str | None: st.none() | words,
    int | None: st.none() | numbers,
    datetime | None: st.none() | moments,
    frozenset[str]: st.frozensets(words, max_size=3),
}
"""A strategy for each type of a field that is not named."""
NAMED: dict[str, Any] = {
    "key": keys,
    "kind": st.sampled_from(Kind),
    "state": st.sampled_from(State),
    "payload": st.dictionaries(words, plain, max_size=3),
    "metadata": st.just({}) | st.dictionaries(words, plain, max_size=3),
    "attempts_log": st.just(()) | st.tuples(attempts),
    "receipts": st.just({}),
    "retry": st.none(),  # the webhook service makes no message of the API
    "version": st.none(),
}
deliveries = st.builds(
    Delivery,
    **{field.name: NAMED[field.name] if field.name in NAMED else TYPES[field.type] for field in fields(Delivery)},
)
receipts = st.builds(
    ReceiptReceived,
    st.just("meta"),
    st.just("100000000000001"),
    st.sampled_from(["wamid.1", "wamid.2"]),
    st.sampled_from(ReceiptKind),
    moments,
    st.none() | st.sampled_from([0, 131026]),
)
noted = st.tuples(st.none() | st.builds(Echo, keys, st.integers(0, 3), st.just("corr_0001")), receipts)


def as_sent_by_grpc(write: records.Write) -> bytes:
    """The bytes that the official client sends."""
    absolute = write | {"update": write["update"] | {"name": f"{ROOT}/{write['update']['name']}"}}
    sent: bytes = types.Write.pb(types.Write(absolute)).SerializeToString(deterministic=True)
    return sent


def as_understood(write: rest_json.JsonWrite) -> bytes:
    """The bytes that the service makes of the JSON."""
    message = json_format.Parse(write.json, types.Write.pb()())
    understood: bytes = message.SerializeToString(deterministic=True)
    return understood


@given(record=deliveries)
def test_new_record_in_json_equals_the_grpc_write(record: Delivery) -> None:
    write = rest_json.creating(record, ROOT)
    assert as_understood(write) == as_sent_by_grpc(records.creating(record))
    assert write.name == records.record_name(record.key)
    assert write.size == len(write.json)


@given(receipts=st.lists(noted, max_size=6))
def test_receipts_in_json_equal_the_grpc_writes(receipts: Any) -> None:
    notes = Notes(NOW)
    for place, receipt in enumerate(receipts):
        notes.add(place, receipt)
    for layer in notes.layers():
        for note in layer:
            assert as_understood(rest_json.write_of(note.write, ROOT)) == as_sent_by_grpc(note.write)


@given(code=st.integers(0, 999_999), at=moments, key=st.none() | keys)
def test_block_in_json_equals_the_grpc_write(code: int, at: datetime, key: str | None) -> None:
    write = noting_block("a" * 40, ReceiptBlock(code, at, key))
    assert as_understood(rest_json.write_of(write, ROOT)) == as_sent_by_grpc(write)


@given(before=deliveries, after=deliveries, version=st.integers(0, 2**61))
def test_change_in_json_equals_the_grpc_write(before: Delivery, after: Delivery, version: int) -> None:
    write = records.changing(before, after) | {"current_document": records.unless_changed(version)}
    assert as_understood(rest_json.write_of(write, ROOT)) == as_sent_by_grpc(write)


@given(record=deliveries, receipts=st.lists(noted, max_size=4), nanos=st.integers(0, 2**61))
def test_document_is_read_from_json_as_from_grpc(record: Delivery, receipts: Any, nanos: int) -> None:
    fields = dict(records.fields_of(record))
    fields["receipts"] = records.value_of({"0": {"sent.abc": 5, "failed.abc.7": 9}, "1": {}})
    seconds, rest = divmod(nanos, 1_000_000_000)
    message = types.Document.pb(
        types.Document(
            name=records.record_name(record.key), fields=fields, update_time={"seconds": seconds, "nanos": rest}
        )
    )
    from_json = rest_json.document_of(json.loads(json_format.MessageToJson(message)), ROOT)
    assert from_json == records.document_of(message)
    assert from_json.version == nanos
    assert records.record_of(from_json) == records.record_of(records.document_of(message))
    assert [*records.echoed_in(from_json)]


def test_kinds_of_values_that_are_never_written_are_read_as_none() -> None:
    values = {"a": {"arrayValue": {}}, "b": {"doubleValue": 1.5}, "c": {"nullValue": None}, "d": {"mapValue": {}}}
    document = rest_json.document_of({"name": "x", "fields": values, "updateTime": "2026-03-01T12:00:00Z"}, ROOT)
    assert document.fields == {"a": [], "b": None, "c": None, "d": {}}


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:01.5Z", 1_500_000_000),
        ("1970-01-01T00:00:00.000000001Z", 1),
        ("2026-03-01T12:00:00.123456789Z", 1_772_366_400_123_456_789),
    ],
)
def test_update_time_is_read_to_the_nanosecond(text: str, nanos: int) -> None:
    assert rest_json.nanoseconds(text) == nanos


@pytest.mark.parametrize(
    "changes",
    [
        {"payload": {"a": object()}},
        {"payload": {"a": "\ud800"}},
        {"payload": {"a": float("nan")}},
        {"contact": "\ud800"},
        {"received_at": NOW.replace(tzinfo=None)},
        {"reason": 1.5},
    ],
    ids=["an object", "half of a pair", "not a number", "half of a pair in a text", "no zone", "a float"],
)
def test_what_cannot_be_stored_raises_as_with_grpc(changes: Any) -> None:
    given: dict[str, Any] = {
        "key": "a" * 40,
        "kind": Kind.INBOUND,
        "provider": "meta",
        "tenant": "default",
        "sender": "1",
        "contact": "2",
        "correlation_id": "corr_0001",
        "state": State.PENDING,
        "received_at": NOW,
        "payload": {},
    }
    record = Delivery(**given | changes)
    for write in (lambda: records.creating(record), lambda: rest_json.creating(record, ROOT)):
        with pytest.raises((TypeError, ValueError)):
            write()


def test_new_record_is_written_in_microseconds() -> None:
    """The target is 20 us, measured at 12; a machine that others use gets ten times as long."""
    record = Delivery(
        "a" * 40,
        Kind.INBOUND,
        "meta",
        "default",
        "1",
        "2",
        "corr_0001",
        State.PENDING,
        NOW,
        {"text": {"body": "x" * 200}},
    )
    began = time.process_time()
    for _ in range(1000):
        rest_json.creating(record, ROOT)
    assert time.process_time() - began < 0.2
