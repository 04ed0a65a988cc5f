"""What only the webhook's Firestore client promises: lost answers, timeouts, exact errors, batches, costs."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from local.faulty_proxy import FaultyProxy
from shared.domain.counters import WHOLE, Cell, Measure, ProcessCounters
from shared.domain.deadline import Deadline
from shared.domain.errors import StoreUnavailable
from shared.domain.events import ReceiptBlock
from shared.domain.identity import provider_id_hash
from shared.domain.limits import Limits
from shared.domain.marks import Marks
from shared.domain.record import Delivery, ReceiptKind
from shared.net.google_token import GoogleToken
from shared.net.patience import PATIENCE
from shared.pipeline.intake import Created, Exists, IntakeStore
from shared.pipeline.registry import EntryKind, EntryName, EntryWrite, IntakeRegistry
from shared.stores.firestore import batches
from shared.stores.firestore.batches import NotStored
from shared.stores.firestore.intake import IN_FLIGHT, FirestoreIntake
from shared.stores.firestore.store import FirestoreStore
from tests.support import event_loop
from tests.support.blocking import Blocking
from tests.support.firestore_backend import DATABASE, Emulator, fresh_project, raw, shared_emulator
from tests.support.receipts import echo_of, note_receipt, receipt
from tests.support.rest_middleman import PRIVATE, Middleman

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LIMITS = Limits()
ID = "a" * 40
"""Of marks."""
NOTED = ReceiptBlock(131031, NOW)
COUNTERS = ProcessCounters("p1", NOW, {Cell(1, WHOLE, Measure.SENT): 1})
ENTRY, OTHER = EntryName(EntryKind.TENANT, "acme"), EntryName(EntryKind.SENDER, "s1")
WITHIN = 5.0
"""Seconds that a call to a store that is away may take: all that a webhook has."""


@pytest.fixture
def project() -> str:
    return fresh_project()


@pytest.fixture
def emulator() -> Emulator:
    return shared_emulator()[0]


@pytest.fixture
def opened(project: str) -> Iterator[Callable[[str], Blocking]]:
    """Opens clients of the test's project, and closes them in the end."""
    intakes: list[Blocking] = []

    def open_one(address: str) -> Blocking:
        intakes.append(Blocking(FirestoreIntake(project, DATABASE, LIMITS, lambda: NOW, emulator=address)))
        return intakes[-1]

    yield open_one
    for intake in intakes:
        intake.close()


@pytest.fixture
def intake(opened: Callable[[str], Blocking], emulator: Emulator) -> Blocking:
    return opened(emulator.address)


@pytest.fixture
def store(emulator: Emulator, project: str) -> Iterator[FirestoreStore]:
    """The other services' client of the same database."""
    store = FirestoreStore(project, DATABASE, emulator=emulator.address)
    yield store
    store.close()


@pytest.fixture
def proxy(emulator: Emulator) -> Iterator[FaultyProxy]:
    with FaultyProxy("127.0.0.1", emulator.port) as proxy:
        yield proxy


@pytest.fixture
def far(opened: Callable[[str], Blocking], proxy: FaultyProxy) -> Blocking:
    """The intake through the proxy, and connected."""
    far = opened(proxy.address)
    far.ping()
    return far


@pytest.fixture
def middleman(emulator: Emulator) -> Iterator[Middleman]:
    with Middleman(emulator.address) as middleman:
        yield middleman


@pytest.fixture
def watched(opened: Callable[[str], Blocking], middleman: Middleman) -> Blocking:
    """The intake through the middleman, and connected."""
    watched = opened(middleman.address)
    watched.ping()
    middleman.calls.clear()
    return watched


def a_deadline(seconds: float = 30, failing: float | None = None) -> Deadline:
    now = time.monotonic()
    return Deadline(time.monotonic, now + seconds, now + (seconds if failing is None else failing))


def raised(results: Sequence[Any]) -> Sequence[Any]:
    """The results, where none of them is an error."""
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


def calls_of(intake: Any, record: Delivery) -> dict[str, Callable[[], Any]]:
    """A call of each method of the port."""
    return {
        "create_all": lambda: raised(intake.create_all([record, replace(record, key="f" * 40)], a_deadline())),
        "note_receipts": lambda: raised(
            intake.note_receipts([(echo_of(record), receipt()), (None, receipt())], a_deadline())
        ),
        "note_receipt_block": lambda: intake.note_receipt_block(ID, NOTED),
        "keep_counters": lambda: intake.keep_counters(COUNTERS),
        "ping": intake.ping,
        "entries": lambda: intake.entries([ENTRY, OTHER], a_deadline()),
    }


