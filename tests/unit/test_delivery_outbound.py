"""The process_outbound tables: each row a case, then every starting state × every verdict."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from services.task_responses import STATUS
from shared.domain.delivery.answers import Answer, Ensure, Hop, Next, Run, TaskResult
from shared.domain.delivery.create import create
from shared.domain.delivery.lease import lease
from shared.domain.delivery.settle import settle
from shared.domain.guards import Elect, Go, Guard, Never, Wait
from shared.domain.limits import Backoff, DoubtPolicy, Limits
from shared.domain.record import Attempt, Delivery, Kind, Retries, State
from shared.domain.send_errors import (
    AccessDenied,
    AnswerLost,
    CredentialInvalid,
    LimitReached,
    OutageInSuccess,
    ProviderUnavailable,
    SenderBlocked,
    SendError,
    SendRefused,
    TryLater,
)
from shared.domain.verdicts import (
    Accepted,
    BackendDown,
    Blocked,
    BlockScope,
    CredentialRefused,
    Dropped,
    HandlerFailed,
    Limited,
    LimitScope,
    Lost,
    ProviderDown,
    Refused,
    Released,
    Replied,
    Retry,
    SendVerdict,
    StillUnknown,
    StillUnparsable,
)
from tests.support.builders import (
    ANY_TASK,
    CURRENT_TASK,
    DELIVERED,
    EVERY_RECEIPT,
    FAILED,
    GENERATION,
    HOLD,
    LAST,
    LIMITS,
    MINE,
    NO_JITTER,
    NOW,
    OLDER,
    OTHERS,
    SENT,
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
    in_doubt,
    leased,
    nothing,
    past_doubt,
    pending,
    run_resend,
    task_for,
    tried,
)

OUT = Kind.OUTBOUND
GO, FOR_NOW = Go(), Wait("predecessor", at(7))
WINDOW, OPT_OUT = Never("window"), Never("opt_out")
PROVIDER_DOWN, UNCLEAR = Wait("provider_down", at(9)), Wait("provider_down", at(9), unclear=True)
ELECTION = Elect(frozenset({"down"}), "provider_down")
UNCLEAR_ELECTION = Elect(frozenset({"down"}), "provider_down", unclear=True)
TOO_OLD = {"give_up_at": at(-1)}

# ---- what a task finds


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
    limits: Limits = LIMITS
    hop: int = 0


def takes_lease(attempt: int) -> dict[str, Any]:
    return {"state": State.LEASED, "attempt": attempt, "token": MINE, "lease_until": at(60), "started_at": NOW}


def doubted(doubts: int) -> dict[str, Any]:
    return {
        "state": State.IN_DOUBT,
        "doubts": doubts,
        "doubt_until": at(300),
        "lease_until": None,
        "sweep_at": at(900),
        "sweeps": 0,
    }


DEAD, DONE_200, WAITING = (
    Answer(TaskResult.ACK, "dead"),
    Answer(TaskResult.ACK, "done"),
    Answer(TaskResult.ACK, "waiting"),
)
DOUBTFUL, LEASED = Answer(TaskResult.ACK, "in_doubt"), Answer(TaskResult.ACK, "leased")
DIES_OF_DOUBT = ends(State.DEAD, OUT, "in_doubt")

FINAL_ROWS = (
    Arrival("absent", None, Answer(TaskResult.ACK, "gone")),
    Arrival("done", done(), Answer(TaskResult.ACK, "done")),
    Arrival("dropped", dropped(), Answer(TaskResult.ACK, "dropped")),
    Arrival("dead, also the redelivery after a 400", dead(reason="permanent"), Answer(TaskResult.ACK, "dead")),
    Arrival("leased live", leased(), Answer(TaskResult.CONFLICT, "leased")),
    Arrival(
        "leased live, with a receipt: the lease comes first",
        leased(receipts={0: SENT}),
        Answer(TaskResult.CONFLICT, "leased"),
    ),
    Arrival("leased live with my token (own write reported refused): carry on", leased(token=MINE), LEASED, then=Run),
    Arrival(
        "leased live out of doubt with my token: carry on, it is a resend",
        leased(token=MINE, attempt=2, doubts=1, doubt_until=at(-1)),
        LEASED,
        then=run_resend,
    ),
)

RECEIPT_ROWS = tuple(
    Arrival(
        f"{state}, with a {word} receipt of its round{how}",
        make(receipts={0: receipts}, **changes),
        DONE_200,
        ends(State.DONE),
        guard=guard,
        limits=limits,
    )
    for state, make in STATES[OUT].items()
    if state.startswith(("pending", "in_doubt", "leased expired"))
    for word, receipts in EVERY_RECEIPT.items()
    for how, changes, guard, limits in (
        ("", {}, GO, LIMITS),
        (", before everything else", {"attempt": LAST, "doubts": 2, **TOO_OLD}, WINDOW, HOLD),
    )
)

DOUBT_ROWS = (
    Arrival("leased expired: hop", expired(), DOUBTFUL, doubted(1), hop_at(at(15)), CURRENT_TASK),
    Arrival("leased expired: ensure_task", expired(), DOUBTFUL, doubted(1), Ensure, (OLDER,)),
    Arrival(
        "leased, expired just now: hop",
        expired(lease_until=NOW),
        DOUBTFUL,
        doubted(1),
        hop_at(at(15)),
        CURRENT_TASK,
    ),
    Arrival(
        "leased expired, whatever else is the matter: hop",
        expired(attempt=LAST, doubts=1, doubt_until=at(-400), **TOO_OLD),
        DOUBTFUL,
        doubted(2),
        hop_at(at(15)),
        CURRENT_TASK,
        WINDOW,
        HOLD,
    ),
    Arrival(
        "leased expired, with a receipt of another round: hop",
        expired(receipts={0: DELIVERED, 2: DELIVERED}, round=1),
        DOUBTFUL,
        doubted(1),
        hop_at(at(15)),
        CURRENT_TASK,
    ),
    Arrival("in_doubt, before doubt_until: hop", in_doubt(), DOUBTFUL, None, hop_at(at(15)), CURRENT_TASK, limits=HOLD),
    Arrival(
        "in_doubt, before doubt_until, hopeless already: hop",
        in_doubt(doubts=2, attempt=LAST, **TOO_OLD),
        DOUBTFUL,
        None,
        hop_at(at(15)),
        CURRENT_TASK,
        WINDOW,
    ),
    Arrival("in_doubt, before doubt_until: ensure_task", in_doubt(), DOUBTFUL, None, Ensure, (OLDER,)),
    *(
        Arrival(
            f"in_doubt, before doubt_until: hop {hop} waits {wait} s",
            in_doubt(doubt_until=at(1000)),
            DOUBTFUL,
            None,
            hop_at(at(wait)),
            CURRENT_TASK,
            hop=hop,
        )
        for hop, wait in enumerate((15, 30, 60, 120, 240, 240))
    ),
    Arrival(
        "in_doubt: a hop never waits past doubt_until",
        in_doubt(doubt_until=at(7)),
        DOUBTFUL,
        None,
        hop_at(at(7)),
        CURRENT_TASK,
        hop=3,
    ),
    Arrival("in_doubt, past it, policy hold", past_doubt(), DEAD, DIES_OF_DOUBT, limits=HOLD),
    Arrival("in_doubt, past it, doubts 2", past_doubt(doubts=2), DEAD, DIES_OF_DOUBT),
    Arrival("in_doubt, past it, doubts 3", past_doubt(doubts=3), DEAD, DIES_OF_DOUBT),
    Arrival("in_doubt, past it, no attempts left", past_doubt(attempt=LAST), DEAD, DIES_OF_DOUBT),
    Arrival("in_doubt, past it, past give_up_at", past_doubt(**TOO_OLD), DEAD, DIES_OF_DOUBT),
    Arrival("in_doubt, past it, window closed", past_doubt(), DEAD, DIES_OF_DOUBT, guard=WINDOW),
    Arrival("in_doubt, past it, opted out", past_doubt(), DEAD, DIES_OF_DOUBT, guard=OPT_OUT),
    Arrival(
        "in_doubt, past it, policy hold, with a receipt of an older round",
        past_doubt(round=1, receipts={0: FAILED}),
        DEAD,
        DIES_OF_DOUBT,
        limits=HOLD,
    ),
    Arrival(
        "in_doubt, past it, policy resend; guard false for now: hop",
        past_doubt(),
        DOUBTFUL,
        None,
        hop_at(at(7)),
        CURRENT_TASK,
        FOR_NOW,
    ),
    Arrival(
        "in_doubt, past it, policy resend; guard false for now: ensure_task",
        past_doubt(),
        DOUBTFUL,
        None,
        Ensure,
        (OLDER,),
        FOR_NOW,
    ),
    Arrival("in_doubt, past it, policy resend; guards true", past_doubt(), LEASED, takes_lease(2), run_resend),
    Arrival(
        "in_doubt, just past it, policy resend; guards true",
        past_doubt(doubt_until=NOW),
        LEASED,
        takes_lease(2),
        run_resend,
    ),
)

HOPELESS = {
    "policy hold": (past_doubt(), HOLD),
    "doubts 2": (past_doubt(doubts=2), LIMITS),
    "no attempts left": (past_doubt(attempt=LAST), LIMITS),
    "all three": (past_doubt(attempt=LAST, doubts=2), HOLD),
}
OUTAGE_ROWS = (
    *(
        row
        for why, (before, limits) in HOPELESS.items()
        for row in (
            Arrival(f"{why}, down: hop", before, DOUBTFUL, None, hop_at(at(9)), CURRENT_TASK, UNCLEAR, limits),
            Arrival(f"{why}, down: ensure_task", before, DOUBTFUL, None, Ensure, (OLDER,), UNCLEAR, limits),
            Arrival(
                f"{why}, down, to be elected: it probes first",
                before,
                Answer(TaskResult.CONFLICT, "in_doubt"),
                None,
                lambda _: UNCLEAR_ELECTION,
                guard=UNCLEAR_ELECTION,
                limits=limits,
            ),
            Arrival(f"{why}, down, but too old", replace(before, **TOO_OLD), DEAD, DIES_OF_DOUBT, guard=UNCLEAR),
            Arrival(f"{why}, elected", before, DEAD, DIES_OF_DOUBT, limits=limits),
            Arrival(f"{why}, not down, must be elected", before, DEAD, DIES_OF_DOUBT, guard=ELECTION, limits=limits),
            Arrival(f"{why}, waits for another reason", before, DEAD, DIES_OF_DOUBT, guard=FOR_NOW, limits=limits),
        )
    ),
    Arrival(
        "in_doubt, past it, down, too old and to be elected", past_doubt(**TOO_OLD), DEAD, DIES_OF_DOUBT, guard=ELECTION
    ),
    Arrival(
        "in_doubt, before doubt_until, down: it waits for its receipt",
        in_doubt(),
        DOUBTFUL,
        None,
        hop_at(at(15)),
        CURRENT_TASK,
        UNCLEAR,
    ),
    Arrival(
        "in_doubt, past it, to be elected: no write",
        past_doubt(),
        Answer(TaskResult.CONFLICT, "in_doubt"),
        None,
        lambda _: ELECTION,
        guard=ELECTION,
    ),
    Arrival("pending, provider down: hop", pending(), WAITING, None, hop_at(at(9)), CURRENT_TASK, PROVIDER_DOWN),
    Arrival("pending, provider down: ensure_task", pending(), WAITING, None, Ensure, (OLDER,), PROVIDER_DOWN),
    Arrival(
        "pending, to be elected: no write",
        pending(),
        Answer(TaskResult.CONFLICT, "pending"),
        None,
        lambda _: ELECTION,
        guard=ELECTION,
    ),
    Arrival(
        "pending, early, could be elected: hop to due_at",
        pending(**due(at(50))),
        WAITING,
        None,
        hop_at(at(50)),
        CURRENT_TASK,
        ELECTION,
    ),
    Arrival(
        "pending, past give_up_at in an outage",
        pending(**TOO_OLD),
        DEAD,
        ends(State.DEAD, OUT, "waited"),
        guard=PROVIDER_DOWN,
    ),
    Arrival(
        "pending, no attempts left in an outage",
        pending(attempt=LAST),
        DEAD,
        ends(State.DEAD, OUT, "attempts"),
        guard=ELECTION,
    ),
    Arrival(
        "pending, provider down, with a receipt",
        pending(receipts={0: SENT}),
        DONE_200,
        ends(State.DONE),
        guard=PROVIDER_DOWN,
    ),
)

PENDING_ROWS = (
    Arrival("pending, past give_up_at", pending(**TOO_OLD), DEAD, ends(State.DEAD, OUT, "waited")),
    Arrival(
        "pending, past give_up_at, not due, opted out",
        pending(**TOO_OLD, **due(at(50))),
        DEAD,
        ends(State.DEAD, OUT, "waited"),
        guard=OPT_OUT,
    ),
    Arrival(
        "pending, no attempts left",
        pending(attempt=LAST, token=OTHERS),
        DEAD,
        ends(State.DEAD, OUT, "attempts"),
    ),
    Arrival(
        "pending, no attempts left, not due, guard false for now",
        pending(attempt=LAST, **due(at(50))),
        DEAD,
        ends(State.DEAD, OUT, "attempts"),
        guard=FOR_NOW,
    ),
    Arrival(
        "pending, T-, not due: ensure_task",
        pending(**due(at(50))),
        WAITING,
        None,
        Ensure,
        (OLDER,),
    ),
    Arrival(
        "pending, T-, not due: ensure_task, whatever the guard",
        pending(**due(at(50))),
        WAITING,
        None,
        Ensure,
        (OLDER,),
        OPT_OUT,
    ),
    Arrival("pending, window closed", pending(), DEAD, ends(State.DEAD, OUT, "window"), guard=WINDOW),
    Arrival(
        "pending, opted out",
        pending(),
        Answer(TaskResult.ACK, "dropped"),
        ends(State.DROPPED, OUT, "opt_out"),
        guard=OPT_OUT,
    ),
    Arrival(
        "pending, T0 early, opted out: hop to due_at",
        pending(**due(at(50))),
        WAITING,
        None,
        hop_at(at(50)),
        CURRENT_TASK,
        OPT_OUT,
    ),
    Arrival("pending, guard false for now: hop", pending(), WAITING, None, hop_at(at(7)), CURRENT_TASK, FOR_NOW),
    Arrival(
        "pending, T0 early, guard false for now: hop to due_at",
        pending(**due(at(50))),
        WAITING,
        None,
        hop_at(at(50)),
        CURRENT_TASK,
        FOR_NOW,
    ),
    Arrival("pending, guard false for now: ensure_task", pending(), WAITING, None, Ensure, (OLDER,), FOR_NOW),
    Arrival("pending, guards true", pending(), LEASED, takes_lease(1), Run),
    Arrival(
        "pending, guards true, T0 early: hop to due_at",
        pending(**due(at(50))),
        WAITING,
        None,
        hop_at(at(50)),
        CURRENT_TASK,
    ),
    Arrival("pending, guards true, due just now", pending(**due(NOW)), LEASED, takes_lease(1), Run),
    Arrival(
        "pending, guards true, after an attempt and a doubt",
        pending(attempt=LAST - 1, doubts=1, token=OTHERS, started_at=at(-90)),
        LEASED,
        takes_lease(LAST),
        Run,
    ),
    Arrival(
        "pending, guards true, with a receipt of the round before",
        pending(round=1, receipts={0: DELIVERED}),
        LEASED,
        takes_lease(1),
        Run,
    ),
)

CALL = {"payload": {"type": "typing", "content": {"message_id": "wamid.1"}, "to": "+15550002222"}}

CALL_ROWS = (
    Arrival("a call, done", done(**CALL), DONE_200),
    Arrival("a call, leased live", leased(**CALL), Answer(TaskResult.CONFLICT, "leased")),
    Arrival("a call, leased expired, guards true: as pending", expired(**CALL), LEASED, takes_lease(2), Run),
    Arrival(
        "a call, leased expired, T0 early: as pending, hop to due_at",
        expired(**CALL, **due(at(50))),
        WAITING,
        None,
        hop_at(at(50)),
        CURRENT_TASK,
    ),
    Arrival(
        "a call, leased expired, T-, not due: ensure_task",
        expired(**CALL, **due(at(50))),
        WAITING,
        None,
        Ensure,
        (OLDER,),
    ),
    Arrival(
        "a call, leased expired, guard false for now: hop",
        expired(**CALL),
        WAITING,
        None,
        hop_at(at(7)),
        CURRENT_TASK,
        FOR_NOW,
    ),
    Arrival(
        "a call, leased expired, guard false for now: ensure_task",
        expired(**CALL),
        WAITING,
        None,
        Ensure,
        (OLDER,),
        FOR_NOW,
    ),
    Arrival(
        "a call, leased expired, no attempts left",
        expired(**CALL, attempt=LAST),
        DEAD,
        ends(State.DEAD, OUT, "attempts"),
    ),
    Arrival(
        "a call, leased expired, past give_up_at", expired(**CALL, **TOO_OLD), DEAD, ends(State.DEAD, OUT, "waited")
    ),
    Arrival(
        "a call, leased expired, window closed",
        expired(**CALL),
        DEAD,
        ends(State.DEAD, OUT, "window"),
        guard=WINDOW,
    ),
    Arrival("a call, pending, guards true", pending(**CALL), LEASED, takes_lease(1), Run),
)

ARRIVALS = FINAL_ROWS + RECEIPT_ROWS + DOUBT_ROWS + OUTAGE_ROWS + PENDING_ROWS + CALL_ROWS


@pytest.mark.parametrize(
    ("row", "age"),
    [pytest.param(row, age, id=f"{row.row} [{TASK_WORDS[age]}]") for row in ARRIVALS for age in row.tasks],
)
def test_outbound_lease_follows_each_row_of_the_protocol(row: Arrival, age: int) -> None:
    task = task_for(row.before, age, row.hop)
    check(lease(row.before, task, MINE, row.guard, row.limits, NOW), row.before, row.changes, row.then, row.answer)


# ---- what becomes of my lease

HELD = leased(token=MINE, throttled=3)
HELD_LAST = leased(token=MINE, attempt=LAST)
RESENT = leased(token=MINE, attempt=2, doubts=1, doubt_until=at(-20), sweep_at=at(580))
DOUBTED = in_doubt(token=MINE, throttled=3)
DOUBTED_LAST = in_doubt(token=MINE, attempt=LAST)
DOUBTED_AGAIN = in_doubt(token=MINE, attempt=2, doubts=2)
MINE_OPEN = {
    "leased": HELD,
    "leased, out of doubt": RESENT,
    "leased, expired": expired(token=MINE),
    "in_doubt": DOUBTED,
    "in_doubt, past doubt_until": past_doubt(token=MINE),
    "in_doubt, the second": DOUBTED_AGAIN,
}
"""Where a verdict with attempts left may find its record."""
MINE_LAST = {"leased": HELD_LAST, "in_doubt": DOUBTED_LAST}

RESCHEDULED = Answer(TaskResult.ACK, "rescheduled")


def own_doubt_back(before: Delivery) -> dict[str, int]:
    """A verdict that says "not accepted" out of in_doubt takes its own doubt back."""
    return {"doubts": before.doubts - 1} if before.state is State.IN_DOUBT else {}


def waits_again(before: Delivery, moment: Any) -> dict[str, Any]:
    waiting = {"state": State.PENDING, "generation": GENERATION + 1, "lease_until": None, "doubt_until": None}
    return waiting | due(moment) | own_doubt_back(before)


def permanent(status: int, code: int | None) -> Answer:
    return Answer(TaskResult.REFUSED_ON_FAULT if status == 502 else TaskResult.REFUSED, "dead", code)


@dataclass(frozen=True)
class Settled:
    """One row of the table of verdicts, for every record that it may find."""

    row: str
    verdict: SendVerdict
    befores: Mapping[str, Delivery]
    answer: Answer
    changes: Callable[[Delivery], Mapping[str, Any] | None]
    then: Callable[[Delivery], Next] = nothing


def accepted(provider_id: str | None) -> Callable[[Delivery], Mapping[str, Any]]:
    return lambda before: {
        **tried(before, "accepted", provider_id=provider_id),
        **ends(State.DONE),
        "provider_id": provider_id,
        "throttled": 0,
    }


def retried(word: str, code: int | None, wait: float) -> Callable[[Delivery], Mapping[str, Any]]:
    return lambda before: {
        **tried(before, word, code),
        "throttled": 0,
        **waits_again(before, at(wait * 2 ** (before.attempt - 1))),
    }


def given_back(word: str, code: int, moment: Any, throttled: bool = False) -> Callable[[Delivery], Mapping[str, Any]]:
    return lambda before: {
        **tried(before, word, code),
        "attempt": before.attempt - 1,
        "throttled": before.throttled + 1 if throttled else 0,
        **waits_again(before, moment),
    }


def postpone(before: Delivery, code: int | None, wait: float) -> Mapping[str, Any]:
    """By an outage: the same generation, no attempt spent."""
    return {
        **tried(before, "provider_down", code),
        "attempt": before.attempt - 1,
        "throttled": before.throttled + 1,
        **waits_again(before, at(wait)),
        "generation": GENERATION,
    }


def dies(word: str, code: int | None, reason: str) -> Callable[[Delivery], Mapping[str, Any]]:
    return lambda before: {
        **tried(before, word, code),
        "throttled": 0,
        **own_doubt_back(before),
        **ends(State.DEAD, OUT, reason),
    }


def unthrottled(records: Mapping[str, Delivery]) -> Mapping[str, Delivery]:
    return {name: replace(record, throttled=0) for name, record in records.items()}


IN_LEASE = {name: record for name, record in MINE_OPEN.items() if record.state is State.LEASED}
ALL_MINE = MINE_OPEN | {f"{name}, last attempt": record for name, record in MINE_LAST.items()}

VERDICTS = (
    Settled(
        "Accepted: 2xx, readable", Accepted("wamid.9"), ALL_MINE, Answer(TaskResult.ACK, "done"), accepted("wamid.9")
    ),
    Settled("Accepted: 2xx, unreadable", Accepted(None), ALL_MINE, Answer(TaskResult.ACK, "done"), accepted(None)),
    Settled(
        "Lost: in_doubt, whatever attempts are left",
        Lost(131000),
        IN_LEASE | {"leased, last attempt": HELD_LAST},
        Answer(TaskResult.NACK, "in_doubt"),
        lambda before: {**tried(before, "lost", 131000), "throttled": 0, **doubted(before.doubts + 1)},
    ),
    Settled(
        "Lost, already in_doubt: unchanged",
        Lost(),
        {"in_doubt": DOUBTED, "in_doubt, last attempt": DOUBTED_LAST, "in_doubt, the second": DOUBTED_AGAIN},
        Answer(TaskResult.NACK, "in_doubt"),
        lambda _: None,
    ),
    Settled(
        "ProviderDown, whatever attempts are left",
        ProviderDown(2),
        ALL_MINE,
        Answer(TaskResult.NACK, "pending"),
        lambda before: postpone(before, 2, 10 * 2**before.throttled),
    ),
    Settled(
        "ProviderDown, without a code",
        ProviderDown(),
        MINE_LAST,
        Answer(TaskResult.NACK, "pending"),
        lambda b: postpone(b, None, 10),
    ),
    Settled(
        "Retry, our backoff; attempts left",
        Retry(131053),
        MINE_OPEN,
        RESCHEDULED,
        retried("retry", 131053, 10),
        Ensure,
    ),
    Settled("Retry, our backoff; last attempt", Retry(131053), MINE_LAST, DEAD, dies("retry", 131053, "attempts")),
    Settled(
        "Limited: sender",
        Limited(LimitScope.RATE, 130429),
        unthrottled(ALL_MINE),
        RESCHEDULED,
        given_back("limited", 130429, at(1.5), throttled=True),
        Ensure,
    ),
    Settled(
        "Limited: the fourth time in a row by a contact",
        Limited(LimitScope.CONTACT, 131056),
        {"leased": HELD, "in_doubt": DOUBTED},
        RESCHEDULED,
        given_back("limited", 131056, at(64), throttled=True),
        Ensure,
    ),
    Settled(
        "Credential: due in 10 min",
        CredentialRefused(190),
        ALL_MINE,
        RESCHEDULED,
        given_back("credential_refused", 190, at(600)),
        Ensure,
    ),
    Settled(
        "Credential that was replaced meanwhile: due in a second",
        CredentialRefused(190, replaced=True),
        ALL_MINE,
        RESCHEDULED,
        given_back("credential_replaced", 190, at(1)),
        Ensure,
    ),
    Settled(
        "Blocked: due at blocked_until",
        Blocked(BlockScope.SENDER, 368, at(1234)),
        ALL_MINE,
        RESCHEDULED,
        given_back("blocked", 368, at(1234)),
        Ensure,
    ),
    Settled(
        "Blocked, for the first time: due in 10 min",
        Blocked(BlockScope.SENDER, 131031),
        ALL_MINE,
        RESCHEDULED,
        given_back("blocked", 131031, at(600)),
        Ensure,
    ),
    Settled(
        "Permanent: 400",
        Refused(131026),
        ALL_MINE,
        permanent(400, 131026),
        dies("refused", 131026, "permanent"),
    ),
    Settled(
        "Permanent: 502 if theirs was 5xx",
        Refused(131026, on_fault=True),
        ALL_MINE,
        permanent(502, 131026),
        dies("refused", 131026, "permanent"),
    ),
    Settled(
        "Permanent, theirs without a code",
        Refused(None),
        ALL_MINE,
        permanent(400, None),
        dies("refused", None, "permanent"),
    ),
    Settled(
        "Release of a lease that was taken out of pending",
        Released(),
        {name: record for name, record in ALL_MINE.items() if record.attempt != 2},
        Answer(TaskResult.CONFLICT, "pending"),
        lambda before: {
            "state": State.PENDING,
            "attempt": before.attempt - 1,
            "token": None,
            "lease_until": None,
            "doubt_until": None,
            **own_doubt_back(before),
        },
    ),
    Settled(
        "Release of a lease that was taken out of doubt: doubt_until untouched",
        Released(resend=True),
        {"leased": RESENT, "in_doubt": DOUBTED_AGAIN},
        Answer(TaskResult.CONFLICT, "in_doubt"),
        lambda _: {
            "state": State.IN_DOUBT,
            "attempt": 1,
            "token": None,
            "lease_until": None,
            "doubts": 1,
        },
    ),
)

CALLED = {"leased": replace(HELD, **CALL), "leased, expired": expired(token=MINE, **CALL)}
CALLED_LAST = {"leased, last attempt": replace(HELD_LAST, **CALL)}

CALL_VERDICTS = (
    Settled("a call, Lost: as Retry", Lost(131000), CALLED, RESCHEDULED, retried("retry", 131000, 10), Ensure),
    Settled("a call, Lost without a code: as Retry", Lost(), CALLED, RESCHEDULED, retried("retry", None, 10), Ensure),
    Settled(
        "a call, Lost in an outage: as ProviderDown, whatever attempts are left",
        Lost(outage=True),
        CALLED | CALLED_LAST,
        Answer(TaskResult.NACK, "pending"),
        lambda before: postpone(before, None, 10 * 2**before.throttled),
    ),
    Settled(
        "a call, an outage reported in a success: as ProviderDown",
        Lost(2, outage=True),
        CALLED,
        Answer(TaskResult.NACK, "pending"),
        lambda before: postpone(before, 2, 10 * 2**before.throttled),
    ),
    Settled("a call, Lost; last attempt", Lost(1), CALLED_LAST, DEAD, dies("retry", 1, "attempts")),
    Settled(
        "a call, Accepted: done without an id", Accepted(None), CALLED, Answer(TaskResult.ACK, "done"), accepted(None)
    ),
    Settled("a call, Permanent", Refused(131009), CALLED, permanent(400, 131009), dies("refused", 131009, "permanent")),
)


@pytest.mark.parametrize("type", ["read", "typing"])
@pytest.mark.parametrize("state", STATES[OUT])
def test_a_call_is_never_in_doubt(state: str, type: str) -> None:
    """Whatever a task or a verdict finds: a call may be repeated, so nobody waits for a receipt of it."""
    if state.startswith("in_doubt"):
        return  # nothing leads there, as this test shows of the rest
    for age, guard, attempt in product(ANY_TASK, GUARDS.values(), (1, LAST)):
        before = STATES[OUT][state](token=MINE, attempt=attempt, payload={"type": type})
        step = lease(before, task_for(before, age), OTHERS, guard, LIMITS, NOW)
        assert step.write is None or step.write.state is not State.IN_DOUBT
        assert not isinstance(step.next, Run) or not step.next.resend
        for verdict in EVERY_VERDICT.values():
            if verdict == Released(resend=True):
                continue  # of a lease that was taken out of doubt
            after = settle(before, MINE, verdict, LIMITS, NOW, NO_JITTER).write
            assert after is None or after.state is not State.IN_DOUBT


@pytest.mark.parametrize(
    ("row", "before"),
    [
        pytest.param(row, before, id=f"{row.row} [{found}]")
        for row in VERDICTS + CALL_VERDICTS
        for found, before in row.befores.items()
    ],
)
def test_outbound_settle_follows_each_row_of_the_protocol(row: Settled, before: Delivery) -> None:
    step = settle(before, MINE, row.verdict, LIMITS, NOW, NO_JITTER)
    check(step, before, row.changes(before), row.then, row.answer)
    assert step.create == ()


WOULD_DIE = {
    "Retry, our backoff; last attempt": (Retry(2), MINE_LAST),
    "Permanent": (Refused(131026), ALL_MINE),
}


@pytest.mark.parametrize("receipt", EVERY_RECEIPT)
@pytest.mark.parametrize("row", WOULD_DIE)
def test_receipt_of_the_round_makes_a_record_done_instead_of_dead(row: str, receipt: str) -> None:
    verdict, befores = WOULD_DIE[row]
    for found in befores.values():
        before = replace(found, round=1, receipts={1: EVERY_RECEIPT[receipt]})
        changes = {
            **tried(before, verdict.label, verdict.code),
            "throttled": 0,
            **own_doubt_back(before),
            **ends(State.DONE),
        }
        check(
            settle(before, MINE, verdict, LIMITS, NOW, NO_JITTER),
            before,
            changes,
            nothing,
            Answer(TaskResult.ACK, "done"),
        )


@pytest.mark.parametrize("row", WOULD_DIE)
def test_receipt_of_another_round_does_not_save_a_message_from_dead_letters(row: str) -> None:
    verdict, befores = WOULD_DIE[row]
    for found in befores.values():
        before = replace(found, round=1, receipts={0: DELIVERED, 2: DELIVERED})
        step = settle(before, MINE, verdict, LIMITS, NOW, NO_JITTER)
        assert step.write is not None
        assert step.write.state is State.DEAD


def test_done_by_a_receipt_meanwhile_adds_the_provider_id() -> None:
    before = done(token=MINE, provider_id=None, receipts={0: SENT})
    changes = {**tried(before, "accepted", provider_id="wamid.9"), "provider_id": "wamid.9"}
    check(settle(before, MINE, Accepted("wamid.9"), LIMITS, NOW, NO_JITTER), before, changes, nothing, DONE_200)


@pytest.mark.parametrize("verdict", [Accepted("wamid.1"), Accepted(None)], ids=["known id", "no id"])
def test_done_by_receipt_with_nothing_to_add_writes_nothing(verdict: Accepted) -> None:
    before = done(token=MINE, provider_id="wamid.1")
    check(settle(before, MINE, verdict, LIMITS, NOW, NO_JITTER), before, None, nothing, DONE_200)


def test_the_last_accepted_id_stands_and_all_are_in_the_log() -> None:
    first = settle(leased(token=OTHERS), OTHERS, Accepted("wamid.1"), LIMITS, NOW, NO_JITTER).write
    assert first is not None
    second = settle(replace(first, token=MINE), MINE, Accepted("wamid.2"), LIMITS, at(1), NO_JITTER).write
    assert second is not None
    assert second.provider_id == "wamid.2"
    assert [attempt.provider_id for attempt in second.attempts_log] == ["wamid.1", "wamid.2"]


@pytest.mark.parametrize(
    ("verdict", "wait"),
    [
        pytest.param(Retry(2, retry_after=timedelta(seconds=90)), 90, id="longer than our backoff"),
        pytest.param(Retry(2, retry_after=timedelta(seconds=3)), 10, id="shorter than our backoff"),
        pytest.param(Limited(LimitScope.RATE, 130429, timedelta(seconds=90)), 90, id="longer than the limit's wait"),
        pytest.param(Limited(LimitScope.ACCOUNT, 80007, timedelta(seconds=3)), 60, id="shorter than the limit's wait"),
        pytest.param(ProviderDown(2, timedelta(seconds=90)), 90, id="longer than the wait of an outage"),
        pytest.param(ProviderDown(2, timedelta(seconds=3)), 10, id="shorter than the wait of an outage"),
    ],
)
def test_a_retry_after_is_the_least_wait(verdict: Retry | Limited | ProviderDown, wait: float) -> None:
    step = settle(leased(token=MINE), MINE, verdict, LIMITS, NOW, NO_JITTER)
    assert step.write is not None
    assert step.write.due_at == at(wait)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


@pytest.mark.parametrize(
    ("throttled", "verdict", "jitter", "wait"),
    [
        *((n, ProviderDown(), NO_JITTER, wait) for n, wait in enumerate((10, 20, 40, 80, 160, 300, 300))),
        (100_000, ProviderDown(), NO_JITTER, 300),
        (0, ProviderDown(), 0, 8),
        (0, ProviderDown(), 1, 12),
        (9, ProviderDown(), 1, 360),
        (0, ProviderDown(until=at(90)), NO_JITTER, 90),
        (5, ProviderDown(until=at(90)), NO_JITTER, 300),
        (0, ProviderDown(until=at(90), retry_after=seconds(70)), NO_JITTER, 90),
        (0, ProviderDown(until=at(60), retry_after=seconds(70)), NO_JITTER, 70),
        (3, ProviderDown(until=at(60), retry_after=seconds(70)), NO_JITTER, 80),
        (0, ProviderDown(until=at(-60), retry_after=seconds(0)), NO_JITTER, 10),
        (9, ProviderDown(retry_after=timedelta(hours=1)), NO_JITTER, 3600),
    ],
)
@pytest.mark.parametrize("attempt", [1, LAST], ids=["first attempt", "last attempt"])
def test_an_outage_is_waited_out_and_spends_no_attempt(
    throttled: int, verdict: ProviderDown, jitter: float, wait: float, attempt: int
) -> None:
    """Due at the latest of: the breaker's end, 10 s doubling to 5 min (±20 %), Retry-After. The sweep follows."""
    before = leased(token=MINE, attempt=attempt, throttled=throttled)
    step = settle(before, MINE, verdict, LIMITS, NOW, jitter)
    check(step, before, postpone(before, None, wait), nothing, Answer(TaskResult.NACK, "pending"))


