"""The webhook and process_inbound tables: each row a case, then every starting state × every verdict."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from services.task_responses import STATUS
from shared.domain.delivery.answers import Answer, Ensure, EnsureReplies, Next, Run, Step, TaskResult
from shared.domain.delivery.create import create, seen_again
from shared.domain.delivery.lease import lease
from shared.domain.delivery.settle import settle
from shared.domain.guards import Elect, Go, Guard, Wait
from shared.domain.identity import outbound_key
from shared.domain.record import ERROR_KEPT, Attempt, Delivery, Kind, State
from shared.domain.verdicts import (
    Accepted,
    BackendDown,
    Blocked,
    BlockScope,
    CredentialRefused,
    Dropped,
    HandlerFailed,
    HandlerVerdict,
    Limited,
    LimitScope,
    Lost,
    Origin,
    ProviderDown,
    Refused,
    Released,
    Replied,
    Retry,
    StillUnknown,
    StillUnparsable,
)
from tests.support.builders import (
    ANY_TASK,
    CURRENT_TASK,
    EVENT_KEY,
    EVERY_RECEIPT,
    GENERATION,
    LAST,
    LIMITS,
    MINE,
    NO_JITTER,
    NOW,
    OLDER,
    OTHERS,
    STATES,
    T0,
    TASK_WORDS,
    at,
    check,
    dead,
    done,
    dropped,
    due,
    ends,
    expired,
    hop_at,
    leased,
    nothing,
    pending,
    task_for,
    tried,
)

IN = Kind.INBOUND
GO = Go()

# ---- webhook, as far as the domain decides it


def created(refused: str | None = None, kind: Kind = IN, **more: Any) -> Delivery:
    return create(
        kind,
        EVENT_KEY,
        provider="meta",
        tenant="default",
        sender="100000000000001",
        contact="15550002222",
        correlation_id="correlation-1",
        payload={"text": "hello"},
        limits=LIMITS,
        now=NOW,
        refused=refused,
        **more,
    )


FRESH = Delivery(
    key=EVENT_KEY,
    kind=IN,
    provider="meta",
    tenant="default",
    sender="100000000000001",
    contact="15550002222",
    correlation_id="correlation-1",
    state=State.PENDING,
    received_at=NOW,
    payload={"text": "hello"},
    due_at=NOW,
    sweep_at=at(600),
    give_up_at=at(24 * 3600),
)


@pytest.mark.parametrize(
    ("refused", "expected"),
    [
        pytest.param(None, FRESH, id="a message of a known sender: pending, g0, attempt 0, sweep_at"),
        pytest.param(
            "unparsable",
            replace(FRESH, due_at=None, **ends(State.DEAD, IN, "unparsable")),
            id="required parts missing: dead(unparsable), which never expires",
        ),
        pytest.param(
            "unknown_sender",
            replace(FRESH, due_at=None, **ends(State.DROPPED, IN, "unknown_sender")),
            id="unknown sender: dropped(unknown_sender), kept 8 days",
        ),
    ],
)
def test_webhook_creates_the_expected_record(refused: str | None, expected: Delivery) -> None:
    assert created(refused) == expected


DAY = 24 * 3600


@pytest.mark.parametrize("seconds", [3, 7 * DAY], ids=["in 3 s", "next week"])
def test_message_expires_one_day_after_it_is_due(seconds: float) -> None:
    message = created(kind=Kind.OUTBOUND, due_at=at(seconds), after="0d" * 20)
    assert message == replace(
        FRESH,
        kind=Kind.OUTBOUND,
        due_at=at(seconds),
        sweep_at=at(seconds + 600),
        give_up_at=at(seconds + DAY),
        after="0d" * 20,
    )


@pytest.mark.parametrize(
    ("record", "ensures_the_task"),
    [
        pytest.param(created(), True, id="pending, attempt 0"),
        pytest.param(pending(IN, generation=5), True, id="pending, attempt 0, swept"),
        pytest.param(pending(IN, attempt=1), False, id="pending, attempt 1"),
        *(pytest.param(make(), False, id=state) for state, make in STATES[IN].items() if state != "pending"),
        pytest.param(created("unparsable"), False, id="dead(unparsable)"),
        pytest.param(created("unknown_sender"), False, id="dropped(unknown_sender)"),
    ],
)
def test_duplicate_ensures_the_task_only_of_an_unprocessed_record(record: Delivery, ensures_the_task: bool) -> None:
    assert seen_again(record) is ensures_the_task


# ---- process_inbound: what a task finds


@dataclass(frozen=True)
class Arrival:
    """One row of the table of arrivals."""

    row: str
    before: Delivery | None
    answer: Answer
    changes: Mapping[str, Any] | None = None
    then: Callable[[Delivery], Next] = nothing
    tasks: tuple[int, ...] = ANY_TASK
    guard: Guard = GO


def takes_lease(attempt: int) -> dict[str, Any]:
    return {
        "state": State.LEASED,
        "attempt": attempt,
        "token": MINE,
        "lease_until": at(90),
        "started_at": NOW,
    }


TOO_OLD = {"give_up_at": NOW}
WAITING, WAITED = Answer(TaskResult.ACK, "waiting"), ends(State.DEAD, IN, "waited")
DOWN, ELECTED = Wait("backend_down", at(7)), Elect(frozenset({"down"}), "backend_down")

ARRIVALS = (
    Arrival("absent", None, Answer(TaskResult.ACK, "gone")),
    Arrival("dropped", dropped(IN), Answer(TaskResult.ACK, "dropped")),
    Arrival("dead", dead(IN), Answer(TaskResult.ACK, "dead")),
    Arrival("done: ensure each of plan_size", done(IN), Answer(TaskResult.ACK, "done"), then=EnsureReplies),
    Arrival("leased live", leased(IN), Answer(TaskResult.CONFLICT, "leased")),
    Arrival(
        "leased live, by the very last microsecond",
        leased(IN, lease_until=at(1e-6)),
        Answer(TaskResult.CONFLICT, "leased"),
    ),
    Arrival(
        "leased live, no attempts left: the lease comes first",
        leased(IN, attempt=LAST),
        Answer(TaskResult.CONFLICT, "leased"),
    ),
    Arrival(
        "pending, no attempts left",
        pending(IN, attempt=LAST, token=OTHERS),
        Answer(TaskResult.ACK, "dead"),
        ends(State.DEAD, IN, "attempts"),
    ),
    Arrival(
        "pending, no attempts left and not due",
        pending(IN, attempt=LAST, **due(at(50))),
        Answer(TaskResult.ACK, "dead"),
        ends(State.DEAD, IN, "attempts"),
    ),
    Arrival(
        "leased expired, no attempts left",
        expired(IN, attempt=LAST),
        Answer(TaskResult.ACK, "dead"),
        ends(State.DEAD, IN, "attempts"),
    ),
    Arrival(
        "pending, T-, not due: ensure_task",
        pending(IN, **due(at(50))),
        Answer(TaskResult.ACK, "waiting"),
        then=Ensure,
        tasks=(OLDER,),
    ),
    Arrival(
        "pending, T0, early: hop to due_at", pending(IN, **due(at(50))), WAITING, None, hop_at(at(50)), CURRENT_TASK
    ),
    Arrival(
        "pending, early, backend down", pending(IN, **due(at(50))), WAITING, None, hop_at(at(50)), CURRENT_TASK, DOWN
    ),
    Arrival("pending, early, could be elected", pending(IN, **due(at(5))), WAITING, None, Ensure, (OLDER,), ELECTED),
    Arrival("pending, past give_up_at", pending(IN, **TOO_OLD), Answer(TaskResult.ACK, "dead"), WAITED),
    Arrival(
        "pending, past give_up_at, early", pending(IN, **TOO_OLD, **due(at(50))), Answer(TaskResult.ACK, "dead"), WAITED
    ),
    Arrival(
        "pending, past give_up_at, backend down",
        pending(IN, **TOO_OLD),
        Answer(TaskResult.ACK, "dead"),
        WAITED,
        guard=DOWN,
    ),
    Arrival("leased expired, past give_up_at", expired(IN, **TOO_OLD), Answer(TaskResult.ACK, "dead"), WAITED),
    Arrival(
        "leased live, past give_up_at: the lease comes first",
        leased(IN, **TOO_OLD),
        Answer(TaskResult.CONFLICT, "leased"),
    ),
    Arrival("done, past give_up_at", done(IN, **TOO_OLD), Answer(TaskResult.ACK, "done"), then=EnsureReplies),
    *(
        Arrival(f"{state}, backend down: {then}", make(IN), WAITING, None, follows, tasks, DOWN)
        for state, make in (("pending", pending), ("leased expired", expired))
        for then, follows, tasks in (("hop", hop_at(at(7)), CURRENT_TASK), ("ensure_task", Ensure, (OLDER,)))
    ),
    *(
        Arrival(
            f"{state}, to be elected: no write",
            make(IN),
            Answer(TaskResult.CONFLICT, word),
            None,
            lambda _: ELECTED,
            guard=ELECTED,
        )
        for state, make, word in (("pending", pending, "pending"), ("leased expired", expired, "leased"))
    ),
    Arrival("pending, due", pending(IN), Answer(TaskResult.ACK, "leased"), takes_lease(1), Run),
    Arrival("pending, due just now", pending(IN, **due(NOW)), Answer(TaskResult.ACK, "leased"), takes_lease(1), Run),
    Arrival(
        "pending, with one attempt left",
        pending(IN, attempt=LAST - 1, token=OTHERS, started_at=at(-90)),
        Answer(TaskResult.ACK, "leased"),
        takes_lease(LAST),
        Run,
    ),
    Arrival("leased expired", expired(IN), Answer(TaskResult.ACK, "leased"), takes_lease(2), Run),
    Arrival(
        "leased, expired just now", expired(IN, lease_until=NOW), Answer(TaskResult.ACK, "leased"), takes_lease(2), Run
    ),
    Arrival(
        "leased live with my token (own write reported refused): carry on",
        leased(IN, token=MINE),
        Answer(TaskResult.ACK, "leased"),
        then=Run,
    ),
)


@pytest.mark.parametrize(
    ("row", "age"),
    [pytest.param(row, age, id=f"{row.row} [{TASK_WORDS[age]}]") for row in ARRIVALS for age in row.tasks],
)
def test_inbound_lease_follows_each_row_of_the_protocol(row: Arrival, age: int) -> None:
    step = lease(row.before, task_for(row.before, age), MINE, row.guard, LIMITS, NOW)
    check(step, row.before, row.changes, row.then, row.answer)
    assert step.create == ()


@pytest.mark.parametrize("state", [state for state in STATES[IN] if state not in ("pending", "leased expired")])
@pytest.mark.parametrize("guard", [DOWN, ELECTED], ids=["backend down", "to be elected"])
def test_a_guard_means_nothing_to_an_event_that_cannot_run(state: str, guard: Guard) -> None:
    record = STATES[IN][state]()
    for age in ANY_TASK:
        task = task_for(record, age)
        assert lease(record, task, MINE, guard, LIMITS, NOW) == lease(record, task, MINE, Go(), LIMITS, NOW)


def test_waiting_for_a_backend_writes_nothing_however_long_it_takes() -> None:
    record = pending(IN)
    for hop in range(100):
        wait = Wait("backend_down", at(hop + 1))
        assert lease(record, task_for(record, T0, hop), MINE, wait, LIMITS, at(hop)).write is None


def test_the_lease_outlives_the_handler_by_thirty_seconds() -> None:
    slow = replace(LIMITS, handler_timeout=timedelta(seconds=1700))
    step = lease(pending(IN), task_for(pending(IN)), MINE, Go(), slow, NOW)
    assert step.write is not None
    assert step.write.lease_until == at(1730)


# ---- process_inbound: what becomes of my lease


@dataclass(frozen=True)
class Settled:
    """One row of the table of verdicts."""

    row: str
    before: Delivery
    verdict: HandlerVerdict
    answer: Answer
    changes: Mapping[str, Any] | None = None
    then: Callable[[Delivery], Next] = nothing


HELD = leased(IN, token=MINE)
LAST_HELD = leased(IN, token=MINE, attempt=LAST)
OVERRUN = expired(IN, token=MINE)
PUT_OFF = leased(IN, token=MINE, throttled=3)
RAISED = Origin("ValueError", "handlers/mine.py:7", "handle", "a stack trace")
WHY = {"error": "ValueError: x", "error_type": "ValueError", "place": "handlers/mine.py:7", "function": "handle"}
PAYLOADS = ({"n": 0}, {"n": 1}, {"n": 2})


def again(attempt: int, wait: float) -> dict[str, Any]:
    return {"state": State.PENDING, "generation": GENERATION + 1, "lease_until": None} | due(at(wait))


VERDICTS = (
    Settled(
        "handler returned no replies",
        HELD,
        Replied(()),
        Answer(TaskResult.ACK, "done"),
        {**tried(HELD, "replied"), "plan_size": 0, **ends(State.DONE, IN)},
        EnsureReplies,
    ),
    Settled(
        "still unparsable after a replay",
        HELD,
        StillUnparsable(),
        Answer(TaskResult.ACK, "dead"),
        {**tried(HELD, "unparsable"), **ends(State.DEAD, IN, "unparsable")},
    ),
    Settled(
        "sender still unknown after a replay",
        HELD,
        StillUnknown(),
        Answer(TaskResult.ACK, "dropped"),
        {**tried(HELD, "unknown_sender"), **ends(State.DROPPED, IN, "unknown_sender")},
    ),
    Settled(
        "handler drops",
        HELD,
        Dropped("spam"),
        Answer(TaskResult.ACK, "dropped"),
        {**tried(HELD, "dropped"), **ends(State.DROPPED, IN, "handler"), "metadata": {"handler_said": "spam"}},
    ),
    Settled(
        "handler raised, attempts left",
        HELD,
        HandlerFailed("ValueError: x", RAISED),
        Answer(TaskResult.ACK, "rescheduled"),
        {**tried(HELD, "handler_failed", **WHY), "last_error": "ValueError: x", **again(1, 10)},
        Ensure,
    ),
    Settled(
        "handler overran, attempts left: nobody else came, so the token stands",
        OVERRUN,
        HandlerFailed("overran"),
        Answer(TaskResult.ACK, "rescheduled"),
        {**tried(OVERRUN, "handler_failed", error="overran"), "last_error": "overran", **again(1, 10)},
        Ensure,
    ),
    Settled(
        "handler raised, last attempt",
        LAST_HELD,
        HandlerFailed("ValueError: x", RAISED),
        Answer(TaskResult.ACK, "dead"),
        {**tried(LAST_HELD, "handler_failed", **WHY), "last_error": "ValueError: x", **ends(State.DEAD, IN, "error")},
    ),
    Settled(
        "handler raised after outages: the waits begin anew",
        PUT_OFF,
        HandlerFailed("ValueError: x", RAISED),
        Answer(TaskResult.ACK, "rescheduled"),
        {**tried(PUT_OFF, "handler_failed", **WHY), "last_error": "ValueError: x", "throttled": 0, **again(1, 10)},
        Ensure,
    ),
    Settled(
        "shutdown before the handler ended (Release)",
        HELD,
        Released(),
        Answer(TaskResult.CONFLICT, "pending"),
        {"state": State.PENDING, "attempt": 0, "token": None, "lease_until": None},
    ),
    Settled(
        "shutdown in the last attempt: it is given back",
        LAST_HELD,
        Released(),
        Answer(TaskResult.CONFLICT, "pending"),
        {"state": State.PENDING, "attempt": LAST - 1, "token": None, "lease_until": None},
    ),
)


@pytest.mark.parametrize("row", [pytest.param(row, id=row.row) for row in VERDICTS])
def test_inbound_settle_follows_each_row_of_the_protocol(row: Settled) -> None:
    step = settle(row.before, MINE, row.verdict, LIMITS, NOW, NO_JITTER)
    check(step, row.before, row.changes, row.then, row.answer)
    assert step.create == ()


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


@pytest.mark.parametrize(
    ("throttled", "verdict", "jitter", "wait"),
    [
        *((n, BackendDown("503"), NO_JITTER, wait) for n, wait in enumerate((10, 20, 40, 80, 160, 300, 300))),
        (1000, BackendDown("503"), NO_JITTER, 300),
        (0, BackendDown("503"), 0, 8),
        (0, BackendDown("503"), 1, 12),
        (0, BackendDown("503", at(90)), NO_JITTER, 90),
        (5, BackendDown("503", at(90)), NO_JITTER, 300),
        (0, BackendDown("503", None, seconds(70)), NO_JITTER, 70),
        (0, BackendDown("503", at(90), seconds(70)), NO_JITTER, 90),
        (0, BackendDown("503", at(60), seconds(70)), NO_JITTER, 70),
        (3, BackendDown("503", at(60), seconds(70)), NO_JITTER, 80),
        (0, BackendDown("503", at(-60), seconds(0)), NO_JITTER, 10),
    ],
)
@pytest.mark.parametrize("attempt", [1, LAST], ids=["first attempt", "last attempt"])
def test_a_backend_that_is_down_spends_no_attempt(
    throttled: int, verdict: BackendDown, jitter: float, wait: float, attempt: int
) -> None:
    """Due at the latest of: the mark's end, 10 s doubling to 5 min (±20 %), Retry-After."""
    held = leased(IN, token=MINE, attempt=attempt, throttled=throttled)
    changes = {
        **tried(held, "backend_down", error="503"),
        **again(attempt, wait),
        "last_error": "503",
        "attempt": attempt - 1,
        "throttled": throttled + 1,
    }
    check(
        settle(held, MINE, verdict, LIMITS, NOW, jitter), held, changes, Ensure, Answer(TaskResult.ACK, "rescheduled")
    )


