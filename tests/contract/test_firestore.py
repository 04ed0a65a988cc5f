"""What only the Firestore store promises: lost answers, deadlines, exact errors, what a message costs, forks."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest

from local.faulty_proxy import FaultyProxy
from shared.domain.conversations import Alias, Conversation, LaneEnd, SenderLane
from shared.domain.counters import KEPT_FOR, WHOLE, Cell, Measure, ProcessCounters
from shared.domain.delivery.answers import Answer, EnsureReplies, Run, Step, TaskResult
from shared.domain.delivery.bell import enter
from shared.domain.delivery.create import create
from shared.domain.delivery.lease import lease
from shared.domain.delivery.operator import discard, replay
from shared.domain.delivery.settle import settle
from shared.domain.errors import StoreUnavailable, UnknownState
from shared.domain.events import ReceiptBlock
from shared.domain.guards import Go
from shared.domain.identity import provider_id_hash
from shared.domain.limits import Limits
from shared.domain.listings import Listing
from shared.domain.marks import DOWN, Block, Credential, Marks, Outage, claimed, is_elected
from shared.domain.record import Delivery, Kind, ReceiptKind, State, Task
from shared.domain.turns import places_in_the_way
from shared.domain.verdicts import Accepted, Replied
from shared.net.patience import FIRST_TRY, PATIENCE, Patience
from shared.pipeline.intake import Created, Exists
from shared.pipeline.ports import Store
from shared.pipeline.registry import EntryKind, EntryName, EntryWrite, Registry
from shared.stores.firestore.errors import CONTENTION
from shared.stores.firestore.intake import FirestoreIntake
from shared.stores.firestore.records import fields_of
from shared.stores.firestore.schema import COLLECTIONS, CONVERSATIONS, ENTRIES, MARKS, RECORDS
from shared.stores.firestore.store import FirestoreStore
from tests.support.blocking import Blocking
from tests.support.firestore_backend import DATABASE, Emulator, Raw, fresh_project, raw, shared_emulator
from tests.support.firestore_middleman import PRIVATE, Middleman
from tests.support.receipts import echo_of, note_receipt, receipt

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
COUNTERS = ProcessCounters("p1", NOW, {Cell(1, WHOLE, Measure.SENT): 1})
LIMITS = Limits()
OK = Answer(TaskResult.ACK, "ok")
CODES = grpc.StatusCode
ID = "a" * 40
"""Of marks."""
A_CONVERSATION = Conversation(ID, "default", "meta", "100000000000001", "15550002222", last_message_at=NOW)
A_BLOCK = Block(NOW, timedelta(minutes=10), 368)
NOTED = ReceiptBlock(131031, NOW)
ENTRY, OTHER = EntryName(EntryKind.TENANT, "acme"), EntryName(EntryKind.SENDER, "s1")
WITHIN = 5.0
"""Seconds that a call to a store that is away may take: twice what is promised, and all that a webhook has."""


@pytest.fixture
def project() -> str:
    return fresh_project()


@pytest.fixture
def emulator() -> Emulator:
    return shared_emulator()[0]


@pytest.fixture
def opened(project: str) -> Iterator[Callable[[str], FirestoreStore]]:
    """Opens clients of the test's project, and closes them in the end."""
    stores: list[FirestoreStore] = []

    def open_one(address: str) -> FirestoreStore:
        stores.append(FirestoreStore(project, DATABASE, emulator=address))
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


@pytest.fixture
def store(opened: Callable[[str], FirestoreStore], emulator: Emulator) -> FirestoreStore:
    return opened(emulator.address)


@pytest.fixture
def intake(emulator: Emulator, project: str) -> Iterator[Blocking]:
    """The webhook service's client of the same database."""
    intake = Blocking(FirestoreIntake(project, DATABASE, LIMITS, lambda: NOW, emulator=emulator.address))
    yield intake
    intake.close()


@pytest.fixture
def database(emulator: Emulator, project: str) -> Iterator[Raw]:
    with raw(emulator, project) as database:
        yield database


@pytest.fixture
def proxy(emulator: Emulator) -> Iterator[FaultyProxy]:
    with FaultyProxy("127.0.0.1", emulator.port) as proxy:
        yield proxy


@pytest.fixture
def far(opened: Callable[[str], FirestoreStore], proxy: FaultyProxy) -> FirestoreStore:
    """The store through the proxy, and connected."""
    far = opened(proxy.address)
    far.ping()
    return far


@pytest.fixture
def middleman(emulator: Emulator) -> Iterator[Middleman]:
    with Middleman(emulator.address) as middleman:
        yield middleman


@pytest.fixture
def watched(opened: Callable[[str], FirestoreStore], middleman: Middleman) -> FirestoreStore:
    """The store through the middleman, and connected."""
    watched = opened(middleman.address)
    watched.ping()
    middleman.calls.clear()
    return watched


def adding(found: Delivery | None) -> Step:
    return Step(OK, write=replace(found, attempt=found.attempt + 1))


def failing(current: Marks) -> Marks:
    return replace(current, down=Outage(NOW, (current.down or Outage(NOW)).wait + timedelta(seconds=1)))


def lease_with(token: str) -> Callable[[Delivery | None], Step]:
    return lambda found: lease(found, Task("", Kind.OUTBOUND, "", 0), token, Go(), LIMITS, NOW)


def settle_with(token: str, verdict: Any) -> Callable[[Delivery | None], Step]:
    return lambda found: settle(found, token, verdict, LIMITS, NOW, 0.5)


