"""What every store promises. A case knows the port alone; a back end joins by one line in conftest.BACKENDS."""

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.domain.counters import LAST_BUCKET, WHOLE, WINDOWS, Cell, Measure, ProcessCounters
from shared.domain.deadline import Deadline
from shared.domain.delivery.answers import Answer, Ensure, EnsureReplies, Run, Step, TaskResult
from shared.domain.delivery.create import create
from shared.domain.delivery.lease import lease
from shared.domain.delivery.operator import replay
from shared.domain.delivery.settle import settle
from shared.domain.delivery.sweep import sweep
from shared.domain.errors import StoreUnavailable, UnknownState
from shared.domain.events import ReceiptBlock, ReceiptReceived
from shared.domain.guards import Go
from shared.domain.identity import Echo, outbound_key, provider_id_hash
from shared.domain.limits import Limits
from shared.domain.listings import Listing
from shared.domain.marks import (
    DOWN,
    Block,
    Bucket,
    Credential,
    Disconnected,
    Marks,
    Outage,
    RefusedCredential,
    claimed,
    is_elected,
    is_troubled,
)
from shared.domain.record import FINAL_STATES, Attempt, Delivery, Kind, ReceiptKind, Receipts, Retries, State, Task
from shared.domain.verdicts import Accepted, Limited, LimitScope, Refused, Released, Replied
from shared.pipeline.counting import MOST_TENANTS
from shared.pipeline.intake import Created, Exists
from shared.pipeline.ports import DecideMarks, Load
from shared.stores.codec import TROUBLES
from shared.stores.counters_codec import MOST_PROCESSES
from tests.support.receipts import note_receipt
from tests.support.together import together

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LIMITS = Limits()
OK = Answer(TaskResult.ACK, "ok")
THREADS = 64
ID, OTHER_ID = "a" * 40, "b" * 40
"""Of marks."""
A_DAY = 86_400
"""Seconds that a back end may be late in deleting what has expired."""
TEXTS = [
    "",
    "👩‍👩‍👧‍👦 🏳️‍🌈",
    "مرحبا \u202eشكرا\u202c",
    "\ufffd\ufeff\u200b",
    'a "quoted" \\ back',
    "line\nbreak\ttab\r",
    "a\u0000b",
    "ção 漢字",
]

many = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
keys = (f"{number:040x}" for number in itertools.count(1 << 40))
"""Fresh ones: the examples of one test share a store."""


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def writing(**changes: Any) -> Callable[[Delivery | None], Step]:
    """A decision that changes these fields, whatever it finds."""
    return lambda record: Step(OK, write=replace(record, **changes))


def of_unknown_state(record: Delivery) -> Delivery:
    """As a newer version would have written it."""
    state: Any = "parked"
    return replace(record, state=state)


def lease_with(token: str, now: datetime = NOW) -> Callable[[Delivery | None], Step]:
    def decide(record: Delivery | None) -> Step:
        return lease(record, Task("", Kind.OUTBOUND, "", record.generation if record else 0), token, Go(), LIMITS, now)

    return decide


def receipt(
    kind: ReceiptKind, seconds: float = 0, provider_id: str = "wamid.1", code: int | None = None
) -> ReceiptReceived:
    return ReceiptReceived("meta", "100000000000001", provider_id, kind, at(seconds), code)


def echo_of(record: Delivery, round_: int = 0) -> Echo:
    return Echo(record.key, round_, record.correlation_id)


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


moments = st.timedeltas(timedelta(days=-20_000), timedelta(days=60_000)).map(lambda ago: NOW + ago)
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(TEXTS)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
counts = st.integers(0, 1000)
attempts = st.builds(
    Attempt,
    at=moments,
    attempt=counts,
    answer=words,
    code=st.none() | counts,
    round=counts,
    **dict.fromkeys(["provider_id", "error", "error_type", "place", "function"], st.none() | words),
)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "kind": st.sampled_from(Kind),
    "state": st.sampled_from(State),
    "received_at": moments,
    "plan_size": st.none() | counts,
    "payload": st.dictionaries(words, values, max_size=4),
    "metadata": st.dictionaries(words, values, max_size=4),
    "attempts_log": st.lists(attempts, max_size=3).map(tuple),
    "retry": st.none() | st.builds(Retries, counts, st.timedeltas(timedelta(), timedelta(days=30))),
    **dict.fromkeys(["key", "tenant", "sender", "contact", "correlation_id", "provider"], words),
    **dict.fromkeys(["token", "after", "reason", "last_error", "provider_id", "body_hash"], st.none() | words),
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