def test_event_waiting_a_day_for_its_backend_is_dead_without_an_attempt() -> None:
    """However often the backend is asked in a day, no attempt is spent; then the event is dead(waited)."""
    record, now, asked = pending(IN), NOW, 0
    while True:
        step = lease(record, task_for(record), MINE, Go(), LIMITS, now)
        if not isinstance(step.next, Run):
            break
        asked += 1
        postpone = settle(step.next.record, MINE, BackendDown("503"), LIMITS, now, NO_JITTER).write
        assert postpone is not None
        assert postpone.due_at is not None
        record, now = postpone, postpone.due_at
    assert step == Step(Answer(TaskResult.ACK, "dead"), step.write)
    assert step.write is not None
    assert (step.write.reason, step.write.attempt, asked > 250) == ("waited", 0, True)


@pytest.mark.parametrize("held", [HELD, LAST_HELD, OVERRUN], ids=["first attempt", "last attempt", "overrun"])
def test_a_plan_is_one_commit_of_done_and_its_replies(held: Delivery) -> None:
    step = settle(held, MINE, Replied(PAYLOADS), LIMITS, NOW, NO_JITTER)

    changes = {**tried(held, "replied"), "plan_size": 3, **ends(State.DONE, IN)}
    times = (at(0), at(1), at(2))
    check(step, held, changes, lambda done: EnsureReplies(done, times), Answer(TaskResult.ACK, "done"))
    keys = [outbound_key(EVENT_KEY, index) for index in range(3)]
    assert step.create == tuple(
        Delivery(
            key=outbound_key(EVENT_KEY, index),
            kind=Kind.OUTBOUND,
            provider=held.provider,
            tenant=held.tenant,
            sender=held.sender,
            contact=held.contact,
            correlation_id=held.correlation_id,
            state=State.PENDING,
            received_at=NOW,
            payload=payload,
            due_at=NOW,
            sweep_at=at(600),
            give_up_at=at(DAY),
            after=keys[index - 1] if index else None,
            bell=frozenset({f"{keys[index + 1]}.{held.correlation_id}"} if index < 2 else ()),
        )
        for index, payload in enumerate(PAYLOADS)
    )