def calls_of(store: FirestoreStore, record: Delivery) -> dict[str, Callable[[], Any]]:
    """A call of each method of the port, on a record with a provider's id."""
    return {
        "create": lambda: store.create(record),
        "get": lambda: store.get(record.key),
        "change": lambda: store.change(record.key, adding),
        "in_turn": lambda: store.in_turn("a/0", "a/1"),
        "conversation_entries": lambda: store.conversation_entries([ID]),
        "conversations": lambda: store.conversations("default", None, 10),
        "of_conversation": lambda: store.of_conversation(ID, None, 10),
        "overdue": lambda: store.overdue(NOW, 10),
        "backlog": store.backlog,
        "load": lambda: store.load("default", NOW),
        "keep_counters": lambda: store.keep_counters(COUNTERS),
        "recent_counters": lambda: store.recent_counters(NOW),
        "listed": lambda: store.listed(Listing.REFUSED, None, None, 10),
        "history": lambda: store.history("default", None, None, None, 10),
        "by_correlation": lambda: store.by_correlation(record.correlation_id),
        "ids_with_prefix": lambda: store.ids_with_prefix(record.key[:8], 10),
        "by_provider_id": lambda: store.by_provider_id("meta", "wamid.1"),
        "marks": lambda: store.marks(ID),
        "change_marks": lambda: store.change_marks(ID, failing),
        "troubled": lambda: store.troubled(None, 10),
        "ping": store.ping,
        "time": store.time,
        "entries": lambda: store.entries([ENTRY]),
        "entry_page": lambda: store.entry_page(ENTRY.kind, "acme", None, 10),
        "commit_entries": lambda: store.commit_entries([EntryWrite(ENTRY, "acme", {}, None)]),
    }


METHODS = [name for port in (Store, Registry) for name in vars(port) if not name.startswith("_") and name != "purge"]


def unavailable(call: Callable[[], Any]) -> StoreUnavailable:
    """What the call raises, and it does so in time."""
    began = time.monotonic()
    with pytest.raises(StoreUnavailable) as caught:
        call()
    assert time.monotonic() - began < WITHIN
    return caught.value


def test_every_store_method_is_tested(store, a_record):
    assert set(METHODS) == set(calls_of(store, a_record()))


# ---- the answer is lost


def test_a_create_whose_answer_was_lost_is_sent_again_and_finds_its_own_record(proxy, far, a_record):
    record = a_record()
    proxy.swallow_next_answer(holding=record.key.encode())
    assert far.create(record) == Exists(record)
    assert proxy.swallowed == 1


def test_lease_with_a_lost_answer_is_written_once(proxy, far, a_record):
    record = a_record()
    far.create(record)
    seen = far.get(record.key)
    proxy.swallow_next_answer(holding=record.key.encode())
    step = far.change(record.key, lease_with("mine"), seen)
    assert proxy.swallowed == 1
    assert isinstance(step.next, Run)
    assert step.next.record == far.get(record.key)
    assert step.next.record.attempt == 1


def test_a_plan_whose_answer_was_lost_is_made_once(proxy, far, a_record):
    event = a_record(kind=Kind.INBOUND)
    far.create(event)
    leased = far.change(event.key, lease_with("mine")).write
    proxy.swallow_next_answer(holding=event.key.encode())
    step = far.change(event.key, settle_with("mine", Replied(({"n": 0}, {"n": 1}))), leased)
    assert proxy.swallowed == 1
    assert step.answer == Answer(TaskResult.ACK, "done")
    assert isinstance(step.next, EnsureReplies)
    assert len(far.by_correlation(event.correlation_id)) == 3


def test_claim_whose_answer_was_lost_is_elected_once(proxy, far):
    seen = far.change_marks(ID, failing)[1]
    found: list[Marks] = []

    def claim(current: Marks) -> Marks:
        found.append(current)
        return claimed(current, seen, {DOWN}, "mine", NOW)

    proxy.swallow_next_answer(holding=ID.encode())
    before, after = far.change_marks(ID, claim, seen)
    assert proxy.swallowed == 1
    assert is_elected(after, {DOWN}, "mine")
    assert before == after == far.marks(ID)
    assert found == [seen, after], "its own write, refused when it was sent again"


def test_operator_decision_with_a_lost_answer_is_recognised(proxy, far, intake, a_record):
    """A replay, one that finds it confirmed, and a discard: each recognises its own write."""
    again, confirmed, given_up = (a_record(state=State.DEAD, reason="attempts") for _ in range(3))
    decisions = [
        (again, lambda found: replay(found, LIMITS, NOW), State.PENDING),
        (confirmed, lambda found: replay(found, LIMITS, NOW), State.DONE),
        (given_up, lambda found: discard(found, LIMITS, NOW, "a wrong number"), State.DROPPED),
    ]
    for record, decide, state in decisions:
        far.create(record)
        if record is confirmed:
            note_receipt(intake, echo_of(record), receipt(ReceiptKind.SENT))
        seen = far.get(record.key)
        proxy.swallow_next_answer(holding=record.key.encode())
        step = far.change(record.key, decide, seen)
        assert step.answer == Answer(TaskResult.ACK, state)
        assert (far.get(record.key).state, far.get(record.key).round) == (state, int(record is again))
    assert proxy.swallowed == 3


@pytest.mark.parametrize("silenced", ["the answer", "the connection"])
def test_silent_connection_costs_under_a_second_and_repeats_no_write(proxy, far, a_record, silenced):
    """As after an idle hour. What was sent and not answered is sent again on a new connection, and finds itself."""
    record = a_record()
    far.ping()
    for call in (
        lambda: far.create(record),
        lambda: far.get(record.key),
        lambda: far.change(record.key, lease_with("mine")),
    ):
        if silenced == "the answer":
            proxy.swallow_next_answer(hang_up=False, holding=record.key.encode())
        else:
            proxy.silence()
        began = time.monotonic()
        call()
        assert 0.6 < time.monotonic() - began < 1.6
    found = far.get(record.key)
    assert (found.attempt, found.token) == (1, "mine")


