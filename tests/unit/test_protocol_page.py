"""docs/protocol.md: every row is what the code does, and whatever the code does has its row.

Every combination of record and event is given to the real functions; the first row that is about it has to say what
they wrote, what follows and what is answered. A combination without a row fails, and so does a row that is about none.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, replace
from datetime import timedelta
from enum import EnumType
from functools import cache
from http import HTTPStatus
from itertools import product
from typing import Any, get_args, get_type_hints

import pytest

from services import error_responses
from services.error_responses import Busy, HttpError
from services.internal.main import LARGEST_TASK
from shared.domain import identity
from shared.domain.delivery import create, drain, lease, operator, settle, sweep
from shared.domain.delivery.answers import NotAllowed, Step
from shared.domain.errors import (
    CertificatesUnavailable,
    Forbidden,
    QueueUnavailable,
    RegistryUnavailable,
    RegistryUnreadable,
    SignatureInvalid,
    StoreUnavailable,
    TaskInvalid,
    UnknownState,
)
from shared.domain.guards import (
    CREDENTIALS_UNAVAILABLE,
    REAUTH_REQUIRED,
    SENDER_REMOVED,
    SUSPENDED,
    Elect,
    Go,
    Guard,
    Never,
    Wait,
)
from shared.domain.limits import Backoff
from shared.domain.record import Attempt, Delivery, Kind, Receipts, State, Task
from shared.domain.verdicts import (
    Accepted,
    BackendDown,
    Blocked,
    CredentialRefused,
    Dropped,
    HandlerFailed,
    HandlerVerdict,
    Limited,
    Lost,
    ProviderDown,
    Refused,
    Released,
    Replied,
    Retry,
    SendVerdict,
    StillUnknown,
    StillUnparsable,
    Verdict,
)
from shared.pipeline.channels import Channels
from shared.pipeline.dispatch import TaskDispatch
from shared.tenants.environment import EnvironmentTenants
from tests.support.builders import (
    ANY_TASK,
    DELIVERED,
    EVERY_RECEIPT,
    FAILED,
    HOLD,
    LAST,
    LIMITS,
    MINE,
    NO_JITTER,
    NOW,
    OTHERS,
    SENT,
    STATES,
    WOKEN,
    at,
    task_for,
)
from tests.support.protocol_rows import (
    COUNTERS,
    PAGE,
    THEN,
    VALUES,
    Row,
    Situation,
    answer_of,
    counters_of,
    fields_of,
    row_of,
    rows,
    said,
    says,
    sets_of,
    state_of,
    verdicts_of,
)

IN, OUT = Kind.INBOUND, Kind.OUTBOUND
TASKS = (*ANY_TASK, WOKEN)
CALL = {"type": "typing", "content": {"message_id": "wamid.1"}, "to": "+15550002222"}
GUARDS: tuple[Guard, ...] = (
    Go(),
    Wait("predecessor", at(7)),
    Wait("provider_down", at(9), unclear=True),
    Elect(frozenset({"down"}), "provider_down"),
    Elect(frozenset({"down"}), "provider_down", unclear=True),
)
NEVERS: tuple[Guard, ...] = (Never("window"), Never("opt_out"))
ALREADY_FINAL = ("done", "dropped", "dead")

HANDLER_VERDICTS: tuple[HandlerVerdict, ...] = (
    Replied(()),
    Replied(({"type": "text"}, {"type": "text"})),
    Dropped("spam"),
    HandlerFailed("no"),
    BackendDown("no"),
    StillUnparsable(),
    StillUnknown(),
    Released(),
)


def _of(verdict: type, **given: Any) -> Any:
    """A verdict with something in each field that it needs. Which limit, and whose block, decides no row."""
    hints = get_type_hints(verdict)
    needed = [it.name for it in fields(verdict) if it.default is MISSING and it.default_factory is MISSING]
    samples = {name: next(iter(hints[name])) if isinstance(hints[name], EnumType) else 131026 for name in needed}
    return verdict(**samples | given)


SEND_VERDICTS: tuple[SendVerdict, ...] = (
    Accepted("wamid.1"),
    Accepted("wamid.2"),
    Accepted(None),
    Lost(),
    Lost(outage=True),
    ProviderDown(),
    Retry(131016),
    _of(Limited),
    _of(CredentialRefused),
    _of(Blocked),
    _of(Refused),
    _of(Refused, on_fault=True),
    Released(),
    Released(resend=True),
)


def _arrivals(kind: Kind) -> Iterator[Situation]:
    """Every state that a task may find, in every combination of what decides about it."""
    guards = GUARDS if kind is IN else GUARDS + NEVERS
    policies = (LIMITS,) if kind is IN else (LIMITS, HOLD)
    receipts: tuple[dict[int, Receipts], ...] = ({},) if kind is IN else ({}, {0: FAILED}, {1: DELIVERED})
    payloads: tuple[dict[str, Any], ...] = ({"text": "hello"},) if kind is IN else ({"text": "hello"}, CALL)
    yield from (Situation(None, task_for(None, age), guard) for age, guard in product(TASKS, guards))
    for state, make in STATES[kind].items():
        settled = state in ALREADY_FINAL
        for token, attempt, give_up, due, receipt, doubts, payload in product(
            (MINE, OTHERS), (1, LAST), (at(-1), at(900)), (at(-60), at(50)), receipts, (1, 2), payloads
        ):
            if (settled and attempt != 1) or (token != MINE and state != "leased live"):
                continue
            record = make(
                token=token, attempt=attempt, give_up_at=give_up, due_at=due, receipts=receipt, payload=payload
            )
            if kind is OUT:
                record = replace(record, doubts=doubts)
            for age, guard, limits in product(TASKS, guards, policies):
                yield Situation(record, task_for(record, age), guard, limits)
    if kind is OUT:  # leased out of a doubt
        for token, age in product((MINE, OTHERS), TASKS):
            record = STATES[OUT]["leased live"](token=token, doubts=1, doubt_until=at(-1))
            yield Situation(record, task_for(record, age))


def _ends(kind: Kind) -> Iterator[Situation]:
    """Every verdict on every state that it may find."""
    verdicts: tuple[Verdict, ...] = HANDLER_VERDICTS if kind is IN else SEND_VERDICTS
    payloads: tuple[dict[str, Any], ...] = ({"text": "hello"},) if kind is IN else ({"text": "hello"}, CALL)
    yield from (Situation(None, verdict=verdict) for verdict in verdicts)
    for verdict, make, token, attempt, receipt, payload in product(
        verdicts, STATES[kind].values(), (MINE, OTHERS, None), (1, LAST), ({}, {0: FAILED}), payloads
    ):
        record = make(token=token, attempt=attempt, receipts=receipt, payload=payload, throttled=3)
        yield Situation(record, verdict=verdict)


def _swept() -> Iterator[Situation]:
    yield Situation(None)
    for kind, sweep_at in product(Kind, (at(-1), at(1))):
        for state, make in STATES[kind].items():
            yield Situation(make() if state in ALREADY_FINAL else make(sweep_at=sweep_at))


def _drained() -> Iterator[Situation]:
    """Every state, with each thing that a pending message may wait for."""
    yield Situation(None)
    for kind, due_at, answer, its_round in product(
        Kind, (at(-60), NOW, at(60)), (None, "credential_refused", "blocked", "limited"), (0, 1)
    ):
        log = () if answer is None else (Attempt(at(-90), 1, answer, round=its_round),)
        for make in STATES[kind].values():
            yield Situation(make(due_at=due_at, attempts_log=log, sweeps=2))


REASONS = ("permanent", "attempts", "in_doubt", "invalid", "unknown_sender", "opt_out", "discarded", "cancelled")
RECEIPTS = (Receipts(), *EVERY_RECEIPT.values(), SENT.merged(FAILED), DELIVERED.merged(FAILED))


def _persons() -> Iterator[Situation]:
    """What a person may ask of any record."""
    for kind in Kind:
        for (state, make), receipts, doubts, may_double, finished in product(
            STATES[kind].items(), RECEIPTS, (0, 1), (False, True), (at(-10), NOW)
        ):
            reasons = REASONS if state in ("dropped", "dead") else (None,)
            for reason in reasons:
                changes: dict[str, Any] = {"receipts": {0: receipts}, "doubts": doubts, "reason": reason}
                if state in ALREADY_FINAL:
                    changes["finished_at"] = finished
                yield Situation(make(**changes), may_double=may_double)


def _lease(it: Situation) -> Step:
    assert it.task is not None
    return lease.lease(it.record, it.task, MINE, it.guard, it.limits, it.now)


def _settle(it: Situation) -> Step:
    assert it.verdict is not None
    return settle.settle(it.record, MINE, it.verdict, it.limits, it.now, NO_JITTER)


def _sweep(it: Situation) -> Step:
    return sweep.sweep(it.record, it.limits, it.now)


def _drain(it: Situation) -> Step:
    return drain.drain(it.record, it.limits, it.now)


def _replay(it: Situation) -> Step:
    return operator.replay(it.there, it.limits, it.now, it.may_double)


def _discard(it: Situation) -> Step:
    return operator.discard(it.there, it.limits, it.now)


def _cancel(it: Situation) -> Step:
    return operator.cancel(it.there, it.limits, it.now)


TABLES: dict[str, tuple[tuple[Row, ...], str, Callable[[], Iterator[Situation]], Callable[[Situation], Step]]] = {
    "an event's task": (rows("process_inbound: a task arrives"), "when", lambda: _arrivals(IN), _lease),
    "a handler's end": (rows("process_inbound: the handler has ended"), "when", lambda: _ends(IN), _settle),
    "a message's task": (rows("process_outbound: a task arrives"), "when", lambda: _arrivals(OUT), _lease),
    "a send's end": (rows("process_outbound: the send has ended"), "when", lambda: _ends(OUT), _settle),
    "sweep": (rows("Sweep"), "when", _swept, _sweep),
    "drain": (rows("Drain"), "when", _drained, _drain),
    "replay": (rows("Replay and discard"), "replay, when", _persons, _replay),
    "discard": (rows("Replay and discard", 1), "discard, when", _persons, _discard),
    "cancel": (rows("Cancel"), "cancel, when", _persons, _cancel),
}


# ---- the rows


@cache
def _with_rows(name: str) -> list[tuple[Situation, Row]]:
    """Every situation of a table and the first row that is about it. Raises where the page knows none."""
    table, when, situations, _ = TABLES[name]
    return [(it, row_of(table, it, when)) for it in situations()]


@pytest.mark.parametrize("name", TABLES)
def test_every_situation_ends_as_its_first_matching_row(name: str) -> None:
    act = TABLES[name][-1]
    for it, row in _with_rows(name):
        if row.cells.get("result") == "refused":
            with pytest.raises(NotAllowed):
                act(it)
        else:
            _check(row, it, act(it))


@pytest.mark.parametrize("name", TABLES)
def test_every_row_is_about_some_situation(name: str) -> None:
    reached = {row.line for _, row in _with_rows(name)}
    assert [str(row) for row in TABLES[name][0] if row.line not in reached] == []


def _check(row: Row, it: Situation, step: Step) -> None:

    def where() -> str:
        return f"{row} about {it}"

    written = state_of(row, it.record)
    found = (step.write.state, step.write.reason) if step.write else None
    assert found == (written if written is None or it.record is None else _kept_reason(row, it.record, written)), (
        where()
    )
    assert THEN[row["then"]](step.next), where()
    for column in ("answer", "result"):
        if row.cells.get(column, "–") != "–":
            assert answer_of(step.answer, column) == said(row, it, column), where()
    assert bool(step.create) == (" and its replies" in row["writes"] and bool(getattr(it.verdict, "payloads", ()))), (
        where()
    )
    if step.write:
        _check_fields(row, it, step.write, where)


def _kept_reason(row: Row, before: Delivery, written: tuple[State, str | None]) -> tuple[State, str | None]:
    """A record that is open has no reason; one to which only the provider's id is added keeps its own."""
    return (written[0], before.reason) if says(row, "provider id") and before.state is State.DONE else written