def test_message_waiting_a_day_for_the_provider_is_dead_without_an_attempt() -> None:
    """However often it is tried in a day, no attempt is spent; then it is dead(waited), never dead(attempts)."""
    record, now, tries = pending(), NOW, 0
    while True:
        step = lease(record, task_for(record), MINE, GO, LIMITS, now)
        if not isinstance(step.next, Run):
            break
        tries += 1
        waiting = settle(step.next.record, MINE, ProviderDown(2), LIMITS, now, NO_JITTER).write
        assert waiting is not None
        assert waiting.due_at is not None
        record, now = waiting, waiting.due_at
    assert step.write is not None
    assert (step.answer, step.write.reason, step.write.attempt, tries > 250) == (DEAD, "waited", 0, True)


@pytest.mark.parametrize(
    "verdict",
    [Retry(131053), CredentialRefused(190), Blocked(BlockScope.SENDER, 368), Refused(131026), Lost(), Accepted(None)],
)
def test_any_other_verdict_resets_the_wait_of_an_outage(verdict: SendVerdict) -> None:
    after = settle(HELD, MINE, verdict, LIMITS, NOW, NO_JITTER).write
    assert HELD.throttled == 3
    assert after is not None
    assert after.throttled == 0


@pytest.mark.parametrize("verdict", [Limited(LimitScope.CONTACT, 131056), ProviderDown(2)])
def test_outages_and_limits_in_a_row_wait_longer_each(verdict: SendVerdict) -> None:
    after = settle(HELD, MINE, verdict, LIMITS, NOW, NO_JITTER).write
    assert after is not None
    assert after.throttled == 4


