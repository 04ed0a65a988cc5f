"""The tables of docs/protocol.md: the rows as they are written, and the meaning of each of their terms.

A situation is a record with everything that decides its next state. The terms are defined here, separately from the
code, so that a row is checked for what it says and not for how `delivery.py` says it.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path

from services import task_responses
from shared.domain.delivery.answers import Answer, Ensure, EnsureReplies, Hop, Next, Run
from shared.domain.guards import Elect, Go, Guard, Never, Wait
from shared.domain.limits import DoubtPolicy, Limits
from shared.domain.record import WAKE, Delivery, Kind, Receipts, State, Task
from shared.domain.verdicts import Lost, Refused, Released, Verdict
from tests.support.builders import LIMITS, MINE, NOW

PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"
GONE = "absent"


# ---- the page


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table, by the names of its columns."""

    line: int
    cells: Mapping[str, str]

    def __getitem__(self, column: str) -> str:
        return self.cells[column]

    def __str__(self) -> str:
        return f"docs/protocol.md:{self.line}"


def rows(heading: str, table: int = 0) -> tuple[Row, ...]:
    """The rows of the tables below a heading, or of its n-th table (from 0)."""
    return tuple(_tables(heading)[table])


def _tables(heading: str) -> list[list[Row]]:
    tables: list[list[Row]] = []
    names: list[str] = []
    within = False
    for number, line in enumerate(PAGE.read_text().splitlines(), 1):
        if line.startswith("## "):
            within = line == f"## {heading}"
        elif within and line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if not names:
                names = cells
                tables.append([])
            elif set(line) - set("|- "):
                tables[-1].append(Row(number, dict(zip(names, cells, strict=True))))
        else:
            names = []
    return tables


# ---- situations


@dataclass(frozen=True, slots=True)
class Situation:
    """A record and the event that it meets. Fields that do not matter for an event keep their default."""

    record: Delivery | None
    task: Task | None = None
    guard: Guard = field(default_factory=Go)
    limits: Limits = LIMITS
    verdict: Verdict | None = None
    may_double: bool = False
    now: datetime = NOW

    @property
    def there(self) -> Delivery:
        assert self.record is not None
        return self.record


def _is_call(record: Delivery) -> bool:
    return record.payload.get("type") in ("read", "typing")


def _is_live(record: Delivery, now: datetime) -> bool:
    return record.lease_until is not None and record.lease_until > now


def _receipts(record: Delivery) -> Receipts:
    return record.receipts.get(record.round, Receipts())


def _any(receipts: Receipts) -> bool:
    return any(getattr(receipts, kind) for kind in ("sent", "delivered", "read", "played", "failed"))


def _reached(receipts: Receipts) -> bool:
    return any(getattr(receipts, kind) for kind in ("delivered", "read", "played"))


def _is_older(it: Situation) -> bool:
    assert it.task is not None
    return it.task.generation < it.there.generation


def _is_in(state: State, live: bool | None = None) -> Callable[[Situation], bool]:
    def found(it: Situation) -> bool:
        if it.record is None or it.record.state is not state:
            return False
        return live is None or _is_live(it.record, it.now) is live

    return found


RECORDS: Mapping[str, Callable[[Situation], bool]] = {
    "any": lambda _: True,
    GONE: lambda it: it.record is None,
    "`pending`": _is_in(State.PENDING),
    "`leased`": _is_in(State.LEASED),
    "`leased` (live)": _is_in(State.LEASED, live=True),
    "`leased` (expired)": _is_in(State.LEASED, live=False),
    "`in_doubt`": _is_in(State.IN_DOUBT),
    "`done`": _is_in(State.DONE),
    "`dropped`": _is_in(State.DROPPED),
    "`dead`": _is_in(State.DEAD),
}