@pytest.mark.parametrize(
    ("types", "afters"),
    [
        (("text", "typing", "text"), (None, 0, 0)),
        (("read", "typing", "text", "reaction"), (None, 0, None, 2)),
        (("text", "read", "typing", "text", "typing"), (None, 0, 1, 0, 3)),
        (("typing",), (None,)),
    ],
)
def test_a_call_waits_for_what_stands_before_it_and_no_message_waits_for_a_call(
    types: tuple[str, ...], afters: tuple[int | None, ...]
) -> None:
    replied = Replied(tuple({"type": type, "content": {}} for type in types))
    step = settle(leased(Kind.INBOUND, token=MINE), MINE, replied, LIMITS, NOW, NO_JITTER)
    expected = [None if before is None else outbound_key(EVENT_KEY, before) for before in afters]
    assert [reply.after for reply in step.create] == expected
    assert [reply.key for reply in step.create] == [outbound_key(EVENT_KEY, index) for index in range(len(types))]


@pytest.mark.parametrize(
    ("types", "seconds"),
    [
        (("text", "text", "text"), (0, 1, 2)),
        (("read", "typing", "text", "typing", "text"), (0, 0, 0, 1, 1)),
        (("typing", "read"), (0, 0)),
    ],
)
def test_first_task_of_a_reply_is_a_second_after_each_earlier_message(
    types: tuple[str, ...], seconds: tuple[float, ...]
) -> None:
    replied = Replied(tuple({"type": type, "content": {}} for type in types))
    step = settle(leased(Kind.INBOUND, token=MINE), MINE, replied, LIMITS, NOW, NO_JITTER)
    assert {reply.due_at for reply in step.create} == {NOW}
    assert isinstance(step.next, EnsureReplies)
    assert step.next.times == tuple(at(each) for each in seconds)