METHODS = [
    name
    for port in (IntakeStore, IntakeRegistry)
    for name in vars(port)
    if not name.startswith("_") and name != "close"
]


def unavailable(call: Callable[[], Any]) -> StoreUnavailable:
    """What the call raises, and it does so in time."""
    began = time.monotonic()
    with pytest.raises(StoreUnavailable) as caught:
        call()
    assert time.monotonic() - began < WITHIN
    return caught.value


def test_every_intake_method_is_tested(intake, a_record):
    assert set(METHODS) == set(calls_of(intake, a_record()))


def test_other_services_read_what_it_wrote(intake, store, a_record):
    record = a_record(provider_id="wamid.1", payload={"text": "größer 🙂", "number": 1e300, "list": [None, True]})
    assert intake.create_all([record], a_deadline()) == [Created()]
    assert store.get(record.key) == record
    assert intake.note_receipts([(echo_of(record), receipt()), (None, receipt(ReceiptKind.READ))], a_deadline()) == [
        True,
        True,
    ]
    found = store.get(record.key)
    assert (found.current_receipts.sent, found.current_receipts.read) == (NOW, NOW)
    assert intake.create_all([record], a_deadline()) == [Exists(found)]
    intake.note_receipt_block(ID, NOTED)
    assert store.marks(ID) == Marks(receipt_block=NOTED)


def test_version_of_what_exists_is_its_update_time(intake, store, a_record):
    record = a_record()
    store.create(record)
    (there,) = intake.create_all([record], a_deadline())
    assert there.record.version == store.get(record.key).version


def test_same_record_in_two_posts_at_once_is_created_once(intake, a_record):
    """A batch may hold each document once."""
    record = a_record()

    async def both() -> list[Any]:
        calls = (intake.intake.create_all([record, a_record()], a_deadline()) for _ in range(9))
        return await asyncio.gather(*calls)

    made = event_loop.run(both())
    assert sorted(type(first).__name__ for first, _ in made) == ["Created", *["Exists"] * 8]
    assert {second for _, second in made} == {Created()}


def test_one_client_works_on_several_event_loops_one_after_another(emulator, project, a_record):
    intake = FirestoreIntake(project, DATABASE, LIMITS, lambda: NOW, emulator=emulator.address)

    async def create() -> Any:
        made = await intake.create_all([a_record()], a_deadline())
        intake._rest._client._http.leave_idle()
        await asyncio.sleep(0.01)
        return made

    for _ in range(2):
        assert asyncio.run(create()) == [Created()]


# ---- the answer is lost


def test_create_whose_answer_was_lost_is_sent_again_and_finds_its_own_record(proxy, far, a_record):
    record = a_record()
    proxy.swallow_next_answer(holding=record.key.encode())
    assert far.create_all([record], a_deadline()) == [Exists(record)]
    assert proxy.swallowed == 1


def test_blind_write_can_be_sent_twice(proxy, far, store, a_record):
    record = a_record(provider_id="wamid.1")
    far.create_all([record], a_deadline())
    calls: dict[str, Callable[[], Any]] = {
        record.key: lambda: far.note_receipts([(echo_of(record), receipt())], a_deadline()),
        provider_id_hash("meta", "wamid.1"): lambda: far.note_receipts(
            [(None, receipt(ReceiptKind.READ))], a_deadline()
        ),
        ID: lambda: far.note_receipt_block(ID, NOTED),
    }
    for mark, call in calls.items():
        proxy.swallow_next_answer(holding=mark.encode())
        call()
    assert proxy.swallowed == len(calls)
    found = store.get(record.key)
    assert (found.current_receipts.sent, found.current_receipts.read) == (NOW, NOW)
    assert store.marks(ID) == Marks(receipt_block=NOTED)