def _check_fields(row: Row, it: Situation, after: Delivery, where: Callable[[], str]) -> None:
    before = it.there
    sets = sets_of(after.state)
    is_apart = row["writes"].startswith("same state") or says(row, "token removed") or before.state is State.DONE
    counted = counters_of(row, before)
    if not is_apart or says(row, "round + 1"):
        for promise in filter(None, sets["sets"].split(", ")):
            assert VALUES[promise](after, it.limits), f"{where()}: {promise}"
        for name in fields_of(sets["removes"]):
            assert getattr(after, name) is None, f"{where()}: {name}"
        counted["sweeps"] = after.sweeps if "`sweeps` = 0" in sets["sets"] else counted["sweeps"]
    assert {name: getattr(after, name) for name in COUNTERS} == counted, where()
    if says(row, "token removed"):
        assert after.token is None, where()
        assert after.lease_until is None, where()
        assert after.doubt_until == (before.doubt_until if after.state is State.IN_DOUBT else None), where()
    changed = {it.name for it in fields(Delivery) if getattr(before, it.name) != getattr(after, it.name)}
    assert changed - {*COUNTERS, "version"} <= _may_change(row, it, sets, is_apart), where()


def _may_change(row: Row, it: Situation, sets: Row, is_apart: bool) -> set[str]:
    """The fields that the page lets this write change, beside the counters."""
    allowed = {"state", "reason"}
    if says(row, "token removed"):
        return allowed | {"token", "lease_until", "doubt_until"}
    if row["writes"].startswith("same state"):
        return allowed | {"sweep_at", "due_at"}
    if not is_apart or says(row, "round + 1"):
        allowed |= {*fields_of(sets["sets"]), *fields_of(sets["removes"])}
    if it.verdict is not None:
        allowed |= {"attempts_log"}
    if says(row, "provider id"):
        allowed |= {"provider_id"}
    if says(row, "round + 1"):
        allowed |= {"provider_id", "finished_at", "expire_at", "give_up_at"}
    more: dict[type, set[str]] = {
        Replied: {"plan_size", "contact"},
        Dropped: {"metadata"},
        HandlerFailed: {"last_error"},
        BackendDown: {"last_error"},
    }
    return allowed | more.get(type(it.verdict), set())


