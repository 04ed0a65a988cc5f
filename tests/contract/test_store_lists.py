"""What every store promises of a tenant's history and of the listings, page by page."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from shared.domain.delivery.operator import replay
from shared.domain.delivery.settle import settle
from shared.domain.listings import Listing
from shared.domain.record import (
    Attempt,
    Delivery,
    Kind,
    ReceiptKind,
    State,
)
from shared.domain.verdicts import Accepted, Limited, LimitScope
from tests.support.receipts import note_receipt
from tests.support.store_cases import (
    A_DAY,
    LIMITS,
    NOW,
    THREADS,
    a_refused,
    all_of,
    at,
    echo_of,
    lease_with,
    of_unknown_state,
    receipt,
    writing,
)
from tests.support.together import together

# ---- the history of a tenant


def history_of(store: Any, tenant: str, limit: int = 100, **between: datetime) -> list[Delivery]:
    """All of it, page by page; no page holds more than was asked for."""
    found, after = [], None
    while True:
        page = store.history(tenant, between.get("since"), between.get("until"), after, limit)
        assert len(page.records) <= limit
        found += page.records
        if page.ends_at is None:
            return found
        after = page.ends_at


@pytest.mark.parametrize("limit", [1, 4, 100])
def test_history_of_a_tenant_comes_whole_newest_first(store, a_record, limit):
    """Of both kinds and in every state. Three of one moment are in the order of their keys, the greatest first."""
    mine = [a_record(received_at=at(-10 * number), tenant="one") for number in range(5)]
    mine += [a_record(received_at=at(-15), tenant="one", state=state, kind=Kind.INBOUND) for state in sorted(State)[:3]]
    for record in [*mine, a_record(tenant="two"), a_record(tenant="one2")]:
        store.create(record)
    expected = sorted(mine, key=lambda record: (record.received_at, record.key), reverse=True)
    assert [record.key for record in history_of(store, "one", limit)] == [record.key for record in expected]
    assert history_of(store, "three", limit) == []


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_history_is_of_a_period_whose_ends_belong_to_it(store, a_record, limit):
    records = [a_record(received_at=at(number)) for number in range(5)]
    for record in records:
        store.create(record)
    keys = [record.key for record in reversed(records)]
    found = {
        name: [record.key for record in history_of(store, "default", limit, **between)]
        for name, between in {
            "since": {"since": at(3)},
            "until": {"until": at(1)},
            "both": {"since": at(1), "until": at(3)},
            "none": {"since": at(6), "until": at(9)},
            "reversed": {"since": at(3), "until": at(1)},
        }.items()
    }
    assert found == {"since": keys[:2], "until": keys[3:], "both": keys[1:4], "none": [], "reversed": []}


def test_history_has_whole_records_with_their_receipts(store, a_record):
    record = a_record(metadata={"caller": {"order": 17}})
    store.create(record)
    note_receipt(store, echo_of(record), receipt(ReceiptKind.SENT, 1))
    assert history_of(store, "default") == [store.get(record.key)]


def test_history_during_writes_gives_each_record_that_stays_once(store, a_record):
    """New ones come before the page that is read; one that changes its state keeps its place."""
    records = [a_record(received_at=at(-number)) for number in range(6)]
    for record in records:
        store.create(record)
    first = store.history("default", None, None, None, 3)
    store.create(a_record(received_at=at(1)))
    store.change(records[4].key, writing(state=State.DEAD))
    second = store.history("default", None, None, first.ends_at, 3)
    assert [record.key for record in (*first.records, *second.records)] == [record.key for record in records]


def test_record_that_another_tenant_gets_is_in_its_history_alone(store, a_record):
    stranger = a_stranger(a_record)
    store.create(stranger)
    assert [record.key for record in history_of(store, "")] == [stranger.key]
    store.change(stranger.key, writing(tenant="bakery"))
    assert (history_of(store, ""), [record.key for record in history_of(store, "bakery")]) == ([], [stranger.key])


def test_unreadable_record_of_a_history_is_counted_and_hides_no_other(store, a_record):
    records = [a_record(received_at=at(-number)) for number in range(3)]
    for record in (records[0], of_unknown_state(records[1]), records[2]):
        store.create(record)
    page = store.history("default", None, None, None, 10)
    assert ([record.key for record in page.records], page.unread) == ([records[0].key, records[2].key], 1)


# ---- listings


def keys_of(records: Sequence[Delivery]) -> set[str]:
    return {record.key for record in records}


def a_stranger(a_record: Callable[..., Delivery]) -> Delivery:
    return a_record(kind=Kind.INBOUND, state=State.DROPPED, reason="unknown_sender", tenant="", expire_at=at(A_DAY))


def a_replayed(a_record: Callable[..., Delivery], **changes: Any) -> Delivery:
    return a_record(round=1, generation=3, **changes)


def test_each_listing_holds_what_is_its_own_and_nothing_else(store, a_record):
    dead, stranger, replayed = a_record(state=State.DEAD), a_stranger(a_record), a_replayed(a_record)
    for record in (dead, stranger, replayed):
        store.create(record)
    refused = a_refused(store, a_record)
    for state in sorted(State):
        store.create(a_record(state=state, round=int(state is not State.PENDING), tenant="another"))
    dropped = a_record(kind=Kind.INBOUND, state=State.DROPPED, reason="spam", tenant="", expire_at=at(A_DAY))
    tried = a_replayed(a_record, attempt=1)
    for record in (dropped, tried):
        store.create(record)
    assert {
        listing: keys_of(all_of(store, listing, "default")) for listing in Listing if listing != stranger.reason
    } == {
        Listing.DEAD: {dead.key},
        Listing.PENDING: {replayed.key, tried.key},
        Listing.REFUSED: {refused.key},
        Listing.REPLAYED: {replayed.key},
    }
    assert keys_of(all_of(store, Listing.UNKNOWN_SENDER)) == {stranger.key}
    assert keys_of(all_of(store, Listing.UNKNOWN_SENDER, "")) == {stranger.key}
    assert len(all_of(store, Listing.DEAD)) == 2


@pytest.mark.parametrize("limit", [1, 5, 20])
@pytest.mark.parametrize("listing", Listing)
def test_a_listing_comes_whole_in_pages_each_record_once(store, a_record, listing, limit):
    """Ten of one tenant and three of another, made at one moment: nothing but their keys puts them in an order."""
    tenants = ["one"] * 10 + ["two"] * 3
    made = {
        Listing.DEAD: lambda tenant: a_record(state=State.DEAD, tenant=tenant),
        Listing.PENDING: lambda tenant: a_record(tenant=tenant),
        Listing.UNKNOWN_SENDER: lambda tenant: replace(a_stranger(a_record), tenant=tenant),
        Listing.REPLAYED: lambda tenant: a_replayed(a_record, tenant=tenant),
    }
    records = [
        a_refused(store, a_record, tenant=tenant) if listing is Listing.REFUSED else made[listing](tenant)
        for tenant in tenants
    ]
    for record in records:
        store.create(record)
    assert sorted(record.key for record in all_of(store, listing, limit=limit)) == sorted(keys_of(records))
    assert keys_of(all_of(store, listing, "two", limit)) == {r.key for r in records if r.tenant == "two"}
    assert all_of(store, listing, "three", limit) == []


def test_records_leaving_a_listing_during_a_read_hide_no_other(store, a_record):
    """A replay of many takes each record out of the listing that it is reading."""
    records = [a_record(state=State.DEAD) for _ in range(12)]
    for record in records:
        store.create(record)
    seen, after = [], None
    while True:
        page = store.listed(Listing.DEAD, None, after, 5)
        for record in page.records:
            store.change(record.key, lambda found: replay(found, LIMITS, NOW))
        seen += [record.key for record in page.records]
        if page.ends_at is None:
            break
        after = page.ends_at
    assert sorted(seen) == sorted(keys_of(records))
    assert all_of(store, Listing.DEAD) == []
    assert keys_of(all_of(store, Listing.REPLAYED, limit=5)) == keys_of(records)


def test_listed_record_has_every_field_but_its_content(store, a_record):
    attempts = (Attempt(NOW, 1, "refused", 131026), Attempt(NOW, 2, "handler_failed", error="E: x", error_type="E"))
    record = a_record(state=State.DEAD, reason="permanent", attempts_log=attempts, metadata={"a": "b"}, doubts=1)
    store.create(record)
    note_receipt(store, echo_of(record), receipt(ReceiptKind.SENT, 1))
    (listed,) = all_of(store, Listing.DEAD)
    assert listed == replace(store.get(record.key), payload={}, metadata={})
    assert listed.version is None


def test_listed_record_can_be_given_as_seen_and_loses_nothing(store, a_record):
    record = a_record(state=State.DEAD, reason="attempts", payload={"body": "hello"}, metadata={"a": "b"})
    store.create(record)
    (listed,) = all_of(store, Listing.DEAD)
    store.change(record.key, lambda found: replay(found, LIMITS, NOW), listed)
    after = store.get(record.key)
    assert (after.state, after.payload, after.metadata) == (State.PENDING, {"body": "hello"}, {"a": "b"})


def test_unreadable_record_is_counted_and_hides_no_other(store, a_record):
    kind: Any = "sideways"
    records = [a_record(state=State.DEAD) for _ in range(3)]
    for record in (records[0], replace(a_record(state=State.DEAD), kind=kind), *records[1:]):
        store.create(record)
    page = store.listed(Listing.DEAD, None, None, 10)
    assert (keys_of(page.records), page.unread) == (keys_of(records), 1)


def test_failed_receipt_is_listed_in_any_order_until_its_replay(store, a_record):
    record = a_record(state=State.LEASED, token="mine", attempt=1)
    store.create(record)
    note_receipt(store, echo_of(record), receipt(ReceiptKind.FAILED, 1, code=131026))
    store.change(record.key, lambda found: settle(found, "mine", Accepted("wamid.1"), LIMITS, NOW, 0.5))
    (listed,) = all_of(store, Listing.REFUSED)
    assert (listed.state, listed.current_receipts.failed_code) == (State.DONE, 131026)
    store.change(record.key, lambda found: replay(found, LIMITS, NOW))
    assert all_of(store, Listing.REFUSED) == []
    assert keys_of(all_of(store, Listing.REPLAYED)) == {record.key}


def test_lease_removes_a_replayed_record_from_its_listing_until_an_uncounted_end(store, a_record):
    record = a_replayed(a_record)
    store.create(record)
    step = store.change(record.key, lease_with("mine"))
    assert all_of(store, Listing.REPLAYED) == []
    store.change(
        record.key,
        lambda found: settle(found, "mine", Limited(LimitScope.CONTACT, 131056), LIMITS, NOW, 0.5),
        step.write,
    )
    assert keys_of(all_of(store, Listing.REPLAYED)) == {record.key}


def test_a_late_receipt_of_the_round_before_does_not_hide_a_replayed_record(store, a_record):
    """It may be the only thing that still knows that its task was never made."""
    record = a_replayed(a_record)
    store.create(record)
    note_receipt(store, echo_of(record, 0), receipt(ReceiptKind.FAILED, 1, code=131026))
    assert record.key in keys_of(all_of(store, Listing.REPLAYED) + all_of(store, Listing.REFUSED))


@pytest.mark.parametrize("first", ["the receipt", "the id"])
def test_a_failed_receipt_without_an_echo_is_listed_once_its_record_has_that_id(store, a_record, first):
    record = a_record(state=State.LEASED, token="mine", attempt=1)
    store.create(record)
    calls = {
        "the receipt": lambda: note_receipt(store, None, receipt(ReceiptKind.FAILED, 1, "SM1", 131026)),
        "the id": lambda: store.change(
            record.key, lambda found: settle(found, "mine", Accepted("SM1"), LIMITS, NOW, 0.5)
        ),
    }
    for name in sorted(calls, key=lambda name: name != first):
        calls[name]()
    note_receipt(store, None, receipt(ReceiptKind.FAILED, 1, "SM2", 131026))
    note_receipt(store, None, receipt(ReceiptKind.DELIVERED, 1, "SM1"))
    (listed,) = all_of(store, Listing.REFUSED, "default")
    assert (listed.key, listed.current_receipts.failed_code, listed.current_receipts.delivered) == (
        record.key,
        131026,
        at(1),
    )
    assert all_of(store, Listing.REFUSED, "another") == []
    store.change(record.key, writing(provider_id=None, round=1, state=State.PENDING))
    assert all_of(store, Listing.REFUSED) == []


def test_refused_with_an_echo_and_without_is_listed_once(store, a_record):
    record = a_refused(store, a_record, provider_id="SM1")
    note_receipt(store, None, receipt(ReceiptKind.FAILED, 1, "SM1", 131026))
    assert [listed.key for listed in all_of(store, Listing.REFUSED, limit=1)] == [record.key]


def test_failed_receipts_of_foreign_messages_hide_none_of_ours(store, a_record):
    for n in range(70):
        note_receipt(store, None, receipt(ReceiptKind.FAILED, 1, f"foreign.{n}", 131026))
    record = a_record(state=State.DONE, provider_id="SM1", expire_at=at(9 * A_DAY))
    store.create(record)
    note_receipt(store, None, receipt(ReceiptKind.FAILED, 1, "SM1", 131026))
    assert keys_of(all_of(store, Listing.REFUSED, limit=10)) == {record.key}


@pytest.mark.parametrize("listing", [Listing.REFUSED, Listing.UNKNOWN_SENDER])
def test_expired_record_is_no_longer_listed(backend, store, a_record, listing):
    if listing is Listing.REFUSED:
        a_refused(store, a_record, expire_at=NOW)
    else:
        store.create(replace(a_stranger(a_record), expire_at=NOW))
    kept = a_refused(store, a_record) if listing is Listing.REFUSED else a_stranger(a_record)
    store.create(replace(kept, expire_at=at(9 * A_DAY)))
    backend.expire(store, at(A_DAY))
    assert keys_of(all_of(store, listing)) == {kept.key}


def test_64_simultaneous_replays_of_one_dead_letter_are_one(store, a_record):
    record = a_record(state=State.DEAD, reason="attempts")
    store.create(record)
    steps = together([lambda: store.change(record.key, lambda found: replay(found, LIMITS, NOW))] * THREADS)
    assert sum(step.write is not None for step in steps) == 1
    assert (store.get(record.key).round, store.get(record.key).generation) == (1, 1)
