"""What every store promises of what it counts: what processes have counted, the backlog and the load."""

import itertools
import threading
import time

from shared.domain.counters import LAST_BUCKET, WHOLE, WINDOWS, Cell, Measure, ProcessCounters
from shared.domain.delivery.operator import replay
from shared.domain.events import ReceiptReceived
from shared.domain.listings import Listing
from shared.domain.record import (
    ReceiptKind,
    State,
)
from shared.pipeline.counting import MOST_TENANTS
from shared.stores.counters_codec import MOST_PROCESSES
from tests.support.receipts import note_receipt
from tests.support.store_cases import (
    A_DAY,
    LIMITS,
    NOW,
    a_refused,
    all_of,
    at,
    counters,
    echo_of,
    receipt,
    writing,
)


def test_counters_of_a_process_survive_a_round_trip(store):
    cells = {
        Cell(2972448, WHOLE, Measure.SENT): 10_000_000,
        Cell(2972448, WHOLE, Measure.SEND_TIME, 0): 1,
        Cell(2972448, WHOLE, Measure.SEND_TIME, LAST_BUCKET): 2,
        Cell(2972449, "acme", Measure.WEBHOOK_TIME, 17): 3,
        Cell(2972449, "acme", Measure.FAILED): 4,
    }
    store.keep_counters(ProcessCounters("p1", at(0.25), cells))
    assert list(store.recent_counters(NOW)) == [ProcessCounters("p1", at(0.25), cells)]


def test_counters_of_a_process_replace_those_it_wrote_before(backend, store):
    store.keep_counters(counters(seconds=1, a=1, b=1))
    backend.client().keep_counters(counters(seconds=2, a=5))
    assert list(store.recent_counters(NOW)) == [counters(seconds=2, a=5)]


def test_counters_are_of_the_processes_that_wrote_since_then(store):
    for number, seconds in enumerate((-0.001, 0, 60)):
        store.keep_counters(counters(f"p{number}", seconds, a=number))
    found = {one.process: one.counts for one in store.recent_counters(NOW)}
    assert found == {"p1": counters(a=1).counts, "p2": counters(a=2).counts}
    assert list(store.recent_counters(at(61))) == []


def test_counters_of_a_bounded_number_of_processes_are_read(store, monkeypatch):
    assert MOST_PROCESSES == 1000, "as the port says"
    for module in ("sqlite.counters", "firestore.store", "redis.store"):
        monkeypatch.setattr(f"shared.stores.{module}.MOST_PROCESSES", 2)
    for number in (2, 0, 3, 1):
        store.keep_counters(counters(f"p{number}", number, a=1))
    assert len({one.process for one in store.recent_counters(NOW)}) == 2


def test_intake_and_store_write_the_same_counters(store):
    store.intake.keep_counters(counters("intake", 1, a=1))
    store.keep_counters(counters("store", 1, a=1))
    assert {one.process: one for one in store.recent_counters(NOW)} == {
        name: counters(name, 1, a=1) for name in ("intake", "store")
    }


def test_counters_of_a_busy_process_can_be_stored(store):
    """All tenants, windows and buckets of a measure, with three digits each: more than a process can count."""
    cells = {
        Cell(2972448 + window, tenant, Measure.SEND_TIME, bucket): 999
        for window in range(WINDOWS)
        for tenant in (WHOLE, *(f"a-tenant-{number:03}" for number in range(MOST_TENANTS)))
        for bucket in range(LAST_BUCKET + 1)
    }
    store.keep_counters(ProcessCounters("p1", NOW, cells))
    (found,) = store.recent_counters(NOW)
    assert found.counts == cells


def test_oldest_dead_letter_changes_when_an_older_one_is_replayed(store, a_record):
    assert store.backlog().oldest_dead is None
    old, new = (a_record(state=State.DEAD, received_at=at(-seconds)) for seconds in (100 * A_DAY, A_DAY))
    for record in (new, old):
        store.create(record)
    assert store.backlog().oldest_dead == old.received_at
    store.change(old.key, writing(state=State.PENDING, sweep_at=NOW))
    backlog = store.backlog()
    assert (backlog.oldest_dead, backlog.oldest_pending) == (new.received_at, old.received_at)
    store.change(new.key, writing(state=State.DROPPED))
    assert store.backlog().oldest_dead is None


