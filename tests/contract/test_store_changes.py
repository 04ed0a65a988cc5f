"""What every store promises of a change: one commit, decided on the newest state, all of it or nothing."""

import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from shared.domain.delivery.answers import Answer, Ensure, EnsureReplies, Run, Step, TaskResult
from shared.domain.delivery.bell import enter
from shared.domain.delivery.settle import settle
from shared.domain.errors import StoreUnavailable
from shared.domain.listings import Listing
from shared.domain.record import (
    Delivery,
    Kind,
    State,
    waiter,
)
from shared.domain.verdicts import Accepted, Limited, LimitScope, Released, Replied
from tests.support.store_cases import (
    A_DAY,
    LIMITS,
    NOW,
    OK,
    THREADS,
    at,
    lease_with,
    writing,
)
from tests.support.together import together


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


def test_end_decided_before_an_entry_in_the_bell_is_decided_again(store, a_record):
    record, waiting = a_record(), a_record()
    store.create(record)
    leased = store.change(record.key, lease_with("mine")).write
    assert store.change(record.key, lambda found: enter(found, waiting), record).write
    step = store.change(record.key, lambda found: settle(found, "mine", Accepted("w"), LIMITS, NOW, 0.5), leased)
    assert step.rings.bell == {waiter(waiting)}
    assert store.get(record.key) == step.write
    assert step.write.state is State.DONE


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
