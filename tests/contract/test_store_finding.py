"""What every store promises of finding and counting records, and of what has expired."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from shared.domain.delivery.answers import Step
from shared.domain.delivery.create import create
from shared.domain.delivery.settle import settle
from shared.domain.delivery.sweep import sweep
from shared.domain.events import ReceiptBlock
from shared.domain.identity import outbound_key, provider_id_hash
from shared.domain.listings import Listing
from shared.domain.record import (
    FINAL_STATES,
    Delivery,
    Kind,
    ReceiptKind,
    State,
)
from shared.domain.verdicts import Accepted
from shared.pipeline.ports import Load
from tests.support.receipts import note_receipt
from tests.support.store_cases import (
    A_DAY,
    ID,
    LIMITS,
    NOW,
    OK,
    all_of,
    at,
    echo_of,
    lease_with,
    of_unknown_state,
    receipt,
    writing,
)

# ---- finding


def test_overdue_records_come_longest_first_and_up_to_the_limit(store, a_record):
    records = [a_record(sweep_at=at(-n)) for n in (3, 1, 5, 2, 4)]
    for record in records:
        store.create(record)
    store.create(a_record(sweep_at=at(1)))
    by_age = sorted(records, key=lambda record: record.sweep_at)
    assert list(store.overdue(NOW, limit=3)) == [record.key for record in by_age[:3]]
    assert list(store.overdue(NOW, limit=100)) == [record.key for record in by_age]


def test_a_record_is_overdue_from_the_very_moment(store, a_record):
    record = a_record(sweep_at=NOW)
    store.create(record)
    assert list(store.overdue(NOW, limit=10)) == [record.key]
    assert list(store.overdue(NOW - timedelta(microseconds=1), limit=10)) == []


def test_sweeping_reaches_every_overdue_record_in_pages(store, a_record):
    """Fair: what was swept goes to the back, so a page of it hides nothing newer."""
    records = [a_record(sweep_at=at(-100 + n)) for n in range(12)]
    for record in records:
        store.create(record)
    swept: list[str] = []
    while page := store.overdue(NOW, limit=5):
        for key in page:
            store.change(key, lambda found: sweep(found, LIMITS, NOW))
        swept += page
    assert swept == [record.key for record in records]


@pytest.mark.parametrize("state", sorted(FINAL_STATES))
def test_final_records_are_never_overdue(store, a_record, state):
    record = a_record(state=state, sweep_at=at(-100))
    store.create(record)
    assert list(store.overdue(NOW, limit=10)) == []


def test_settled_record_is_no_longer_overdue(store, a_record):
    record = a_record(sweep_at=at(-100))
    store.create(record)
    store.change(record.key, lease_with("mine"))
    assert list(store.overdue(NOW, limit=10)) == [record.key]
    store.change(record.key, lambda found: settle(found, "mine", Accepted("w"), LIMITS, NOW, 0.5))
    assert list(store.overdue(NOW, limit=10)) == []


def test_an_event_comes_before_its_replies_and_these_in_their_order(store):
    def made(kind: Kind, key: str, seconds: float, after: str | None = None) -> Delivery:
        fields_: dict[str, Any] = {
            "provider": "meta",
            "tenant": "default",
            "sender": "1",
            "contact": "2",
            "correlation_id": "correlation-x",
        }
        return create(kind, key, **fields_, payload={}, limits=LIMITS, now=at(seconds), after=after)

    event = made(Kind.INBOUND, "f" * 40, 0)
    replies = [outbound_key(event.key, index) for index in range(12)]
    store.create(made(Kind.OUTBOUND, "e" * 40, 9))
    plan = tuple(made(Kind.OUTBOUND, key, 5, replies[i - 1] if i else None) for i, key in enumerate(replies))
    store.create(event)
    store.change(event.key, lambda found: Step(OK, replace(found, plan_size=12), plan))
    store.change(replies[2], writing(due_at=at(500)))
    found = [record.key for record in store.by_correlation("correlation-x")]
    assert found == [event.key, *replies, "e" * 40]
    assert list(store.by_correlation("correlation-of-nothing")) == []


def test_a_message_is_found_by_the_providers_id(store, a_record):
    record = a_record()
    store.create(record)
    assert store.by_provider_id("meta", "wamid.HBgL=") is None
    store.change(record.key, writing(provider_id="wamid.HBgL="))
    assert store.by_provider_id("meta", "wamid.HBgL=").key == record.key
    assert store.by_provider_id("twilio", "wamid.HBgL=") is None
    store.change(record.key, writing(provider_id=None))
    assert store.by_provider_id("meta", "wamid.HBgL=") is None


def test_ids_are_found_by_their_first_characters(store, a_record):
    store.create(a_record(key="abcdef01" + "0" * 32, correlation_id="zzzz0000-1"))
    store.create(a_record(key="abcdef01" + "1" * 32, correlation_id="abcdef01-Z_9"))
    store.create(a_record(key="abcdef02" + "0" * 32, correlation_id="zzzz0000-1"))
    store.create(a_record(key="ABCDEF01" + "0" * 32, correlation_id="xabcdef01"))
    found = ["abcdef01" + "0" * 32, "abcdef01" + "1" * 32, "abcdef01-Z_9"]
    assert list(store.ids_with_prefix("abcdef01", 10)) == sorted(found)
    assert list(store.ids_with_prefix("abcdef01-Z_9", 10)) == ["abcdef01-Z_9"]
    assert list(store.ids_with_prefix("abcdef02" + "0" * 32, 10)) == ["abcdef02" + "0" * 32], "all of it is a part too"
    assert list(store.ids_with_prefix("zzzz0000", 10)) == ["zzzz0000-1"], "once, however many records have it"
    assert list(store.ids_with_prefix("abcdef03", 10)) == []


def test_pattern_characters_in_an_id_prefix_are_literal(store, a_record):
    store.create(a_record(key="order_02" + "0" * 32, correlation_id="order_02-a"))
    store.create(a_record(key="orderX02" + "0" * 32, correlation_id="orderX02-a"))
    assert list(store.ids_with_prefix("order_02", 10)) == ["order_02-a", "order_02" + "0" * 32]


def test_first_ids_are_found_up_to_the_limit(store, a_record):
    for n in range(6):
        store.create(a_record(key=f"abcdef01{n:032}", correlation_id="abcdef01-many"))
    for n in range(6):
        store.create(a_record(key=f"{n:040}", correlation_id=f"abcdef01-{n}"))
    every = sorted([*(f"abcdef01{n:032}" for n in range(6)), *(f"abcdef01-{n}" for n in range(6)), "abcdef01-many"])
    assert list(store.ids_with_prefix("abcdef01", 20)) == every
    for limit in (1, 5, 12, 13):
        assert list(store.ids_with_prefix("abcdef01", limit)) == every[:limit]


def test_an_event_of_many_records_hides_no_other(store, a_record):
    for _ in range(8):
        store.create(a_record(correlation_id="abcdef01-1"))
    store.create(a_record(correlation_id="abcdef01-2"))
    assert list(store.ids_with_prefix("abcdef01", 2)) == ["abcdef01-1", "abcdef01-2"]


def test_receipts_and_marks_are_not_ids_of_records(store, a_record):
    store.note_receipt_block(ID, ReceiptBlock(368, NOW))
    note_receipt(store, None, receipt(ReceiptKind.SENT))
    record = a_record(provider_id="wamid.1")
    store.create(record)
    id_hash = provider_id_hash("meta", "wamid.1")
    assert list(store.ids_with_prefix(id_hash[:8], 10)) == []
    assert list(store.ids_with_prefix(ID[:8], 10)) == []


def test_the_backlog_counts_what_is_open_and_since_when(store, a_record):
    assert store.backlog().oldest_pending is None
    for n, state in enumerate([State.PENDING, State.PENDING, State.LEASED, State.IN_DOUBT, State.DEAD, State.DONE]):
        store.create(a_record(state=state, received_at=at(-10 * n)))
    backlog = store.backlog()
    counted = {state: backlog.counts[state] for state in (State.PENDING, State.LEASED, State.IN_DOUBT, State.DEAD)}
    assert counted == {State.PENDING: 2, State.LEASED: 1, State.IN_DOUBT: 1, State.DEAD: 1}
    assert backlog.oldest_pending == at(-10)
    assert backlog.oldest_dead == at(-40)


def test_message_for_later_is_as_old_as_the_time_at_which_it_is_wanted(store, a_record):
    for state in (State.PENDING, State.DEAD):
        store.create(a_record(state=state, received_at=at(-5000), send_at=at(-50)))
    backlog, load = store.backlog(), store.load(None, NOW)
    assert (backlog.oldest_pending, backlog.oldest_dead, load.oldest_pending) == (at(-50),) * 3


COUNTED = (State.IN_DOUBT, State.LEASED, State.PENDING, State.DEAD)


def loads(load: Load) -> tuple[list[int], list[int]]:
    """The counts of COUNTED: of events and of messages."""
    events, messages = ([counts.get(state, 0) for state in COUNTED] for counts in (load.events, load.messages))
    return events, messages


def test_load_counts_events_and_messages_of_one_tenant_and_of_all(store, a_record):
    assert store.load(None, NOW) == store.load("a", NOW)
    assert loads(store.load("a", NOW)) == ([0, 0, 0, 0], [0, 0, 0, 0])
    for tenant in ("a", "ab", "a"):
        for state in State:
            store.create(a_record(state=state, tenant=tenant))
            if state is not State.IN_DOUBT:
                store.create(a_record(state=state, tenant=tenant, kind=Kind.INBOUND))
    store.create(a_record(tenant="ab", kind=Kind.INBOUND))
    assert loads(store.load(None, NOW)) == ([0, 3, 4, 3], [3, 3, 3, 3])
    assert loads(store.load("a", NOW)) == ([0, 2, 2, 2], [2, 2, 2, 2])
    assert loads(store.load("ab", NOW)) == ([0, 1, 2, 1], [1, 1, 1, 1])
    assert loads(store.load("b", NOW)) == ([0, 0, 0, 0], [0, 0, 0, 0])


def test_load_follows_a_record_from_state_to_state(store, a_record):
    record = a_record(tenant="a")
    store.create(record)
    for state, counts in (
        (State.LEASED, [0, 1, 0, 0]),
        (State.IN_DOUBT, [1, 0, 0, 0]),
        (State.DEAD, [0, 0, 0, 1]),
        (State.PENDING, [0, 0, 1, 0]),
        (State.DONE, [0, 0, 0, 0]),
    ):
        store.change(record.key, writing(state=state))
        assert loads(store.load("a", NOW)) == ([0, 0, 0, 0], counts)


def test_load_tells_messages_for_later_and_the_oldest_that_waits(store, a_record):
    assert (store.load(None, NOW).scheduled, store.load(None, NOW).oldest_pending) == (0, None)
    for tenant, received, later in (("a", -30, None), ("a", -90, 1), ("b", -60, None), ("b", -99, 0), ("b", -99, -70)):
        send_at = None if later is None else at(later)
        store.create(a_record(tenant=tenant, received_at=at(received), send_at=send_at))
    store.create(a_record(tenant="a", state=State.LEASED, received_at=at(-999)))
    found = {tenant: store.load(tenant, NOW) for tenant in (None, "a", "b")}
    assert {tenant: load.scheduled for tenant, load in found.items()} == {None: 1, "a": 1, "b": 0}
    assert {tenant: load.oldest_pending for tenant, load in found.items()} == {
        None: at(-70),
        "a": at(-30),
        "b": at(-70),
    }
    assert store.load("b", at(-1)).scheduled == 1


def test_load_skips_records_that_cannot_be_read(store, a_record):
    store.create(of_unknown_state(a_record()))
    store.create(a_record())
    assert loads(store.load("default", NOW)) == ([0, 0, 0, 0], [0, 0, 1, 0])


# ---- what has expired


def test_only_expired_records_are_deleted(backend, store, a_record):
    expired = [a_record(state=State.DONE, expire_at=at(-n)) for n in range(3)]
    kept = [a_record(state=State.DONE, expire_at=at(3 * A_DAY)), a_record(state=State.DEAD), a_record()]
    for record in expired + kept:
        store.create(record)
    backend.expire(store, at(A_DAY))
    assert [store.get(record.key) for record in expired] == [None] * 3
    assert [store.get(record.key) for record in kept] == kept
    assert list(store.by_correlation(expired[0].correlation_id)) == []


def test_record_that_no_longer_expires_is_preserved(backend, store, a_record):
    record = a_record(state=State.DONE, expire_at=NOW)
    store.create(record)
    note_receipt(store, echo_of(record), receipt(ReceiptKind.SENT))
    store.change(record.key, writing(state=State.PENDING, expire_at=None, provider_id="wamid.1"))
    before = store.get(record.key)
    backend.expire(store, at(A_DAY))
    assert before.current_receipts.sent == NOW
    assert store.get(record.key) == store.by_provider_id("meta", "wamid.1") == before
    assert list(store.by_correlation(record.correlation_id)) == [before]


def test_replies_that_wait_for_nothing_are_found_in_the_order_of_their_plan(store, a_record):
    """A typing signal holds nobody up, so no reply names it as the one before."""
    event = a_record(kind=Kind.INBOUND, correlation_id="correlation-x", state=State.DONE, plan_size=9)
    replies = [a_record(key=outbound_key(event.key, place), correlation_id="correlation-x") for place in range(9)]
    for record in [*reversed(replies), event]:
        store.create(record)
    assert list(store.by_correlation("correlation-x")) == [event, *replies]


def test_replies_of_a_deleted_event_are_found_in_their_waiting_order(store, a_record):
    keys = [outbound_key("f" * 40, place) for place in range(9)]
    before = ["e" * 40, *keys]
    replies = [a_record(key=key, after=before[i], correlation_id="correlation-x") for i, key in enumerate(keys)]
    for record in reversed(replies):
        store.create(record)
    assert list(store.by_correlation("correlation-x")) == replies


def test_replies_that_wait_for_one_another_in_a_loop_are_found(store, a_record):
    one, other = (a_record(key=key * 40, after=of * 40, correlation_id="correlation-x") for key, of in ("ab", "ba"))
    store.create(other)
    store.create(one)
    assert list(store.by_correlation("correlation-x")) == [one, other]


def test_remaining_reply_of_an_expired_event_is_found_by_correlation(backend, store, a_record):
    event = a_record(kind=Kind.INBOUND, correlation_id="correlation-x", state=State.DONE, expire_at=NOW)
    reply = a_record(correlation_id="correlation-x", state=State.DONE, expire_at=at(9 * A_DAY))
    store.create(reply)
    store.create(event)
    backend.expire(store, at(A_DAY))
    assert list(store.by_correlation("correlation-x")) == [reply]


def test_receipts_of_a_deleted_record_are_deleted_with_it(backend, store, a_record):
    record = a_record(state=State.DONE, expire_at=NOW)
    store.create(record)
    note_receipt(store, echo_of(record), receipt(ReceiptKind.SENT))
    backend.expire(store, at(A_DAY))
    store.create(record)
    assert store.get(record.key).receipts == {}


def test_receipt_of_a_deleted_record_is_unknown_and_restores_nothing(backend, store, a_record):
    record = a_record(state=State.DONE, expire_at=NOW)
    store.create(record)
    backend.expire(store, at(A_DAY))
    assert note_receipt(store, echo_of(record), receipt(ReceiptKind.FAILED, code=131026)) is False
    assert store.get(record.key) is None
    assert all_of(store, Listing.REFUSED) == []


def test_receipts_without_an_echo_are_deleted_after_their_retention(backend, store, a_record):
    record = a_record(provider_id="SM1")
    store.create(record)
    note_receipt(store, None, receipt(ReceiptKind.SENT, 0, "SM1"))
    over = NOW + LIMITS.receipt_retention
    backend.expire(store, over - timedelta(seconds=A_DAY))
    assert store.get(record.key).current_receipts.sent == NOW
    backend.expire(store, over + timedelta(seconds=A_DAY))
    assert store.get(record.key).receipts == {}