@pytest.mark.parametrize("silenced", ["the answer", "the connection"])
def test_silent_connection_costs_under_a_second(proxy, far, a_record, silenced):
    """As after an idle hour. What was sent and not answered is sent again on a new connection."""
    record = a_record()
    for call, mark in (
        (lambda: far.create_all([record], a_deadline()), record.key),
        (lambda: far.note_receipts([(echo_of(record), receipt())], a_deadline()), record.key),
        (lambda: far.note_receipt_block(ID, NOTED), ID),
        (far.ping, "ping"),
    ):
        if silenced == "the answer":
            proxy.swallow_next_answer(hang_up=False, holding=mark.encode())
        else:
            proxy.silence()
        began = time.monotonic()
        call()
        assert 0.6 < time.monotonic() - began < 1.6


def test_slow_answer_to_a_large_batch_is_awaited(watched, middleman, a_record):
    """More than a few writes may take long on a sound connection: the first try has no short timeout."""
    watched.create_all([a_record()], a_deadline())
    middleman.calls.clear()
    middleman.seconds = 0.9
    assert raised(watched.create_all([a_record() for _ in range(11)], a_deadline())) == [Created()] * 11
    assert [call.writes for call in middleman.calls] == [11]


def test_slow_answer_to_a_large_read_is_awaited(watched, middleman, a_record):
    records = [a_record() for _ in range(11)]
    watched.create_all(records, a_deadline())
    middleman.calls.clear()

    def slow_from_now(answer: bytes) -> bytes:
        middleman.seconds = 0.9
        return answer

    middleman.answer = slow_from_now
    assert watched.create_all(records, a_deadline()) == [Exists(record) for record in records]
    assert [call.method for call in middleman.calls] == ["batchWrite", "batchGet"]


def test_connection_that_the_server_closed_meanwhile_costs_nothing(proxy, far):
    for _ in range(3):
        proxy.cut()
        proxy.restore()
        began = time.monotonic()
        far.ping()
        assert time.monotonic() - began < 0.6


# ---- away


def test_cut_connection_is_unavailable_until_restored(proxy, far, a_record):
    record = a_record()
    proxy.cut()
    unavailable(lambda: raised(far.create_all([record], a_deadline())))
    proxy.restore()
    assert far.create_all([record], a_deadline())[0] in (Created(), Exists(record))


@pytest.mark.parametrize("method", METHODS)
def test_every_call_to_a_store_that_does_not_answer_is_unavailable_in_time(proxy, far, a_record, method):
    proxy.blackhole()
    unavailable(calls_of(far, a_record(provider_id="wamid.1"))[method])
    proxy.restore()
    far.ping()


def test_outage_refuses_the_posts_that_wait(proxy, far, a_record):
    proxy.blackhole()

    async def posts() -> Any:
        return await asyncio.gather(*(far.intake.create_all([a_record()], a_deadline()) for _ in range(50)))

    began = time.monotonic()
    made = event_loop.run(posts())
    assert time.monotonic() - began < WITHIN
    assert {type(one) for (one,) in made} == {StoreUnavailable}


def test_closed_intake_is_unavailable(emulator, project):
    intake = FirestoreIntake(project, DATABASE, LIMITS, lambda: NOW, emulator=emulator.address)
    intake.close()
    refused = unavailable(lambda: asyncio.run(intake.ping()))
    assert refused.sentence == "The store cannot be reached: The client is closed."


def test_missing_credentials_make_the_store_unavailable(project, monkeypatch):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/to/be/found.json")
    token = GoogleToken()
    intake = FirestoreIntake(project, DATABASE, LIMITS, lambda: NOW, token)
    refused = unavailable(lambda: asyncio.run(intake.ping()))
    token.close()
    assert refused.sentence == "The store cannot be reached: No access token (DefaultCredentialsError)."
    assert refused.__cause__ is not None


# ---- errors, by their exact code


@pytest.mark.parametrize("code", ["UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL", "ABORTED", "RESOURCE_EXHAUSTED"])
@pytest.mark.parametrize("method", METHODS)
def test_briefly_failing_call_is_retried(watched, middleman, a_record, code, method):
    record = a_record(provider_id="wamid.1")
    if method != "create_all":
        watched.create_all([record], a_deadline())
    middleman.calls.clear()
    middleman.errors += [code, code]
    calls_of(watched, record)[method]()
    assert [call.path for call in middleman.calls[:2]] == [middleman.calls[2].path] * 2


REFUSALS = [
    (code, method)
    for code in (
        *("INVALID_ARGUMENT", "PERMISSION_DENIED", "UNAUTHENTICATED", "UNIMPLEMENTED"),
        *("NOT_FOUND", "ALREADY_EXISTS", "FAILED_PRECONDITION"),
    )
    for method in METHODS
    if code != "INVALID_ARGUMENT" or method not in ("create_all", "note_receipts")  # bisected: see below
]