@pytest.mark.parametrize(
    ("types", "waiting"),
    [
        (("text", "text", "text"), ({1}, {2}, set())),
        (("text", "typing", "text"), ({1, 2}, set(), set())),
        (("read", "text", "typing", "typing"), (set(), {2}, {3}, set())),
    ],
)
def test_reply_has_those_that_wait_for_it_in_its_bell_from_the_start(
    types: tuple[str, ...], waiting: tuple[set[int], ...]
) -> None:
    held = leased(Kind.INBOUND, token=MINE)
    replied = Replied(tuple({"type": type, "content": {}} for type in types))
    step = settle(held, MINE, replied, LIMITS, NOW, NO_JITTER)
    entries = [{f"{outbound_key(EVENT_KEY, index)}.{held.correlation_id}" for index in each} for each in waiting]
    assert [reply.bell for reply in step.create] == [frozenset(each) for each in entries]


def test_a_reply_that_cannot_be_sent_takes_no_time() -> None:
    replied = Replied(PAYLOADS, invalid={1: "It is empty."})
    step = settle(leased(Kind.INBOUND, token=MINE), MINE, replied, LIMITS, NOW, NO_JITTER)
    assert isinstance(step.next, EnsureReplies)
    assert step.next.times == (at(0), at(1), at(1))