def test_backlog_counts_each_message_with_a_failed_receipt_once_until_its_replay(backend, store, a_record):
    failed_as = itertools.count(1)

    def failed(provider_id: str) -> ReceiptReceived:
        return receipt(ReceiptKind.FAILED, next(failed_as), provider_id, 131026)

    assert store.backlog().receipts_failed == 0
    delivered = a_record(state=State.DONE, provider_id="SM0")
    store.create(delivered)
    note_receipt(store, echo_of(delivered), receipt(ReceiptKind.DELIVERED))
    note_receipt(store, None, receipt(ReceiptKind.READ, 1, "SM0"))
    note_receipt(store, None, failed("foreign"))
    assert store.backlog().receipts_failed == 0
    twice = a_refused(store, a_record)
    a_refused(store, a_record, provider_id="SM1", tenant="another")
    note_receipt(store, echo_of(twice), failed("wamid.2"))
    note_receipt(store, None, failed("SM1"))
    assert store.backlog().receipts_failed == 2
    unechoed = a_record(state=State.DONE, provider_id="SM2")
    store.create(unechoed)
    note_receipt(store, None, failed("SM2"))
    assert store.backlog().receipts_failed == 2 + backend.counts_unechoed
    store.change(twice.key, lambda found: replay(found, LIMITS, NOW))
    assert store.backlog().receipts_failed == 1 + backend.counts_unechoed
    store.change(unechoed.key, lambda found: replay(found, LIMITS, NOW))
    assert store.backlog().receipts_failed == len(all_of(store, Listing.REFUSED)) == 1


def test_backlog_counts_a_late_failure_of_an_earlier_round_only_if_it_is_listed(store, a_record):
    record = a_record(state=State.DONE, round=1)
    store.create(record)
    note_receipt(store, echo_of(record, 0), receipt(ReceiptKind.FAILED, 1, code=131026))
    assert store.backlog().receipts_failed == len(all_of(store, Listing.REFUSED))


def test_backlog_counts_a_failure_of_a_later_round(store, a_record):
    record = a_record(state=State.DONE, round=2)
    store.create(record)
    note_receipt(store, echo_of(record, 2), receipt(ReceiptKind.FAILED, 1, code=131026))
    assert store.backlog().receipts_failed == 1


def test_backlog_counts_untouched_records_once_during_other_writes(backend, a_record):
    """What changes its state meanwhile may count in both or in neither, and hides nobody else's age."""
    store, other = backend.client(), backend.client()
    still = [State.PENDING] * 5 + [State.IN_DOUBT] * 3
    for record in [a_record(state=state, received_at=at(-100 - n)) for n, state in enumerate(still)]:
        store.create(record)
    moving = [a_record(received_at=at(-1)) for _ in range(4)]
    for record in moving:
        store.create(record)
    over, flips = threading.Event(), []

    def move() -> None:
        while not over.is_set():
            for state in (State.IN_DOUBT, State.PENDING):
                for record in moving:
                    other.change(record.key, writing(state=state))
                flips.append(state)

    mover = threading.Thread(target=move)
    mover.start()
    try:
        seen = [store.backlog() for _ in range(12)]
        until = time.monotonic() + 30
        while len(flips) < 4 and time.monotonic() < until:
            seen.append(store.backlog())
    finally:
        over.set()
        mover.join()
    assert len(flips) >= 4, "it was counted while records moved"
    assert {backlog.oldest_pending for backlog in seen} == {at(-104)}
    for state, fixed in ((State.PENDING, 5), (State.IN_DOUBT, 3)):
        assert {backlog.counts[state] for backlog in seen} <= set(range(fixed, fixed + 5))
    exact = store.backlog().counts
    assert (exact[State.PENDING], exact[State.IN_DOUBT]) == (9, 3)
