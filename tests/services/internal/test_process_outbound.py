"""process_outbound over HTTP: what a task finds, with a real store and a provider."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from shared.domain.delivery.create import create
from shared.domain.delivery.operator import replay
from shared.domain.errors import QueueUnavailable
from shared.domain.identity import Echo
from shared.domain.marks import Block, Outage, RefusedCredential
from shared.domain.record import WAKE, Delivery, Kind, ReceiptKind, State, Task, waiter
from shared.operations.timeline.build import shown
from tests.support import parts
from tests.support.internal_service import FINAL, LAST, OLDER, PLUS, T0, Make, Service, note, said
from tests.support.parts import NOW, a_reply, doubtful, ended, error, held, put_marks
from tests.support.receipts import note_receipt

# ---- process_outbound: what a task finds


def test_missing_message_is_answered_200(service: Service, capfd: pytest.CaptureFixture[str]) -> None:
    assert service.arrive(a_reply()) == (200, {"state": "gone"})
    assert said(capfd, "task_gone")["delivery"] == a_reply().key


@pytest.mark.parametrize("state", FINAL)
def test_final_message_is_answered_200(service: Service, provider: parts.Provider, state: State) -> None:
    record = service.put(a_reply(**ended(state)))
    assert service.arrive(record) == (200, {"state": state})
    assert (provider.requests, service.made) == ([], [])


def test_message_leased_by_another_attempt_is_answered_409(service: Service) -> None:
    record = service.put(a_reply(**held(10)))
    assert service.arrive(record) == (409, {"state": "leased"})


@pytest.mark.parametrize("kind", list(ReceiptKind))
@pytest.mark.parametrize(
    "fields", [{}, doubtful(100), doubtful(-1), held(-1)], ids=["pending", "in_doubt", "past it", "leased expired"]
)
def test_a_receipt_of_its_round_proves_that_it_was_sent(
    service: Service, provider: parts.Provider, fields: dict[str, Any], kind: ReceiptKind
) -> None:
    record = service.put(a_reply(**fields))
    note(service, record, kind)
    assert service.arrive(record) == (200, {"state": "done"})
    assert (provider.requests, service.get(record).state) == ([], State.DONE)


@pytest.mark.parametrize("kind", list(ReceiptKind))
def test_a_message_that_a_receipt_settles_counts_as_processed_unless_it_failed(
    service: Service, capfd: pytest.CaptureFixture[str], kind: ReceiptKind
) -> None:
    """A receipt that says failed has been counted as a failure by itself."""
    record = service.put(a_reply(**doubtful(100)))
    note(service, record, kind)
    capfd.readouterr()
    service.arrive(record)
    line = said(capfd, "outbound_attempt")
    assert (line["state"], line.get("status")) == ("done", None if kind is ReceiptKind.FAILED else "success")


@pytest.mark.parametrize("age", [T0, OLDER])
def test_an_expired_lease_is_a_doubt(service: Service, provider: parts.Provider, age: int) -> None:
    record = service.put(a_reply(generation=1, **held(-1)))
    assert service.arrive(record, age) == (200, {"state": "in_doubt"})
    after = service.get(record)
    assert (after.state, after.doubts, after.doubt_until) == (State.IN_DOUBT, 1, NOW + timedelta(seconds=300))
    assert provider.requests == []
    if age == T0:
        assert service.made == [(replace(Task.of(record), hop=1), NOW + timedelta(seconds=15))]
    else:
        assert service.made == [(Task.of(after), after.due_at)]


def test_a_doubt_waits_by_hops_and_never_past_its_window(service: Service) -> None:
    record = service.put(a_reply(**doubtful(20)))
    before = service.get(record)
    assert service.arrive(record, hop=3) == (200, {"state": "in_doubt"})
    assert service.made == [(replace(Task.of(record), hop=4), NOW + timedelta(seconds=20))]
    assert service.get(record) == before


HOPELESS = {
    "resent once": ({}, {"doubts": 2}),
    "no attempts left": ({}, {"attempt": LAST}),
    "too old": ({}, {"give_up_at": NOW}),
    "by policy": ({"IN_DOUBT_POLICY": "hold"}, {}),
}


@pytest.mark.parametrize("why", HOPELESS)
def test_a_doubt_that_cannot_be_resolved_is_dead(make: Make, provider: parts.Provider, why: str) -> None:
    environ, fields = HOPELESS[why]
    service = make(**environ)
    record = service.put(a_reply(**doubtful(-1, **fields)))
    assert service.arrive(record) == (200, {"state": "dead"})
    assert (service.get(record).reason, provider.requests) == ("in_doubt", [])


def test_a_doubt_past_its_window_is_resent_once(service: Service, provider: parts.Provider) -> None:
    record = service.put(a_reply(**doubtful(-1)))
    assert service.arrive(record) == (200, {"state": "done"})
    assert service.asked_of(provider) == ["probe", "text"]
    assert (service.get(record).attempt, service.get(record).doubts) == (2, 1)


def test_early_task_of_pending_message_hops_to_its_due_time(service: Service, provider: parts.Provider) -> None:
    """As the one that comes back from a 503 does: the queue's pace is quicker than the provider's."""
    record = service.put(a_reply(due_at=NOW + timedelta(seconds=90)))
    assert service.arrive(record) == (200, {"state": "waiting"})
    assert service.made == [(replace(Task.of(record), hop=1), record.due_at)]
    assert (service.get(record), provider.requests) == (record, [])


def test_message_for_next_week_expires_one_max_age_after_it_is_due(service: Service, provider: parts.Provider) -> None:
    """It neither dies of age on the day it is due, nor waits longer than another."""
    due_at = NOW + timedelta(days=7)
    record = service.put(a_later_reply(due_at))
    assert record.give_up_at == due_at + timedelta(hours=24)
    service.internal.clock.go(timedelta(days=7, hours=23).total_seconds())
    provider.answers.append(error(2, 503))
    assert service.arrive(record) == (503, {"state": "pending"})
    service.internal.clock.go(3600)
    assert service.arrive(record) == (200, {"state": "dead"})
    assert (service.get(record).reason, service.get(record).attempt) == ("waited", 0)


def a_later_reply(due_at: datetime) -> Delivery:
    first = a_reply()
    return create(
        Kind.OUTBOUND, first.key, provider="meta", tenant=first.tenant, sender=first.sender, contact=first.contact,
        correlation_id=first.correlation_id, payload=first.payload, limits=parts.LIMITS, now=NOW, due_at=due_at,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "reason"), [({"give_up_at": NOW}, "waited"), ({"attempt": LAST}, "attempts")], ids=["waited", "attempts"]
)
def test_message_without_attempts_or_time_left_is_dead(
    service: Service, provider: parts.Provider, fields: dict[str, Any], reason: str
) -> None:
    record = service.put(a_reply(**fields))
    assert service.arrive(record) == (200, {"state": "dead"})
    assert (service.get(record).reason, provider.requests) == (reason, [])


def test_older_task_of_a_message_that_is_not_due_ensures_the_current_one(service: Service) -> None:
    record = service.put(a_reply(generation=1, due_at=NOW + PLUS))
    assert service.arrive(record, OLDER) == (200, {"state": "waiting"})
    assert service.made == [(Task.of(record), record.due_at)]


def blocked(service: Service) -> None:
    put_marks(service.internal.store.port, block=Block(NOW + timedelta(hours=1), timedelta(hours=1), 131031))


def refused_credential(service: Service) -> None:
    put_marks(service.internal.store.port, refused=RefusedCredential(service.in_use, 190, NOW))


def provider_down(service: Service) -> None:
    put_marks(service.internal.store.port, down=Outage(NOW + timedelta(seconds=80), timedelta(seconds=80)))


def probing(service: Service) -> None:
    down = Outage(NOW + timedelta(seconds=80), timedelta(seconds=80), claim="another attempt")
    put_marks(service.internal.store.port, down=down)


def probing_after_a_lost_answer(service: Service) -> None:
    put_marks(service.internal.store.port, down=Outage(NOW + timedelta(seconds=80), claim="another attempt"))


def unfinished_predecessor(service: Service) -> None:
    service.put(a_reply(2))


GUARDS: dict[str, tuple[Callable[[Service], None], str, str | None, float]] = {
    "blocked": (blocked, "blocked", None, 600),
    "needs reauth": (refused_credential, "WHATSAPP_REAUTH_REQUIRED", None, 600),
    "predecessor": (unfinished_predecessor, "predecessor", a_reply(2).key, 0.3),
    "provider down": (provider_down, "provider_down", None, 80),
    "another probes": (probing, "provider_down", None, 15),
    "another probes after a lost answer": (probing_after_a_lost_answer, "provider_probe", None, 15),
}


@pytest.mark.parametrize("name", GUARDS)
@pytest.mark.parametrize("age", [T0, OLDER])
@pytest.mark.parametrize("fields", [{}, doubtful(-1)], ids=["pending", "in_doubt"])
def test_a_guard_that_is_false_for_now_makes_it_wait_and_writes_nothing(
    service: Service, provider: parts.Provider, name: str, age: int, fields: dict[str, Any],
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    forbid, why, after, seconds = GUARDS[name]
    service.use_credential()
    forbid(service)
    if fields and why == "provider_down" and name != "another probes":
        seconds += 60  # a message in doubt lets a fresh one be the trial
    record = service.put(a_reply(after=after, generation=1, due_at=NOW, **fields))
    service.internal.store.calls.clear()
    word = "in_doubt" if fields else "waiting"
    assert service.arrive(record, age) == (200, {"state": word})
    assert (service.get(record), provider.requests) == (record, [])
    assert service.internal.store.asked("change_marks") == []
    if age == T0:
        alone_since = NOW if why == "predecessor" else None
        hop = replace(Task.of(record), hop=1, alone_since=alone_since)
        assert service.made == [(hop, NOW + timedelta(seconds=seconds))]
    else:
        assert service.made == [(Task.of(record), record.due_at)]
    if not fields:
        assert said(capfd, "outbound_waiting")["reason"] == why


def test_a_hop_that_cannot_be_made_is_answered_503(service: Service) -> None:
    blocked(service)
    service.internal.queue.before = lambda *_: QueueUnavailable()
    assert service.arrive(service.put(a_reply())) == (503, {"state": "waiting"})


@pytest.mark.parametrize(
    "before",
    [{"state": State.DONE}, {"state": State.DEAD}, {"state": State.DROPPED}, None],
    ids=["done", "dead", "dropped", "missing"],
)
def test_finished_predecessor_releases_the_message(service: Service, before: dict[str, Any] | None) -> None:
    if before:
        service.put(a_reply(2, **ended(**before)))
    assert service.arrive(service.put(a_reply(after=a_reply(2).key))) == (200, {"state": "done"})


def test_predecessor_with_a_receipt_releases_the_message(service: Service) -> None:
    note(service, service.put(a_reply(2, **doubtful(100))), ReceiptKind.SENT)
    assert service.arrive(service.put(a_reply(after=a_reply(2).key))) == (200, {"state": "done"})


def test_expired_and_deleted_predecessor_releases_the_message(service: Service) -> None:
    """As after a replay of the successor alone, weeks later."""
    service.put(a_reply(2, **ended(State.DONE, expire_at=NOW)))
    after = service.put(a_reply(after=a_reply(2).key))
    service.internal.parts.sweep()
    assert service.internal.store.port.get(a_reply(2).key) is None
    assert service.arrive(after) == (200, {"state": "done"})


def test_replayed_message_follows_those_it_released(service: Service, provider: parts.Provider) -> None:
    """And while it is on its way again it holds up those that have not gone yet."""
    first, second, third = (
        service.put(a_reply(1, payload=a_text("1"), **ended(State.DEAD, reason="permanent"))),
        service.put(a_reply(2, payload=a_text("2"), after=a_reply(1).key)),
        service.put(a_reply(3, payload=a_text("3"), after=a_reply(1).key)),
    )
    assert service.arrive(second) == (200, {"state": "done"})
    replayed = service.internal.store.port.change(first.key, lambda found: replay(found, parts.LIMITS, NOW)).write
    assert service.arrive(third) == (200, {"state": "waiting"})
    assert service.arrive(replayed) == (200, {"state": "done"})
    assert service.arrive(third) == (200, {"state": "done"})
    assert [request["text"]["body"] for request in provider.requests] == ["2", "1", "3"]


def a_text(body: str) -> dict[str, Any]:
    return {**a_reply().payload, "content": {"body": body}}


# ---- the bell


def test_message_enters_the_bell_of_the_one_before_it_and_is_woken_when_that_ends(
    service: Service, provider: parts.Provider
) -> None:
    first, second = service.put(a_reply(1)), service.put(a_reply(2, after=a_reply(1).key))
    assert service.arrive(second) == (200, {"state": "waiting"})
    assert service.get(first).bell == {waiter(second)}
    service.internal.queue.calls.clear()
    assert service.arrive(service.get(first)) == (200, {"state": "done"})
    ((wake, at),) = service.made
    assert (wake.key, wake.generation, at) == (second.key, WAKE, None)
    assert service.process(wake) == (200, {"state": "done"})
    assert len(provider.requests) == 2


def test_message_that_waits_for_something_else_enters_no_bell(service: Service) -> None:
    first = service.put(a_reply(1))
    second = service.put(a_reply(2, after=first.key))
    blocked(service)
    assert service.arrive(second) == (200, {"state": "waiting"})
    assert service.get(first) == first


def test_hop_for_another_reason_does_not_carry_since_when_it_waited_alone(service: Service) -> None:
    second = service.put(a_reply(2, after=service.put(a_reply(1)).key))
    blocked(service)
    service.process(replace(Task.of(second), hop=4, alone_since=NOW - timedelta(minutes=9)))
    assert [(task.hop, task.alone_since) for task, _ in service.made] == [(5, None)]


def test_message_in_the_bell_writes_nothing_when_it_hops_again(service: Service) -> None:
    service.put(a_reply(1))
    second = service.put(a_reply(2, after=a_reply(1).key))
    service.arrive(second)
    service.internal.store.calls.clear()
    service.arrive(second, hop=1)
    assert [name for name, *_ in service.internal.store.calls] == ["get", "marks", "get", "change"]


def test_message_that_enters_the_bell_does_not_look_again(service: Service) -> None:
    second = service.put(a_reply(2, after=service.put(a_reply(1)).key))
    service.internal.store.calls.clear()
    service.arrive(second)
    assert [name for name, *_ in service.internal.store.calls][-3:] == ["get", "change", "change"]


def test_message_whose_predecessor_ends_before_it_is_in_the_bell_goes_at_once(service: Service) -> None:
    """The end was written after the look: it rings for nobody, so a message that did not get in looks again."""
    first, second = service.put(a_reply(1)), service.put(a_reply(2, after=a_reply(1).key))

    def end_first(name: str, key: str = "", *_: Any) -> None:
        if name == "change" and key == first.key:
            service.internal.store.before = lambda *_: None
            assert service.arrive(first) == (200, {"state": "done"})

    service.internal.store.before = end_first
    assert service.arrive(second) == (200, {"state": "done"})


def test_task_that_finds_a_message_final_rings_for_one_that_was_killed(service: Service) -> None:
    second = service.put(a_reply(2, after=a_reply(1).key))
    first = service.put(a_reply(1, bell=frozenset({waiter(second)}), **ended(State.DONE)))
    assert service.arrive(first) == (200, {"state": "done"})
    assert [task.key for task, _ in service.made] == [second.key]


def test_queue_that_takes_no_wake_task_fails_no_task(service: Service, capfd: pytest.CaptureFixture[str]) -> None:
    second = service.put(a_reply(2, after=a_reply(1).key))
    first = service.put(a_reply(1, bell=frozenset({waiter(second)})))
    service.internal.queue.before = lambda *_: QueueUnavailable()
    assert service.arrive(first) == (200, {"state": "done"})
    assert said(capfd, "unexpected_error")["stage"] == "wake"


def test_message_that_has_waited_ten_minutes_alone_goes_before_the_one_before_it(service: Service) -> None:
    first = service.put(a_reply(1, **doubtful(100)))
    second = service.put(a_reply(2, after=first.key))
    task = replace(Task.of(second), hop=9, alone_since=NOW - timedelta(minutes=10))
    assert service.process(task) == (200, {"state": "done"})
    assert service.get(second).overtook == first.key


A_SECOND_AGO = NOW - timedelta(seconds=1)


@pytest.mark.parametrize(
    "marks",
    [{"down": Outage(A_SECOND_AGO)}, {"block": Block(A_SECOND_AGO, timedelta(hours=1), 131031)}],
    ids=["breaker", "block"],
)
def test_elected_message_whose_patience_is_over_says_which_one_it_overtook(service: Service, marks: Any) -> None:
    first = service.put(a_reply(1, **doubtful(100)))
    second = service.put(a_reply(2, after=first.key))
    put_marks(service.internal.store.port, **marks)
    assert service.process(replace(Task.of(second), hop=9, alone_since=NOW - timedelta(minutes=10)))[0] == 200
    assert service.get(second).overtook == first.key


# ---- receipts that come late, and of another round


@pytest.mark.parametrize("kind", list(ReceiptKind))
def test_receipt_after_dead_state_changes_the_display_but_not_the_state(
    service: Service, provider: parts.Provider, kind: ReceiptKind
) -> None:
    record = service.put(a_reply(**ended(State.DEAD, reason="in_doubt", doubts=2)))
    for _ in range(2):
        note(service, record, kind)
    assert service.arrive(record) == (200, {"state": "dead"})
    after = service.get(record)
    assert (after.state, after.finished_at, provider.requests) == (State.DEAD, NOW, [])
    assert shown(after) == ("failed" if kind is ReceiptKind.FAILED else "sent", None)


def test_receipt_of_the_round_before_does_not_stop_a_replay(service: Service, provider: parts.Provider) -> None:
    record = service.put(a_reply(round=1))
    late = Echo(record.key, 0, record.correlation_id)
    assert note_receipt(service.internal.store.port, late, parts.a_receipt("wamid.old", ReceiptKind.DELIVERED))
    assert service.arrive(record) == (200, {"state": "done"})
    assert [request["biz_opaque_callback_data"] for request in provider.requests] == [
        str(Echo(record.key, 1, record.correlation_id))
    ]


def test_a_failed_receipt_settles_a_doubt_and_is_shown_with_its_reason(
    service: Service, provider: parts.Provider
) -> None:
    """WhatsApp had it: it is not sent again. What became of it is another matter."""
    record = service.put(a_reply(**doubtful(100)))
    echo = Echo(record.key, 0, record.correlation_id)
    failed = replace(parts.a_receipt("wamid.1", ReceiptKind.FAILED), code=131026)
    assert note_receipt(service.internal.store.port, echo, failed)
    assert service.arrive(record) == (200, {"state": "done"})
    after = service.get(record)
    assert (shown(after), after.current_receipts.failed_code, provider.requests) == (("failed", None), 131026, [])