def test_a_reply_that_cannot_be_sent_is_dead_from_the_start_and_keeps_its_place() -> None:
    """It has the key of its index, and all that leads to it; no task and no sweep has anything to do with it."""
    held = leased(Kind.INBOUND, token=MINE)
    step = settle(held, MINE, Replied(PAYLOADS, invalid={1: "It is empty."}), LIMITS, NOW, NO_JITTER)
    assert step.write is not None
    assert (step.write.state, step.write.plan_size) == (State.DONE, 3)
    invalid = step.create[1]
    assert invalid == Delivery(
        key=outbound_key(EVENT_KEY, 1),
        kind=Kind.OUTBOUND,
        provider=held.provider,
        tenant=held.tenant,
        sender=held.sender,
        contact=held.contact,
        correlation_id=held.correlation_id,
        state=State.DEAD,
        reason="invalid",
        last_error="It is empty.",
        received_at=NOW,
        finished_at=NOW,
        payload=PAYLOADS[1],
        give_up_at=at(DAY),
        after=outbound_key(EVENT_KEY, 0),
    )
    assert [reply.state for reply in step.create] == [State.PENDING, State.DEAD, State.PENDING]
    assert lease(invalid, task_for(invalid), MINE, Go(), LIMITS, NOW) == Step(Answer(TaskResult.ACK, "dead"))