def test_a_replay_begins_a_new_age_and_forgets_the_end() -> None:
    for it, row in _with_rows("replay"):
        if says(row, "round + 1"):
            after = _replay(it).write
            assert after is not None
            assert after.give_up_at == NOW + LIMITS.message_max_age
            assert (after.provider_id, after.expire_at, after.reason, after.finished_at) == (None, None, None, None)


@pytest.mark.parametrize(
    ("name", "verdicts"), [("a handler's end", HandlerVerdict), ("a send's end", SendVerdict)], ids=["handler", "send"]
)
def test_every_verdict_has_its_row_and_is_tested(name: str, verdicts: Any) -> None:
    known = {verdict.__name__ for verdict in get_args(verdicts)}
    named = {word.split(" (")[0].strip("`") for row in TABLES[name][0] for word in verdicts_of(row)} - {"any"}
    assert named == known
    tried = HANDLER_VERDICTS if verdicts is HandlerVerdict else SEND_VERDICTS
    assert {type(verdict).__name__ for verdict in tried} == known


def test_the_functions_that_write_are_all_on_the_page() -> None:
    """Another function that gives a record another state would have no table."""
    writers = {
        name
        for table in (create, lease, settle, sweep, drain, operator)
        for name, found in vars(table).items()
        if callable(found)
        and not name.startswith("_")
        and getattr(found, "__module__", "") == table.__name__
        and not isinstance(found, type)
    }
    assert writers == {"create", "seen_again", "lease", "settle", "sweep", "drain", "replay", "discard", "cancel"}


