"""What every store promises of receipts: each kept once, at its first time, whatever comes first."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.delivery.answers import Answer, Step, TaskResult
from shared.domain.delivery.operator import replay
from shared.domain.delivery.settle import settle
from shared.domain.events import ReceiptReceived
from shared.domain.identity import provider_id_hash
from shared.domain.record import (
    Delivery,
    ReceiptKind,
    Receipts,
    State,
)
from shared.domain.verdicts import Accepted, Refused
from tests.support.receipts import note_receipt
from tests.support.store_cases import (
    LIMITS,
    NOW,
    OK,
    at,
    echo_of,
    keys,
    lease_with,
    many,
    of_unknown_state,
    receipt,
    receipts,
    writing,
)
from tests.support.together import together


def merged(receipts_: Sequence[ReceiptReceived]) -> Receipts:
    """What the domain says of these, together."""
    word = Receipts()
    for one in receipts_:
        times: dict[str, Any] = {one.kind: one.at}
        code = one.code if one.kind is ReceiptKind.FAILED else None
        ids = frozenset({provider_id_hash(one.provider, one.provider_id)})
        word = word.merged(Receipts(**times, failed_code=code, provider_ids=ids))
    return word


@many
@given(data=st.data(), noted=st.lists(receipts, min_size=1, max_size=6))
def test_receipts_commute_and_can_repeat(store, a_record, data, noted):
    one, other = (a_record(key=next(keys)) for _ in range(2))
    store.create(one)
    store.create(other)
    for each in noted:
        assert note_receipt(store, echo_of(one), each)
    for each in data.draw(st.permutations(noted + data.draw(st.lists(st.sampled_from(noted), max_size=3)))):
        assert note_receipt(store, echo_of(other), each)
    assert store.get(one.key).current_receipts == store.get(other.key).current_receipts == merged(noted)


@many
@given(data=st.data(), noted=st.lists(receipts, min_size=1, max_size=6))
def test_receipts_without_an_echo_commute_and_can_repeat(store, a_record, data, noted):
    number = next(keys)
    noted = [replace(each, provider_id=number) for each in noted]
    for each in data.draw(st.permutations(noted + data.draw(st.lists(st.sampled_from(noted), max_size=3)))):
        note_receipt(store, None, each)
    record = a_record(key=number, provider_id=number)
    store.create(record)
    assert store.get(record.key).current_receipts == merged(noted)


@pytest.mark.parametrize("codes", [*itertools.permutations([None, 0, 99, 131026], 3)], ids=str)
def test_lowest_code_of_simultaneous_failures_stays_in_any_order(store, a_record, codes):
    record, other = a_record(), a_record(provider_id="SM1")
    store.create(record)
    store.create(other)
    failures = [receipt(ReceiptKind.FAILED, 0, "SM1", code) for code in codes]
    for failure in failures:
        note_receipt(store, echo_of(record), failure)
        note_receipt(store, None, failure)
    least = min(codes, key=lambda code: -1 if code is None else code)
    assert store.get(record.key).current_receipts == store.get(other.key).current_receipts == merged(failures)
    assert store.get(record.key).current_receipts.failed_code == least


def test_receipt_without_a_record_is_reported_and_not_stored(store, a_record):
    record = a_record()
    assert note_receipt(store, echo_of(record), receipt(ReceiptKind.SENT)) is False
    store.create(record)
    assert store.get(record.key).receipts == {}


@pytest.mark.parametrize("state", State)
def test_receipt_is_stored_in_any_state_and_changes_none(store, a_record, state):
    record = a_record(state=state)
    store.create(record)
    assert note_receipt(store, echo_of(record), receipt(ReceiptKind.READ, 5))
    stored = store.get(record.key)
    assert stored.state is state
    assert stored.current_receipts.read == at(5)
    assert stored.current_receipts.provider_ids == {provider_id_hash("meta", "wamid.1")}


def test_receipt_is_stored_even_for_an_unknown_state(store, a_record):
    record = a_record()
    store.create(of_unknown_state(record))
    assert note_receipt(store, echo_of(record), receipt(ReceiptKind.READ))


def test_receipts_do_not_disturb_a_settle_in_flight(store, a_record):
    record = a_record()
    store.create(record)
    seen = store.change(record.key, lease_with("mine")).write
    noted = [receipt(kind, n) for n, kind in enumerate(ReceiptKind) if kind is not ReceiptKind.FAILED]
    between, *before = noted
    for each in before:
        note_receipt(store, echo_of(record), each)
    comes_between = iter([between])

    def decide(found: Delivery | None) -> Step:
        for each in comes_between:
            note_receipt(store, echo_of(record), each)
        return settle(found, "mine", Accepted("wamid.1"), LIMITS, NOW, 0.5)

    assert store.change(record.key, decide, seen).answer == Answer(TaskResult.ACK, "done")
    stored = store.get(record.key)
    assert (stored.state, stored.provider_id, stored.current_receipts) == (State.DONE, "wamid.1", merged(noted))


def test_receipt_during_the_post_makes_a_refusal_done_instead_of_dead(store, a_record):
    """The copy before this one arrived after all. `seen` cannot know it, and the store must not trust it blindly."""
    record = a_record()
    store.create(record)
    seen = store.change(record.key, lease_with("mine")).write
    note_receipt(store, echo_of(record), receipt(ReceiptKind.SENT))
    step = store.change(record.key, lambda found: settle(found, "mine", Refused(131026), LIMITS, NOW, 0.5), seen)
    assert step.write.state is store.get(record.key).state is State.DONE


def test_64_receipts_and_a_settle_at_once_are_all_there(store, a_record):
    record = a_record()
    store.create(record)
    store.change(record.key, lease_with("mine"))
    noted = [
        receipt(kind, n) for n in range(16) for kind in (ReceiptKind.SENT, ReceiptKind.DELIVERED, ReceiptKind.READ)
    ]
    calls = [lambda each=each: note_receipt(store, echo_of(record), each) for each in noted]
    calls.append(lambda: store.change(record.key, lambda r: settle(r, "mine", Accepted("w"), LIMITS, NOW, 0.5)))
    results = together(calls)
    assert results.count(True) == len(noted)
    stored = store.get(record.key)
    assert stored.state is State.DONE
    assert stored.current_receipts == merged(noted)


def test_receipts_of_an_earlier_round_are_stored_and_do_not_count(store, a_record):
    record = a_record(state=State.DEAD, round=1)
    store.create(record)
    note_receipt(store, echo_of(record, 0), receipt(ReceiptKind.DELIVERED, 1))
    note_receipt(store, echo_of(record, 1), receipt(ReceiptKind.FAILED, 2, code=131026))
    stored = store.get(record.key)
    assert not stored.current_receipts.positive
    assert (stored.current_receipts.failed, stored.current_receipts.failed_code) == (at(2), 131026)
    assert stored.receipts[0].delivered == at(1)


def test_receipts_survive_every_change(store, a_record):
    record = a_record()
    store.create(record)
    note_receipt(store, echo_of(record), receipt(ReceiptKind.SENT, 1))
    store.change(record.key, writing(receipts={}, attempt=1))
    assert store.get(record.key).current_receipts.sent == at(1)


def test_a_receipt_without_an_echo_counts_once_the_record_has_that_id(store, a_record):
    record = a_record()
    store.create(record)
    note_receipt(store, None, receipt(ReceiptKind.DELIVERED, 3, "SM1"))
    assert store.get(record.key).receipts == {}
    store.change(record.key, writing(provider_id="SM1"))
    expected = Receipts(delivered=at(3), provider_ids=frozenset({provider_id_hash("meta", "SM1")}))
    assert store.get(record.key).current_receipts == expected
    assert store.by_provider_id("meta", "SM1").current_receipts == expected
    assert store.by_correlation(record.correlation_id)[0].current_receipts == expected
    found = []
    store.change(record.key, lambda read: found.append(read.current_receipts) or Step(OK))
    assert found == [expected]


def test_concurrent_receipt_without_an_echo_is_part_of_the_decision(store, a_record):
    record = a_record(provider_id="SM1")
    store.create(record)
    seen = store.get(record.key)
    note_receipt(store, None, receipt(ReceiptKind.SENT, 0, "SM1"))
    words = []

    def decide(found: Delivery | None) -> Step:
        words.append(found.current_receipts.sent)
        return writing(attempt=1)(found)

    store.change(record.key, decide, seen)
    assert words[-1] == NOW


def test_receipts_waiting_for_an_id_are_part_of_the_decision_once_it_is_set(store, a_record):
    """The record that a step hands on cannot know them yet."""
    record = a_record()
    store.create(record)
    note_receipt(store, None, receipt(ReceiptKind.SENT, 0, "SM1"))
    step = store.change(record.key, writing(provider_id="SM1"))
    words = []

    def decide(found: Delivery | None) -> Step:
        words.append(found.current_receipts.sent)
        return writing(attempt=1)(found)

    assert store.change(record.key, decide, step.write).write.current_receipts.sent == NOW
    assert words[-1] == NOW


def test_a_receipt_without_an_echo_is_of_its_provider_alone(store, a_record):
    record = a_record(provider="twilio", provider_id="SM1")
    store.create(record)
    note_receipt(store, None, receipt(ReceiptKind.DELIVERED, 3, "SM1"))
    assert store.get(record.key).receipts == {}


def test_a_receipt_without_an_echo_joins_those_with_one(store, a_record):
    record = a_record(provider_id="wamid.1", round=2)
    store.create(record)
    note_receipt(store, echo_of(record, 2), receipt(ReceiptKind.SENT, 1))
    note_receipt(store, None, receipt(ReceiptKind.READ, 2))
    assert store.get(record.key).current_receipts == merged(
        [receipt(ReceiptKind.SENT, 1), receipt(ReceiptKind.READ, 2)]
    )


def test_a_replayed_message_leaves_the_receipts_of_its_old_id_behind(store, a_record):
    record = a_record(state=State.DONE, provider_id="SM1", expire_at=at(100))
    store.create(record)
    note_receipt(store, None, receipt(ReceiptKind.FAILED, 3, "SM1", 131026))
    store.change(record.key, lambda found: replay(found, LIMITS, NOW))
    stored = store.get(record.key)
    assert stored.state is State.PENDING
    assert not stored.current_receipts.any