@pytest.mark.parametrize(("code", "method"), REFUSALS)
def test_refused_call_is_unavailable_at_once_and_reveals_nothing_private(watched, middleman, a_record, code, method):
    middleman.always = code
    refused = unavailable(calls_of(watched, a_record(provider_id="wamid.1"))[method])
    assert len(middleman.calls) == 1
    assert refused.__cause__ is not None
    assert "c4n4ry" not in refused.sentence
    assert PRIVATE not in refused.sentence


@pytest.mark.parametrize(
    "garbage", [b"", b"no JSON", b"{}", b"[{}]", b'{"status":[{}]}', b'{"status":7}', b'[{"found":{}}]']
)
def test_unreadable_answer_is_unavailable(watched, middleman, a_record, garbage):
    middleman.answer = lambda _: garbage
    for method in ("create_all", "note_receipts"):
        unavailable(calls_of(watched, a_record())[method])


def test_store_that_is_unavailable_ends_long_before_one_that_is_contended(watched, middleman, a_record):
    middleman.always = "UNAVAILABLE"
    began = time.monotonic()
    unavailable(lambda: raised(watched.create_all([a_record()], a_deadline())))
    assert time.monotonic() - began < PATIENCE + 1
    assert len(middleman.calls) > 3


def test_batches_that_are_always_aborted_give_their_places_back_in_time(watched, middleman, a_record, monkeypatch):
    """Firestore answers each call, so the patience with a lost race would hold."""
    assert batches.BATCH_SECONDS < WITHIN
    monkeypatch.setattr(batches, "BATCH_SECONDS", 1.0)
    middleman.always = "ABORTED"

    async def posts() -> Any:
        calls = [watched.intake.create_all([a_record()], a_deadline()) for _ in range(2 * IN_FLIGHT.most)]
        return await asyncio.gather(*calls)

    began = time.monotonic()
    made = event_loop.run(posts())
    assert 0.3 < time.monotonic() - began < 1.5
    assert {type(one) for (one,) in made} == {StoreUnavailable}
    middleman.always = None
    assert event_loop.run(posts()) == [[Created()]] * 2 * IN_FLIGHT.most


def test_missing_database_is_not_an_unknown_receipt(watched, middleman, a_record):
    middleman.always = "NOT_FOUND"
    unavailable(lambda: raised(watched.note_receipts([(echo_of(a_record()), receipt())], a_deadline())))


def test_only_an_administrator_may_write_batches_of_the_emulator(watched, middleman, a_record):
    watched.create_all([a_record()], a_deadline())
    assert {call.authorization for call in middleman.calls} == {"Bearer owner"}


# ---- batches: each write by itself


def codes_of(middleman: Middleman, *codes: int) -> None:
    """Answer the writes of the next batch with these gRPC codes."""

    def answer(given: bytes) -> bytes:
        middleman.answer = lambda answer: answer
        return json.dumps(json.loads(given) | {"status": [{"code": code} if code else {} for code in codes]}).encode()

    middleman.answer = answer


@pytest.mark.parametrize("code", [14, 10, 8, 13])
def test_writes_of_a_batch_that_failed_transiently_are_made_again_alone(watched, middleman, a_record, code):
    """What was made and reported as failed is found; the others are not written again."""
    records = [a_record() for _ in range(5)]
    codes_of(middleman, 0, code, 0, 0, code)
    made = watched.create_all(records, a_deadline())
    assert made == [Created(), Exists(records[1]), Created(), Created(), Exists(records[4])]
    assert [(call.method, call.writes or call.reads) for call in middleman.calls] == [
        ("batchWrite", 5),
        ("batchWrite", 2),
        ("batchGet", 2),
    ]


def test_writes_that_always_fail_transiently_are_too_slow_at_the_deadline(watched, middleman, a_record):
    middleman.answer = lambda given: json.dumps(json.loads(given) | {"status": [{"code": 10}]}).encode()
    began = time.monotonic()
    (made,) = watched.create_all([a_record()], a_deadline(0.5))
    assert isinstance(made, StoreUnavailable)
    assert time.monotonic() - began < 1.5


