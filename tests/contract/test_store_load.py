"""What every store promises when it is away, and when many call it at once."""

import time
from dataclasses import replace
from typing import Any

import pytest

from shared.domain.deadline import Deadline
from shared.domain.errors import StoreUnavailable
from shared.domain.events import ReceiptReceived
from shared.domain.identity import Echo
from shared.domain.marks import (
    Marks,
    Outage,
)
from shared.domain.record import (
    Delivery,
    ReceiptKind,
    State,
)
from shared.pipeline.intake import Created, Exists
from tests.support.receipts import note_receipt
from tests.support.store_cases import (
    ID,
    NOTED,
    NOW,
    TEXTS,
    at,
    counters,
    echo_of,
    of_unknown_state,
    receipt,
    setting,
    writing,
)
from tests.support.together import together

# ---- trouble


def test_available_store_answers_a_ping(store):
    store.ping()


def test_unreachable_store_is_unavailable_in_time_and_recovers(backend, store, a_record):
    record, other = a_record(), a_record()
    store.create(record)
    calls = [
        lambda: store.create(other),
        lambda: store.change(record.key, writing(attempt=1)),
        lambda: store.change(record.key, writing(attempt=1), record),
        lambda: note_receipt(store, echo_of(record), receipt(ReceiptKind.SENT)),
        lambda: note_receipt(store, None, receipt(ReceiptKind.SENT)),
        lambda: store.change_marks(ID, setting(down=Outage(NOW))),
        lambda: store.change_marks(ID, setting(down=Outage(NOW)), Marks()),
        lambda: store.note_receipt_block(ID, NOTED),
        lambda: store.keep_counters(counters(a=1)),
        store.ping,
    ]
    with backend.unreachable():
        began = time.monotonic()
        results = together(calls * 2)
        took = time.monotonic() - began
    assert [type(result) for result in results] == [StoreUnavailable] * len(results)
    assert took < 3, "about 2 s, and a slow machine's slack"
    assert store.get(record.key) == record
    assert store.marks(ID) == Marks()
    assert list(store.recent_counters(NOW)) == []
    assert store.create(other) == Created()
    store.ping()


def test_error_of_an_unreachable_store_contains_nothing_private(backend, store, a_record):
    record = a_record(contact="15550002222", payload={"body": "a secret"})
    store.create(record)
    with backend.unreachable(), pytest.raises(StoreUnavailable) as refused:
        store.create(replace(record, key="f" * 40))
    assert "15550002222" not in refused.value.sentence
    assert "secret" not in refused.value.sentence


# ---- many at once: what a large POST brings


def a_deadline(seconds: float = 30) -> Deadline:
    return Deadline(time.monotonic, time.monotonic() + seconds, time.monotonic() + seconds)


def test_many_records_are_created_once_each_and_existing_ones_reported(store, a_record):
    there, touched = a_record(), a_record(state=State.DONE)
    for record in (there, touched):
        store.create(record)
    new = [a_record(payload={"n": n, "text": TEXTS[n % len(TEXTS)]}, sweep_at=NOW) for n in range(450)]
    asked = [*new[:200], replace(there, payload={"other": 1}), *new[200:], touched]
    made = store.create_all(asked, a_deadline())
    assert [made[200], made[-1]] == [Exists(there), Exists(touched)]
    assert {type(one) for one in [*made[:200], *made[201:-1]]} == {Created}
    assert [store.get(record.key) for record in (new[0], new[199], new[449], there)] == [
        new[0],
        new[199],
        new[449],
        there,
    ]
    again = store.create_all(new, a_deadline())
    assert again == [Exists(record) for record in new]
    assert len(store.overdue(NOW, 1000)) == 450


def test_records_created_from_16_threads_are_created_once_each(store, a_record):
    records = [a_record() for _ in range(120)]
    made = together([lambda: store.create_all(records, a_deadline())] * 16)
    for number, record in enumerate(records):
        assert sorted(type(one[number]).__name__ for one in made) == ["Created", *["Exists"] * 15]
        assert store.get(record.key) == record


def test_records_that_cannot_be_stored_stop_none_of_the_others(store, a_record):
    good = [a_record() for _ in range(5)]
    unstorable = [a_record(payload={"a": object()}), a_record(payload={"a": "\ud800"}), a_record(contact="\ud800")]
    asked = [good[0], unstorable[0], *good[1:3], *unstorable[1:], *good[3:]]
    made = store.create_all(asked, a_deadline())
    assert [isinstance(one, Created) for one in made] == [True, False, True, True, False, False, True, True]
    assert all(isinstance(made[place], Exception) for place in (1, 4, 5))
    assert not any(isinstance(one, StoreUnavailable) for one in made)
    assert [store.get(record.key) for record in good] == good