# ---- away


def test_cut_connection_is_unavailable_until_restored(proxy, far, a_record):
    record = a_record()
    proxy.cut()
    unavailable(lambda: far.create(record))
    proxy.restore()
    assert far.create(record) in (Created(), Exists(record))


def test_every_call_to_a_store_that_does_not_answer_is_unavailable_in_time(proxy, far, a_record):
    """All at once: each waits for two seconds."""
    calls = calls_of(far, a_record(provider_id="wamid.1"))
    proxy.blackhole()
    with ThreadPoolExecutor(len(METHODS)) as threads:
        made = {method: threads.submit(unavailable, calls[method]) for method in METHODS}
    for method, call in made.items():
        assert isinstance(call.result(), StoreUnavailable), method
    proxy.restore()
    far.ping()


def test_frozen_emulator_is_unavailable_in_time_then_works_without_partial_writes(emulator, store, a_record):
    event, other = a_record(kind=Kind.INBOUND), a_record()
    replies = [a_record() for _ in range(30)]
    store.create(event)
    seen = store.get(event.key)
    with emulator.frozen():
        unavailable(lambda: store.create(other))
        unavailable(
            lambda: store.change(event.key, lambda found: Step(OK, replace(found, plan_size=30), (*replies,)), seen)
        )
        unavailable(store.ping)
    assert store.create(other) in (Created(), Exists(other))
    there = [store.get(reply.key) for reply in replies]
    if store.get(event.key).plan_size is None:  # what it was sent while it was frozen it may yet carry out, or not
        assert there == [None] * 30
    else:
        assert there == replies


def test_closed_store_raises_unavailable(store):
    store.ping()
    store.close()
    assert unavailable(store.ping).sentence == "The store is closed."


def test_missing_credentials_make_the_store_unavailable(project, monkeypatch):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/to/be/found.json")
    store = FirestoreStore(project, DATABASE)
    refused = unavailable(store.ping)
    assert refused.sentence == "The store cannot be reached: DefaultCredentialsError."
    assert refused.__cause__ is not None


# ---- errors, by their exact code


@pytest.mark.parametrize(
    "code", [CODES.UNAVAILABLE, CODES.DEADLINE_EXCEEDED, CODES.INTERNAL, CODES.ABORTED, CODES.RESOURCE_EXHAUSTED]
)
@pytest.mark.parametrize("method", METHODS)
def test_briefly_failing_call_is_retried(watched, middleman, a_record, code, method):
    record = a_record(provider_id="wamid.1")
    if method != "create":
        watched.create(record)
    middleman.calls.clear()
    middleman.errors += [code, code]
    calls_of(watched, record)[method]()
    assert [call.method for call in middleman.calls[:2]] == [middleman.calls[2].method] * 2


@pytest.mark.parametrize("method", METHODS)
def test_library_makes_no_retries_itself(watched, middleman, a_record, mocker, method):
    """Each pause between two tries is ours."""
    record = a_record(provider_id="wamid.1")
    if method != "create":
        watched.create(record)
    pauses = mocker.spy(Patience, "pause")
    middleman.errors += [CODES.UNAVAILABLE, CODES.UNAVAILABLE]
    calls_of(watched, record)[method]()
    assert pauses.call_count == 2


REFUSALS = [
    (code, method)
    for code in (CODES.INVALID_ARGUMENT, CODES.PERMISSION_DENIED, CODES.UNAUTHENTICATED, CODES.UNIMPLEMENTED)
    for method in METHODS
]


@pytest.mark.parametrize(("code", "method"), REFUSALS)
def test_refused_call_is_unavailable_at_once_and_reveals_nothing_private(watched, middleman, a_record, code, method):
    middleman.always = code
    refused = unavailable(calls_of(watched, a_record(provider_id="wamid.1"))[method])
    assert len(middleman.calls) == 1
    assert refused.__cause__ is not None
    assert "c4n4ry" not in refused.sentence
    assert PRIVATE not in refused.sentence


def test_aborted_does_not_mean_that_it_exists(watched, middleman, a_record):
    """To google-api-core both are a Conflict."""
    middleman.errors += [CODES.ABORTED] * 5
    assert watched.create(a_record()) == Created()


def test_a_store_that_is_unavailable_ends_long_before_one_that_is_contended(watched, middleman, a_record):
    middleman.always = CODES.UNAVAILABLE
    began = time.monotonic()
    unavailable(lambda: watched.create(a_record()))
    assert time.monotonic() - began < PATIENCE + 1
    assert len(middleman.calls) > 3


@pytest.mark.slow
def test_call_aborted_forever_ends_after_ten_seconds(watched, middleman, a_record):
    middleman.always = CODES.ABORTED
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        watched.create(a_record())
    assert PATIENCE < time.monotonic() - began < CONTENTION + 2


def test_a_write_that_is_refused_for_a_database_that_is_not_ours_is_unavailable(watched, middleman, a_record):
    """Datastore mode refuses with the very code of a lost race."""
    middleman.errors += [CODES.FAILED_PRECONDITION]
    middleman.always = CODES.PERMISSION_DENIED
    unavailable(lambda: watched.create(a_record()))


# ---- deadlines


def test_few_documents_get_a_short_first_attempt_and_a_query_the_full_patience(watched, middleman, a_record):
    watched.ping()
    middleman.calls.clear()
    watched.create(a_record())
    assert 0 < middleman.calls[-1].seconds <= FIRST_TRY + 0.1
    watched.backlog()
    assert FIRST_TRY + 0.5 < middleman.calls[-1].seconds <= PATIENCE + 0.1