# ---- every starting state × every verdict

EVERY_VERDICT: Mapping[str, SendVerdict] = {
    "accepted": Accepted("wamid.9"),
    "accepted, unreadable": Accepted(None),
    "lost": Lost(1),
    "lost in an outage": Lost(outage=True),
    "provider down": ProviderDown(),
    "retry": Retry(2),
    "limited": Limited(LimitScope.ACCOUNT, 4),
    "credential": CredentialRefused(190),
    "blocked": Blocked(BlockScope.SENDER, 368),
    "refused": Refused(131026),
    "released": Released(),
    "released, a resend": Released(resend=True),
}


@dataclass(frozen=True)
class Becomes:
    """What a verdict makes of a record that is leased or in doubt, as the table has it."""

    state: State
    status: int
    attempt: int = 0
    generation: int = 0
    counts: bool = True
    """False: certainly not accepted, so a doubt that arose meanwhile is taken back."""


BECOMES = {
    "accepted": Becomes(State.DONE, 200),
    "accepted, unreadable": Becomes(State.DONE, 200),
    "lost": Becomes(State.IN_DOUBT, 503),
    "lost in an outage": Becomes(State.IN_DOUBT, 503),
    "provider down": Becomes(State.PENDING, 503, attempt=-1, counts=False),
    "retry": Becomes(State.PENDING, 200, generation=1, counts=False),
    "retry, last attempt": Becomes(State.DEAD, 200, counts=False),
    "limited": Becomes(State.PENDING, 200, attempt=-1, generation=1, counts=False),
    "credential": Becomes(State.PENDING, 200, attempt=-1, generation=1, counts=False),
    "blocked": Becomes(State.PENDING, 200, attempt=-1, generation=1, counts=False),
    "refused": Becomes(State.DEAD, 400, counts=False),
    "released": Becomes(State.PENDING, 409, attempt=-1, counts=False),
    "released, a resend": Becomes(State.IN_DOUBT, 409, attempt=-1, counts=False),
}
RECEIPTS = {"none": {}, "of an older round": {0: DELIVERED}} | {
    f"{word} of this round": {1: receipts} for word, receipts in EVERY_RECEIPT.items()
}


