"""What every store promises of records: created once, read as they were written, kept as a newer version wrote them."""

from dataclasses import fields, replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.delivery.answers import Step
from shared.domain.errors import UnknownState
from shared.domain.marks import (
    Marks,
)
from shared.domain.record import (
    Delivery,
    Kind,
    ReceiptKind,
    Retries,
    State,
)
from shared.pipeline.intake import Created, Exists
from tests.support.receipts import note_receipt
from tests.support.store_cases import (
    ID,
    NOTED,
    NOW,
    OK,
    TEXTS,
    THREADS,
    at,
    attempts,
    counts,
    echo_of,
    keys,
    many,
    moments,
    of_unknown_state,
    receipt,
    values,
    words,
    writing,
)
from tests.support.together import together

# ---- create


def test_a_record_is_created_once_among_64_threads(store, a_record):
    record = a_record()
    results = together([lambda: store.create(record)] * THREADS)
    assert results.count(Created()) == 1
    assert results.count(Exists(record)) == THREADS - 1


def test_second_create_returns_the_existing_record_unchanged(store, a_record):
    first = a_record(payload={"body": "first"})
    store.create(first)
    assert store.create(replace(first, payload={"body": "second"})) == Exists(first)
    assert store.get(first.key) == first


def test_missing_record_is_none(store):
    assert store.get("0" * 40) is None


def test_a_record_that_cannot_be_stored_leaves_no_trace(store, a_record):
    record = a_record(payload={"body": object()})
    with pytest.raises((TypeError, ValueError)):
        store.create(record)
    assert store.get(record.key) is None


def test_a_second_client_sees_everything_at_once(backend, store, a_record):
    other = backend.client()
    record = a_record()
    store.create(record)
    other.change(record.key, writing(attempt=3))
    note_receipt(other, echo_of(record), receipt(ReceiptKind.SENT))
    other.note_receipt_block(ID, NOTED)
    assert store.get(record.key).attempt == 3
    assert store.get(record.key).current_receipts.sent == NOW
    assert store.marks(ID) == Marks(receipt_block=NOTED)


# ---- what is stored is what is read


FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "kind": st.sampled_from(Kind),
    "state": st.sampled_from(State),
    "received_at": moments,
    "plan_size": st.none() | counts,
    "payload": st.dictionaries(words, values, max_size=4),
    "metadata": st.dictionaries(words, values, max_size=4),
    "attempts_log": st.lists(attempts, max_size=3).map(tuple),
    "bell": st.frozensets(words, max_size=3),
    "retry": st.none() | st.builds(Retries, counts, st.timedeltas(timedelta(), timedelta(days=30))),
    **dict.fromkeys(["key", "tenant", "sender", "contact", "correlation_id", "provider"], words),
    **dict.fromkeys(
        ["token", "after", "reason", "last_error", "provider_id", "body_hash", "overtook", "turn_id", "position"],
        st.none() | words,
    ),
    "conversation": st.none() | words,
    "joins_lane_later": st.booleans(),
    **dict.fromkeys(["attempt", "generation", "sweeps", "doubts", "throttled", "round"], counts),
    **dict.fromkeys(["lease_until", "due_at", "sweep_at", "give_up_at", "doubt_until"], st.none() | moments),
    **dict.fromkeys(["started_at", "finished_at", "expire_at", "send_at"], st.none() | moments),
}
deliveries = st.builds(Delivery, **FIELDS)


def test_tested_records_have_every_field():
    """Receipts and the version are no part of what is written."""
    assert {field.name for field in fields(Delivery)} - FIELDS.keys() == {"receipts", "version"}


@many
@given(record=deliveries)
def test_every_field_survives_a_round_trip(store, record):
    record = replace(record, key=next(keys))
    assert store.create(record) == Created()
    assert store.get(record.key) == record


@many
@given(before=deliveries, after=deliveries)
def test_every_changed_field_survives_a_round_trip(store, before, after):
    before = replace(before, key=next(keys))
    after = replace(after, key=before.key)
    store.create(before)
    store.change(before.key, lambda _: Step(OK, write=after))
    assert store.get(before.key) == after


@pytest.mark.parametrize("text", TEXTS)
def test_text_of_any_script_survives_a_round_trip(store, a_record, text):
    record = a_record(payload={"body": text, text: [text]}, contact=text, last_error=text)
    store.create(record)
    assert store.get(record.key) == record


def test_times_of_other_zones_are_the_same_moment(store, a_record):
    record = a_record(due_at=datetime(2026, 3, 1, 23, 30, 0, 123456, tzinfo=timezone(timedelta(hours=5, minutes=30))))
    store.create(record)
    read = store.get(record.key)
    assert read.due_at == record.due_at
    assert read.due_at.utcoffset() == timedelta()


def test_a_time_without_a_zone_is_refused(store, a_record):
    with pytest.raises(ValueError):
        store.create(a_record(due_at=NOW.replace(tzinfo=None)))


# ---- a state of a newer version


def test_record_of_an_unknown_state_is_neither_read_changed_nor_recreated(store, a_record):
    record = a_record(sweep_at=at(-10))
    assert store.create(of_unknown_state(record)) == Created()
    with pytest.raises(UnknownState):
        store.get(record.key)
    with pytest.raises(UnknownState):
        store.change(record.key, writing(attempt=1))
    with pytest.raises(UnknownState):
        store.change(record.key, writing(attempt=1), seen=record)
    assert store.create(record) == Exists(None)
    with pytest.raises(UnknownState):
        store.get(record.key)


def test_records_of_unknown_states_delay_neither_sweep_nor_counts(store, a_record):
    for _ in range(20):
        store.create(of_unknown_state(a_record(sweep_at=at(-100))))
    record = a_record(sweep_at=at(-1))
    store.create(record)
    assert list(store.overdue(NOW, limit=5)) == [record.key]
    assert store.backlog().counts[State.PENDING] == 1