# ---- change


def test_a_change_writes_the_record_and_creates_the_others(store, a_record):
    record, replies = a_record(), [a_record(), a_record()]
    store.create(record)
    step = store.change(record.key, lambda found: Step(OK, replace(found, plan_size=2), tuple(replies)))
    assert step.answer == OK
    assert store.get(record.key).plan_size == 2
    assert [store.get(reply.key) for reply in replies] == replies


def test_a_change_creates_all_or_nothing(store, a_record):
    record, good, bad = a_record(), a_record(), a_record(payload={"body": object()})
    store.create(record)
    with pytest.raises((TypeError, ValueError)):
        store.change(record.key, lambda found: Step(OK, replace(found, plan_size=2), (good, bad)))
    assert store.get(record.key) == record
    assert store.get(good.key) is None


def test_a_write_that_cannot_be_stored_creates_nothing(store, a_record):
    record, reply = a_record(), a_record()
    store.create(record)
    with pytest.raises((TypeError, ValueError)):
        store.change(record.key, lambda found: Step(OK, replace(found, metadata={"a": object()}), (reply,)))
    assert store.get(record.key) == record
    assert store.get(reply.key) is None


def test_existing_reply_is_unchanged(store, a_record):
    record, reply = a_record(), a_record(payload={"body": "first"})
    store.create(record)
    store.create(reply)
    again = replace(reply, payload={"body": "second"})
    store.change(record.key, lambda found: Step(OK, replace(found, plan_size=1), (again,)))
    assert store.get(reply.key) == reply
    assert store.get(record.key).plan_size == 1


def test_decision_can_create_without_writing(store, a_record):
    record, reply = a_record(), a_record()
    store.create(record)
    store.change(record.key, lambda _: Step(OK, create=(reply,)))
    assert store.get(reply.key) == reply


def test_decision_that_raises_changes_nothing_and_propagates(store, a_record):
    record = a_record()
    store.create(record)

    def decide(found: Delivery | None) -> Step:
        raise LookupError("no")

    with pytest.raises(LookupError):
        store.change(record.key, decide)
    with pytest.raises(LookupError):
        store.change(
            record.key, lambda found: writing(attempt=1)(found) if found.version is None else decide(found), record
        )
    assert store.get(record.key) == record


def test_missing_record_is_decided_as_none(store):
    assert store.change("0" * 40, lease_with("t")).answer == Answer(TaskResult.ACK, "gone")
    assert store.get("0" * 40) is None


def test_a_step_that_writes_nothing_leaves_what_was_read_current(store, a_record):
    record = a_record()
    store.create(record)
    seen = store.get(record.key)
    store.change(record.key, lambda found: Step(OK, next=Ensure(found)))
    calls = []
    store.change(record.key, lambda found: calls.append(found) or Step(OK, replace(found, attempt=1)), seen)
    assert len(calls) == 1


def test_decision_is_repeated_after_a_concurrent_write(store, a_record):
    record = a_record()
    store.create(record)
    found_attempts = []

    def decide(found: Delivery | None) -> Step:
        found_attempts.append(found.attempt)
        if len(found_attempts) == 1:
            store.change(record.key, writing(attempt=10))
        return Step(OK, write=replace(found, attempt=found.attempt + 1))

    step = store.change(record.key, decide)
    assert found_attempts == [0, 10]
    assert step.write.attempt == store.get(record.key).attempt == 11