@pytest.mark.parametrize("verdict", EVERY_VERDICT)
@pytest.mark.parametrize("state", STATES[OUT])
def test_settle_handles_every_state_and_verdict(state: str, verdict: str) -> None:
    """With my token, another's or none; receipts or not; attempts left or the last; doubts 0 or 1."""
    make = STATES[OUT][state]
    for token, receipts, attempt, doubts in product((MINE, OTHERS, None), RECEIPTS, (1, LAST), (0, 1)):
        doubts += state.startswith("in_doubt")
        before = make(token=token, receipts=RECEIPTS[receipts], attempt=attempt, doubts=doubts, round=1)
        step = settle(before, MINE, EVERY_VERDICT[verdict], LIMITS, NOW, NO_JITTER)
        assert step.create == ()
        if token != MINE or before.state not in (State.LEASED, State.IN_DOUBT, State.DONE):
            check(step, before, None, nothing, Answer(TaskResult.CONFLICT, before.state))
        elif before.state is State.DONE:
            added = verdict == "accepted"
            changes = {**tried(before, "accepted", provider_id="wamid.9"), "provider_id": "wamid.9"}
            check(step, before, changes if added else None, nothing, DONE_200)
        elif verdict.startswith("lost") and before.state is State.IN_DOUBT:
            check(step, before, None, nothing, Answer(TaskResult.NACK, "in_doubt"))
        else:
            row = BECOMES.get(f"{verdict}, last attempt" if attempt == LAST else verdict, BECOMES[verdict])
            saved = row.state is State.DEAD and receipts.endswith("this round")
            after = step.write
            assert after is not None
            assert after.state is (State.DONE if saved else row.state)
            assert STATUS[step.answer.result] == (200 if saved else row.status)
            assert after.attempt == attempt + row.attempt
            assert after.generation == before.generation + row.generation
            lost_now, unfounded = verdict.startswith("lost"), not row.counts and before.state is State.IN_DOUBT
            assert after.doubts == doubts + lost_now - unfounded
            assert step.next == (Ensure(after) if row.generation else None)
            assert (after.round, after.receipts) == (1, RECEIPTS[receipts])