@pytest.mark.parametrize("method", METHODS)
def test_no_call_goes_out_without_our_deadline(watched, middleman, a_record, method):
    """The library's own are 60 to 300 s."""
    record = a_record(provider_id="wamid.1")
    if method != "create":
        watched.create(record)
    middleman.calls.clear()
    calls_of(watched, record)[method]()
    assert middleman.calls
    assert all(0 < call.seconds < PATIENCE + 0.1 for call in middleman.calls), "gRPC rounds up"


# ---- what a message costs


def test_message_and_reply_cost_6_writes_5_commits_and_5_reads(watched, middleman):
    event = create(
        Kind.INBOUND,
        "e" * 40,
        provider="meta",
        tenant="default",
        sender="100000000000001",
        contact="15550002222",
        correlation_id="correlation-1",
        payload={"body": "hello"},
        limits=LIMITS,
        now=NOW,
    )
    event = replace(event, turn_id="7" * 40, position="1")
    assert watched.create(event) == Created()
    found = watched.get(event.key)
    assert watched.in_turn(*places_in_the_way(found, NOW)) == []
    run = watched.change(event.key, lease_with("in"), found).next
    assert [one.key for one in watched.in_turn(*places_in_the_way(run.record, NOW))] == [event.key]
    plan = watched.change(event.key, settle_with("in", Replied(({"body": "hi"},))), run.record)
    reply = plan.create[0]
    found = watched.get(reply.key)
    watched.marks(ID)
    run = watched.change(reply.key, lease_with("out"), found).next
    assert watched.change(reply.key, settle_with("out", Accepted("wamid.1")), run.record).answer == Answer(
        TaskResult.ACK, "done"
    )
    commits = [call for call in middleman.calls if call.method == "Commit"]
    reads = [call for call in middleman.calls if call.method == "BatchGetDocuments"]
    looks = [call for call in middleman.calls if call.method == "RunQuery"]
    assert len(middleman.calls) == len(commits) + len(reads) + len(looks) == 10
    assert [call.writes for call in commits] == [1, 1, 2, 1, 1]
    billed = [max(call.reads, 1) for call in reads + looks]
    assert billed == [1, 1, 1, 1, 1], "a query without a result is billed as one read"


def test_message_that_waits_for_its_turn_costs_two_looks_and_a_write(watched, middleman, a_record):
    first, second = (
        a_record(kind=Kind.INBOUND, turn_id="8" * 40, position=str(number), attempt=0) for number in (1, 2)
    )
    for record in (first, second):
        watched.create(record)
    middleman.calls.clear()
    found = watched.get(second.key)
    (before,) = watched.in_turn(*places_in_the_way(found, NOW))
    watched.change(first.key, lambda record: enter(record, found), before)
    watched.in_turn(*places_in_the_way(found, NOW))
    assert [call.method for call in middleman.calls] == ["BatchGetDocuments", "RunQuery", "Commit", "RunQuery"]
    assert [call.writes for call in middleman.calls] == [0, 0, 1, 0]


def test_further_reply_costs_2_commits_and_5_reads_with_the_task_that_finds_it_sent(watched, middleman, a_record):
    event = a_record(kind=Kind.INBOUND)
    watched.create(event)
    run = watched.change(event.key, lease_with("in")).next
    first, second = watched.change(
        event.key, settle_with("in", Replied(({"body": "1"}, {"body": "2"}))), run.record
    ).create

    def send(reply: Delivery, provider_id: str) -> None:
        found = watched.get(reply.key)
        watched.marks(ID)
        if reply.after:
            watched.get(reply.after, unechoed=False)
        run = watched.change(reply.key, lease_with("out"), found).next
        watched.change(reply.key, settle_with("out", Accepted(provider_id)), run.record)

    send(first, "wamid.1")
    middleman.calls.clear()
    send(second, "wamid.2")  # by its wake task
    watched.get(second.key)  # its own first task
    commits = [call for call in middleman.calls if call.method == "Commit"]
    assert [call.writes for call in commits] == [1, 1]
    assert (len(middleman.calls), sum(call.reads for call in middleman.calls)) == (7, 5)


def test_a_duplicate_costs_one_refused_write_and_one_read(watched, middleman, a_record):
    record = a_record()
    watched.create(record)
    middleman.calls.clear()
    watched.create(record)
    assert [(call.method, call.writes, call.reads) for call in middleman.calls] == [
        ("Commit", 1, 0),
        ("BatchGetDocuments", 0, 1),
    ]


def test_a_replay_and_the_lease_after_it_cost_one_write_each(watched, middleman, a_record):
    """The mark that says that it was replayed comes and goes with them."""
    record = a_record(state=State.DEAD, reason="attempts")
    watched.create(record)
    seen = watched.get(record.key)
    middleman.calls.clear()
    again = watched.change(record.key, lambda found: replay(found, LIMITS, NOW), seen).write
    watched.change(record.key, lease_with("mine"), again)
    assert [(call.method, call.writes) for call in middleman.calls] == [("Commit", 1)] * 2


def test_entry_in_the_bell_of_a_record_that_was_read_costs_one_write(watched, middleman, a_record):
    record, waiting = a_record(), a_record()
    watched.create(record)
    seen = watched.get(record.key)
    middleman.calls.clear()
    watched.change(record.key, lambda found: enter(found, waiting), seen)
    assert [(call.method, call.writes, call.reads) for call in middleman.calls] == [("Commit", 1, 0)]