def test_no_change_is_lost_among_64_threads(backend, a_record):
    record, clients = a_record(), [backend.client(), backend.client()]
    clients[0].create(record)

    def add(found: Delivery | None) -> Step:
        return Step(OK, write=replace(found, attempt=found.attempt + 1))

    results = together([lambda c=client: c.change(record.key, add) for client in clients * (THREADS // 2)])
    assert sorted(step.write.attempt for step in results) == list(range(1, THREADS + 1))
    assert clients[0].get(record.key).attempt == THREADS


def test_one_of_64_tasks_gets_the_lease_and_the_others_write_nothing(backend, a_record):
    record, clients = a_record(), [backend.client(), backend.client()]
    clients[0].create(record)
    calls = [
        lambda token=f"token-{i}", client=clients[i % 2]: client.change(record.key, lease_with(token))
        for i in range(THREADS)
    ]
    steps = together(calls)
    winners = [step for step in steps if isinstance(step.next, Run)]
    assert len(winners) == 1
    assert [step.answer for step in steps if step not in winners] == [Answer(TaskResult.CONFLICT, State.LEASED)] * (
        THREADS - 1
    )
    stored = clients[0].get(record.key)
    assert stored == winners[0].write
    assert stored.attempt == 1


def test_expired_token_writes_nothing(store, a_record):
    record = a_record()
    store.create(record)
    seen = store.change(record.key, lease_with("mine")).write
    late = LIMITS.outbound_lease.total_seconds() + 1
    store.change(record.key, lease_with("other", at(late)))
    store.change(record.key, lambda found: settle(found, "mine", Released(), LIMITS, at(late), 0.5), seen)
    before = store.get(record.key)
    assert before.state is State.PENDING
    assert (
        store.change(record.key, lambda found: settle(found, "mine", Accepted("w"), LIMITS, NOW, 0.5), seen).write
        is None
    )
    assert store.get(record.key) == before


def test_the_record_of_a_step_is_current_for_the_next_change(store, a_record):
    """From lease to settle without a read: through the write, and through the record that the step hands on."""
    record = a_record()
    store.create(record)
    run = store.change(record.key, lease_with("mine")).next
    calls = []

    def decide(found: Delivery | None) -> Step:
        calls.append(found)
        return settle(found, "mine", Limited(LimitScope.ACCOUNT, 4), LIMITS, NOW, 0.5)

    step = store.change(record.key, decide, run.record)
    assert len(calls) == 1
    assert isinstance(step.next, Ensure)
    assert step.next.record == step.write == store.get(record.key)
    store.change(record.key, lambda found: calls.append(found) or writing(attempt=0)(found), step.next.record)
    assert len(calls) == 2


def test_the_record_of_a_plan_is_current_too(store, a_record):
    event = a_record(kind=Kind.INBOUND)
    store.create(event)
    store.change(event.key, lease_with("mine"))
    plan = store.change(event.key, lambda found: settle(found, "mine", Replied(({"n": 0},)), LIMITS, NOW, 0.5))
    assert isinstance(plan.next, EnsureReplies)
    assert plan.next.record == store.get(event.key)
    calls = []
    store.change(event.key, lambda found: calls.append(found) or writing(attempt=0)(found), plan.next.record)
    assert len(calls) == 1


def test_reply_of_a_plan_can_be_dead_from_the_start(store, a_record):
    event = a_record(kind=Kind.INBOUND)
    store.create(event)
    store.change(event.key, lease_with("mine"))
    replied = Replied(({"n": 0}, {"type": "invalid", "given": "x"}), invalid={1: "It is empty."})
    plan = store.change(event.key, lambda found: settle(found, "mine", replied, LIMITS, NOW, 0.5))
    assert [store.get(reply.key) for reply in plan.create] == list(plan.create)
    assert [reply.state for reply in plan.create] == [State.PENDING, State.DEAD]
    assert [record.key for record in store.listed(Listing.DEAD, None, None, 10).records] == [plan.create[1].key]
    assert plan.create[1].key not in store.overdue(at(10 * A_DAY), 10)
    assert store.backlog().counts[State.DEAD] == 1


def test_stale_seen_record_only_loses_the_race(store, a_record):
    record = a_record()
    store.create(record)
    old = store.get(record.key)
    store.change(record.key, writing(attempt=5))
    step = store.change(record.key, lambda found: Step(OK, write=replace(found, attempt=found.attempt + 1)), old)
    assert step.write.attempt == store.get(record.key).attempt == 6


def test_seen_record_of_a_deleted_key_only_loses_the_race(backend, store, a_record):
    record = a_record(state=State.DONE, expire_at=NOW)
    store.create(record)
    old = store.get(record.key)
    backend.expire(store, at(A_DAY))
    store.create(replace(record, generation=7, expire_at=None))
    step = store.change(record.key, lambda found: Step(OK, write=replace(found, attempt=1)), old)
    assert step.write.generation == 7


def test_unread_record_can_be_given_as_seen(store, a_record):
    record = a_record()
    store.create(replace(record, generation=7))
    step = store.change(record.key, lambda found: Step(OK, write=replace(found, attempt=1)), record)
    assert step.write.generation == 7


def test_a_lease_that_was_written_and_not_answered_is_recognised_by_its_token(backend, store, a_record):
    """As after an answer that was lost: what is there is this very attempt's own write."""
    record = a_record()
    store.create(record)
    seen = store.get(record.key)
    applied = backend.client().change(record.key, lease_with("mine"), seen)
    step = store.change(record.key, lease_with("mine"), seen)
    assert isinstance(step.next, Run)
    assert step.next.record == store.get(record.key) == applied.write
    assert step.next.record.attempt == 1


def plan_of(event: Delivery, replies: Sequence[Delivery]) -> Callable[[Delivery | None], Step]:
    return lambda found: Step(OK, replace(found, state=State.DONE, plan_size=len(replies)), tuple(replies))


def test_plan_of_30_replies_is_visible_whole_or_not_at_all(backend, store, a_record):
    events = [a_record(kind=Kind.INBOUND) for _ in range(8)]
    plans = [[a_record(payload={"body": "x" * 2000}) for _ in range(30)] for _ in events]
    for event in events:
        store.create(event)
    readers, over, torn = [backend.client(), backend.client()], threading.Event(), []

    def watch(reader: Any, backwards: bool) -> None:
        """Of two parts of one commit, whichever was seen first, the other must be there by then."""
        while not over.is_set():
            for event, replies in zip(events, plans, strict=True):
                if backwards:
                    first, then = reader.get(replies[-1].key), reader.get(event.key).state is State.DONE
                else:
                    first, then = reader.get(event.key).state is State.DONE, reader.get(replies[-1].key)
                if first and not then:
                    torn.append(event.key)

    threads = [threading.Thread(target=watch, args=(reader, n == 0)) for n, reader in enumerate(readers)]
    for thread in threads:
        thread.start()
    together([lambda e=e, r=r: store.change(e.key, plan_of(e, r)) for e, r in zip(events, plans, strict=True)])
    over.set()
    for thread in threads:
        thread.join()
    assert torn == []
    assert [store.get(reply.key) for replies in plans for reply in replies] == list(itertools.chain(*plans))


def test_an_event_and_its_replies_are_read_as_of_one_moment(backend, store, a_record):
    events = [a_record(kind=Kind.INBOUND) for _ in range(60)]
    for event in events:
        store.create(event)
    reader, looking, torn = backend.client(), threading.Semaphore(0), []

    def watch() -> None:
        for event in events:
            looking.release()
            while (records := reader.by_correlation(event.correlation_id))[0].state is not State.DONE:
                pass
            torn.extend([event.key] * (len(records) == 1))

    thread = threading.Thread(target=watch)
    thread.start()
    for event in events:
        reply = a_record(correlation_id=event.correlation_id, payload={"body": "x" * 2000})
        looking.acquire()
        store.change(event.key, plan_of(event, [reply]), event)
    thread.join()
    assert torn == []


def test_plan_the_store_cannot_hold_is_not_stored(backend, store, a_record):
    event, replies = a_record(kind=Kind.INBOUND), [a_record() for _ in range(30)]
    store.create(event)
    seen = store.get(event.key)
    with backend.unreachable(), pytest.raises(StoreUnavailable):
        store.change(event.key, plan_of(event, replies), seen)
    assert store.get(event.key) == event
    assert [store.get(reply.key) for reply in replies] == [None] * 30
    store.change(event.key, plan_of(event, replies), seen)
    assert [store.get(reply.key) for reply in replies] == replies


# ---- receipts


receipts = st.builds(
    receipt,
    st.sampled_from(ReceiptKind),
    st.integers(-3, 3),
    st.sampled_from(["wamid.1", "wamid.2"]),
    st.none() | st.sampled_from([0, 131026]),
)


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


# ---- counters


def counters(process: str = "p1", seconds: float = 0, **counts: int) -> ProcessCounters:
    """Sends of these tenants."""
    cells = {Cell(7, tenant, Measure.SENT): count for tenant, count in counts.items()}
    return ProcessCounters(process, at(seconds), cells)


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


def all_of(store: Any, listing: Listing, tenant: str | None = None, limit: int = 100) -> list[Delivery]:
    """Every record of a listing, page by page; no page holds more than was asked for."""
    found, after = [], None
    while True:
        page = store.listed(listing, tenant, after, limit)
        assert len(page.records) <= limit
        found += page.records
        if page.ends_at is None:
            return found
        after = page.ends_at


def keys_of(records: Sequence[Delivery]) -> set[str]:
    return {record.key for record in records}


def a_stranger(a_record: Callable[..., Delivery]) -> Delivery:
    return a_record(kind=Kind.INBOUND, state=State.DROPPED, reason="unknown_sender", tenant="", expire_at=at(A_DAY))


def a_replayed(a_record: Callable[..., Delivery], **changes: Any) -> Delivery:
    return a_record(round=1, generation=3, **changes)


def a_refused(store: Any, a_record: Callable[..., Delivery], **changes: Any) -> Delivery:
    record = a_record(**{"state": State.DONE, "expire_at": at(9 * A_DAY)} | changes)
    store.create(record)
    note_receipt(store, echo_of(record, record.round), receipt(ReceiptKind.FAILED, 1, code=131026))
    return record


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


# ---- marks


NOTED = ReceiptBlock(131031, at(0.000001), "c" * 40)
MARKS: dict[str, tuple[Any, Any]] = {
    "down": (Outage(at(1)), Outage(at(1.000001), timedelta(microseconds=1), "token", "d" * 40)),
    "block": (
        Block(at(2), timedelta(seconds=600), 368),
        Block(at(2.000002), timedelta(hours=6, microseconds=1), 131031, "token", by_receipt=True, confirming=True),
    ),
    "refused": (
        RefusedCredential("f1", 190, at(3)),
        RefusedCredential("f2", 0, at(3.000003), at(7203.000003), "token"),
    ),
    "credential": (Credential("f1", at(4)), Credential("f2", at(4.000004), "f1")),
    "receipt_block": (ReceiptBlock(131031, at(5)), NOTED),
    "disconnected": (Disconnected("", at(6)), Disconnected("PARTNER_REMOVED", at(6.000006))),
    "bucket": (Bucket(at(7)), Bucket(at(7.000007))),
}
"""Of each mark one with its required fields alone, and one with every field."""


def setting(**marks: Any) -> DecideMarks:
    """A decision that sets these marks, whatever it finds."""
    return lambda current: replace(current, **marks)


def claim_with(token: str, seen: Marks) -> DecideMarks:
    return lambda current: claimed(current, seen, {DOWN}, token, at(90))


def recording(decide: DecideMarks, found: list[Marks]) -> DecideMarks:
    """The decision, which also keeps what it was given."""
    return lambda current: found.append(current) or decide(current)


def test_tested_marks_have_every_field():
    assert MARKS.keys() == {field.name for field in fields(Marks)} - {"version"}
    for _, full in MARKS.values():
        assert [field.name for field in fields(full) if getattr(full, field.name) == field.default] == []


def test_marks_are_empty_where_nothing_is_stored(store):
    assert (store.marks(ID), store.marks(ID).version) == (Marks(), None)


@pytest.mark.parametrize("name", MARKS)
def test_mark_survives_a_round_trip_with_and_without_its_optional_fields(store, name):
    bare, full = MARKS[name]
    before = Marks()
    for mark in (bare, full, bare, None, full):
        after = Marks(**{name: mark})
        assert store.change_marks(ID, setting(**{name: mark})) == (before, after)
        assert store.marks(ID) == after
        before = after


words_or_none = st.none() | words
spans = st.timedeltas(timedelta(), timedelta(days=4000))
codes = st.integers(0, 2**53)
all_marks = st.builds(
    Marks,
    st.none() | st.builds(Outage, moments, spans, words_or_none, words_or_none),
    st.none() | st.builds(Block, moments, spans, codes, words_or_none, st.booleans(), st.booleans()),
    st.none() | st.builds(RefusedCredential, words, codes, moments, st.none() | moments, words_or_none),
    st.none() | st.builds(Credential, words, moments, words_or_none),
    st.none() | st.builds(ReceiptBlock, codes, moments, words_or_none),
    st.none() | st.builds(Disconnected, words, moments),
    st.none() | st.builds(Bucket, moments),
)


@many
@given(before=all_marks, after=all_marks)
def test_all_changed_marks_survive_a_round_trip(store, before, after):
    id = next(keys)
    seen = store.change_marks(id, lambda _: before)[1]
    assert seen == store.marks(id) == before
    assert store.change_marks(id, lambda _: after, seen) == (before, after)
    assert store.marks(id) == after


def test_change_of_one_mark_leaves_the_others(store):
    full = Marks(**{name: full for name, (_, full) in MARKS.items()})
    store.change_marks(ID, lambda _: full)
    for name, (bare, _) in MARKS.items():
        store.change_marks(ID, setting(**{name: bare}))
        full = replace(full, **{name: bare})
        assert store.marks(ID) == full


def test_change_of_marks_that_changes_nothing_writes_nothing(store):
    same = setting()
    assert store.change_marks(ID, same) == store.change_marks(ID, same, Marks()) == (Marks(), Marks())
    assert store.marks(ID).version is None
    stored = store.change_marks(ID, setting(down=Outage(NOW)))[1]
    equal = replace(stored, version=None)
    for before, after in (
        store.change_marks(ID, same),
        store.change_marks(ID, same, stored),
        store.change_marks(ID, lambda _: equal),
        store.change_marks(ID, lambda _: equal, stored),
    ):
        assert before == after == stored
        assert before.version == after.version == store.marks(ID).version == stored.version


def test_change_from_seen_that_writes_nothing_does_not_ask_the_store(backend, store):
    seen = store.change_marks(ID, setting(down=Outage(NOW)))[1]
    with backend.unreachable():
        assert store.change_marks(ID, setting(), seen) == (seen, seen)


def test_written_marks_are_current_for_the_next_change(store):
    found: list[Marks] = []
    seen = store.change_marks(ID, setting(down=Outage(NOW)))[1]
    for wait in range(3):
        mark = Outage(NOW, timedelta(seconds=wait + 1))
        seen = store.change_marks(ID, recording(setting(down=mark), found), seen)[1]
        assert (seen, seen.version) == (store.marks(ID), store.marks(ID).version)
    assert len(found) == 3
    store.change_marks(ID, recording(setting(down=None), found), store.marks(ID))
    assert len(found) == 4


def test_stale_seen_is_read_again(backend, store):
    old = store.change_marks(ID, setting(down=Outage(NOW)))[1]
    now = backend.client().change_marks(ID, setting(credential=Credential("f1", NOW)))[1]
    found: list[Marks] = []
    before, after = store.change_marks(ID, recording(setting(down=None), found), old)
    assert found == [old, now]
    assert (before, after) == (now, Marks(credential=Credential("f1", NOW)))
    assert store.marks(ID) == after


def test_stale_seen_whose_second_decision_changes_nothing_writes_nothing(backend, store):
    old = store.change_marks(ID, setting(down=Outage(NOW)))[1]
    now = backend.client().change_marks(ID, setting(down=Outage(at(1))))[1]
    before, after = store.change_marks(ID, claim_with("late", old), old)
    assert (before, after) == (now, now)
    assert before.version == after.version == store.marks(ID).version == now.version


def test_marks_are_decided_again_when_another_write_came_between(store):
    found: list[Marks] = []

    def decide(current: Marks) -> Marks:
        if not found:
            store.change_marks(ID, setting(credential=Credential("f1", NOW)))
        found.append(current)
        return replace(current, down=Outage(NOW))

    before, after = store.change_marks(ID, decide)
    assert found == [Marks(), before] == [Marks(), Marks(credential=Credential("f1", NOW))]
    assert store.marks(ID) == after == replace(before, down=Outage(NOW))


@pytest.mark.parametrize("start", [Marks(), Marks(down=Outage(NOW))], ids=["no mark", "a mark that is over"])
def test_one_of_64_claims_is_elected(backend, start):
    clients = [backend.client(), backend.client()]
    clients[0].change_marks(ID, lambda _: start)
    seen = clients[0].marks(ID)
    calls = [
        lambda token=f"token-{n}", client=clients[n % 2]: client.change_marks(ID, claim_with(token, seen), seen)
        for n in range(THREADS)
    ]
    results = together(calls)
    elected = [n for n, (_, after) in enumerate(results) if is_elected(after, {DOWN}, f"token-{n}")]
    stored = clients[0].marks(ID)
    assert elected == [n for n in range(THREADS) if stored.down.claim == f"token-{n}"]
    assert len(elected) == 1
    assert {after for _, after in results} == {stored}
    assert [n for n, (before, after) in enumerate(results) if before != after] == elected


def test_claim_that_was_written_and_not_answered_is_recognised(backend, store):
    """As after an answer that was lost: what is there is this very attempt's own write."""
    seen = store.change_marks(ID, setting(down=Outage(NOW)))[1]
    applied = backend.client().change_marks(ID, claim_with("mine", seen), seen)[1]
    after = store.change_marks(ID, claim_with("mine", seen), seen)[1]
    assert is_elected(after, {DOWN}, "mine")
    assert (after, after.version) == (applied, applied.version)


def test_marks_that_do_not_exist_are_created_once_and_the_other_decides_again(backend, store):
    found: list[Marks] = []
    first = backend.client().change_marks(ID, claim_with("first", Marks()), Marks())
    assert is_elected(first[1], {DOWN}, "first")
    second = store.change_marks(ID, recording(claim_with("second", Marks()), found), Marks())
    assert found == [Marks(), first[1]]
    assert second == (first[1], first[1])
    assert store.marks(ID).version == second[1].version == first[1].version


def test_no_change_of_marks_and_no_noted_receipt_is_lost_among_threads(backend):
    clients = [backend.client(), backend.client()]

    def longer(current: Marks) -> Marks:
        return replace(current, down=Outage(NOW, (current.down or Outage(NOW)).wait + timedelta(seconds=1)))

    noted = [ReceiptBlock(131031, at(n)) for n in range(8)]
    results = together(
        [lambda c=client: c.change_marks(ID, longer) for client in clients * 16]
        + [lambda n=each: clients[0].note_receipt_block(ID, n) for each in noted]
    )
    assert sorted(after.down.wait.seconds for _, after in results[:32]) == list(range(1, 33))
    stored = clients[1].marks(ID)
    assert stored.down.wait == timedelta(seconds=32)
    assert stored.receipt_block in noted


def test_marks_of_one_id_do_not_touch_anothers(store):
    other = store.change_marks(OTHER_ID, setting(down=Outage(NOW)))[1]
    store.change_marks(ID, setting(down=Outage(at(1))))
    store.note_receipt_block(ID, NOTED)
    assert store.marks(ID) == Marks(down=Outage(at(1)), receipt_block=NOTED)
    assert (store.marks(OTHER_ID), store.marks(OTHER_ID).version) == (other, other.version)


def test_last_noted_receipt_stands_beside_the_other_marks(store):
    store.note_receipt_block(ID, ReceiptBlock(1, NOW))
    store.note_receipt_block(ID, NOTED)
    assert store.marks(ID) == Marks(receipt_block=NOTED)
    rest = {name: full for name, (_, full) in MARKS.items() if name != "receipt_block"}
    store.change_marks(ID, setting(**rest))
    store.note_receipt_block(ID, ReceiptBlock(2, NOW))
    assert store.marks(ID) == Marks(**rest, receipt_block=ReceiptBlock(2, NOW))


@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("is_seen", [False, True])
def test_noted_receipt_and_a_concurrent_change_are_both_stored(backend, store, is_stored, is_seen):
    if is_stored:
        store.change_marks(ID, setting(credential=Credential("f1", NOW)))
    start, found = store.marks(ID), []

    def decide(current: Marks) -> Marks:
        if not found:
            backend.client().note_receipt_block(ID, NOTED)
        found.append(current)
        return replace(current, down=Outage(NOW))

    both = replace(start, down=Outage(NOW), receipt_block=NOTED)
    assert store.change_marks(ID, decide, start if is_seen else None) == (replace(start, receipt_block=NOTED), both)
    assert found == [start, replace(start, receipt_block=NOTED)]
    assert store.marks(ID) == both


def test_change_removes_only_the_noted_receipt_it_decided_on(backend, store):
    old = ReceiptBlock(1, NOW)
    store.note_receipt_block(ID, old)
    seen = store.marks(ID)
    take = setting(receipt_block=None)

    def decide(current: Marks) -> Marks:
        return take(current) if current.receipt_block == old else current

    backend.client().note_receipt_block(ID, NOTED)
    assert store.change_marks(ID, decide, seen)[1] == store.marks(ID) == Marks(receipt_block=NOTED)
    store.change_marks(ID, take)
    assert store.marks(ID) == Marks()
    store.note_receipt_block(ID, old)
    assert store.marks(ID) == Marks(receipt_block=old)


def test_decision_on_marks_that_raises_changes_nothing_and_propagates(store):
    def decide(current: Marks) -> Marks:
        raise LookupError("no")

    with pytest.raises(LookupError):
        store.change_marks(ID, decide)
    assert store.marks(ID).version is None


@pytest.mark.parametrize("name", MARKS)
def test_marks_that_cannot_be_stored_leave_no_trace(store, name):
    times = {"down": "until", "block": "until", "refused": "since", "credential": "since", "receipt_block": "at"}
    times |= {"disconnected": "since", "bucket": "next"}
    without_zone = replace(MARKS[name][0], **{times[name]: NOW.replace(tzinfo=None)})
    with pytest.raises(ValueError):
        store.change_marks(ID, setting(**{name: without_zone}))
    assert store.marks(ID).version is None


@pytest.mark.parametrize(
    "mark", [{"block": Block(NOW, timedelta(), "368")}, {"credential": Credential(7, NOW)}], ids=str
)
def test_invalid_mark_is_an_unknown_state(store, mark):
    """As a newer version might have written it."""
    store.change_marks(ID, setting(**mark))
    with pytest.raises(UnknownState):
        store.marks(ID)
    with pytest.raises(UnknownState):
        store.change_marks(ID, setting(down=Outage(NOW)))
    with pytest.raises(UnknownState):
        store.change_marks(ID, setting(down=Outage(NOW)), Marks())
    store.note_receipt_block(ID, NOTED)
    with pytest.raises(UnknownState):
        store.marks(ID)


# ---- troubled senders


TROUBLED = ["block", "disconnected", "receipt_block", "refused"]


def ids_of(count: int) -> list[str]:
    return [f"{number:040x}" for number in range(1, count + 1)]


def test_troubles_are_the_marks_that_make_a_sender_troubled():
    marks = {name: Marks(**{name: full}) for name, (_, full) in MARKS.items()}
    assert sorted(TROUBLES) == TROUBLED == sorted(name for name, alone in marks.items() if is_troubled(alone))


@pytest.mark.parametrize("name", MARKS)
def test_marks_are_listed_only_while_they_are_troubled(store, name):
    for mark in MARKS[name]:
        store.change_marks(ID, lambda _, mark=mark: Marks(down=Outage(NOW), **{name: mark} if name != "down" else {}))
        assert list(store.troubled(None, 10)) == ([ID] if name in TROUBLED else [])
    store.change_marks(ID, setting(**{name: None}))
    assert list(store.troubled(None, 10)) == []


def test_marks_with_two_troubles_are_listed_until_both_are_over(store):
    store.change_marks(ID, setting(block=MARKS["block"][0], refused=MARKS["refused"][0]))
    store.change_marks(ID, setting(block=None))
    assert list(store.troubled(None, 10)) == [ID]
    store.change_marks(ID, setting(refused=None))
    assert list(store.troubled(None, 10)) == []


@pytest.mark.parametrize("is_stored", [False, True], ids=["no marks before", "healthy marks before"])
def test_noted_receipt_makes_marks_troubled_until_a_change_removes_it(store, is_stored):
    if is_stored:
        store.change_marks(ID, setting(credential=Credential("f1", NOW)))
    store.note_receipt_block(ID, NOTED)
    assert list(store.troubled(None, 10)) == [ID]
    store.change_marks(ID, setting(down=Outage(NOW)))
    assert list(store.troubled(None, 10)) == [ID]
    store.change_marks(ID, setting(receipt_block=None))
    assert list(store.troubled(None, 10)) == []


@pytest.mark.parametrize("limit", [1, 3, 20])
def test_troubled_marks_come_in_pages_in_the_order_of_their_ids(store, limit):
    ids = ids_of(8)
    for id in reversed(ids):
        store.change_marks(id, setting(block=MARKS["block"][0]))
    store.change_marks(ids[2], setting(block=None))
    found: list[str] = []
    while page := store.troubled(found[-1] if found else None, limit):
        assert len(page) <= limit
        found += page
    assert found == [id for id in ids if id != ids[2]]
    assert list(store.troubled(ids[2], 1)) == [ids[3]], "after an id that is not troubled itself"
    assert list(store.troubled(ids[-1], 1)) == []


def test_marks_never_expire(backend, store):
    store.change_marks(ID, setting(down=Outage(NOW)))
    store.note_receipt_block(ID, NOTED)
    backend.expire(store, at(4000 * A_DAY))
    assert store.marks(ID) == Marks(down=Outage(NOW), receipt_block=NOTED)


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