@pytest.mark.parametrize("verdict", EVERY_VERDICT)
def test_verdict_on_a_missing_record_writes_nothing(verdict: str) -> None:
    step = settle(None, MINE, EVERY_VERDICT[verdict], LIMITS, NOW, NO_JITTER)
    assert (step.answer.result, step.write, step.create, step.next) == (TaskResult.CONFLICT, None, (), None)


@pytest.mark.parametrize("verdict", EVERY_VERDICT)
@pytest.mark.parametrize("found", MINE_OPEN)
def test_an_own_settle_reported_refused_changes_nothing_when_it_runs_again(found: str, verdict: str) -> None:
    first = settle(MINE_OPEN[found], MINE, EVERY_VERDICT[verdict], LIMITS, NOW, NO_JITTER)
    stored = first.write or MINE_OPEN[found]
    second = settle(stored, MINE, EVERY_VERDICT[verdict], LIMITS, at(1), NO_JITTER)

    assert second.write is None
    assert second.next is None
    if stored.state in (State.DONE, State.IN_DOUBT) and stored.token == MINE:
        assert second.answer == first.answer
    else:
        assert second.answer.result is TaskResult.CONFLICT


@pytest.mark.parametrize(
    "verdict",
    [Replied(()), Dropped("spam"), HandlerFailed("no"), BackendDown("no"), StillUnparsable(), StillUnknown()],
    ids=lambda verdict: verdict.label,
)
@pytest.mark.parametrize("before", [HELD, DOUBTED], ids=["leased", "in_doubt"])
def test_verdict_on_an_event_is_refused_for_a_message(before: Delivery, verdict: Replied) -> None:
    with pytest.raises(TypeError, match=type(verdict).__name__):
        settle(before, MINE, verdict, LIMITS, NOW, NO_JITTER)