def test_marks_cost_a_read_and_a_write_and_nothing_where_nothing_changes(watched, middleman):
    def asked(call: Callable[[], Any]) -> list[tuple[str, int, int]]:
        middleman.calls.clear()
        call()
        return [(call.method, call.reads, call.writes) for call in middleman.calls]

    read, write = ("BatchGetDocuments", 1, 0), ("Commit", 0, 1)
    assert asked(lambda: watched.marks(ID)) == [read]
    assert asked(lambda: watched.change_marks(ID, failing)) == [read, write]
    seen = watched.marks(ID)
    assert asked(lambda: watched.change_marks(ID, lambda marks: marks, seen)) == []
    assert asked(lambda: watched.change_marks(ID, lambda marks: marks)) == [read]
    assert asked(lambda: watched.change_marks(ID, failing, seen)) == [write]
    assert asked(lambda: watched.change_marks(ID, failing, seen)) == [write, read, write], "a lost race"


def test_backlog_is_seven_queries(watched, middleman):
    watched.backlog()
    assert [call.method for call in middleman.calls] == ["RunAggregationQuery"] * 5 + ["RunQuery"] * 2


@pytest.mark.parametrize("tenant", [None, "default"])
def test_load_is_nine_queries(watched, middleman, tenant):
    watched.load(tenant, NOW)
    assert [call.method for call in middleman.calls] == ["RunAggregationQuery"] * 8 + ["RunQuery"]


def test_counters_cost_one_write_and_one_query(watched, middleman):
    watched.keep_counters(COUNTERS)
    watched.keep_counters(COUNTERS)
    watched.recent_counters(NOW)
    assert [(call.method, call.writes) for call in middleman.calls] == [("Commit", 1)] * 2 + [("RunQuery", 0)]


def test_counters_expire_when_they_no_longer_matter(store, database):
    store.keep_counters(COUNTERS)
    stored = database.get("counters/p1").fields
    assert stored["expire_at"].timestamp_value == NOW + 2 * KEPT_FOR
    assert stored["flushed_at"].timestamp_value == NOW


def test_damaged_counters_hide_no_others(store, database):
    store.keep_counters(COUNTERS)
    store.keep_counters(replace(COUNTERS, process="p2"))
    database.put("counters/p1", {"counts": {"string_value": "no JSON"}})
    assert [one.process for one in store.recent_counters(NOW)] == ["p2"]


def test_message_for_later_is_pending_since_then(store, database, a_record):
    later = NOW + timedelta(hours=1)
    record = a_record(send_at=later)
    store.create(record)
    assert database.get(f"records/{record.key}").fields["pending_since"].timestamp_value == later


def test_a_page_of_a_listing_is_one_query_and_does_not_bring_the_payload(watched, middleman, a_record):
    for _ in range(3):
        watched.create(a_record(state=State.DEAD, payload={"body": "x" * 200_000}))
    middleman.calls.clear()
    middleman.answered = 0
    page = watched.listed(Listing.DEAD, None, None, 100)
    assert [call.method for call in middleman.calls] == ["RunQuery"]
    assert len(page.records) == 3
    assert middleman.answered < 10_000


def test_a_page_of_a_history_is_one_query_however_much_the_tenant_has(watched, middleman, a_record):
    for number in range(9):
        watched.create(a_record(received_at=NOW + timedelta(seconds=number), payload={"body": "x" * 50_000}))
    middleman.calls.clear()
    middleman.answered = 0
    page = watched.history("default", None, None, None, 2)
    watched.history("default", None, None, page.ends_at, 2)
    assert [call.method for call in middleman.calls] == ["RunQuery"] * 2
    assert middleman.answered < 5 * 50_000


def test_a_look_for_ids_is_a_query_for_keys_and_one_for_each_correlation_id_and_one(watched, middleman, a_record):
    for n in range(6):
        watched.create(a_record(payload={"body": "x" * 200_000}, correlation_id=f"abcdef01-{n // 3}"))
    middleman.calls.clear()
    middleman.answered = 0
    assert watched.ids_with_prefix("abcdef01", 11) == ["abcdef01-0", "abcdef01-1"]
    assert [call.method for call in middleman.calls] == ["RunQuery"] * (2 + 2)
    assert middleman.answered < 10_000


def test_a_task_that_only_waits_writes_nothing(watched, middleman, a_record):
    record = a_record()
    watched.create(record)
    seen = watched.get(record.key)
    middleman.calls.clear()
    watched.change(record.key, lambda _: Step(OK), seen)
    assert middleman.calls == []


def test_a_change_does_not_send_the_payload_again(watched, middleman, a_record):
    record = a_record(payload={"body": "x" * 200_000})
    watched.create(record)
    middleman.calls.clear()
    watched.change(record.key, lease_with("mine"))
    assert sum(len(call.request) for call in middleman.calls) < 2000
    assert watched.get(record.key).payload == record.payload


def test_registry_costs_one_call_for_each_read_commit_and_page(watched, middleman):
    def asked(call: Callable[[], Any]) -> list[tuple[str, int, int]]:
        middleman.calls.clear()
        call()
        return [(call.method, call.reads, call.writes) for call in middleman.calls]

    writes = [EntryWrite(ENTRY, "acme", {"n": 1}, None), EntryWrite(OTHER, "acme", {}, None)]
    assert asked(lambda: watched.commit_entries(writes)) == [("Commit", 0, 2)]
    assert asked(lambda: watched.commit_entries(writes)) == [("Commit", 0, 2)], "a refusal is not read back"
    assert asked(lambda: watched.entries([ENTRY, OTHER, ENTRY])) == [("BatchGetDocuments", 2, 0)]
    for tenant in (None, "acme"):
        assert asked(lambda tenant=tenant: watched.entry_page(ENTRY.kind, tenant, None, 10)) == [("RunQuery", 0, 0)]


