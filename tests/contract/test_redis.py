"""What only the Redis store promises: kills, lost answers, frozen, full and unfit servers, expiry, forks, secrets."""

import itertools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from redis.exceptions import RedisError, ResponseError

from local.faulty_proxy import FaultyProxy
from shared.domain.conversations import Alias, Conversation, SenderLane, conversation_id
from shared.domain.counters import KEPT_FOR, WHOLE, Cell, Measure, ProcessCounters
from shared.domain.deadline import Deadline
from shared.domain.delivery.answers import Answer, Ensure, Run, Step, TaskResult
from shared.domain.delivery.lease import lease
from shared.domain.delivery.settle import settle
from shared.domain.errors import ConversationChanged, StoreUnavailable, UnknownState
from shared.domain.events import ReceiptBlock, ReceiptReceived
from shared.domain.guards import Go
from shared.domain.identity import Echo, provider_id_hash
from shared.domain.limits import Limits
from shared.domain.listings import Listing
from shared.domain.marks import Block, Credential, Marks, Outage
from shared.domain.record import Delivery, Kind, ReceiptKind, State, Task
from shared.domain.verdicts import Accepted, Replied
from shared.pipeline.intake import Created
from shared.pipeline.registry import EntryKind, EntryName, EntryWrite
from shared.stores.codec import encode_mark, to_json
from shared.stores.redis import intake
from shared.stores.redis import records as records_of_redis
from shared.stores.redis import store as store_of_redis
from shared.stores.redis.connection import FIRST_TRY, PATIENCE, NotStored
from shared.stores.redis.records import LEAST_LIFE
from shared.stores.redis.store import RedisStore
from tests.support.real_servers import free_port, until
from tests.support.receipts import note_receipt
from tests.support.redis_backend import RedisServer

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LIMITS = Limits()
OK = Answer(TaskResult.ACK, "ok")
ID = "a" * 40
"""Of marks."""
A_BLOCK = Block(NOW, timedelta(minutes=10), 368)
NOTED = ReceiptBlock(131031, NOW)
COUNTERS = ProcessCounters("p1", NOW, {Cell(1, WHOLE, Measure.SENT): 1})
ENTRY, OTHER = EntryName(EntryKind.TENANT, "acme"), EntryName(EntryKind.SENDER, "s1")
WITHIN = 5.0
"""Seconds that a call to a server that is away may take: twice what is promised."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """One of this test alone, to be killed, frozen and filled."""
    with RedisServer(tmp_path) as server:
        yield server


@pytest.fixture
def opened(server: RedisServer) -> Iterator[Callable[..., RedisStore]]:
    """Opens clients, and closes them in the end."""
    stores: list[RedisStore] = []

    def open_one(url: str = "", now: datetime = NOW) -> RedisStore:
        stores.append(RedisStore(url or server.url, LIMITS, lambda: now))
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


@pytest.fixture
def store(opened: Callable[..., RedisStore]) -> RedisStore:
    return opened()


@pytest.fixture
def proxy(server: RedisServer) -> Iterator[FaultyProxy]:
    with FaultyProxy("127.0.0.1", server.port) as proxy:
        yield proxy


@pytest.fixture
def far(opened: Callable[..., RedisStore], proxy: FaultyProxy, a_record: Callable[..., Delivery]) -> RedisStore:
    """The store through the proxy, with a connection at hand and its scripts known to the server."""
    far = opened(f"redis://127.0.0.1:{proxy.port}/0")
    known = a_record()
    far.create(known)
    far.get(known.key)
    note_receipt(far, echo_of(known), receipt())
    note_receipt(far, None, receipt(provider_id="another"))
    far.change_marks("b" * 40, failing)
    return far


def adding(found: Delivery | None) -> Step:
    assert found is not None
    return Step(OK, write=replace(found, attempt=found.attempt + 1))


def writing(**changes: Any) -> Callable[[Delivery | None], Step]:
    return lambda found: Step(OK, write=replace(found, **changes))


def failing(current: Marks) -> Marks:
    return replace(current, down=Outage(NOW, (current.down or Outage(NOW)).wait + timedelta(seconds=1)))


def lease_with(token: str) -> Callable[[Delivery | None], Step]:
    return lambda found: lease(found, Task("", Kind.OUTBOUND, "", 0), token, Go(), LIMITS, NOW)


def receipt(kind: ReceiptKind = ReceiptKind.SENT, seconds: float = 0, provider_id: str = "wamid.1") -> ReceiptReceived:
    return ReceiptReceived("meta", "s", provider_id, kind, NOW + timedelta(seconds=seconds))


def echo_of(record: Delivery) -> Echo:
    return Echo(record.key, 0, record.correlation_id)


def unavailable(call: Callable[[], Any]) -> StoreUnavailable:
    began = time.monotonic()
    with pytest.raises(StoreUnavailable) as refused:
        call()
    assert time.monotonic() - began < WITHIN
    return refused.value


def works(call: Callable[[], Any]) -> bool:
    try:
        call()
    except StoreUnavailable:
        return False
    return True


def run(program: str, url: str) -> None:
    """A program of its own, that must end well."""
    ended = subprocess.run([sys.executable, "-c", PREAMBLE + program, url], cwd=ROOT, timeout=60, capture_output=True)
    assert ended.returncode == 0, ended.stderr.decode()


PREAMBLE = """
import os, sys
from dataclasses import replace
import time
from datetime import UTC, datetime
from shared.domain.deadline import Deadline
from shared.domain.delivery.answers import Answer, Step, TaskResult
from shared.domain.limits import Limits
from shared.domain.record import Delivery, Kind, State
from shared.stores.redis.store import RedisStore

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)

def record(key):
    fields = dict(kind=Kind.OUTBOUND, provider="meta", tenant="t", sender="s", contact="c")
    return Delivery(key, **fields, correlation_id="correlation-1", state=State.PENDING, received_at=NOW, payload={})

def add(found):
    return Step(Answer(TaskResult.ACK, ""), replace(found, attempt=found.attempt + 1))