CONDITIONS: Mapping[str, Callable[[Situation], bool]] = {
    "any": lambda _: True,
    # of the task
    "T0": lambda it: not _is_older(it),
    "T−": _is_older,
    "a wake task": lambda it: it.task is not None and it.task.generation == WAKE,
    # of the record
    "my token": lambda it: it.there.token == MINE,
    "another token": lambda it: it.there.token != MINE,
    "leased out of a doubt": lambda it: it.there.doubt_until is not None,
    "a message": lambda it: not _is_call(it.there),
    "a receipt of this round": lambda it: _any(_receipts(it.there)),
    "no attempts left": lambda it: it.there.attempt >= it.limits.max_attempts,
    "attempts left": lambda it: it.there.attempt < it.limits.max_attempts,
    "last attempt": lambda it: it.there.attempt >= it.limits.max_attempts,
    "past `give_up_at`": lambda it: it.there.give_up_at is not None and it.there.give_up_at <= it.now,
    "before `doubt_until`": lambda it: it.there.doubt_until is not None and it.there.doubt_until > it.now,
    "before `sweep_at`": lambda it: it.there.sweep_at is not None and it.there.sweep_at > it.now,
    "not due": lambda it: it.there.due_at is not None and it.there.due_at > it.now,
    "doubts ≥ 1": lambda it: it.there.doubts >= 1,
    "doubts ≥ 2": lambda it: it.there.doubts >= 2,
    "policy `hold`": lambda it: it.limits.doubt_policy is DoubtPolicy.HOLD,
    "an event": lambda it: it.there.kind is Kind.INBOUND,
    "moved by this drain before": lambda it: it.there.due_at == it.now,
    "it does not wait for its sender": lambda it: (
        not any(
            one.round == it.there.round and one.answer in ("credential_refused", "blocked")
            for one in it.there.attempts_log[-1:]
        )
    ),
    # of the guards
    "all guards pass": lambda it: isinstance(it.guard, Go),
    "a guard holds it back": lambda it: isinstance(it.guard, Wait),
    "it must be elected": lambda it: isinstance(it.guard, Elect),
    "a guard ends it": lambda it: isinstance(it.guard, Never),
    "a guard ends it: opted out": lambda it: it.guard == Never("opt_out"),
    "a guard ends it: window closed": lambda it: it.guard == Never("window"),
    "the provider is not marked as down": lambda it: not getattr(it.guard, "unclear", False),
    # of the verdict
    "it was leased out of a doubt": lambda it: isinstance(it.verdict, Released) and it.verdict.resend,
    "the provider answered 5xx": lambda it: isinstance(it.verdict, Refused) and it.verdict.on_fault,
    "another provider id than is stored": lambda it: (
        getattr(it.verdict, "provider_id", None) not in (None, it.there.provider_id)
    ),
    # of an operator's command
    "reason `invalid`": lambda it: it.there.reason == "invalid",
    "reason `discarded`": lambda it: it.there.reason == "discarded",
    "reason `cancelled`": lambda it: it.there.reason == "cancelled",
    "another reason than `unknown_sender`": lambda it: it.there.reason != "unknown_sender",
    "without `--may-double`": lambda it: not it.may_double,
    "sent, delivered, read or played in this round": lambda it: (
        _reached(_receipts(it.there)) or _receipts(it.there).sent is not None
    ),
    "delivered, read or played in this round": lambda it: _reached(_receipts(it.there)),
    "sent, and not failed, in this round": lambda it: (
        _receipts(it.there).sent is not None and _receipts(it.there).failed is None
    ),
    "sent in this round": lambda it: _receipts(it.there).sent is not None,
    "not failed in this round": lambda it: _receipts(it.there).failed is None,
    "made `done` by this replay": lambda it: it.there.finished_at == it.now,
}

_LOST_CALL = {
    "`Lost` (a message)": lambda it: not _is_call(it.there),
    "`Lost` (a call)": lambda it: _is_call(it.there) and not it.verdict.outage,
    "`Lost` (a call, in an outage)": lambda it: _is_call(it.there) and it.verdict.outage,
}


def _is_verdict(word: str, it: Situation) -> bool:
    if word in _LOST_CALL:
        return isinstance(it.verdict, Lost) and _LOST_CALL[word](it)
    return word == "any" or type(it.verdict).__name__ == word.strip("`")


def verdicts_of(row: Row) -> Sequence[str]:
    """The verdicts that a row names. (Parentheses may contain a comma.)"""
    return _verdicts_in(row["verdict"])


@cache
def _verdicts_in(cell: str) -> Sequence[str]:
    return tuple(re.findall(r"`\w+`(?: \([^)]*\))?|any", cell))


def matches(row: Row, it: Situation, when: str = "when") -> bool:
    """Whether the row applies to this situation."""
    return (
        any(RECORDS[word](it) for word in row["record"].split(", "))
        and ("verdict" not in row.cells or any(_is_verdict(word, it) for word in verdicts_of(row)))
        and all(CONDITIONS[word](it) for word in row[when].split("; "))
    )


def row_of(table: tuple[Row, ...], it: Situation, when: str = "when") -> Row:
    """The first row that matches. A situation without a row is missing on the page."""
    for row in table:
        if matches(row, it, when):
            return row
    raise AssertionError(f"No row of docs/protocol.md is about {it}.")