def test_writes_that_fail_transiently_without_progress_end_at_the_earlier_deadline(watched, middleman, a_record):
    """Firestore answers 200, with UNAVAILABLE for each write: an outage all the same."""
    middleman.answer = lambda given: json.dumps(json.loads(given) | {"status": [{"code": 14}]}).encode()
    began = time.monotonic()
    (made,) = watched.create_all([a_record()], a_deadline(30, failing=0.5))
    assert isinstance(made, StoreUnavailable)
    assert time.monotonic() - began < 1.5
    assert len(middleman.calls) > 2


def test_writes_that_make_progress_have_until_the_later_deadline(watched, middleman, a_record):
    """Each answer takes a write more, long after the earlier deadline."""

    def answer(given: bytes) -> bytes:
        count = len(json.loads(given)["status"])
        return json.dumps({"status": [{}, *[{"code": 14}] * (count - 1)]}).encode()

    middleman.answer, middleman.seconds = answer, 0.1
    records = [a_record() for _ in range(5)]
    assert watched.create_all(records, a_deadline(30, failing=0.1)) == [Created()] * 5
    assert len(middleman.calls) == 5


def test_large_posts_let_other_requests_have_their_turn(intake, a_record):
    """While they encode what they write; the longest time without a turn is a fraction of the whole."""
    records = [a_record() for _ in range(500)]
    notes = [(echo_of(record), receipt()) for record in records]

    async def turns_before_the_first_call(work: Any) -> int:
        turns = 0
        called = intake.intake._writes.submit

        async def submit(*given: Any) -> Any:
            seen.append(turns)
            return await called(*given)

        seen: list[int] = []
        intake.intake._writes.submit = submit
        task = asyncio.ensure_future(work)
        while not task.done():
            await asyncio.sleep(0)
            turns += 1
        intake.intake._writes.submit = called
        return seen[0]

    for work in (
        intake.intake.create_all(records, a_deadline()),
        intake.intake.note_receipts(notes, a_deadline()),
    ):
        assert event_loop.run(turns_before_the_first_call(work)) >= 9


def test_permanently_refused_write_stops_no_other(watched, middleman, a_record):
    codes_of(middleman, 0, 7, 0)
    made = watched.create_all([a_record() for _ in range(3)], a_deadline())
    assert [type(one) for one in made] == [Created, NotStored, Created]


def test_one_write_that_firestore_cannot_take_stops_none_of_its_batch(intake, store, a_record):
    """The emulator refuses the whole batch, and may have made some of it."""
    records = [a_record() for _ in range(20)]
    poisonous = a_record(payload={"text": "x" * 1_100_000})
    made = intake.create_all([*records[:10], poisonous, *records[10:]], a_deadline())
    assert isinstance(made[10], NotStored)
    assert all(isinstance(one, Created | Exists) for one in [*made[:10], *made[11:]])
    assert [store.get(record.key) for record in records] == records


def test_large_records_are_parted_so_that_no_request_is_too_large(watched, middleman, a_record):
    """A slow emulator may be asked twice: the second call finds what the first has made."""
    records = [a_record(payload={"text": "x" * 250_000}) for _ in range(30)]
    made = raised(watched.create_all(records, a_deadline()))
    assert all(isinstance(one, Created | Exists) for one in made)
    assert max(len(call.body) for call in middleman.calls) < 3.3 * 1024 * 1024
    assert sum(call.writes for call in middleman.calls) >= 30


def test_large_post_costs_a_call_for_500_events(watched, middleman, a_record):
    records = [a_record() for _ in range(1100)]
    assert raised(watched.create_all(records, a_deadline()))
    assert sorted(call.writes for call in middleman.calls) == [100, 500, 500]
    middleman.calls.clear()
    watched.create_all(records[:250], a_deadline())
    assert sorted(call.reads for call in middleman.calls if call.reads) == [50, 100, 100]
    assert len(middleman.calls) == 4
    middleman.calls.clear()
    notes = [(echo_of(record), receipt(kind)) for record in records for kind in (ReceiptKind.SENT, ReceiptKind.READ)]
    assert raised(watched.note_receipts(notes, a_deadline())) == [True] * 2200
    assert sorted(call.writes for call in middleman.calls) == [100, 500, 500]


def test_new_event_costs_one_write_and_its_duplicate_one_refused_write_and_one_read(watched, middleman, a_record):
    record = a_record()
    for _ in range(2):
        watched.create_all([record], a_deadline())
    assert [call.method for call in middleman.calls] == ["batchWrite", "batchWrite", "batchGet"]