# ---- webhook


def _created(refused: str | None) -> Delivery:
    return create.create(
        IN,
        "0e" * 20,
        provider="meta",
        tenant="default",
        sender="100000000000001",
        contact="15550002222",
        correlation_id="correlation-1",
        payload={},
        limits=LIMITS,
        now=NOW,
        refused=refused,
    )


EVENTS = {
    "an item that cannot be read or stored": "unparsable",
    "an event for a sender that no tenant owns": "unknown_sender",
    "a message, or another change": None,
}


def test_webhook_writes_and_ensures_as_on_the_page() -> None:
    table = rows("Webhook")
    created = [row for row in table if row["record"] == "absent"]
    assert [row["event"] for row in created] == list(EVENTS)
    for row in created:
        record = _created(EVENTS[row["event"]])
        assert (record.state, record.reason) == state_of(row, None), str(row)
        assert row["then"] == ("–" if record.final else "its task"), str(row)
        sets = sets_of(record.state)
        for promise in filter(None, sets["sets"].split(", ")):
            assert VALUES[promise](record, LIMITS), f"{row}: {promise}"
    again, other = (row for row in table if row["record"] != "absent")
    assert (again["record"], again["then"], other["record"], other["then"]) == (
        "`pending`, attempt 0",
        "its task",
        "any other",
        "–",
    )
    for kind, attempt in product(Kind, (0, 1)):
        for make in STATES[kind].values():
            record = make(attempt=attempt)
            untouched = record.state is State.PENDING and record.attempt == 0
            assert create.seen_again(record) is untouched
    assert {row["answer"] for row in table} == {"200"}
    assert {row["writes"] for row in (again, other)} == {"–"}