def test_page_of_a_tenant_brings_no_other_tenants_documents(watched, middleman):
    def bytes_of_a_page() -> int:
        middleman.answered = 0
        assert len(watched.entry_page(EntryKind.SENDER, "acme", None, 100)) == 2
        return middleman.answered

    for n in range(2):
        watched.commit_entries([EntryWrite(EntryName(EntryKind.SENDER, f"s{n}"), "acme", {}, None)])
    alone = bytes_of_a_page()
    names = [EntryName(EntryKind.SENDER, f"other-{n}") for n in range(20)]
    watched.commit_entries([EntryWrite(name, f"t{name.id}", {"text": "x" * 5000}, None) for name in names])
    assert bytes_of_a_page() < alone + 200


def test_a_page_of_troubled_marks_is_one_query_and_brings_no_healthy_ones(watched, middleman):
    for n in range(20):
        watched.change_marks(f"{n:040x}", lambda _, n=n: Marks(down=Outage(NOW), block=A_BLOCK if n == 7 else None))
    middleman.calls.clear()
    middleman.answered = 0
    assert watched.troubled(None, 10) == [f"{7:040x}"]
    assert [call.method for call in middleman.calls] == ["RunQuery"]
    assert middleman.answered < 1000


# ---- what is stored


def test_healthy_marks_have_no_field_that_is_indexed(store, intake, database):
    assert MARKS.indexed == ("troubled",)
    store.change_marks(ID, failing)
    assert set(database.get(f"marks/{ID}").fields) == {"down"}
    intake.note_receipt_block(ID, NOTED)
    assert database.get(f"marks/{ID}").fields["troubled"].boolean_value is True
    store.change_marks(ID, lambda _: Marks(block=A_BLOCK))
    assert database.get(f"marks/{ID}").fields["troubled"].boolean_value is True
    store.change_marks(ID, failing)
    store.change_marks(ID, lambda _: Marks(credential=Credential("f1", NOW)))
    assert set(database.get(f"marks/{ID}").fields) == {"credential"}


def test_marks_that_an_older_version_healed_are_not_listed_and_hide_no_others(store, database):
    """It leaves the field `troubled` as it is."""
    for n in range(8):
        store.change_marks(f"{n:040x}", lambda _: Marks(block=A_BLOCK))
    for n in (0, 1, 2, 3, 5):
        database.delete(database.get(f"marks/{n:040x}"))
        database.put(f"marks/{n:040x}", {"troubled": {"boolean_value": True}})
    assert store.troubled(None, 2) == [f"{n:040x}" for n in (4, 6)]
    assert store.troubled(None, 10) == [f"{n:040x}" for n in (4, 6, 7)]
    assert store.troubled(f"{4:040x}", 10) == [f"{n:040x}" for n in (6, 7)]


def test_marks_that_an_older_version_left_troubled_are_listed_from_the_next_write(store, database):
    store.change_marks(ID, lambda _: Marks(block=A_BLOCK))
    block = database.get(f"marks/{ID}").fields["block"]
    database.delete(database.get(f"marks/{ID}"))
    database.put(f"marks/{ID}", {"block": block})
    assert store.troubled(None, 10) == []
    store.change_marks(ID, failing)
    assert store.troubled(None, 10) == [ID]


def test_entry_is_a_document_of_its_kind_with_its_owner_and_json_text(store, database):
    for kind in EntryKind:
        assert store.commit_entries([EntryWrite(EntryName(kind, "a-1"), "acme", {"n": [1]}, None)])
        stored = database.get(f"registry_{kind}/a-1").fields
        assert ENTRIES[kind].name == f"registry_{kind}"
        assert set(ENTRIES[kind].indexed) == {"tenant"} < set(stored) == {"tenant", "fields", "write_id"}
        assert (stored["tenant"].string_value, json.loads(stored["fields"].string_value)) == ("acme", {"n": [1]})


def test_field_of_a_newer_version_beside_an_entry_is_preserved(store, database):
    store.commit_entries([EntryWrite(ENTRY, "acme", {"n": 1}, None)])
    database.put("registry_tenants/acme", {"novelty": {"string_value": "kept"}})
    (found,) = store.entries([ENTRY])
    assert store.commit_entries([EntryWrite(ENTRY, "acme", {"n": 2}, found.version)])
    assert database.get("registry_tenants/acme").fields["novelty"].string_value == "kept"


def test_document_that_is_no_entry_is_an_entry_without_fields(store, database):
    """Nothing can be read from it, and it hides no other."""
    for fields in ({"tenant": {"string_value": "acme"}}, {"fields": {"string_value": '{"n": 1}'}}):
        database.put("registry_tenants/acme", fields)
        (found,) = store.entries([ENTRY])
        assert (found.name, found.fields) == (ENTRY, {})
        database.delete(database.get("registry_tenants/acme"))


def test_times_of_a_conversation_are_timestamps_and_only_it_has_a_tenant(store, database, a_record):
    end = LaneEnd("k" * 40, NOW + timedelta(hours=1))
    conversation = replace(A_CONVERSATION, last_outbound=end, aliases=frozenset({"user.1"}))
    store.create(a_record(), [conversation, Alias("b" * 40, ID), SenderLane("c" * 40, end)])
    stored, alias, lane = (dict(database.get(f"conversations/{letter * 40}").fields) for letter in "abc")
    assert stored["last_message_at"].timestamp_value == NOW
    assert stored["last_outbound"].map_value.fields["until"].timestamp_value == end.until
    assert lane["last_outbound"].map_value.fields["until"].timestamp_value == end.until
    assert [value.string_value for value in stored["aliases"].array_value.values] == ["user.1"]
    assert not {"last_inbound_at", "assignee", "of"} & set(stored)
    indexed = {name.removeprefix("-") for names in CONVERSATIONS.composite for name in names}
    assert indexed <= set(stored)
    assert not indexed & {*alias, *lane}