# ---- what a row says

THEN: Mapping[str, Callable[[Next], bool]] = {
    "–": lambda then: then is None,
    "its task": lambda then: isinstance(then, Ensure),
    "the replies' tasks": lambda then: isinstance(then, EnsureReplies),
    "next hop": lambda then: isinstance(then, Hop),
    "election": lambda then: isinstance(then, Elect),
    "the handler": lambda then: isinstance(then, Run) and then.record.kind is Kind.INBOUND and not then.resend,
    "send": lambda then: isinstance(then, Run) and then.record.kind is Kind.OUTBOUND and not then.resend,
    "send again": lambda then: isinstance(then, Run) and then.record.kind is Kind.OUTBOUND and then.resend,
}

COUNTERS = ("attempt", "generation", "throttled", "round", "doubts", "sweeps")


def counters_of(row: Row, before: Delivery) -> dict[str, int]:
    """The counters after the row's write."""
    counted = {name: getattr(before, name) for name in COUNTERS}
    for change in _changes(row):
        if change == "doubt taken back":
            counted["doubts"] -= before.state is State.IN_DOUBT
        elif found := re.fullmatch(r"(\w+) ([+−]) 1", change):
            counted[found[1]] += 1 if found[2] == "+" else -1
        elif found := re.fullmatch(r"(\w+) 0", change):
            counted[found[1]] = 0
        else:
            assert change in ("token removed", "provider id", "provider id removed"), change
    return counted


def state_of(row: Row, before: Delivery | None) -> tuple[State, str | None] | None:
    """The state that the row writes, with its reason; None if it writes nothing."""
    if row["writes"] == "–":
        return None
    if row["writes"].startswith("same state"):
        assert before is not None
        return before.state, before.reason
    found = re.match(r"`(\w+)(?:\((\w+)\))?`", row["writes"])
    assert found, row["writes"]
    return State(found[1]), found[2]


def says(row: Row, change: str) -> bool:
    return change in _changes(row)


def _changes(row: Row) -> list[str]:
    return row["writes"].replace(" and its replies, each `pending`", "").split(", ")[1:]


def answer_of(answer: Answer, column: str = "answer") -> str:
    """An answer in the words of the page. Only this function knows how an answer is stored."""
    if column == "result":
        return f"`{answer.state}`"
    body, status = task_responses.of_task(answer)
    more = f", `{body['error']}`" if "error" in body else ""
    return f"{status} `{answer.state}`{more}"


def said(row: Row, it: Situation, column: str = "answer") -> str:
    """What the row's cell says about this situation."""
    state = it.record.state if it.record else ""
    return row[column].replace(", its state", f" `{state}`").replace("its state", f"`{state}`")


# ---- what each write also sets


@cache
def sets_of(state: State) -> Row:
    for row in rows("What each write sets besides"):
        if f"`{state}`" in row["the record becomes"].split(", "):
            return row
    raise AssertionError(f"The page does not say what a write of {state} sets.")


VALUES: Mapping[str, Callable[[Delivery, Limits], bool]] = {
    "`due_at`": lambda after, _: after.due_at is not None,
    "`token`": lambda after, _: after.token == MINE,
    "`lease_until`": lambda after, _: after.lease_until is not None and after.lease_until > NOW,
    "`started_at` = now": lambda after, _: after.started_at == NOW,
    "`finished_at` = now": lambda after, _: after.finished_at == NOW,
    "`sweeps` = 0": lambda after, _: after.sweeps == 0,
    "`sweep_at` = `due_at` + `SWEEP_AFTER`": lambda after, limits: (
        after.due_at is not None and after.sweep_at == after.due_at + limits.sweep_after
    ),
    "`sweep_at` = `doubt_until` + `SWEEP_AFTER`": lambda after, limits: (
        after.doubt_until is not None and after.sweep_at == after.doubt_until + limits.sweep_after
    ),
    "`doubt_until` = now + `IN_DOUBT_SECONDS`": lambda after, limits: after.doubt_until == NOW + limits.doubt_window,
    "`expire_at` = now + retention": lambda after, limits: (
        after.expire_at == NOW + (limits.inbound_retention if after.kind is Kind.INBOUND else limits.outbound_retention)
    ),
}


def fields_of(cell: str) -> Iterator[str]:
    """The fields that a cell is about: the first name in each of its parts."""
    for part in filter(None, cell.split(", ")):
        found = re.match(r"`(\w+)`", part)
        assert found, part
        yield found[1]