# ---- what is not a row


class _NoQueue:
    """A queue that cannot be reached."""

    def ensure(self, *_: object) -> None:
        raise QueueUnavailable

    def queue_of(self, _: Task) -> str:
        return "inbound"


@pytest.mark.parametrize("name", ["an event's task", "a handler's end", "a message's task", "a send's end"])
def test_a_task_that_cannot_be_made_turns_the_answer_into_503(name: str) -> None:
    act = TABLES[name][-1]
    dispatch = TaskDispatch(_NoQueue(), None, LIMITS, None, EnvironmentTenants.of())  # type: ignore[arg-type]
    seen: set[int] = set()
    for it, row in _with_rows(name):
        if row["then"] in ("its task", "next hop") and row.line not in seen:
            seen.add(row.line)
            answer = dispatch(act(it), it.task or task_for(it.record))
            assert answer_of(answer).startswith("503 "), str(row)
    assert seen


def _raised(act: Callable[[], object]) -> Exception:
    try:
        act()
    except Exception as error:
        return error
    raise AssertionError("Nothing was raised.")


ERRORS: dict[str, tuple[Exception, ...]] = {
    "the store, the queue or the registry cannot be reached": (
        StoreUnavailable(),
        QueueUnavailable(),
        RegistryUnavailable(),
    ),
    "the certificates that prove a caller cannot be fetched": (CertificatesUnavailable(),),
    "the signature, or the internal token, is missing or wrong": (SignatureInvalid(), Forbidden()),
    "the body is not a task": (TaskInvalid("The request is not a valid task."),),
    "a newer version wrote the record or the task, or this process has no channel for the record's provider": (
        UnknownState(),
        _raised(lambda: Channels.of().require("a provider of another deployment")),
    ),
    "the entry of the record's tenant, or of its number, cannot be read": (RegistryUnreadable(),),
    "the body broke off, or is chunked wrongly": (HttpError(HTTPStatus.BAD_REQUEST),),
    "the body is longer than `WEBHOOK_MAX_BYTES`; at internal, than 100 KiB": (
        HttpError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    ),
    "too many other POSTs are in work": (Busy(),),
    "nothing is at this path": (HttpError(HTTPStatus.NOT_FOUND),),
    "this path does not take the method": (HttpError(HTTPStatus.METHOD_NOT_ALLOWED),),
    "anything else": (ValueError(), KeyError("x")),
}


def test_every_error_is_answered_as_on_the_page() -> None:
    logging.disable()
    try:
        table = rows("Errors")
        assert [row["what is wrong"] for row in table] == list(ERRORS)
        for row in table:
            for error, (column, unavailable) in product(
                ERRORS[row["what is wrong"]], (("webhook", 500), ("internal", 503))
            ):
                if row[column] != "–":
                    assert str(error_responses.answer(error, unavailable)[1]) == row[column], str(row)
    finally:
        logging.disable(logging.NOTSET)


@pytest.mark.parametrize("status", [status for status in HTTPStatus if status >= 400], ids=str)
def test_an_http_error_keeps_its_own_status(status: HTTPStatus) -> None:
    assert error_responses.answer(HttpError(status), 503)[1] == status


def test_page_has_the_largest_task_body() -> None:
    (row,) = (row for row in rows("Errors") if row["internal"] == "413")
    assert row["what is wrong"].endswith(f"at internal, than {LARGEST_TASK // 1024} KiB")


# ---- times and names