def test_fields_of_a_newer_version_in_a_conversation_are_preserved_in_every_type(store, database, a_record):
    """Also those of types that this version cannot write."""
    store.create(a_record(), [A_CONVERSATION])
    newer = {
        "novelty": {"string_value": "kept"},
        "at": {"timestamp_value": NOW},
        "ratio": {"double_value": 0.5},
        "window": {"map_value": {"fields": {"of": {"null_value": 0}}}},
    }
    database.put(f"conversations/{ID}", newer)
    before = database.get(f"conversations/{ID}").fields
    (found,) = store.conversation_entries([ID]).values()
    store.create(a_record(), [replace(found, unread=7, assignee=None)])
    after = database.get(f"conversations/{ID}").fields
    assert {name: after[name] for name in newer} == {name: before[name] for name in newer}
    assert after["unread"].integer_value == 7


def test_what_a_conversation_no_longer_has_is_removed_from_its_document(store, database, a_record):
    store.create(a_record(), [replace(A_CONVERSATION, assignee="Jo", last_outbound=LaneEnd("k", NOW))])
    (found,) = store.conversation_entries([ID]).values()
    store.create(a_record(), [replace(found, assignee=None, last_outbound=None)])
    assert not {"assignee", "last_outbound"} & set(database.get(f"conversations/{ID}").fields)
    (found,) = store.conversation_entries([ID]).values()
    store.create(a_record(), [Alias(ID, "b" * 40, found.version)])
    assert set(database.get(f"conversations/{ID}").fields) == {"kind", "of"}


@pytest.mark.parametrize(
    "broken",
    [
        {"unread": {"string_value": "many"}},
        {"last_message_at": {"string_value": "soon"}},
        {"last_outbound": {"string_value": "k"}},
        {"last_outbound": {"map_value": {"fields": {"key": {"string_value": "k"}}}}},
        {"aliases": {"integer_value": 1}},
        {"kind": {"string_value": "of a newer version"}},
        {"kind": {"null_value": 0}},
    ],
)
def test_invalid_field_of_a_conversation_is_an_unknown_state(store, database, a_record, broken):
    store.create(a_record(), [A_CONVERSATION])
    database.put(f"conversations/{ID}", broken)
    with pytest.raises(UnknownState):
        store.conversation_entries([ID])
    page = store.conversations("default", None, 10)
    assert (page.conversations, page.unread) == ([], 0 if "last_message_at" in broken else 1)


def test_largest_payload_and_unsupported_values_survive_a_round_trip(store, a_record):
    deep: Any = "bottom"
    for _ in range(40):
        deep = {"in": [[deep]]}
    payload = {"deep": deep, "big": 2**80, "body": "x" * 256 * 1024, "": {"__name__": None}}
    record = a_record(payload=payload, metadata={"nested": [[1], [2.5]]})
    store.create(record)
    assert store.get(record.key) == record


def test_times_are_timestamps_and_what_is_none_is_absent(store, database, a_record):
    record = a_record(due_at=NOW + timedelta(microseconds=1))
    store.create(record)
    stored = database.get(f"records/{record.key}").fields
    assert stored["due_at"].timestamp_value == record.due_at
    assert stored["pending_since"].timestamp_value == record.received_at
    assert json.loads(stored["payload"].string_value) == record.payload
    assert not {"key", "token", "sweep_at", "id_hash", "expire_at"} & set(stored)
    assert type(store.get(record.key).due_at) is datetime


def test_an_ended_record_is_in_no_index_of_open_ones(store, database, a_record):
    record = a_record(sweep_at=NOW)
    store.create(record)
    store.change(record.key, lease_with("mine"))
    assert "pending_since" not in database.get(f"records/{record.key}").fields
    store.change(record.key, settle_with("mine", Accepted("wamid.1")))
    stored = database.get(f"records/{record.key}").fields
    assert not {"pending_since", "sweep_at"} & set(stored)
    assert stored["id_hash"].string_value == provider_id_hash("meta", "wamid.1")
    assert stored["expire_at"].timestamp_value == NOW + LIMITS.outbound_retention


def test_only_records_that_wait_for_an_operator_are_marked(store, intake, database, a_record):
    record = a_record()
    store.create(record)
    store.change(record.key, lease_with("mine"))
    store.change(record.key, settle_with("mine", Accepted("wamid.1")))
    note_receipt(intake, echo_of(record), receipt(ReceiptKind.DELIVERED))
    note_receipt(intake, None, receipt(ReceiptKind.DELIVERED))
    assert "mark" not in database.get(f"records/{record.key}").fields
    assert "mark" not in database.get(f"receipts/{provider_id_hash('meta', 'wamid.1')}").fields
    note_receipt(intake, echo_of(record), receipt(ReceiptKind.FAILED))
    assert database.get(f"records/{record.key}").fields["mark"].string_value == "refused"


def test_the_schema_names_only_what_is_stored(a_record):
    record = a_record(sweep_at=NOW, provider_id="wamid.1", expire_at=NOW, round=1)
    dead = a_record(state=State.DEAD)
    untried = a_record(turn_id="t", position="p", conversation="c")
    named = {*RECORDS.indexed, RECORDS.ttl, *(name for names in RECORDS.composite for name in names)}
    stored = {*fields_of(record), *fields_of(dead), *fields_of(untried)}
    assert {name.removeprefix("-") for name in named} <= stored
    assert len({collection.name for collection in COLLECTIONS}) == len(COLLECTIONS)