@pytest.mark.parametrize(
    ("types", "invalid", "afters"),
    [
        (("text", "invalid", "text"), {1}, (None, 0, 0)),
        (("invalid", "text", "text"), {0}, (None, None, 1)),
        (("text", "invalid", "typing", "invalid", "text"), {1, 3}, (None, 0, 0, 0, 0)),
        (("text", "text"), {1}, (None, 0)),
        (("typing", "text"), {0, 1}, (None, None)),
    ],
)
def test_no_reply_waits_for_one_that_cannot_be_sent(
    types: tuple[str, ...], invalid: set[int], afters: tuple[int | None, ...]
) -> None:
    replied = Replied(tuple({"type": type} for type in types), invalid=dict.fromkeys(invalid, "It is empty."))
    step = settle(leased(Kind.INBOUND, token=MINE), MINE, replied, LIMITS, NOW, NO_JITTER)
    expected = [None if before is None else outbound_key(EVENT_KEY, before) for before in afters]
    assert [reply.after for reply in step.create] == expected
    assert {index for index, reply in enumerate(step.create) if reply.state is State.DEAD} == invalid


def test_the_keys_of_a_plan_do_not_depend_on_the_attempt() -> None:
    first = settle(HELD, MINE, Replied(PAYLOADS), LIMITS, NOW, NO_JITTER)
    later = settle(LAST_HELD, MINE, Replied(PAYLOADS), LIMITS, at(500), NO_JITTER)
    assert [reply.key for reply in first.create] == [reply.key for reply in later.create]