def _seconds(value: timedelta) -> str:
    return f"{value.total_seconds():g} s"


def _written(value: Any) -> str:
    match value:
        case Backoff(first, factor, longest):
            return f"{_seconds(first)}, times {factor} each, at most {_plain(longest)}"
        case timedelta():
            return _plain(value)
        case _:
            return str(value)


def _plain(value: timedelta) -> str:
    seconds = value.total_seconds()
    return f"{int(seconds)} s" if seconds == int(seconds) else f"{seconds:g} s"


@pytest.mark.parametrize("row", rows("Times"), ids=lambda row: str(row["name"]))
def test_every_time_on_the_page_is_the_default_of_the_code(row: Row) -> None:
    value: Any = LIMITS
    for name in row["name"].strip("`").split("."):
        value = getattr(value, name)
    assert row["value"] == _written(value)


def test_next_hop_of_each_guard_is_the_default_of_the_code() -> None:
    minutes = {
        (row["why"].strip("`"), row["next hop"].split(" min")[0])
        for row in rows("process_outbound: a task arrives", 1)
        if " min" in row["next hop"]
    }
    waits = LIMITS.waits
    assert {(why, timedelta(minutes=int(number))) for why, number in minutes} == {
        (SUSPENDED, waits.suspended),
        (SENDER_REMOVED, waits.suspended),
        (CREDENTIALS_UNAVAILABLE, waits.credentials_unavailable),
        (REAUTH_REQUIRED, waits.credential),
        ("blocked", waits.credential),
    }


NOT_TIMES = {"handler_timeout", "inbound_lease_margin", "doubt_policy", "max_doubts", "max_replies", "sweep_budget"}
NOT_TIMES |= {"clock_margin", "marks_age", "claim", "request_margin", "dispatch_margin", "receipt_retention"}
"""Parts of a time that the page has, and bounds that other pages have."""


def test_every_bound_of_the_code_is_on_the_page_or_on_another() -> None:
    on_page = {row["name"].strip("`").split(".")[0] for row in rows("Times")}
    assert {it.name for it in fields(LIMITS)} - on_page == NOT_TIMES


PARTS: dict[str, Any] = {
    "provider": "meta",
    "sender": "100000000000001",
    "message id": "wamid.1",
    "account": "300000000000003",
    "field": "account_update",
    "value": {"a": 1},
    "time": 1772366400,
    "event key": "0e" * 20,
    "key": "0f" * 20,
    "index": 3,
    "generation": 2,
    "hop": 5,
    "provider id": "wamid.2",
    "tenant": "default",
    "Idempotency-Key": "order-17",
}


@pytest.mark.parametrize("row", rows("Names"), ids=lambda row: str(row["function"]))
def test_every_name_is_the_hash_on_the_page(row: Row) -> None:
    words = row["is hash of"].split(", ")
    parts = [json.loads(word) if word.startswith('"') else PARTS[word] for word in words]
    given = [part for word, part in zip(words, parts, strict=True) if not word.startswith('"')]
    hashed = [json.dumps(part, separators=(",", ":")) if isinstance(part, dict) else part for part in parts]
    text = json.dumps(hashed, ensure_ascii=False, separators=(",", ":"))
    expected = hashlib.sha256(text.encode()).hexdigest()[:40]
    assert getattr(identity, row["function"].strip("`"))(*given) == expected


def test_echo_has_the_form_on_the_page() -> None:
    echo = identity.Echo("0f" * 20, 1, "correlation-1")
    form = "pombo1.<key>.<round>.<correlation id>"
    assert f"`{form}`" in PAGE.read_text()
    values = {"<key>": "0f" * 20, "<round>": "1", "<correlation id>": "correlation-1"}
    for word, value in values.items():
        form = form.replace(word, value)
    assert str(echo) == form


def test_parser_reads_every_table_of_the_page() -> None:
    """A table that the parser lost would hold nothing."""
    assert [len(TABLES[name][0]) for name in TABLES] == [14, 12, 30, 19, 4, 5, 10, 3, 6]
    assert [len(rows(heading)) for heading in ("Webhook", "Errors", "Times", "Names")] == [5, 12, 39, 6]
    assert min(len(_with_rows(name)) for name in TABLES) >= 25