def test_fields_of_a_newer_version_are_preserved(store, database, a_record):
    record = a_record()
    store.create(record)
    database.put(f"records/{record.key}", {"novelty": {"string_value": "kept"}})
    store.change(record.key, adding)
    assert store.get(record.key) == replace(record, attempt=1)
    assert database.get(f"records/{record.key}").fields["novelty"].string_value == "kept"


def test_unknown_marks_and_fields_of_a_newer_version_are_ignored_and_preserved(store, intake, database):
    credential = Credential("f1", NOW)
    store.change_marks(ID, lambda marks: replace(marks, credential=credential))
    stored = database.get(f"marks/{ID}").fields["credential"].map_value.fields
    inside = {name: {"string_value": value.string_value} for name, value in stored.items()}
    added = {"map_value": {"fields": inside | {"novelty": {"integer_value": 1}}}}
    database.put(f"marks/{ID}", {"credential": added, "novelty": {"string_value": "kept"}})
    assert store.marks(ID) == Marks(credential=credential)
    store.change_marks(ID, failing)
    intake.note_receipt_block(ID, NOTED)
    fields = database.get(f"marks/{ID}").fields
    assert fields["novelty"].string_value == "kept"
    assert fields["credential"].map_value.fields["novelty"].integer_value == 1
    assert set(fields) == {"novelty", "credential", "down", "receipt_block", "troubled"}


def test_receipt_kind_of_a_newer_version_does_not_count(store, database, a_record):
    record = a_record()
    store.create(record)
    at = {"integer_value": 1}
    entries = {"0": {"map_value": {"fields": {"forwarded.abc": at, "a.new.kind.of.entry": at}}}}
    database.put(f"records/{record.key}", {"receipts": {"map_value": {"fields": entries}}})
    assert not store.get(record.key).current_receipts.any


@pytest.mark.parametrize(
    "broken",
    [
        {"payload": {"string_value": "{"}},
        {"payload": {"integer_value": 1}},
        {"due_at": {"string_value": "soon"}},
        {"kind": {"string_value": "sideways"}},
    ],
)
def test_invalid_field_is_an_unknown_state(store, database, a_record, broken):
    record = a_record()
    store.create(record)
    database.put(f"records/{record.key}", broken)
    with pytest.raises(UnknownState):
        store.get(record.key)
    assert store.create(record) == Exists(None)


def test_a_receipt_is_seen_by_a_change_that_is_on_its_way(store, intake, a_record):
    """Its write is one to the record's own document, which a precondition is on."""
    record = a_record()
    store.create(record)
    seen = store.get(record.key)
    note_receipt(intake, echo_of(record), receipt())
    words = []
    store.change(record.key, lambda found: words.append(found.current_receipts.sent) or adding(found), seen)
    assert words == [None, NOW]


def test_a_decision_that_only_creates_is_refused_when_the_record_has_changed(store, a_record):
    record, reply = a_record(), a_record()
    store.create(record)
    seen = store.get(record.key)
    store.change(record.key, adding)
    found_attempts = []
    store.change(record.key, lambda found: found_attempts.append(found.attempt) or Step(OK, create=(reply,)), seen)
    assert found_attempts == [0, 1]
    assert store.get(reply.key) == reply


def test_the_time_is_the_databases(store):
    assert abs(store.time() - datetime.now(UTC)) < timedelta(minutes=1)
    assert store.time().utcoffset() == timedelta()


def test_nothing_is_left_to_purge(store, a_record):
    record = a_record(state=State.DONE, expire_at=NOW - timedelta(days=9))
    store.create(record)
    assert store.purge(NOW, 10) == 0
    assert store.get(record.key) == record


# ---- processes and threads


PREAMBLE = """
import os, sys
from datetime import UTC, datetime
from shared.domain.limits import Limits
from shared.domain.record import Delivery, Kind, State
from shared.stores.firestore.store import FirestoreStore

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
store = FirestoreStore(sys.argv[1], "(default)", emulator=sys.argv[2])

def record(key):
    fields = dict(kind=Kind.OUTBOUND, provider="meta", tenant="t", sender="s", contact="c")
    return Delivery(key, **fields, correlation_id="correlation-1", state=State.PENDING, received_at=NOW, payload={})
"""


def run(program: str, *arguments: str) -> str:
    command = [sys.executable, "-c", PREAMBLE + program, *arguments]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_a_store_that_was_made_before_a_fork_works_after_it(emulator, store, project):
    """As gunicorn does it: the module is loaded, then the workers are forked."""
    program = """
workers = []
for key in ("a", "b"):
    worker = os.fork()
    if worker == 0:
        store.create(record(key * 40))
        os._exit(0 if store.get(key * 40) else 1)
    workers.append(worker)
sys.exit(max(os.waitpid(worker, 0)[1] for worker in workers))
"""
    run(program, project, emulator.address)
    assert store.get("a" * 40).key == "a" * 40
    assert store.get("b" * 40).key == "b" * 40


def test_the_library_is_imported_when_it_is_used_and_no_sooner(emulator, project):
    program = """
print([name for name in sys.modules if name.startswith(("grpc", "google.api_core", "google.cloud.firestore"))])
store.ping()
print("grpc" in sys.modules)
"""
    assert run(program, project, emulator.address).splitlines() == ["[]", "True"]


def test_16_threads_on_a_new_store_share_one_connection(opened, middleman):
    store, gate, failed = opened(middleman.address), threading.Barrier(16), []

    def first_use() -> None:
        gate.wait()
        try:
            store.ping()
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=first_use) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(middleman.calls) == 16