# ---- rules that hold in every row

GUARDS = {
    "go": GO,
    "for now": FOR_NOW,
    "window": WINDOW,
    "opt_out": OPT_OUT,
    "down": PROVIDER_DOWN,
    "down, unclear": UNCLEAR,
    "to be elected": ELECTION,
    "to be elected, unclear": UNCLEAR_ELECTION,
}


@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize("state", STATES[OUT])
def test_lease_handles_every_state_and_task(state: str, guard: str) -> None:
    """A T0 that answers 200 leaves a hop or an end behind; a T- neither hops nor starts a generation."""
    for age, receipts, attempt, doubts, moment, policy in product(
        ANY_TASK, RECEIPTS, (0, 1, LAST), (0, 1, 2), (at(-60), at(50)), DoubtPolicy
    ):
        before = STATES[OUT][state](round=1, receipts=RECEIPTS[receipts], attempt=attempt, doubts=doubts, due_at=moment)
        limits = replace(LIMITS, doubt_policy=policy)
        step = lease(before, task_for(before, age), MINE, GUARDS[guard], limits, NOW)
        after = step.write or before

        assert after.generation == before.generation
        assert after.receipts == before.receipts
        assert step.create == ()
        if before.final or before.leased_at(NOW):
            assert step.write is None
        elif receipts.endswith("this round"):
            assert after.state is State.DONE
        if isinstance(step.next, Run):
            assert guard == "go"
            assert after.attempt == attempt + 1 <= LAST
            assert after.token == MINE
            assert step.next.resend is (before.state is State.IN_DOUBT)
            assert not (step.next.resend and (policy is DoubtPolicy.HOLD or doubts >= 2))
            assert before.state is not State.PENDING or moment <= NOW
        elif isinstance(step.next, Elect):
            assert (step.next, step.write, step.answer) == (
                GUARDS[guard],
                None,
                Answer(TaskResult.CONFLICT, before.state),
            )
        elif STATUS[step.answer.result] == 200 and not after.final:
            assert isinstance(step.next, Ensure if age == OLDER else Hop)
        else:
            assert step.next is None