def test_a_record_of_an_unknown_state_among_many_is_there(store, a_record):
    strange, new = a_record(), a_record()
    store.create(of_unknown_state(strange))
    assert store.create_all([new, strange], a_deadline()) == [Created(), Exists(None)]


def test_records_are_not_begun_once_the_deadline_has_passed(store, a_record):
    records = [a_record() for _ in range(3)]
    made = store.create_all(records, a_deadline(seconds=0))
    assert [str(one) for one in made] == ["The store is too slow."] * 3
    assert [store.get(record.key) for record in records] == [None] * 3


def test_many_records_on_an_unavailable_store_fail_in_time(backend, store, a_record):
    records = [a_record() for _ in range(300)]
    assert isinstance(store.create(a_record()), Created)
    with backend.unreachable():
        began = time.monotonic()
        made = store.create_all(records, a_deadline())
        assert time.monotonic() - began < 4
    assert {type(one) for one in made} == {StoreUnavailable}
    assert {type(one) for one in store.create_all(records, a_deadline())} <= {Created, Exists}


def test_nothing_to_create_and_nothing_to_note_is_nothing(store):
    assert list(store.create_all([], a_deadline())) == []
    assert list(store.note_receipts([], a_deadline())) == []


def a_note(record: Delivery | None, number: int = 0, kind: ReceiptKind = ReceiptKind.SENT, **changes: Any) -> Any:
    """A receipt of the record, or (None) one without an echo."""
    receipt = ReceiptReceived("meta", "100000000000001", f"wamid.{number}", kind, at(number), **changes)
    return (Echo(record.key, 0, record.correlation_id) if record else None, receipt)


def test_many_receipts_are_stored_with_their_records(store, a_record):
    records = [a_record(provider_id=f"wamid.{number}") for number in range(150)]
    assert {type(one) for one in store.create_all(records, a_deadline())} == {Created}
    unknown = a_record()
    notes = [
        note
        for number, record in enumerate(records)
        for note in (
            a_note(record, number),
            a_note(None, number, ReceiptKind.DELIVERED),
            a_note(record, number, ReceiptKind.FAILED, code=number),
        )
    ]
    made = store.note_receipts([*notes, a_note(unknown)], a_deadline())
    assert made == [True] * 450 + [False]
    for number, record in enumerate(records):
        receipts = store.get(record.key).receipts[0]
        assert (receipts.sent, receipts.delivered, receipts.failed) == (at(number),) * 3
        assert receipts.failed_code == number
    assert store.get(unknown.key) is None
    assert store.backlog().receipts_failed == 150


def test_many_receipts_of_one_message_in_one_post_are_all_stored(store, a_record):
    """More than Firestore takes in one write: a body may hold anything."""
    record = a_record()
    store.create(record)
    notes = [a_note(record, number) for number in range(650)]
    assert store.note_receipts(notes, a_deadline()) == [True] * 650
    kept = store.get(record.key).receipts[0]
    assert kept.sent == at(0)
    assert len(kept.provider_ids) == 650


def test_repeated_receipts_in_any_order_preserve_the_earliest(store, a_record):
    record = a_record()
    store.create(record)
    receipts = [replace(a_note(record)[1], at=at(seconds)) for seconds in (5, 1, 9, 3, 1)]
    echo = a_note(record)[0]
    assert store.note_receipts([(echo, receipt) for receipt in receipts], a_deadline()) == [True] * 5
    assert store.get(record.key).current_receipts.sent == at(1)
    assert store.note_receipts([(None, receipt) for receipt in receipts], a_deadline()) == [True] * 5
    assert store.get(record.key) == replace(record, receipts=store.get(record.key).receipts)


def test_receipts_among_many_are_of_their_round(store, a_record):
    record = a_record()
    store.create(record)
    _, receipt = a_note(record)
    rounds = [(Echo(record.key, number, record.correlation_id), receipt) for number in (0, 2)]
    assert store.note_receipts(rounds, a_deadline()) == [True, True]
    assert set(store.get(record.key).receipts) == {0, 2}


def test_many_receipts_on_an_unavailable_store_fail(backend, store, a_record):
    record = a_record()
    store.create(record)
    notes = [a_note(record if number % 2 else None, number) for number in range(10)]
    with backend.unreachable():
        assert {type(one) for one in store.note_receipts(notes, a_deadline())} == {StoreUnavailable}
    assert store.note_receipts(notes, a_deadline()) == [True] * 10
    passed = store.note_receipts(notes, a_deadline(seconds=0))
    assert [str(one) for one in passed] == ["The store is too slow."] * 10
