"""The table of sweep, people and time: each row a case, for every starting state."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from shared.domain.delivery.answers import Answer, Ensure, Next, NotAllowed, TaskResult
from shared.domain.delivery.lease import lease
from shared.domain.delivery.operator import cancel, discard, replay
from shared.domain.delivery.settle import settle
from shared.domain.delivery.sweep import sweep
from shared.domain.guards import Go
from shared.domain.limits import Limits
from shared.domain.record import Delivery, Kind, Receipts, State
from shared.domain.verdicts import Limited, LimitScope, ProviderDown
from tests.support.builders import (
    DELIVERED,
    EVERY_RECEIPT,
    FAILED,
    GENERATION,
    LAST,
    LIMITS,
    MINE,
    NOW,
    OLDER,
    SENT,
    STATES,
    at,
    check,
    dead,
    done,
    dropped,
    due,
    ends,
    expired,
    in_doubt,
    leased,
    nothing,
    past_doubt,
    pending,
    task_for,
)

EVERY_STATE = [pytest.param(kind, state, id=f"{kind} {state}") for kind in Kind for state in STATES[kind]]

# ---- sweep


@dataclass(frozen=True)
class Swept:
    """One record that a sweep selected."""

    row: str
    before: Delivery
    answer: Answer
    changes: Mapping[str, Any] | None = None
    then: Callable[[Delivery], Next] = nothing


OVERDUE = {"sweep_at": at(-1), "sweeps": 0}
GIVES_TASK = {"generation": GENERATION + 1, "due_at": NOW, "sweeps": 1, "sweep_at": at(1200)}

SWEPT = (
    Swept("pending", pending(**OVERDUE), Answer(TaskResult.ACK, "pending"), GIVES_TASK, Ensure),
    Swept("pending, an event", pending(Kind.INBOUND, **OVERDUE), Answer(TaskResult.ACK, "pending"), GIVES_TASK, Ensure),
    Swept(
        "pending, overdue just now",
        pending(sweep_at=NOW, sweeps=0),
        Answer(TaskResult.ACK, "pending"),
        GIVES_TASK,
        Ensure,
    ),
    Swept(
        "pending, no attempts left and too old: the sweep decides nothing else",
        pending(attempt=LAST, give_up_at=at(-1), **OVERDUE),
        Answer(TaskResult.ACK, "pending"),
        GIVES_TASK,
        Ensure,
    ),
    Swept(
        "pending, with a receipt: the sweep decides nothing else",
        pending(receipts={0: DELIVERED}, **OVERDUE),
        Answer(TaskResult.ACK, "pending"),
        GIVES_TASK,
        Ensure,
    ),
    Swept("in_doubt", past_doubt(**OVERDUE), Answer(TaskResult.ACK, "in_doubt"), GIVES_TASK, Ensure),
    Swept("in_doubt, before doubt_until", in_doubt(**OVERDUE), Answer(TaskResult.ACK, "in_doubt"), GIVES_TASK, Ensure),
    Swept("leased expired", expired(**OVERDUE), Answer(TaskResult.ACK, "leased"), GIVES_TASK, Ensure),
    Swept(
        "leased expired, an event",
        expired(Kind.INBOUND, **OVERDUE),
        Answer(TaskResult.ACK, "leased"),
        GIVES_TASK,
        Ensure,
    ),
    Swept(
        "leased live: only sweeps + 1 and sweep_at",
        leased(**OVERDUE),
        Answer(TaskResult.ACK, "leased"),
        {"sweeps": 1, "sweep_at": at(1200)},
    ),
    Swept(
        "leased live, an event: only sweeps + 1 and sweep_at",
        leased(Kind.INBOUND, **OVERDUE),
        Answer(TaskResult.ACK, "leased"),
        {"sweeps": 1, "sweep_at": at(1200)},
    ),
)


@pytest.mark.parametrize("row", [pytest.param(row, id=row.row) for row in SWEPT])
def test_sweep_follows_each_row_of_the_protocol(row: Swept) -> None:
    check(sweep(row.before, LIMITS, NOW), row.before, row.changes, row.then, row.answer)


@pytest.mark.parametrize(("kind", "state"), EVERY_STATE)
def test_a_sweep_changes_no_state(kind: Kind, state: str) -> None:
    record = STATES[kind][state]()
    step = sweep(record if record.final else replace(record, **OVERDUE), LIMITS, NOW)
    assert (step.write or record).state is record.state
    assert (step.write is None) is record.final


@pytest.mark.parametrize(("kind", "state"), EVERY_STATE)
def test_a_sweep_leaves_alone_what_is_not_overdue(kind: Kind, state: str) -> None:
    record = STATES[kind][state]()
    later = record if record.final else replace(record, sweep_at=at(1))
    check(sweep(later, LIMITS, NOW), later, None, nothing, Answer(TaskResult.ACK, record.state))


def test_sweep_of_a_missing_record_is_acknowledged() -> None:
    check(sweep(None, LIMITS, NOW), None, None, nothing, Answer(TaskResult.ACK, "gone"))


def test_each_sweep_doubles_the_next_wait_up_to_six_hours() -> None:
    record, now, waits = pending(**due(NOW)), NOW, []
    for _ in range(8):
        assert record.sweep_at is not None
        waits.append((record.sweep_at - now).total_seconds() / 60)
        now = record.sweep_at
        swept = sweep(record, LIMITS, now).write
        assert swept is not None
        record = swept
    assert waits == [10, 20, 40, 80, 160, 320, 360, 360]


def test_the_wait_stays_bounded_after_a_thousand_sweeps() -> None:
    swept = sweep(pending(sweeps=1000, sweep_at=at(-1)), LIMITS, NOW).write
    assert swept is not None
    assert swept.sweep_at == at(6 * 3600)


@pytest.mark.parametrize("make", [pending, past_doubt, expired, leased])
def test_a_sweep_started_again_right_after_finds_nothing_to_do(make: Callable[..., Delivery]) -> None:
    swept = sweep(make(**OVERDUE), LIMITS, NOW).write
    assert sweep(swept, LIMITS, at(1)).write is None


@pytest.mark.parametrize(
    "verdict", [ProviderDown(2, timedelta(hours=1)), Limited(LimitScope.ACCOUNT, 80007, timedelta(hours=1))]
)
def test_a_retry_after_binds_the_sweep_too(verdict: ProviderDown | Limited) -> None:
    waiting = settle(leased(token=MINE), MINE, verdict, LIMITS, NOW, 0.5).write
    assert waiting is not None
    assert waiting.sweep_at == at(3600 + 600)
    assert sweep(waiting, LIMITS, at(3600 + 599)).write is None


def test_a_lease_touches_neither_sweeps_nor_sweep_at() -> None:
    record = pending(sweeps=3, sweep_at=at(4000))
    step = lease(record, task_for(record), MINE, Go(), LIMITS, NOW)
    assert step.write is not None
    assert (step.write.sweeps, step.write.sweep_at) == (3, at(4000))


# ---- replay

AGAIN = {
    "state": State.PENDING,
    "attempt": 0,
    "doubts": 0,
    "throttled": 0,
    "round": 1,
    "generation": GENERATION + 1,
    "give_up_at": at(24 * 3600),
    "provider_id": None,
    "expire_at": None,
    "reason": None,
    "finished_at": None,
} | due(NOW)


@dataclass(frozen=True)
class Replayed:
    """One row of replay that the table allows."""

    row: str
    before: Delivery
    answer: Answer
    changes: Mapping[str, Any] | None = None
    then: Callable[[Delivery], Next] = nothing
    may_double: tuple[bool, ...] = (False, True)


TRIED_ALL = {"attempt": LAST, "throttled": 4, "sweeps": 5, "give_up_at": at(-1), "last_error": "no"}
FIRST_TIME = [
    ("dead message", dead(**TRIED_ALL)),
    ("dead(waited)", dead(reason="waited", attempt=0, token=None, give_up_at=at(-1))),
    ("dead(permanent)", dead(reason="permanent")),
    ("dead(waited) event", dead(Kind.INBOUND, reason="waited", attempt=0, give_up_at=at(-1))),
    ("dead event", dead(Kind.INBOUND, reason="error", attempt=LAST)),
    ("dead(unparsable)", dead(Kind.INBOUND, reason="unparsable", attempt=0, token=None, due_at=None)),
    ("dead message with a failed receipt of its round", dead(receipts={0: FAILED})),
    ("dropped(unknown_sender)", dropped(Kind.INBOUND, reason="unknown_sender", attempt=0, token=None)),
    ("done, receipts of its round say failed", done(receipts={0: FAILED})),
    ("done, receipts of its round say sent, then failed", done(receipts={0: SENT.merged(FAILED)})),
]
AFTER_DOUBT = [
    ("dead(in_doubt)", dead(reason="in_doubt", doubts=1)),
    ("dead(in_doubt), the second doubt", dead(reason="in_doubt", doubts=2)),
    ("dead(permanent) after a doubt", dead(reason="permanent", doubts=1)),
    ("done after a doubt, receipts say failed", done(doubts=1, receipts={0: FAILED})),
    ("dead(in_doubt) with a failed receipt of its round", dead(reason="in_doubt", doubts=1, receipts={0: FAILED})),
]
OPEN = {
    f"{kind} {state}": make
    for kind in Kind
    for state, make in STATES[kind].items()
    if state.startswith(("pending", "leased", "in_doubt"))
}

REPLAYED = (
    *(Replayed(row, before, Answer(TaskResult.ACK, "pending"), AGAIN, Ensure) for row, before in FIRST_TIME),
    *(
        Replayed(f"{row}, --may-double", before, Answer(TaskResult.ACK, "pending"), AGAIN, Ensure, (True,))
        for row, before in AFTER_DOUBT
    ),
    *(
        Replayed(
            f"dead, with a {word} receipt of its round{how}: done instead",
            dead(receipts={0: receipt}, **more),
            Answer(TaskResult.ACK, "done"),
            ends(State.DONE),
        )
        for word, receipt in EVERY_RECEIPT.items()
        if word != "failed"
        for how, more in (("", {}), (", after a doubt", {"doubts": 1, "reason": "in_doubt"}))
    ),
    Replayed(
        "dead, with a failed and then a delivered receipt of its round: done instead",
        dead(receipts={0: FAILED.merged(DELIVERED)}),
        Answer(TaskResult.ACK, "done"),
        ends(State.DONE),
    ),
    *(
        Replayed(
            f"{name}, again (a killed command): ensure_task", make(), Answer(TaskResult.ACK, make().state), None, Ensure
        )
        for name, make in OPEN.items()
    ),
    *(
        Replayed(f"done, {row}: it stays so", done(receipts={0: receipts}), Answer(TaskResult.ACK, "done"))
        for row, receipts in (
            ("delivered", DELIVERED),
            ("only sent", SENT),
            ("delivered and failed", DELIVERED.merged(FAILED)),
        )
    ),
    Replayed(
        "pending after a doubt, again: ensure_task needs no leave",
        pending(doubts=1),
        Answer(TaskResult.ACK, "pending"),
        None,
        Ensure,
    ),
)


@pytest.mark.parametrize(
    ("row", "may_double"),
    [
        pytest.param(row, may_double, id=f"{row.row}{' [--may-double]' if may_double else ''}")
        for row in REPLAYED
        for may_double in row.may_double
    ],
)
def test_replay_follows_each_row_of_the_protocol(row: Replayed, may_double: bool) -> None:
    check(replay(row.before, LIMITS, NOW, may_double), row.before, row.changes, row.then, row.answer)


@pytest.mark.parametrize("before", [pytest.param(before, id=row) for row, before in AFTER_DOUBT])
def test_a_message_that_was_in_doubt_is_replayed_with_leave_only(before: Delivery) -> None:
    with pytest.raises(NotAllowed, match="--may-double"):
        replay(before, LIMITS, NOW)


NOT_REPLAYABLE = {
    "done": done(),
    "done event": done(Kind.INBOUND),
    "done, failed in an older round": done(round=1, receipts={0: FAILED}),
    "dropped by the handler": dropped(Kind.INBOUND, reason="spam"),
    "dropped(opt_out)": dropped(reason="opt_out"),
    "dropped(discarded)": dropped(reason="discarded"),
    "dead(invalid)": dead(reason="invalid", attempt=0, last_error="It is empty."),
    "dead(invalid), with a receipt that nobody can have sent": dead(reason="invalid", receipts={0: DELIVERED}),
}


@pytest.mark.parametrize("may_double", [False, True])
@pytest.mark.parametrize("name", NOT_REPLAYABLE)
def test_record_without_a_replay_row_cannot_be_replayed(name: str, may_double: bool) -> None:
    with pytest.raises(NotAllowed):
        replay(NOT_REPLAYABLE[name], LIMITS, NOW, may_double)


def test_a_replay_of_what_cannot_be_sent_is_refused_with_the_reason() -> None:
    with pytest.raises(
        NotAllowed, match=r"^The message is invalid and cannot be sent: The text of a message is empty\.$"
    ):
        replay(dead(reason="invalid", last_error="The text of a message is empty."), LIMITS, NOW)
    with pytest.raises(NotAllowed, match=r"^The message is invalid and cannot be sent: no reason was recorded\.$"):
        replay(dead(reason="invalid"), LIMITS, NOW)


def test_invalid_dead_letter_can_be_discarded() -> None:
    given_up = discard(dead(reason="invalid", last_error="It is empty."), LIMITS, NOW, "seen").write
    assert given_up is not None
    assert (given_up.state, given_up.reason, given_up.expire_at is None) == (State.DROPPED, "discarded", False)


def test_the_receipts_of_the_round_before_count_no_more_after_a_replay() -> None:
    replayed = replay(done(receipts={0: FAILED}), LIMITS, NOW).write
    assert replayed is not None
    assert replayed.current_receipts == Receipts()
    assert replayed.receipts == {0: FAILED}


def test_a_replay_keeps_the_log_of_all_rounds_and_the_fence() -> None:
    before = dead(attempts_log=leased().attempts_log, token=MINE)
    replayed = replay(before, LIMITS, NOW).write
    assert replayed is not None
    assert replayed.attempts_log == before.attempts_log
    assert replayed.token == MINE


def test_repeated_replay_ensures_its_task_without_a_write() -> None:
    first = replay(dead(), LIMITS, NOW)
    assert first.write is not None
    second = replay(first.write, LIMITS, at(1))
    assert (second.write, second.next) == (None, Ensure(first.write))


@pytest.mark.parametrize("may_double", [False, True])
@pytest.mark.parametrize(
    "receipts", [SENT, DELIVERED, SENT.merged(FAILED)], ids=["sent", "delivered", "sent, then failed"]
)
def test_refused_write_of_a_replay_to_done_still_answers_done(receipts: Receipts, may_double: bool) -> None:
    """The store asks again with the same moment; that it was refused too is for the next replay to say."""
    first = replay(dead(reason="in_doubt", doubts=1, receipts={0: receipts}), LIMITS, NOW, may_double)
    assert first.write is not None
    second = replay(first.write, LIMITS, NOW, may_double)
    assert (second.answer, second.write, second.next) == (first.answer, None, None)


def test_message_replayed_past_its_max_age_is_retried() -> None:
    replayed = replay(dead(reason="waited", attempt=0, give_up_at=at(-1)), LIMITS, NOW).write
    assert replayed is not None
    step = lease(replayed, task_for(replayed), MINE, Go(), LIMITS, at(1))
    assert step.write is not None
    assert step.write.state is State.LEASED


# ---- discard


@pytest.mark.parametrize("reason", ["attempts", "in_doubt", "permanent"])
def test_operator_discards_a_dead_message(reason: str) -> None:
    before = dead(reason=reason)
    changes = ends(State.DROPPED, Kind.OUTBOUND, "discarded")
    check(discard(before, LIMITS, NOW), before, changes, nothing, Answer(TaskResult.ACK, "dropped"))


def test_operator_discards_a_dead_event() -> None:
    before = dead(Kind.INBOUND)
    changes = ends(State.DROPPED, Kind.INBOUND, "discarded")
    check(discard(before, LIMITS, NOW), before, changes, nothing, Answer(TaskResult.ACK, "dropped"))


def test_reason_of_a_discard_is_stored_with_the_record() -> None:
    before = dead(metadata={"of": "the caller"})
    changes = ends(State.DROPPED, Kind.OUTBOUND, "discarded")
    changes["metadata"] = {"of": "the caller", "discarded_because": "a wrong number"}
    check(discard(before, LIMITS, NOW, "a wrong number"), before, changes, nothing, Answer(TaskResult.ACK, "dropped"))


def test_repeated_discard_answers_the_same_and_writes_nothing() -> None:
    first = discard(dead(), LIMITS, NOW, "a wrong number")
    assert first.write is not None
    check(
        discard(first.write, LIMITS, at(9), "another word"),
        first.write,
        None,
        nothing,
        Answer(TaskResult.ACK, "dropped"),
    )


@pytest.mark.parametrize(("kind", "state"), EVERY_STATE)
def test_discard_of_a_record_that_is_not_dead_is_not_allowed(kind: Kind, state: str) -> None:
    if state != "dead":
        with pytest.raises(NotAllowed):
            discard(STATES[kind][state](), LIMITS, NOW)


# ---- time


@pytest.mark.parametrize(("kind", "state"), EVERY_STATE)
def test_record_past_expire_at_is_treated_as_before(kind: Kind, state: str) -> None:
    record = STATES[kind][state]()
    if record.expire_at is not None:
        past = replace(record, expire_at=at(-1))
        for age in (0, OLDER):
            task = task_for(record, age)
            kept = lease(record, task, MINE, Go(), LIMITS, NOW)
            step = lease(past, task, MINE, Go(), LIMITS, NOW)
            assert (step.answer, step.write) == (kept.answer, kept.write)


def test_open_and_dead_records_never_expire_and_final_ones_are_never_swept() -> None:
    for kind, limits in product(Kind, (LIMITS, Limits(max_attempts=1))):
        for make in STATES[kind].values():
            for attempt in (0, 1, LAST):
                record = make(attempt=attempt)
                written = lease(record, task_for(record), MINE, Go(), limits, NOW).write
                if written is not None:
                    assert (written.expire_at is not None) is (written.state in (State.DONE, State.DROPPED))
                    assert (written.sweep_at is None) is written.final


# ---- cancel


def test_waiting_message_is_cancelled_and_its_task_then_finds_it_ended() -> None:
    before = pending(attempt=2, due_at=at(600))
    cancelled = cancel(before, LIMITS, NOW).write
    assert cancelled is not None
    assert (cancelled.state, cancelled.reason, cancelled.sweep_at) == (State.DROPPED, "cancelled", None)
    assert cancelled.expire_at == NOW + LIMITS.outbound_retention
    assert lease(cancelled, task_for(before), MINE, Go(), LIMITS, at(600)).write is None


def test_message_cancelled_twice_is_written_once() -> None:
    cancelled = cancel(pending(), LIMITS, NOW).write
    assert cancelled is not None
    assert cancel(cancelled, LIMITS, at(1)).write is None


def test_lease_that_came_first_refuses_the_cancel() -> None:
    taken = lease(pending(), task_for(pending()), MINE, Go(), LIMITS, NOW).write
    assert taken is not None
    with pytest.raises(NotAllowed, match="is being sent"):
        cancel(taken, LIMITS, NOW)


def test_cancelled_message_cannot_be_replayed() -> None:
    cancelled = cancel(pending(), LIMITS, NOW).write
    assert cancelled is not None
    with pytest.raises(NotAllowed):
        replay(cancelled, LIMITS, at(1))