TRIED = {"attempts_log": (Attempt(at(-9), 1, "retry"), Attempt(at(-1), 1, "provider_down"))}


@pytest.mark.parametrize(
    ("before", "guard", "why"),
    [
        (pending(), FOR_NOW, "predecessor"),
        (pending(**TRIED), PROVIDER_DOWN, "provider_down"),
        (pending(**TRIED), FOR_NOW, "predecessor"),
        (pending(**due(at(5))), FOR_NOW, None),
        (pending(**due(at(5)), **TRIED), FOR_NOW, "provider_down"),
        (expired(**TRIED), GO, "lease_expired"),
        (in_doubt(**TRIED), FOR_NOW, None),
        (past_doubt(**TRIED), UNCLEAR, "provider_down"),
        (pending(**TRIED), GO, None),
        (leased(**TRIED), GO, None),
        (done(**TRIED), GO, None),
    ],
)
def test_lease_step_names_what_it_waits_for(before: Delivery, guard: Guard, why: str | None) -> None:
    for age in ANY_TASK:
        assert lease(before, task_for(before, age), MINE, guard, LIMITS, NOW).why == why


def test_waiting_writes_nothing_however_long_it_takes() -> None:
    record = pending()
    for hop in range(500):
        wait = Wait("blocked", at(hop + 1))
        assert lease(record, task_for(record, T0, hop), MINE, wait, LIMITS, at(hop)).write is None


