"""Records and tasks as the protocol leaves them, for the tests of the domain."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from shared.domain.delivery.answers import Answer, Hop, Next, Run, Step
from shared.domain.limits import DoubtPolicy, Limits
from shared.domain.record import WAKE, Attempt, Delivery, Kind, Receipts, State, Task

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LIMITS = Limits()
HOLD = Limits(doubt_policy=DoubtPolicy.HOLD)
LAST = LIMITS.max_attempts
NO_JITTER = 0.5
"""The middle of its range, so that a wait is as long as the table says."""

MINE, OTHERS = "token-of-this-attempt", "token-of-another-attempt"
EVENT_KEY, REPLY_KEY = "0e" * 20, "0f" * 20
GENERATION = 2
"""The generation of every record here, so that older and newer tasks exist."""


def at(seconds: float) -> datetime:
    """This many seconds after now."""
    return NOW + timedelta(seconds=seconds)


# ---- records, one function per state


def pending(kind: Kind = Kind.OUTBOUND, **changes: Any) -> Delivery:
    record = Delivery(
        key=EVENT_KEY if kind is Kind.INBOUND else REPLY_KEY,
        kind=kind,
        provider="meta",
        tenant="default",
        sender="100000000000001",
        contact="15550002222",
        correlation_id="correlation-1",
        state=State.PENDING,
        received_at=at(-60),
        payload={"text": "hello"},
        generation=GENERATION,
        due_at=at(-60),
        sweep_at=at(540),
        sweeps=1,
        give_up_at=at(24 * 3600 - 60),
    )
    return replace(record, **changes)


def leased(kind: Kind = Kind.OUTBOUND, **changes: Any) -> Delivery:
    """Under a live lease."""
    held = {"state": State.LEASED, "attempt": 1, "token": OTHERS, "lease_until": at(30), "started_at": at(-30)}
    return pending(kind, **(held | changes))


def expired(kind: Kind = Kind.OUTBOUND, **changes: Any) -> Delivery:
    """Leased by a worker that stopped responding; the lease has expired."""
    return leased(kind, **({"lease_until": at(-1)} | changes))


def in_doubt(**changes: Any) -> Delivery:
    """Before its doubt_until."""
    doubt = {"state": State.IN_DOUBT, "lease_until": None, "doubts": 1, "doubt_until": at(200), "sweep_at": at(800)}
    return leased(Kind.OUTBOUND, **(doubt | changes))


def past_doubt(**changes: Any) -> Delivery:
    """Past its doubt_until."""
    return in_doubt(**({"doubt_until": at(-1), "sweep_at": at(599)} | changes))


def done(kind: Kind = Kind.OUTBOUND, **changes: Any) -> Delivery:
    known = {"plan_size": 2} if kind is Kind.INBOUND else {"provider_id": "wamid.1"}
    return _ended(kind, State.DONE, at(3600), known | changes)


def dropped(kind: Kind = Kind.OUTBOUND, **changes: Any) -> Delivery:
    return _ended(kind, State.DROPPED, at(3600), {"reason": "not for us"} | changes)


def dead(kind: Kind = Kind.OUTBOUND, **changes: Any) -> Delivery:
    return _ended(kind, State.DEAD, None, {"reason": "attempts"} | changes)


def _ended(kind: Kind, state: State, expire_at: datetime | None, changes: Mapping[str, Any]) -> Delivery:
    end = {"state": state, "lease_until": None, "sweep_at": None, "finished_at": at(-10), "expire_at": expire_at}
    return leased(kind, **(end | dict(changes)))


STATES: Mapping[Kind, Mapping[str, Callable[..., Delivery]]] = {
    Kind.INBOUND: {
        "pending": lambda **c: pending(Kind.INBOUND, **c),
        "leased live": lambda **c: leased(Kind.INBOUND, **c),
        "leased expired": lambda **c: expired(Kind.INBOUND, **c),
        "done": lambda **c: done(Kind.INBOUND, **c),
        "dropped": lambda **c: dropped(Kind.INBOUND, **c),
        "dead": lambda **c: dead(Kind.INBOUND, **c),
    },
    Kind.OUTBOUND: {
        "pending": pending,
        "leased live": leased,
        "leased expired": expired,
        "in_doubt before doubt_until": in_doubt,
        "in_doubt past doubt_until": past_doubt,
        "done": done,
        "dropped": dropped,
        "dead": dead,
    },
}
"""Every state that a task or a verdict may find, by kind."""

SENT, DELIVERED = Receipts(sent=at(-5)), Receipts(delivered=at(-5))
READ, PLAYED = Receipts(read=at(-5)), Receipts(played=at(-5))
FAILED = Receipts(failed=at(-5), failed_code=131026)
EVERY_RECEIPT = {"sent": SENT, "delivered": DELIVERED, "read": READ, "played": PLAYED, "failed": FAILED}


# ---- tasks

T0, NEWER, OLDER = 0, 1, -1
ANY_TASK = (T0, NEWER, OLDER)
CURRENT_TASK = (T0, NEWER)
WOKEN = WAKE - GENERATION
"""A wake task, which is older than any record."""
TASK_WORDS = {T0: "T0", NEWER: "newer T0", OLDER: "T-"}


def task_for(record: Delivery | None, age: int = T0, hop: int = 0) -> Task:
    """A task of the record's generation, or of an older or newer one."""
    record = record or pending()
    return Task(record.key, record.kind, record.correlation_id, record.generation + age, hop, record.tenant)


# ---- expected steps


def nothing(_: Delivery) -> Next:
    return None


def hop_at(moment: datetime) -> Callable[[Delivery], Next]:
    return lambda record: Hop(record, moment)


def run_resend(record: Delivery) -> Next:
    return Run(record, resend=True)


def ends(state: State, kind: Kind = Kind.OUTBOUND, reason: str | None = None) -> dict[str, Any]:
    """The fields that an end writes: dead is kept for ever; an event is kept for 8 days, a message for 35."""
    kept = timedelta(days=8 if kind is Kind.INBOUND else 35)
    return {
        "state": state,
        "reason": reason,
        "lease_until": None,
        "doubt_until": None,
        "sweep_at": None,
        "finished_at": NOW,
        "expire_at": None if state is State.DEAD else NOW + kept,
    }


def due(moment: datetime) -> dict[str, Any]:
    """The fields of every write that sets due_at."""
    return {"due_at": moment, "sweep_at": moment + timedelta(seconds=600), "sweeps": 0}


def tried(
    record: Delivery, word: str, code: int | None = None, provider_id: str | None = None, **why: str
) -> dict[str, Any]:
    """The line that a verdict leaves in the attempts_log."""
    line = Attempt(NOW, record.attempt, word, code, provider_id, record.round, **why)
    return {"attempts_log": (*record.attempts_log, line)}


def check(
    step: Step,
    before: Delivery | None,
    changes: Mapping[str, Any] | None,
    then: Callable[[Delivery], Next],
    answer: Answer,
) -> None:
    """The step changes these fields of the record and no other, says what follows, and answers so."""
    after = replace(before, **changes) if before and changes is not None else before
    assert step.write == (None if changes is None else after)
    assert step.answer == answer
    assert step.next == (then(after) if after else None)