@pytest.mark.parametrize(
    ("attempt", "wait"), [(1, 10), (2, 20), (3, 40), (4, 80), (5, 160), (6, 300), (7, 300), (8, None)]
)
def test_a_failing_handler_is_asked_eight_times(attempt: int, wait: int | None) -> None:
    step = settle(leased(IN, token=MINE, attempt=attempt), MINE, HandlerFailed("no"), LIMITS, NOW, NO_JITTER)
    assert step.write is not None
    if wait is None:
        assert step.write.state is State.DEAD
    else:
        assert step.write.due_at == at(wait)


@pytest.mark.parametrize(
    "origin", [Origin(), RAISED, Origin("E" * 40, "p" * 60, "f" * 40)], ids=["none", "one", "long"]
)
def test_attempt_errors_are_cut_at_200_characters_but_the_last_is_whole(origin: Origin) -> None:
    record = leased(IN, token=MINE)
    for attempt in (1, 2):
        verdict = HandlerFailed(f"{attempt} " + "x" * 498, origin)
        settled = settle(replace(record, attempt=attempt), MINE, verdict, LIMITS, NOW, NO_JITTER).write
        assert settled is not None
        record = replace(settled, state=State.LEASED, token=MINE)
    kept = [(one.error or "", one.error_type or "", one.place or "", one.function or "") for one in record.attempts_log]
    assert [error[:2] for error, *_ in kept] == ["1 ", "2 "]
    assert [sum(map(len, parts)) for parts in kept] == [ERROR_KEPT] * 2
    assert all(error.endswith("x…") for error, *_ in kept)
    assert record.last_error == "2 " + "x" * 498


@pytest.mark.parametrize(
    ("origin", "error", "kept"),
    [
        (Origin(), "x" * ERROR_KEPT, "x" * ERROR_KEPT),
        (Origin(), "x" * (ERROR_KEPT + 1), "x" * (ERROR_KEPT - 1) + "…"),
        (Origin("E" * (ERROR_KEPT - 1)), "xy", "…"),
        (Origin("E" * ERROR_KEPT), "xy", "…"),
    ],
    ids=["as much as there is room for", "one more", "room for one", "no room"],
)
def test_attempt_errors_are_cut_when_the_room_for_them_ends(origin: Origin, error: str, kept: str) -> None:
    settled = settle(leased(IN, token=MINE), MINE, HandlerFailed(error, origin), LIMITS, NOW, NO_JITTER).write
    assert settled is not None
    assert settled.attempts_log[-1].error == kept


def test_only_the_last_fifty_attempts_are_remembered() -> None:
    lines = tuple(Attempt(at(-n), n, "handler_failed") for n in range(50))
    step = settle(leased(IN, token=MINE, attempts_log=lines), MINE, HandlerFailed("no"), LIMITS, NOW, NO_JITTER)
    assert step.write is not None
    assert step.write.attempts_log == (*lines[1:], Attempt(NOW, 1, "handler_failed", error="no"))


# ---- every starting state × every verdict

EVERY_VERDICT = {
    "replied": Replied(PAYLOADS),
    "dropped": Dropped("spam"),
    "failed": HandlerFailed("no"),
    "backend down": BackendDown("no"),
    "still unparsable": StillUnparsable(),
    "still unknown": StillUnknown(),
    "released": Released(),
}
BECOMES = {
    "replied": (State.DONE, 200),
    "dropped": (State.DROPPED, 200),
    "failed": (State.PENDING, 200),
    "failed, last attempt": (State.DEAD, 200),
    "backend down": (State.PENDING, 200),
    "still unparsable": (State.DEAD, 200),
    "still unknown": (State.DROPPED, 200),
    "released": (State.PENDING, 409),
}