@pytest.mark.parametrize("kind", [ReceiptKind.SENT, ReceiptKind.FAILED])
def test_receipt_and_a_block_of_a_sender_cost_one_write_each(watched, middleman, a_record, kind):
    record = a_record()
    watched.create_all([record], a_deadline())
    middleman.calls.clear()
    assert note_receipt(watched, echo_of(record), receipt(kind))
    assert note_receipt(watched, None, receipt(kind))
    watched.note_receipt_block(ID, NOTED)
    assert [(call.method, call.writes) for call in middleman.calls] == [
        ("batchWrite", 1),
        ("batchWrite", 1),
        ("commit", 1),
    ]


def test_receipt_of_an_unknown_record_costs_one_refused_write(watched, middleman, a_record):
    assert note_receipt(watched, echo_of(a_record()), receipt()) is False
    assert [(call.method, call.writes) for call in middleman.calls] == [("batchWrite", 1)]


def test_posts_that_come_in_during_a_call_share_the_next_one(watched, middleman, a_record):
    middleman.seconds = 0.05

    async def posts() -> Any:
        return await asyncio.gather(*(watched.intake.create_all([a_record()], a_deadline()) for _ in range(40)))

    assert event_loop.run(posts()) == [[Created()]] * 40
    assert [call.writes for call in middleman.calls] == [1, 39]


def test_two_entries_cost_one_read_and_the_same_one_twice_is_read_once(watched, middleman, store):
    store.commit_entries([EntryWrite(ENTRY, "acme", {}, None), EntryWrite(OTHER, "acme", {}, None)])
    assert None not in watched.entries([ENTRY, OTHER, ENTRY], a_deadline())
    assert [(call.method, call.reads) for call in middleman.calls] == [("batchGet", 2)]


def test_posts_that_ask_for_entries_during_a_read_share_the_next_one(watched, middleman, store):
    store.commit_entries([EntryWrite(ENTRY, "acme", {}, None), EntryWrite(OTHER, "acme", {}, None)])
    middleman.seconds = 0.05

    async def posts() -> Any:
        return await asyncio.gather(*(watched.intake.entries([ENTRY, OTHER], a_deadline()) for _ in range(30)))

    found = event_loop.run(posts())
    assert all(list(one) == list(store.entries([ENTRY, OTHER])) for one in found)
    assert [(call.method, call.reads) for call in middleman.calls] == [("batchGet", 2)] * 2


def test_many_entries_cost_a_read_for_each_hundred(watched, middleman, store):
    names = [EntryName(EntryKind.SENDER, f"s{n}") for n in range(250)]
    assert list(watched.entries(names, a_deadline())) == [None] * 250
    assert sorted(call.reads for call in middleman.calls) == [50, 100, 100]


def test_entries_that_outlast_the_deadline_are_too_slow(watched, middleman):
    middleman.seconds = 0.4
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="too slow"):
        watched.entries([ENTRY], a_deadline(0.2))
    assert time.monotonic() - began < 0.35


def test_outage_ends_a_read_of_entries_before_a_webhooks_deadline(watched, middleman):
    middleman.always = "ABORTED"
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        watched.entries([ENTRY], a_deadline())
    assert PATIENCE < time.monotonic() - began < WITHIN


def test_damaged_entry_of_one_post_is_none_of_another(watched, store, middleman, project, emulator):
    store.commit_entries([EntryWrite(ENTRY, "acme", {}, None), EntryWrite(OTHER, "acme", {}, None)])
    with raw(emulator, project) as database:
        database.put("registry_tenants/acme", {"fields": {"string_value": "{"}})
    middleman.seconds = 0.05

    async def posts() -> Any:
        asked = [[ENTRY], [ENTRY], [OTHER]]
        reads = (watched.intake.entries(names, a_deadline()) for names in asked)
        return await asyncio.gather(*reads)

    *broken, found = event_loop.run(posts())
    assert [one.fields for (one,) in broken] == [{}, {}]
    assert list(found) == list(store.entries([OTHER]))


def test_read_that_outlasts_the_deadline_is_too_slow(watched, middleman, a_record):
    record = a_record()
    watched.create_all([record], a_deadline())
    middleman.seconds = 0.4
    (made,) = watched.create_all([record], a_deadline(0.6))
    assert str(made) == "The store is too slow."