# ---- errors of a send: each says what it means for the message


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (AnswerLost(131000), Lost(131000)),
        (AnswerLost(), Lost(outage=True)),
        (AnswerLost(status=502), Lost(outage=True)),
        (AnswerLost(999_001, status=500), Lost(999_001)),
        (OutageInSuccess(2, status=200), Lost(2, outage=True)),
        (ProviderUnavailable(2), ProviderDown(2)),
        (ProviderUnavailable(), ProviderDown()),
        (ProviderUnavailable(2, retry_after=timedelta(seconds=9)), ProviderDown(2, timedelta(seconds=9))),
        (TryLater(131053, retry_after=timedelta(seconds=9)), Retry(131053, timedelta(seconds=9))),
        (
            LimitReached(130429, limit=LimitScope.RATE, retry_after=timedelta(seconds=9)),
            Limited(LimitScope.RATE, 130429, timedelta(seconds=9)),
        ),
        (CredentialInvalid(190), CredentialRefused(190)),
        (CredentialInvalid(0), CredentialRefused(0)),
        (AccessDenied(131005), CredentialRefused(131005, curable=True)),
        (SenderBlocked(368), Blocked(BlockScope.SENDER, 368)),
        (SendRefused(131026, status=500), Refused(131026, on_fault=True)),
        (SendRefused(131026), Refused(131026)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_of_a_send_carries_its_verdict(error: SendError, verdict: SendVerdict) -> None:
    assert error.verdict == verdict
    assert error.sentence == (type(error).__doc__ or "")
    assert error.scope in ("message", "contact", "sender", "tenant", "provider", "us")


@pytest.mark.parametrize(
    ("error", "answered"), [(AnswerLost(), False), (TryLater(131053), False), (AnswerLost(status=502), True)]
)
def test_error_shows_whether_the_provider_answered(error: SendError, answered: bool) -> None:
    assert error.answered is answered


@pytest.mark.parametrize(
    ("ahead", "goes"), [(0.0, True), (0.1, True), (0.101, False), (60.0, False)], ids=["due", "skew", "early", "far"]
)
def test_a_task_that_is_early_by_no_more_than_the_clocks_differ_goes(ahead: float, goes: bool) -> None:
    """A hop for so short a time would be early again, and hop again."""
    record = pending(due_at=at(ahead), generation=0)
    step = lease(record, task_for(record), MINE, Go(), LIMITS, NOW)
    assert isinstance(step.next, Run) is goes
    assert goes or step.next == Hop(record, at(ahead))


FIRST_BLOCK = replace(LIMITS, waits=replace(LIMITS.waits, block=Backoff(timedelta(seconds=70), 2, timedelta(days=1))))


@pytest.mark.parametrize(
    ("verdict", "due_at"),
    [
        (Blocked(BlockScope.SENDER, 368), at(70)),
        (Blocked(BlockScope.SENDER, 368, at(5)), at(5)),
        (Blocked(BlockScope.SENDER, 368, retry_after=timedelta(seconds=71)), at(71)),
        (Blocked(BlockScope.SENDER, 368, retry_after=timedelta(seconds=69)), at(70)),
        (Blocked(BlockScope.SENDER, 368, at(5), timedelta(seconds=6)), at(6)),
    ],
    ids=["no end", "an end", "a longer wait asked for", "a shorter wait asked for", "an end before the wait"],
)
def test_a_block_without_its_end_is_looked_at_after_the_first_wait_of_a_block(verdict: Blocked, due_at: Any) -> None:
    step = settle(HELD, MINE, verdict, FIRST_BLOCK, NOW, 0.5)
    assert step.write is not None
    assert (step.write.due_at, step.next) == (due_at, Ensure(step.write))


# ---- a caller's own retries and time

THREE = Retries(3, timedelta(seconds=15))


def test_callers_retries_come_before_ours() -> None:
    """Three attempts, 15 s apart (12 to 18 with the spread), then a dead letter."""
    for jitter, wait in ((0.0, 12), (0.5, 15), (1.0, 18)):
        step = settle(leased(attempt=2, retry=THREE, token=MINE), MINE, Retry(131016), LIMITS, NOW, jitter)
        assert step.write is not None
        assert (step.write.state, step.write.due_at) == (State.PENDING, at(wait))
    last = settle(leased(attempt=3, retry=THREE, token=MINE), MINE, Retry(131016), LIMITS, NOW, NO_JITTER).write
    assert last is not None
    assert (last.state, last.reason) == (State.DEAD, "attempts")


def test_attempt_cut_off_after_the_last_of_a_callers_is_dead() -> None:
    record = pending(attempt=3, retry=THREE)
    ended = lease(record, task_for(record), MINE, Go(), LIMITS, NOW).write
    assert ended is not None
    assert (ended.state, ended.reason) == (State.DEAD, "attempts")


def test_more_attempts_than_ours_are_a_callers_to_ask_for() -> None:
    record = pending(attempt=LAST, retry=Retries(LAST + 1, timedelta(seconds=1)))
    assert isinstance(lease(record, task_for(record), MINE, Go(), LIMITS, NOW).next, Run)


def test_outage_waits_and_spends_none_of_a_callers_attempts() -> None:
    after = settle(leased(attempt=3, retry=THREE, token=MINE), MINE, ProviderDown(), LIMITS, NOW, NO_JITTER).write
    assert after is not None
    assert (after.state, after.attempt) == (State.PENDING, 2)


def test_message_for_a_later_time_is_due_then_and_as_old_as_its_time() -> None:
    later = at(7 * 24 * 3600)
    record = create(
        Kind.OUTBOUND,
        "0c" * 20,
        provider="meta",
        tenant="default",
        sender="100000000000001",
        contact="15550002222",
        correlation_id="correlation-of-a-test",
        payload={},
        limits=LIMITS,
        now=NOW,
        send_at=later,
    )
    assert (record.due_at, record.send_at) == (later, later)
    assert record.sweep_at == later + LIMITS.sweep_after
    assert record.give_up_at == later + LIMITS.message_max_age