@pytest.mark.parametrize("verdict", EVERY_VERDICT)
@pytest.mark.parametrize("state", STATES[IN])
def test_settle_handles_every_state_and_verdict(state: str, verdict: str) -> None:
    for token, attempt in product((MINE, OTHERS, None), (1, LAST)):
        record = STATES[IN][state](token=token, attempt=attempt)
        step = settle(record, MINE, EVERY_VERDICT[verdict], LIMITS, NOW, NO_JITTER)

        if token == MINE and record.state is State.LEASED:
            row = f"{verdict}, last attempt" if attempt == LAST else verdict
            assert step.write is not None
            assert (step.write.state, STATUS[step.answer.result]) == BECOMES.get(row, BECOMES[verdict])
        elif token == MINE and record.state is State.DONE:
            check(step, record, None, EnsureReplies, Answer(TaskResult.ACK, "done"))
            assert step.create == ()
        else:
            check(step, record, None, nothing, Answer(TaskResult.CONFLICT, record.state))
            assert step.create == ()


@pytest.mark.parametrize("verdict", EVERY_VERDICT)
def test_verdict_on_a_missing_record_is_discarded(verdict: str) -> None:
    step = settle(None, MINE, EVERY_VERDICT[verdict], LIMITS, NOW, NO_JITTER)
    assert (step.answer.result, step.write, step.create, step.next) == (TaskResult.CONFLICT, None, (), None)


@pytest.mark.parametrize("verdict", EVERY_VERDICT)
def test_an_own_settle_reported_refused_changes_nothing_when_it_runs_again(verdict: str) -> None:
    first = settle(HELD, MINE, EVERY_VERDICT[verdict], LIMITS, NOW, NO_JITTER)
    second = settle(first.write, MINE, EVERY_VERDICT[verdict], LIMITS, at(1), NO_JITTER)

    assert second.write is None
    assert second.create == ()
    if verdict == "replied":
        assert isinstance(first.next, EnsureReplies)
        assert (second.answer, second.next) == (first.answer, EnsureReplies(first.next.record))
    else:
        assert second.answer.result is TaskResult.CONFLICT
        assert second.next is None


@pytest.mark.parametrize(
    "verdict",
    [
        Accepted("wamid.1"),
        Lost(),
        ProviderDown(),
        Retry(),
        Limited(LimitScope.ACCOUNT, 4),
        CredentialRefused(190),
        Blocked(BlockScope.SENDER, 368),
        Refused(131026),
    ],
    ids=lambda verdict: verdict.label,
)
def test_verdict_on_a_message_is_refused_for_an_event(verdict: Accepted) -> None:
    with pytest.raises(TypeError, match=type(verdict).__name__):
        settle(HELD, MINE, verdict, LIMITS, NOW, NO_JITTER)


@pytest.mark.parametrize("state", STATES[IN])
def test_task_of_the_current_generation_never_answers_200_and_leaves_nothing(state: str) -> None:
    """Final, or at work, or held by another, or early and hopping; it never ends after a failed one."""
    for attempt, moment, age in product((0, 1, LAST), (at(-60), at(50)), CURRENT_TASK):
        record = STATES[IN][state](attempt=attempt, due_at=moment)
        step = lease(record, task_for(record, age), MINE, Go(), LIMITS, NOW)
        after = step.write or record
        early = after.state is State.PENDING and moment > NOW
        if early and attempt < LAST:
            check(step, record, None, hop_at(moment), WAITING)
        else:
            assert step.answer.result is TaskResult.CONFLICT or after.final or isinstance(step.next, Run)


def test_no_receipt_counts_for_an_event() -> None:
    for receipts in EVERY_RECEIPT.values():
        plain, noted = pending(IN), pending(IN, receipts={0: receipts})
        step = lease(noted, task_for(noted, T0), MINE, Go(), LIMITS, NOW)
        expected = lease(plain, task_for(plain, T0), MINE, Go(), LIMITS, NOW)
        assert step.write == replace(expected.write or plain, receipts={0: receipts})