s = RedisStore(sys.argv[1], Limits(), lambda: NOW)
"""


# ---- killed


def test_acknowledged_writes_survive_a_kill(server, opened, a_record):
    """Eight writers, each adding one and creating one at a time, until the server is killed under them."""
    events = [a_record(key=f"{n:040x}", correlation_id=f"event-{n}") for n in range(8)]
    for event in events:
        opened().create(event)
    acknowledged = dict.fromkeys((event.key for event in events), 0)

    def add(found: Delivery) -> Step:
        reply = replace(found, key=f"{found.key}-{found.attempt}", attempt=0, version=None)
        return Step(OK, replace(found, attempt=found.attempt + 1), (reply,))

    def write(key: str) -> None:
        store = opened()
        while works(lambda: acknowledged.update({key: store.change(key, add).write.attempt})):
            pass

    threads = [threading.Thread(target=write, args=(event.key,)) for event in events]
    for thread in threads:
        thread.start()
    until(lambda: min(acknowledged.values()) > 20)
    server.kill()
    for thread in threads:
        thread.join()
    server.start()
    store = opened()
    for event in events:
        attempt = store.get(event.key).attempt
        assert attempt in (acknowledged[event.key], acknowledged[event.key] + 1)  # applied, and its answer lost
        assert len(store.by_correlation(event.correlation_id)) == attempt + 1


def test_killed_server_is_unavailable_until_it_is_back_on_the_same_client(server, store, a_record):
    record = a_record()
    store.create(record)
    server.kill()
    assert unavailable(lambda: store.get(record.key)).sentence == "Redis cannot be reached."
    server.start()
    assert store.get(record.key) == record
    assert store.change(record.key, adding).write.attempt == 1


def test_server_that_lost_the_scripts_gets_them_again(server, store, a_record):
    record = a_record()
    store.create(record)
    server.raw.script_flush()
    assert store.get(record.key) == record


# ---- the answer is lost


def test_a_create_whose_answer_was_lost_is_sent_again_and_recognises_itself(proxy, far, a_record):
    record = a_record()
    proxy.swallow_next_answer()
    assert far.create(record) == Created()
    assert proxy.swallowed == 1
    assert far.get(record.key) == record


def test_a_change_whose_answer_was_lost_is_made_once(proxy, far, a_record):
    record, reply = a_record(), a_record()
    far.create(record)
    seen = far.get(record.key)
    calls: list[int] = []

    def decide(found: Delivery | None) -> Step:
        calls.append(1)
        return replace(adding(found), create=(reply,))

    proxy.swallow_next_answer()
    step = far.change(record.key, decide, seen)
    assert proxy.swallowed == 1
    assert len(calls) == 1
    assert far.get(record.key) == step.write == replace(record, attempt=1)
    assert far.get(reply.key) == reply
    assert far.change(record.key, adding, step.write).write.attempt == 2


def test_change_of_marks_whose_answer_was_lost_is_made_once(proxy, far):
    seen = far.change_marks(ID, failing)[1]
    proxy.swallow_next_answer()
    before, after = far.change_marks(ID, failing, seen)
    assert proxy.swallowed == 1
    assert (before, after) == (seen, failing(seen))
    assert (far.marks(ID), far.marks(ID).version) == (after, after.version)


def test_blind_write_can_be_sent_twice(proxy, far, a_record):
    record = a_record(provider_id="SM1")
    far.create(record)
    calls: list[Callable[[], Any]] = [
        lambda: note_receipt(far, echo_of(record), receipt(ReceiptKind.SENT)),
        lambda: note_receipt(far, None, receipt(ReceiptKind.READ, 1, "SM1")),
        lambda: far.note_receipt_block(ID, NOTED),
        lambda: far.keep_counters(COUNTERS),
    ]
    for call in calls:
        proxy.swallow_next_answer()
        call()
    assert proxy.swallowed == len(calls)
    assert (far.get(record.key).current_receipts.sent, far.get(record.key).current_receipts.read) == (
        NOW,
        NOW + timedelta(seconds=1),
    )
    assert far.marks(ID) == Marks(receipt_block=NOTED)
    assert list(far.recent_counters(NOW)) == [COUNTERS]


def test_silent_connection_costs_under_a_second_and_repeats_no_write(proxy, far, a_record):
    """As after an idle hour: what was not answered is sent again on a new connection, and recognises itself."""
    record = a_record()
    far.ping()
    for call in (
        lambda: far.create(record),
        lambda: far.get(record.key),
        lambda: far.change(record.key, lease_with("mine")),
        lambda: note_receipt(far, echo_of(record), receipt()),
        lambda: far.change_marks(ID, failing),
    ):
        proxy.swallow_next_answer(hang_up=False)
        began = time.monotonic()
        call()
        assert 0.6 < time.monotonic() - began < 1.4
    found = far.get(record.key)
    assert (found.attempt, found.token, found.current_receipts.sent) == (1, "mine", NOW)
    assert far.marks(ID) == failing(Marks())


def test_a_few_records_and_receipts_on_a_silent_connection_cost_less_than_a_second(proxy, far, a_record):
    records = [a_record() for _ in range(3)]
    deadline = Deadline.of_webhook(time.monotonic)
    far.ping()
    for call in (
        lambda: far.create_all(records, deadline),
        lambda: far.note_receipts([(echo_of(record), receipt()) for record in records], deadline),
    ):
        proxy.silence()
        began = time.monotonic()
        assert not any(isinstance(one, Exception) for one in call())
        assert time.monotonic() - began < 1.6


def test_receipt_that_cannot_be_stored_stops_no_other(store, a_record):
    record = a_record()
    store.create(record)
    echo = Echo(record.key, 0, record.correlation_id)
    receipts = [
        (echo, receipt(provider_id="\ud800")),
        (echo, receipt()),
        (None, replace(receipt(), at=NOW.replace(tzinfo=None))),
        (None, receipt(ReceiptKind.READ)),
    ]
    refused, noted, refused_too, kept = store.note_receipts(receipts, Deadline.of_webhook(time.monotonic))
    assert (noted, kept) == (True, True)
    assert isinstance(refused, UnicodeEncodeError)
    assert isinstance(refused_too, TypeError)
    assert store.get(record.key).current_receipts.sent == NOW


def test_receipts_that_all_cannot_be_stored_are_errors(store, a_record):
    echo = Echo(a_record().key, 0, "c")
    given = [(None, receipt(provider_id="\ud800")), (echo, receipt(provider_id="\ud800"))]
    made = store.note_receipts(given, Deadline.of_webhook(time.monotonic))
    assert [type(one) for one in made] == [UnicodeEncodeError] * 2


def soon() -> Deadline:
    return Deadline.of_webhook(time.monotonic)


def test_key_of_another_type_stops_no_other_record_and_no_other_receipt(server, store, a_record):
    records = [a_record() for _ in range(3)]
    server.raw.set(f"pombo:record:{records[1].key}", "no hash")
    server.raw.set(f"pombo:unechoed:{provider_id_hash('meta', 'wamid.2')}", "no hash")
    unechoed = [(None, receipt(provider_id=f"wamid.{number}")) for number in (1, 2, 3)]
    for made, well in (
        (store.create_all(records, soon()), Created()),
        (store.note_receipts([(echo_of(record), receipt()) for record in records], soon()), True),
        (store.note_receipts(unechoed, soon()), True),
    ):
        refused = made.pop(1)
        assert made == [well] * 2
        assert isinstance(refused, NotStored)
        assert str(refused) == "Redis refused: WRONGTYPE."
        assert isinstance(refused.__cause__, ResponseError)


def test_script_that_fails_on_one_record_stops_no_other(server, store, a_record):
    records = [a_record() for _ in range(3)]
    store.create_all(records, soon())
    of_sent = records_of_redis.noted(echo_of(records[1]), receipt(), provider_id_hash("meta", "wamid.1"))[1]
    server.raw.hset(f"pombo:record:{records[1].key}", of_sent, "no receipt")
    first, failed, last = store.note_receipts([(echo_of(record), receipt()) for record in records], soon())
    assert (first, last) == (True, True)
    assert isinstance(failed, NotStored)


def test_full_server_answers_each_receipt_and_gets_no_further_portion(server, store, a_record, monkeypatch):
    """It finds that a record does not exist, and refuses what it would have to write."""
    record = a_record()
    store.create(record)
    there, unknown = (echo_of(record), receipt()), (echo_of(a_record()), receipt())
    assert store.note_receipts([unknown], soon()) == [False]
    monkeypatch.setattr(intake, "PORTION", 2)
    server.raw.config_set("maxmemory", 1024)
    server.raw.config_resetstat()
    first, *others = store.note_receipts([unknown, there, unknown, unknown], soon())
    assert first is False
    assert {(type(other), other.sentence) for other in others} == {(StoreUnavailable, "Redis is out of memory.")}
    assert server.raw.info("commandstats")["cmdstat_evalsha"]["calls"] == 2


def test_slow_server_is_awaited_on_every_call(server, store, a_record):
    record = a_record()
    store.create(record)
    for _ in range(3):
        server.raw.config_set("busy-reply-threshold", 0)
        server.raw.execute_command("CLIENT", "PAUSE", "900", "ALL")
        assert store.get(record.key) == record


def test_one_silent_connection_discards_all_idle_ones(proxy, far, a_record):
    records = [a_record() for _ in range(8)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(far.create, records))
    proxy.silence()
    began = time.monotonic()
    assert far.get(records[0].key) == records[0]
    assert far.get(records[1].key) == records[1]
    assert time.monotonic() - began < 1.4


def test_first_call_of_a_process_gets_the_full_patience(proxy, opened, a_record):
    fresh = opened(f"redis://127.0.0.1:{proxy.port}/0")
    proxy.blackhole()
    began = time.monotonic()
    unavailable(lambda: fresh.create(a_record()))
    assert 1.9 < time.monotonic() - began < 3
    proxy.restore()


def test_server_that_did_not_answer_gets_the_full_patience_next_time(proxy, far, mocker):
    tries = mocker.spy(far._client, "_call")
    proxy.blackhole()
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            far.time()
    assert [call.args[1] for call in tries.call_args_list] == [FIRST_TRY, PATIENCE - FIRST_TRY, PATIENCE]
    proxy.restore()


def test_connection_cut_while_idle_is_reopened(proxy, far, a_record):
    record = a_record()
    far.create(record)
    proxy.cut()
    proxy.restore()
    assert far.get(record.key) == record


def test_cut_connection_is_unavailable_until_restored(proxy, far, a_record):
    proxy.cut()
    record = a_record()
    assert unavailable(lambda: far.create(record)).sentence == "Redis cannot be reached."
    proxy.restore()
    assert far.create(record) == Created()


def test_blackholed_connection_is_unavailable_in_time(opened, proxy, far, a_record):
    fresh = opened(f"redis://127.0.0.1:{proxy.port}/0")
    proxy.blackhole()
    for store in (far, fresh):
        unavailable(lambda store=store: store.create(a_record()))
        unavailable(store.ping)
    proxy.restore()
    assert far.create(a_record()) == fresh.create(a_record()) == Created()


# ---- frozen, loading, full


def test_a_frozen_server_is_unavailable_in_time_and_works_again(server, store, opened, a_record):
    record = a_record()
    store.create(record)
    fresh = opened()
    calls: list[Callable[[], Any]] = [
        lambda: store.create(a_record()),
        lambda: store.get(record.key),
        lambda: store.change(record.key, lease_with("mine"), store_seen),
        lambda: note_receipt(store, echo_of(record), receipt()),
        lambda: note_receipt(store, None, receipt()),
        lambda: store.in_turn("a/0", "a/1"),
        lambda: store.conversation_entries([ID]),
        lambda: store.conversations("default", None, 10),
        lambda: store.of_conversation(ID, None, 10),
        lambda: store.overdue(NOW, 10),
        store.backlog,
        *(lambda listing=listing: store.listed(listing, None, None, 10) for listing in Listing),
        lambda: store.history("default", None, None, None, 10),
        lambda: store.by_correlation("c"),
        lambda: store.by_provider_id("meta", "w"),
        lambda: store.ids_with_prefix("abcdef01", 10),
        lambda: store.marks(ID),
        lambda: store.change_marks(ID, failing),
        lambda: store.change_marks(ID, failing, Marks()),
        lambda: store.note_receipt_block(ID, NOTED),
        store.ping,
        store.time,
        fresh.ping,
    ]
    store_seen = store.get(record.key)
    with server.frozen():
        threads = [threading.Thread(target=unavailable, args=(call,)) for call in calls]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert time.monotonic() - began < WITHIN
    # What was sent to it, it may still carry out: nothing is assumed about such a write, and the token tells.
    until(lambda: store.get(record.key).state is State.LEASED)
    again = store.change(record.key, lease_with("mine"), store_seen)
    assert isinstance(again.next, Run)
    assert again.next.record.attempt == 1
    assert fresh.get(record.key).attempt == 1


def test_a_server_that_is_loading_is_unavailable_until_it_has_loaded(server, store, a_record):
    records = [a_record() for _ in range(400)]
    for record in records:
        store.create(record)
    server.raw.bgrewriteaof()
    until(lambda: not server.raw.info("persistence")["aof_rewrite_in_progress"])
    server.kill()
    server.start("--key-load-delay", "20000", "--loading-process-events-interval-bytes", "1024", ready=False)
    until(lambda: not works(store.ping) and loading(server))
    for call in (store.ping, lambda: store.get(records[0].key), lambda: store.create(a_record())):
        assert unavailable(call).sentence == "Redis is still loading its data."
    server.raw.config_set("key-load-delay", 0)
    until(lambda: works(store.ping))
    assert [store.get(record.key) for record in records] == records


def loading(server: RedisServer) -> bool:
    try:
        return bool(server.raw.info("persistence")["loading"])
    except RedisError:
        return False


def plan(record: Delivery, replies: list[Delivery]) -> Callable[[Delivery | None], Step]:
    return lambda _: Step(OK, replace(record, plan_size=len(replies)), tuple(replies))


def test_a_full_server_is_unavailable_and_nothing_is_half_written(server, store, a_record):
    event, replies = a_record(), [a_record(payload={"body": "x" * 50_000}) for _ in range(30)]
    store.create(event)
    note_receipt(store, echo_of(event), receipt())
    marks = store.change_marks(ID, failing)[1]
    before = store.get(event.key)
    keys = server.raw.dbsize()
    server.raw.config_set("maxmemory", 1024)
    full = [
        lambda: store.change(event.key, plan(event, replies)),
        lambda: store.create(replies[0]),
        lambda: note_receipt(store, echo_of(event), receipt(ReceiptKind.READ)),
        lambda: note_receipt(store, None, receipt(ReceiptKind.READ)),
        lambda: store.change_marks(ID, lambda _: Marks(credential=Credential("f1", NOW))),
        lambda: store.change_marks(ID, lambda _: Marks(), marks),
        lambda: store.note_receipt_block(ID, NOTED),
        lambda: store.keep_counters(COUNTERS),
        store.ping,
    ]
    for call in full:
        assert unavailable(call).sentence == "Redis is out of memory."
    assert store.get(event.key) == before
    assert (store.marks(ID), store.marks(ID).version) == (marks, marks.version)
    assert server.raw.dbsize() == keys
    server.raw.config_set("maxmemory", 0)
    store.change(event.key, plan(event, replies))
    assert [store.get(reply.key) for reply in replies] == replies


def test_server_that_fills_up_during_a_commit_stores_all_of_it(server, store, a_record):
    """It is asked before the first write of a script and not again: the least memory with which this commit begins is
    far too little for its 1.5 MB, and still it is there wholly.
    """
    event, replies = a_record(), [a_record(payload={"body": "x" * 50_000}) for _ in range(30)]
    store.create(event)
    limit, refused = server.raw.info("memory")["used_memory"], 0
    server.raw.config_set("maxmemory", limit)
    while not works(lambda: store.change(event.key, plan(event, replies))):
        assert store.get(event.key) == event
        assert server.raw.exists(*(f"pombo:record:{reply.key}" for reply in replies)) == 0
        limit, refused = limit + 100_000, refused + 1
        server.raw.config_set("maxmemory", limit)
    assert refused > 0
    assert store.get(event.key).plan_size == 30
    assert [store.get(reply.key) for reply in replies] == replies


# ---- a server that is not fit


def test_a_server_that_evicts_is_refused_until_it_does_not(server, store, a_record):
    server.raw.config_set("maxmemory-policy", "volatile-lru")
    expected = "Redis may evict records: set its maxmemory-policy to noeviction, not volatile-lru."
    assert unavailable(store.ping).sentence == expected
    assert unavailable(lambda: store.create(a_record())).sentence == expected
    server.raw.config_set("maxmemory-policy", "noeviction")
    assert store.create(a_record()) == Created()
    server.raw.config_set("maxmemory-policy", "allkeys-random")
    assert "allkeys-random" in unavailable(store.ping).sentence


def test_server_that_hides_its_eviction_policy_is_trusted(server, opened, a_record):
    """Of a user with no more rights than docs/stores.md says, and one less."""
    server.raw.acl_setuser(
        "app", enabled=True, passwords=["+secret"], keys=["pombo:*"], categories=["+@all", "-@dangerous"]
    )
    store = opened(f"redis://app:secret@127.0.0.1:{server.port}/0")
    server.raw.config_set("maxmemory-policy", "allkeys-lru")
    store.ping()
    assert store.create(a_record()) == Created()
    server.raw.acl_setuser("app", commands=["+info"])
    assert "allkeys-lru" in unavailable(store.ping).sentence


def test_a_replica_is_refused(server, store, a_record):
    server.raw.replicaof("127.0.0.1", 1)
    for call in (store.ping, lambda: store.create(a_record())):
        assert unavailable(call).sentence == "REDIS_URL names a replica, which takes no writes."


def test_a_cluster_is_refused(tmp_path):
    with RedisServer(tmp_path, options=("--cluster-enabled", "yes")) as server:
        store = RedisStore(server.url, LIMITS, lambda: NOW)
        assert unavailable(lambda: store.get("0" * 40)).sentence.startswith("REDIS_URL names a node of a Redis Cluster")
        store.close()


def test_a_fault_of_our_own_shows_as_its_cause(server, store):
    server.raw.set("pombo:record:x", "no hash")
    error = unavailable(lambda: store.get("x"))
    assert error.sentence == "Redis refused: WRONGTYPE."
    assert isinstance(error.__cause__, ResponseError)


# ---- secrets


@pytest.mark.parametrize("url", ["redis://:wr0ng-pass@{}", "redis://somebody:wr0ng-pass@{}", "redis://{}"])
def test_wrong_password_is_reported_without_it(tmp_path, url):
    with RedisServer(tmp_path, password="right-one") as server:
        store = RedisStore(url.format(f"127.0.0.1:{server.port}/0"), LIMITS, lambda: NOW)
        for call in (store.ping, lambda: store.get("0" * 40)):
            assert unavailable(call).sentence == "Redis refused the user or the password in REDIS_URL."
        right = RedisStore(server.url, LIMITS, lambda: NOW)
        right.ping()
        store.close()
        right.close()


@pytest.mark.parametrize(
    "url",
    ["", "http://s3cret@h", "redis://:s3c/ret@h:6379", "redis://h:s3cret", "redis://h?db=s3cret", "redis://[s3cret"],
)
def test_invalid_address_is_reported_without_it(url):
    store = RedisStore(url, LIMITS, lambda: NOW)
    error = unavailable(store.ping)
    assert error.sentence.startswith("REDIS_URL must be an address like rediss://")
    assert error.__cause__ is None
    assert error.__suppress_context__
    store.close()


def test_no_key_and_no_index_holds_a_number_or_a_provider_id(server, store, a_record):
    id = conversation_id(b"a key", "default", "meta", "100000000000001", "15550002222")
    fields = {"contact": "15550002222", "payload": {"body": "a secret"}, "conversation": id}
    record = a_record(**fields, provider_id="wamid.HBgLMTU1NTAwMDIyMjI")
    store.create(record, [a_conversation(id)])
    note_receipt(store, echo_of(record), receipt(provider_id="wamid.HBgLMTU1NTAwMDIyMjI"))
    note_receipt(store, None, receipt(provider_id="wamid.HBgLMTU1NTAwMDIyMjI"))
    names = " ".join(server.raw.scan_iter())
    assert provider_id_hash("meta", "wamid.HBgLMTU1NTAwMDIyMjI") in names
    for private in ("15550002222", "secret", "wamid"):
        assert private not in names


def certificate(directory: Path) -> Path:
    """One that 127.0.0.1 signed for itself, beside its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    built = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    built = built.not_valid_before(datetime.now(UTC) - timedelta(1)).not_valid_after(datetime.now(UTC) + timedelta(1))
    host = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    signed = built.add_extension(host, False).sign(key, hashes.SHA256())
    (directory / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    (directory / "cert.pem").write_bytes(signed.public_bytes(Encoding.PEM))
    return directory / "cert.pem"


def test_rediss_address_uses_tls_and_only_with_trusted_servers(tmp_path, a_record):
    trusted, port = certificate(tmp_path), free_port()
    files = {"tls-cert-file": str(trusted), "tls-key-file": str(tmp_path / "key.pem")}
    with RedisServer(tmp_path) as server:
        server.raw.config_set("tls-auth-clients", "no", *itertools.chain(*files.items()))
        server.raw.config_set("tls-port", port)
        store = RedisStore(f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={trusted}", LIMITS, lambda: NOW)
        stranger = RedisStore(f"rediss://127.0.0.1:{port}/0", LIMITS, lambda: NOW)
        assert store.create(a_record()) == Created()
        assert unavailable(stranger.ping).sentence == "Redis cannot be reached."
        store.close()


# ---- expiry


def lives(server: RedisServer) -> dict[str, timedelta | None]:
    """What each key has left, to the minute; without the sets of tenants, which outlive their records."""
    names = [name for name in server.raw.scan_iter() if not name.startswith(("pombo:tenant:", "pombo:of_conv"))]
    left = {name: server.raw.ttl(name) for name in names}
    return {name: None if seconds < 0 else timedelta(minutes=round(seconds / 60)) for name, seconds in left.items()}


def test_final_record_expires_with_its_receipts_and_index_entries(server, store, a_record):
    event = a_record(kind=Kind.INBOUND, correlation_id="correlation-x", sweep_at=NOW)
    store.create(event)
    store.change(event.key, lambda found: lease(found, Task("", Kind.INBOUND, "", 0), "t", Go(), LIMITS, NOW))
    step = store.change(event.key, lambda found: settle(found, "t", Replied(({"n": 1},)), LIMITS, NOW, 0.5))
    (reply,) = step.create
    assert set(lives(server)) == {
        f"pombo:record:{event.key}",
        f"pombo:record:{reply.key}",
        "pombo:correlation:correlation-x",
        "pombo:state:pending",
        "pombo:sweep",
    }
    assert lives(server)[f"pombo:record:{event.key}"] == LIMITS.inbound_retention
    assert lives(server)["pombo:correlation:correlation-x"] is None, "a pending record is found by it"
    store.change(reply.key, lease_with("t"))
    note_receipt(store, echo_of(reply), receipt())
    store.change(reply.key, lambda found: settle(found, "t", Accepted("wamid.1"), LIMITS, NOW, 0.5))
    assert lives(server) == {
        f"pombo:record:{event.key}": LIMITS.inbound_retention,
        f"pombo:record:{reply.key}": LIMITS.outbound_retention,
        "pombo:correlation:correlation-x": LIMITS.outbound_retention,
        f"pombo:id:{provider_id_hash('meta', 'wamid.1')}": LIMITS.outbound_retention,
    }
    for name in server.raw.scan_iter():
        server.raw.pexpire(name, 1)
    until(lambda: server.raw.dbsize() == 0)
    assert store.get(event.key) is None
    assert store.by_provider_id("meta", "wamid.1") is None


def test_a_mark_lives_as_long_as_the_last_record_that_has_it(server, store, a_record):
    records = [a_record(state=State.DONE, expire_at=NOW + timedelta(days=days)) for days in (1, 3)]
    for record in records:
        store.create(record)
        note_receipt(store, echo_of(record), receipt(ReceiptKind.FAILED))
    life = lives(server)["pombo:listed:refused"]
    assert timedelta(days=3) - timedelta(minutes=1) < life <= timedelta(days=3)
    server.raw.delete(f"pombo:record:{records[0].key}")
    assert [found.key for found in store.listed(Listing.REFUSED, None, None, 10).records] == [records[1].key]
    assert server.raw.zrange("pombo:listed:refused", 0, -1) == [records[1].key], "what is gone is forgotten"


def test_expired_records_leave_the_history_of_their_tenant(server, store, a_record):
    """With a page that meets them, and a few with each new record: never more of them than of the others."""
    records = [a_record(received_at=NOW + timedelta(seconds=number)) for number in range(60)]
    for record in records:
        store.create(record)
    server.raw.delete(*(f"pombo:record:{record.key}" for record in records[:40]))
    page = store.history("default", None, None, None, 30)
    assert (len(page.records), page.ends_at is None) == (20, False)
    assert server.raw.zcard("pombo:tenant:default") == 50
    for _ in range(100):
        store.create(a_record())
    assert server.raw.zcard("pombo:tenant:default") < 120 + 20
    left = store.history("default", None, None, page.ends_at, 100)
    assert not {record.key for record in left.records} & {record.key for record in records}


def test_history_lives_40_days_from_the_last_write_or_as_long_as_a_record(server, store, a_record):
    for days, life in ((8, 40), (50, 50), (8, 50)):
        store.create(a_record(state=State.DONE, expire_at=NOW + timedelta(days=days)))
        assert server.raw.pttl("pombo:tenant:default") / 86_400_000 == pytest.approx(life, abs=0.01)


def test_counters_expire_and_leave_no_process_behind(server, store):
    store.keep_counters(COUNTERS)
    store.keep_counters(replace(COUNTERS, process="p2", flushed_at=NOW + 2 * KEPT_FOR + timedelta(seconds=1)))
    left = timedelta(milliseconds=server.raw.pttl("pombo:counters:p1"))
    assert KEPT_FOR < left <= 2 * KEPT_FOR, "as long as they matter"
    assert server.raw.zrange("pombo:counters", 0, -1) == ["p2"]


def test_damaged_and_deleted_counters_hide_no_others(server, store):
    for process in ("p1", "p2", "p3"):
        store.keep_counters(replace(COUNTERS, process=process))
    server.raw.hset("pombo:counters:p1", "counts", "no JSON")
    server.raw.delete("pombo:counters:p2")
    assert [one.process for one in store.recent_counters(NOW)] == ["p3"]


def test_load_reads_records_whose_fields_are_in_another_order(server, store, a_record):
    """An older or a newer Pombo may have written them."""
    record = a_record(tenant="acme", payload={"kind": "inbound"})
    store.create(record)
    body = json.loads(server.raw.hget(f"pombo:record:{record.key}", "body"))
    server.raw.hset(f"pombo:record:{record.key}", "body", json.dumps(dict(sorted(body.items()))))
    assert store.load("acme", NOW).messages[State.PENDING] == 1
    server.raw.hset(f"pombo:record:{record.key}", "body", "no JSON")
    assert store.load("acme", NOW).messages[State.PENDING] == 0


def test_load_counts_each_record_of_many_pages_once(store, a_record, monkeypatch):
    monkeypatch.setattr(store_of_redis, "LOAD_PAGE", 3)
    for number in range(10):
        store.create(a_record(received_at=NOW + timedelta(seconds=number // 4), tenant="ab"[number % 2]))
    assert store.load(None, NOW).messages[State.PENDING] == 10
    assert store.load("a", NOW).messages[State.PENDING] == 5
    assert store.load("a", NOW + timedelta(seconds=1)).scheduled == 1
    assert store.load("b", NOW).oldest_pending == NOW


def test_load_does_not_count_what_an_operator_deleted(server, store, a_record):
    record, other = a_record(), a_record()
    for each in (record, other):
        store.create(each)
    server.raw.delete(f"pombo:record:{record.key}")
    assert store.load(None, NOW).messages[State.PENDING] == 1


def test_backlog_does_not_count_failed_receipts_of_what_has_expired(server, store, a_record):
    for expire_at in (None, NOW + timedelta(days=1)):
        record = a_record(state=State.DONE, expire_at=expire_at)
        store.create(record)
        note_receipt(store, echo_of(record), receipt(ReceiptKind.FAILED))
    server.raw.zadd("pombo:listed:refused", {"gone": (time.time() - 1) * 1000})
    assert store.backlog().receipts_failed == 2


def test_record_that_no_longer_expires_preserves_its_index_entries(server, store, a_record):
    record = a_record(state=State.DONE, expire_at=NOW + timedelta(days=1), provider_id="SM1")
    store.create(record)
    assert set(lives(server).values()) == {timedelta(days=1)}
    store.change(record.key, writing(state=State.PENDING, expire_at=None))
    assert set(lives(server).values()) == {None}


def test_retention_is_computed_by_our_clock_and_enforced_by_redis(server, opened, a_record):
    """However far the two are apart; and what expires at once is there for whoever wrote it."""
    store = opened(now=NOW + timedelta(days=3))
    store.create(a_record(key="a", state=State.DONE, expire_at=NOW + timedelta(days=8)))
    store.create(a_record(key="b", state=State.DONE, expire_at=NOW))
    assert lives(server)["pombo:record:a"] == timedelta(days=5)
    assert lives(server)["pombo:record:b"] == LEAST_LIFE


def test_an_event_leads_no_longer_to_what_has_expired(server, store, a_record):
    one, other = (a_record(correlation_id="correlation-x", state=State.DONE, expire_at=NOW) for _ in range(2))
    store.create(one)
    index = "pombo:correlation:correlation-x"
    server.raw.zadd(index, {one.key: 1})  # as its expiry would have it, long after
    server.raw.delete(f"pombo:record:{one.key}")
    assert list(store.by_correlation("correlation-x")) == []
    store.create(other)
    assert server.raw.zrange(index, 0, -1) == [other.key]


def test_receipts_without_an_echo_live_as_long_as_the_last_of_them(server, store):
    note_receipt(store, None, receipt(ReceiptKind.SENT))
    (name,) = lives(server)
    server.raw.pexpire(name, 1_000_000)
    note_receipt(store, None, receipt(ReceiptKind.READ))
    assert lives(server) == {name: LIMITS.receipt_retention}


def test_keys_of_deleted_records_delay_neither_sweep_nor_counts(server, store, a_record):
    records = [a_record(sweep_at=NOW - timedelta(seconds=100 - n), received_at=NOW + timedelta(n)) for n in range(12)]
    for record in records:
        store.create(record)
    for record in records[:5] + records[6:8]:
        server.raw.delete(f"pombo:record:{record.key}")
    left = [records[5], *records[8:]]
    assert store.overdue(NOW, limit=3) == [record.key for record in left[:3]]
    assert store.overdue(NOW, limit=30) == [record.key for record in left]
    assert server.raw.zcard("pombo:sweep") == len(left)
    assert store.backlog().counts[State.PENDING] == len(left)
    server.raw.delete(f"pombo:record:{records[5].key}")
    assert store.backlog().oldest_pending == records[8].received_at
    assert store.backlog().counts[State.PENDING] == len(left) - 1


def test_deleted_dead_letter_is_not_the_oldest(server, store, a_record):
    records = [a_record(state=State.DEAD, received_at=NOW + timedelta(n)) for n in range(2)]
    for record in records:
        store.create(record)
    server.raw.delete(f"pombo:record:{records[0].key}")
    assert store.backlog().oldest_dead == records[1].received_at


# ---- processes and threads


def test_nothing_is_imported_or_connected_before_the_first_use(server):
    program = """
assert not [name for name in sys.modules if name.split(".")[0] == "redis"]
s.ping()
s.close()
"""
    run(program, server.url)


def test_a_process_forked_after_use_works_and_so_does_its_parent(server, store):
    program = """
s.create(record("one"))
child = os.fork()
for _ in range(50):
    s.change("one", add)
if child == 0:
    s.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
s.change("one", add)
assert s.get("one").attempt == 101, s.get("one").attempt
s.close()
"""
    run(program, server.url)
    assert store.get("one").attempt == 101


def test_a_child_that_closes_leaves_its_parents_connections_alone(server, store):
    program = """
s.create(record("one"))
child = os.fork()
if child == 0:
    s.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
made = s._client._redis(2.0).connection_pool
socket_before = made._available_connections[0]._sock
s.create_all([record("two"), record("three")], Deadline.of_webhook(time.monotonic))
assert made._available_connections[0]._sock is socket_before
s.close()
"""
    run(program, server.url)
    assert store.get("three").attempt == 0


def test_closed_store_refuses_and_leaves_no_connection(server, opened, a_record):
    others = len(server.raw.client_list())
    store = opened()
    threads = [threading.Thread(target=store.create, args=(a_record(),)) for _ in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.raw.dbsize() > 64
    store.close()
    with pytest.raises(StoreUnavailable):
        store.ping()
    until(lambda: len(server.raw.client_list()) == others)


def test_every_call_is_one_round_trip(server, store, a_record):
    record, reply = a_record(provider_id="SM1"), a_record()
    store.create(record)
    seen = store.get(record.key)
    calls: list[Callable[[], Any]] = [
        lambda: store.create(reply),
        lambda: store.get(record.key),
        lambda: store.change(record.key, lambda found: Step(OK, next=Ensure(found))),
        lambda: store.change(record.key, adding, seen),
        lambda: note_receipt(store, echo_of(record), receipt()),
        lambda: note_receipt(store, None, receipt()),
        lambda: store.in_turn("a/0", "a/1"),
        lambda: store.create(a_record(), [a_conversation(a_record().key), SenderLane(a_record().key)]),
        lambda: store.conversation_entries([ID, "b" * 40]),
        lambda: store.conversations("default", None, 10),
        lambda: store.of_conversation(ID, None, 10),
        lambda: store.overdue(NOW, 10),
        store.backlog,
        *(lambda listing=listing: store.listed(listing, None, None, 10) for listing in Listing),
        lambda: store.history("default", None, None, None, 10),
        lambda: store.by_correlation(record.correlation_id),
        lambda: store.by_provider_id("meta", "SM1"),
        lambda: store.change_marks(ID, failing, store.marks(ID)),
        lambda: store.note_receipt_block(ID, NOTED),
        lambda: store.troubled(None, 10),
        lambda: store.entries([ENTRY, OTHER]),
        lambda: store.entry_page(ENTRY.kind, None, None, 10),
        lambda: store.entry_page(ENTRY.kind, "acme", None, 10),
        lambda: store.commit_entries([EntryWrite(ENTRY, "acme", {}, None), EntryWrite(OTHER, "acme", {}, None)]),
    ]

    def asked() -> int:
        return int(server.raw.info("commandstats")["cmdstat_evalsha"]["calls"])

    for call in calls:
        call()  # the script is known from here on
        before = asked()
        call()
        after = asked()
        assert after - before == (2 if call is calls[3] else 1), "a change that lost a race is decided once more"


# ---- conversations


def a_conversation(id: str = ID, **changes: Any) -> Conversation:
    fields = {"tenant": "default", "provider": "meta", "sender": "100000000000001", "contact": "15550002222"}
    return Conversation(id, **{**fields, "last_message_at": NOW, **changes})


def with_version(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    monkeypatch.setattr("shared.stores.redis.store.new_version", lambda: version)


def test_message_sent_again_is_recognised_though_its_record_has_changed_since(store, monkeypatch, a_record):
    """As after a lost answer, if a worker was quick: by the conversation, which still has the commit's version."""
    record, entries = a_record(conversation=ID), [a_conversation()]
    with_version(monkeypatch, 77)
    assert store.create(record, entries) == Created()
    with_version(monkeypatch, 78)
    store.change(record.key, adding)
    with_version(monkeypatch, 77)
    assert store.create(record, entries) == Created()
    assert store.get(record.key).attempt == 1


def test_commit_sent_again_is_recognised_though_its_conversation_went_on(store, monkeypatch, a_record):
    record, reply = a_record(), a_record()
    store.create(record)
    seen, decided = store.get(record.key), []

    def decide(found: Delivery | None) -> Step:
        decided.append(found)
        return replace(adding(found), create=(reply,), entries=(a_conversation(),))

    with_version(monkeypatch, 77)
    store.change(record.key, decide, seen)
    with_version(monkeypatch, 78)
    store.create(a_record(), [a_conversation(unread=5, version=77)])
    with_version(monkeypatch, 77)
    assert store.change(record.key, decide, seen).write.attempt == 1
    assert len(decided) == 2
    assert (store.get(record.key).attempt, store.conversation_entries([ID])[ID].unread) == (1, 5)


def test_creation_of_others_sent_again_writes_once(store, monkeypatch, a_record):
    """Its own record has no new version."""
    record, reply = a_record(), a_record()
    store.create(record)
    with_version(monkeypatch, 77)
    for _ in range(2):
        store.change(record.key, lambda _: Step(OK, create=(reply,), entries=(a_conversation(),)))
    assert store.get(reply.key) == reply
    with_version(monkeypatch, 78)
    with pytest.raises(ConversationChanged):
        store.change(record.key, lambda _: Step(OK, create=(a_record(),), entries=(a_conversation(),)))


def test_only_a_conversation_is_listed_and_what_became_an_alias_leaves_its_set(server, store, a_record):
    store.create(a_record(), [a_conversation(), SenderLane("b" * 40)])
    found = store.conversation_entries([ID])[ID]
    assert server.raw.keys("pombo:conversations:*") == ["pombo:conversations:default"]
    assert server.raw.hget(f"pombo:conversation:{ID}", "tenant") == "default"
    store.create(a_record(), [Alias(ID, "b" * 40, found.version)])
    assert server.raw.keys("pombo:conversations:*") == []
    assert server.raw.hmget(f"pombo:conversation:{ID}", "tenant", "last_message_at") == ["", ""]


def test_conversation_that_an_operator_deleted_shortens_no_page(server, store, a_record):
    others = [a_conversation(letter * 40, last_message_at=NOW - timedelta(1)) for letter in "bcd"]
    store.create(a_record(), [a_conversation(), *others])
    server.raw.delete(f"pombo:conversation:{ID}")
    page = store.conversations("default", None, 2)
    assert ([found.id for found in page.conversations], page.unread) == (["d" * 40], 0)
    rest = store.conversations("default", page.ends_at, 10).conversations
    assert [found.id for found in rest] == ["c" * 40, "b" * 40]
    assert server.raw.zcard("pombo:conversations:default") == 3
    assert store.create(a_record(), [a_conversation()]) == Created()


@pytest.mark.parametrize("part", ["version", "body"])
@pytest.mark.parametrize("text", [None, "no number and no JSON", "[]"])
def test_conversation_without_its_parts_is_an_unknown_state(server, store, a_record, part, text):
    store.create(a_record(), [a_conversation(), a_conversation("b" * 40)])
    name = f"pombo:conversation:{ID}"
    server.raw.hdel(name, part) if text is None else server.raw.hset(name, part, text)
    with pytest.raises(UnknownState):
        store.conversation_entries([ID])
    page = store.conversations("default", None, 10)
    assert ([found.id for found in page.conversations], page.unread) == (["b" * 40], 1)


def test_messages_of_a_conversation_are_found_40_days_from_the_last_or_as_long(server, store, a_record):
    for days, life in ((8, 40), (50, 50), (8, 50)):
        store.create(a_record(state=State.DONE, expire_at=NOW + timedelta(days=days), conversation=ID))
        assert server.raw.pttl(f"pombo:of_conversation:{ID}") / 86_400_000 == pytest.approx(life, abs=0.01)
    store.create(a_record())
    assert server.raw.keys("pombo:of_conversation:*") == [f"pombo:of_conversation:{ID}"]


def test_expired_messages_leave_their_conversation(server, store, a_record):
    records = [a_record(received_at=NOW + timedelta(seconds=number), conversation=ID) for number in range(60)]
    for record in records:
        store.create(record)
    server.raw.delete(*(f"pombo:record:{record.key}" for record in records[:40]))
    page = store.of_conversation(ID, None, 30)
    assert (len(page.records), page.ends_at is None) == (20, False)
    assert server.raw.zcard(f"pombo:of_conversation:{ID}") == 50
    for _ in range(100):
        store.create(a_record(conversation=ID))
    assert server.raw.zcard(f"pombo:of_conversation:{ID}") < 120 + 20


def test_full_server_takes_no_part_of_a_message_and_its_conversation(server, store, a_record):
    kept, record = a_record(), a_record(conversation=ID)
    store.create(kept)
    server.raw.config_set("maxmemory", 1)
    assert unavailable(lambda: store.create(record, [a_conversation()])).sentence == "Redis is out of memory."
    server.raw.config_set("maxmemory", 0)
    assert (store.get(record.key), store.conversation_entries([ID])) == (None, {})
    assert not server.raw.keys("pombo:*conversation*")


# ---- the registry and troubled senders


def test_commit_sent_again_is_recognised_though_its_entry_has_changed_since(server, store, monkeypatch):
    """As after a lost answer, if another process was quick."""
    write = EntryWrite(ENTRY, "acme", {"n": 1}, None)
    monkeypatch.setattr("shared.stores.redis.registry.new_version", lambda: 77)
    assert store.commit_entries([write]) is True
    monkeypatch.setattr("shared.stores.redis.registry.new_version", lambda: 78)
    (found,) = store.entries([ENTRY])
    assert store.commit_entries([EntryWrite(ENTRY, "acme", {"n": 2}, found.version)])
    monkeypatch.setattr("shared.stores.redis.registry.new_version", lambda: 77)
    assert store.commit_entries([write]) is True
    assert store.entries([ENTRY])[0].fields == {"n": 2}


def test_commit_is_remembered_longer_than_it_may_be_sent_and_not_for_ever(server, store):
    store.commit_entries([EntryWrite(ENTRY, "acme", {"n": 1}, None)])
    (name,) = server.raw.keys("pombo:committed:*")
    assert 2 * PATIENCE < server.raw.pttl(name) / 1000 <= 60
    store.commit_entries([EntryWrite(ENTRY, "acme", {"n": 1}, None)])
    assert server.raw.keys("pombo:committed:*") == [name], "a refused one leaves nothing"


def test_deleted_entry_leaves_nothing_in_the_server(server, store):
    store.commit_entries([EntryWrite(ENTRY, "acme", {}, None), EntryWrite(OTHER, "acme", {}, None)])
    before = {name for name in server.raw.keys("pombo:entr*") if "tenants" in name}
    assert before == {"pombo:entry:tenants:acme", "pombo:entries:tenants", "pombo:entries:tenants:acme"}
    (found,) = store.entries([ENTRY])
    store.commit_entries([EntryWrite(ENTRY, "acme", None, found.version)])
    assert not [name for name in server.raw.keys("pombo:entr*") if "tenants" in name]
    assert store.entries([OTHER]) != [None]


def test_entries_and_marks_that_an_operator_deleted_shorten_no_page(server, store):
    for n in range(6):
        store.commit_entries([EntryWrite(EntryName(EntryKind.TENANT, f"t{n}"), "acme", {}, None)])
        store.note_receipt_block(f"{n:040x}", NOTED)
    server.raw.delete(*(f"pombo:entry:tenants:t{n}" for n in (0, 1, 3)))
    server.raw.delete(*(f"pombo:marks:{n:040x}" for n in (0, 1, 3)))
    for _ in range(2):
        for tenant in (None, "acme"):
            page = store.entry_page(EntryKind.TENANT, tenant, None, 2)
            assert [entry.name.id for entry in page] == ["t2", "t4"]
        assert store.troubled(None, 2) == [f"{n:040x}" for n in (2, 4)]
    assert server.raw.zcard("pombo:entries:tenants") == server.raw.zcard("pombo:troubled") == 3, (
        "the others are forgotten"
    )


def test_entry_without_its_parts_can_be_neither_read_nor_changed(server, store):
    store.commit_entries([EntryWrite(ENTRY, "acme", {"n": 1}, None)])
    for part, broken in (("fields", None), ("version", "new")):
        kept = server.raw.hget("pombo:entry:tenants:acme", part)
        server.raw.hdel("pombo:entry:tenants:acme", part)
        if broken:
            server.raw.hset("pombo:entry:tenants:acme", part, broken)
        (found,) = store.entries([ENTRY])
        assert found.fields == {} or not store.commit_entries([EntryWrite(ENTRY, "acme", {"n": 2}, found.version)])
        server.raw.hset("pombo:entry:tenants:acme", part, kept)
    assert store.entries([ENTRY])[0].fields == {"n": 1}


def test_full_server_takes_no_part_of_a_commit_of_entries(server, store):
    store.commit_entries([EntryWrite(ENTRY, "acme", {"n": 1}, None)])
    (found,) = store.entries([ENTRY])
    keys = server.raw.dbsize()
    server.raw.config_set("maxmemory", 1024)
    for write in (
        EntryWrite(ENTRY, "acme", {"n": 2}, found.version),
        EntryWrite(ENTRY, "acme", None, found.version),
    ):
        with pytest.raises(StoreUnavailable, match="out of memory"):
            store.commit_entries([write, EntryWrite(OTHER, "acme", {"text": "x" * 10_000}, None)])
    assert list(store.entries([ENTRY, OTHER])) == [found, None]
    assert server.raw.dbsize() == keys


def test_healed_sender_leaves_the_sorted_set_with_the_write_that_heals_it(server, store):
    store.change_marks(ID, lambda _: Marks(block=A_BLOCK))
    store.note_receipt_block("b" * 40, NOTED)
    assert server.raw.zrange("pombo:troubled", 0, -1) == [ID, "b" * 40]
    store.change_marks(ID, failing)
    store.change_marks(ID, lambda _: Marks())
    assert server.raw.zrange("pombo:troubled", 0, -1) == ["b" * 40]


def test_troubled_marks_of_an_older_version_are_listed_from_their_next_write(server, store):
    """It wrote marks without listing them, and removes them in the same way."""
    server.raw.hset(f"pombo:marks:{ID}", mapping={"version": 7, "block": to_json(encode_mark(A_BLOCK))})
    assert store.troubled(None, 10) == []
    store.change_marks(ID, failing)
    assert store.troubled(None, 10) == [ID]
    server.raw.hdel(f"pombo:marks:{ID}", "block")
    assert store.troubled(None, 10) == []
    assert server.raw.exists("pombo:troubled") == 0


# ---- versions


def test_fields_of_a_newer_version_are_ignored_on_read_and_preserved_on_write(server, store, a_record):
    record, name = a_record(), "pombo:record:{}".format
    store.create(record)
    body = json.loads(server.raw.hget(name(record.key), "body")) | {"colour": {"red": None}}
    server.raw.hset(name(record.key), mapping={"body": json.dumps(body), "version": "77"})
    assert store.get(record.key) == record
    seen = store.change(record.key, adding).write
    step = store.change(record.key, adding, seen)
    store.change(record.key, adding, store.get(record.key))
    assert step.write.attempt == 2
    stored = json.loads(server.raw.hget(name(record.key), "body"))
    assert (stored["colour"], stored["attempt"]) == ({"red": None}, 3)


def test_unknown_marks_and_fields_of_a_newer_version_are_ignored_and_preserved(server, store):
    credential, name = Credential("f1", NOW), f"pombo:marks:{ID}"
    store.change_marks(ID, lambda marks: replace(marks, credential=credential))
    added = json.loads(server.raw.hget(name, "credential")) | {"novelty": 1}
    server.raw.hset(name, mapping={"credential": json.dumps(added), "novelty": "kept"})
    assert store.marks(ID) == Marks(credential=credential)
    store.change_marks(ID, failing)
    store.note_receipt_block(ID, NOTED)
    assert server.raw.hget(name, "novelty") == "kept"
    assert json.loads(server.raw.hget(name, "credential")) == added
    assert store.marks(ID) == Marks(credential=credential, down=failing(Marks()).down, receipt_block=NOTED)


def test_mark_that_is_not_json_is_an_unknown_state(server, store):
    store.change_marks(ID, failing)
    server.raw.hset(f"pombo:marks:{ID}", "down", "no JSON")
    with pytest.raises(UnknownState):
        store.marks(ID)


def test_receipt_kind_of_a_newer_version_is_skipped(server, store, a_record):
    record = a_record(provider_id="SM1")
    store.create(record)
    id_hash = provider_id_hash("meta", "SM1")
    server.raw.hset(f"pombo:record:{record.key}", f"receipt:0:forwarded:{id_hash}", "1:")
    server.raw.hset(f"pombo:unechoed:{id_hash}", "forwarded", "1:")
    note_receipt(store, echo_of(record), receipt(ReceiptKind.SENT))
    assert store.get(record.key).current_receipts.sent == NOW


def test_id_prefix_search_continues_over_many_scans_and_stops_in_time(store, a_record, monkeypatch):
    monkeypatch.setattr("shared.stores.redis.store.SEARCH_NAMES", 1)
    records = [a_record(key=f"abcdef01{n:032}") for n in range(30)]
    for record in records:
        store.create(record)
    assert list(store.ids_with_prefix("abcdef01", 100)) == [record.key for record in records]
    for looked, is_in_time in ((100.0, True), (110.0, True), (110.5, False)):
        clock = SimpleNamespace(monotonic=itertools.chain([100.0], itertools.repeat(looked)).__next__)
        monkeypatch.setattr("shared.stores.redis.store.time", clock)
        if is_in_time:
            assert len(store.ids_with_prefix("abcdef01", 100)) == 30
        else:
            with pytest.raises(StoreUnavailable, match="give the whole id"):
                store.ids_with_prefix("abcdef01", 100)


def test_store_clock_is_the_servers(store):
    assert abs(store.time() - datetime.now(UTC)) < timedelta(seconds=5)
