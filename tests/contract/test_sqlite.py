"""What only the SQLite store promises: several processes, kills, forks, full disks and files of other versions."""

import itertools
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from shared.domain.conversations import Conversation
from shared.domain.counters import KEPT_FOR, WHOLE, Cell, Measure, ProcessCounters
from shared.domain.deadline import Deadline
from shared.domain.delivery.answers import Answer, Step, TaskResult
from shared.domain.errors import StoreUnavailable, UnknownState
from shared.domain.events import ReceiptBlock, ReceiptReceived
from shared.domain.identity import Echo
from shared.domain.limits import Limits
from shared.domain.listings import Listing
from shared.domain.marks import Block, Credential, Marks, Outage
from shared.domain.record import Attempt, Delivery, Kind, ReceiptKind, State
from shared.pipeline.intake import Created
from shared.pipeline.registry import EntryKind, EntryName, EntryWrite
from shared.stores import marks_codec
from shared.stores.codec import decode, encode, encode_mark, from_json, moment, to_json
from shared.stores.sqlite import listings
from shared.stores.sqlite.fair_lock import FairLock
from shared.stores.sqlite.schema import VERSION, UnknownVersion
from shared.stores.sqlite.store import SqliteStore
from tests.support.receipts import note_receipt

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
OK = Answer(TaskResult.ACK, "ok")
ID = "a" * 40
"""Of marks."""
A_BLOCK = Block(NOW, timedelta(minutes=10), 368)
NOTED = ReceiptBlock(131031, NOW)
COUNTERS = ProcessCounters("p1", NOW, {Cell(1, WHOLE, Measure.SENT): 1})
ENTRY, OTHER = EntryName(EntryKind.TENANT, "acme"), EntryName(EntryKind.SENDER, "s1")

PREAMBLE = """
import os, resource, signal, sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from shared.domain.delivery.answers import Answer, Step, TaskResult
from shared.domain.errors import StoreUnavailable
from shared.domain.limits import Limits
from shared.domain.record import Delivery, Kind, State
from shared.stores.sqlite.store import SqliteStore

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)

def record(key, **changes):
    fields = dict(kind=Kind.OUTBOUND, provider="meta", tenant="t", sender="s", contact="c")
    fields |= dict(correlation_id="correlation-1")
    return Delivery(key, **fields | dict(state=State.PENDING, received_at=NOW, payload={}) | changes)

def add(found):
    more = record(f"reply-{found.attempt}")
    return Step(Answer(TaskResult.ACK, ""), replace(found, attempt=found.attempt + 1), (more,))

def store():
    return SqliteStore(Path(sys.argv[1]), Limits(), lambda: NOW)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pombo.sqlite"


@pytest.fixture
def opened(path: Path) -> Iterator[Callable[[], SqliteStore]]:
    """Opens clients of the file, and closes them in the end."""
    stores: list[SqliteStore] = []

    def open_one() -> SqliteStore:
        stores.append(SqliteStore(path, Limits(), lambda: NOW))
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


@pytest.fixture
def store(opened: Callable[[], SqliteStore]) -> SqliteStore:
    return opened()


def receipt(kind: ReceiptKind = ReceiptKind.SENT, provider_id: str = "wamid.1") -> ReceiptReceived:
    return ReceiptReceived("meta", "s", provider_id, kind, NOW)


def process(path: Path, program: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", PREAMBLE + program, str(path)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)


def said(running: "subprocess.Popen[str]") -> str:
    """All it printed, once it has ended well."""
    output, _ = running.communicate(timeout=60)
    assert running.returncode == 0, output
    return output


@contextmanager
def sql(path: Path) -> Iterator[sqlite3.Connection]:
    db = sqlite3.connect(path, isolation_level=None)
    try:
        yield db
    finally:
        db.close()


def failing(current: Marks) -> Marks:
    return replace(current, down=Outage(NOW, (current.down or Outage(NOW)).wait + timedelta(seconds=1)))


def adding(found: Delivery | None) -> Step:
    assert found is not None
    return Step(OK, write=replace(found, attempt=found.attempt + 1))


# ---- processes


def test_processes_that_start_at_once_make_one_file_and_lose_no_write(path, store):
    program = """
s = store()
sys.stdin.readline()
s.create(record("one"))
for _ in range(25):
    s.change("one", add)
s.close()
"""
    running = [process(path, program) for _ in range(6)]
    for each in running:
        each.stdin.write("go\n")
        each.stdin.flush()
    for each in running:
        said(each)
    assert store.get("one").attempt == 150
    assert len(store.by_correlation("correlation-1")) == 151


def test_killed_writer_leaves_no_partial_write_and_undoes_no_acknowledged_one(path, store, a_record):
    """Each change adds one and creates one, so the two numbers must agree wherever the kill came."""
    store.create(a_record(key="one", correlation_id="correlation-1"))
    program = """
s = store()
while True:
    print(s.change("one", add).write.attempt, flush=True)
"""
    for lines in (1, 2, 5, 11, 23):
        running = process(path, program)
        acked = [running.stdout.readline() for _ in range(lines)]
        running.send_signal(signal.SIGKILL)
        acked += running.stdout.readlines()  # not communicate, which passes over what is already buffered
        running.communicate()
        last_acked = int([line for line in acked if line.endswith("\n")][-1])
        attempt = store.get("one").attempt
        assert attempt in (last_acked, last_acked + 1)
        assert len(store.by_correlation("correlation-1")) == attempt + 1
    assert store.create(a_record()) == Created()


def test_a_writer_that_is_killed_within_its_transaction_holds_nothing(path, store, a_record):
    record = a_record(key="one")
    store.create(record)
    program = """
s = store()
seen = []
def decide(found):  # the first time from what is seen, then within the transaction
    seen.append(found)
    if len(seen) == 2:
        print("within", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return add(found)
s.change("one", decide, record("one"))
"""
    running = process(path, program)
    assert running.communicate(timeout=60)[0] == "within\n"
    assert running.returncode == -signal.SIGKILL
    assert store.get("one") == record
    assert store.get("reply-0") is None
    assert store.change("one", adding).write.attempt == 1


def test_a_file_that_another_process_holds_for_long_is_unavailable_and_can_be_read(path, store, a_record):
    record = a_record()
    store.create(record)
    holder = process(
        path,
        """
import sqlite3
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
db.close()
""",
    )
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(StoreUnavailable) as refused:
        store.change(record.key, adding)
    assert isinstance(refused.value.__cause__, sqlite3.OperationalError)
    assert store.get(record.key) == record
    with pytest.raises(StoreUnavailable):
        store.ping()  # what can only be read takes no message
    holder.communicate("go\n", timeout=60)
    assert store.change(record.key, adding).write.attempt == 1


def test_a_process_forked_after_use_works_and_so_does_its_parent(path):
    program = """
s = store()
s.create(record("one"))
child = os.fork()
for _ in range(50):
    s.change("one", add)
if child == 0:
    s.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert s.get("one").attempt == 100, s.get("one").attempt
s.close()
"""
    said(process(path, program))


def test_writes_of_a_child_survive_a_parent_that_closes_first(path, store):
    """A connection carried over a fork would lose it: the parent would delete the log that the child still writes."""
    program = """
s = store()
s.create(record("one"))
begin, closed = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    s.create(record("two"))
    os.write(begin[1], b".")
    os.read(closed[0], 1)
    s.create(record("three"))
    os._exit(0)
os.read(begin[0], 1)
s.create(record("four"))
s.close()
os.write(closed[1], b".")
assert os.waitpid(child, 0)[1] == 0
"""
    said(process(path, program))
    assert all(store.get(key) for key in ("one", "two", "three", "four"))


def test_a_child_forked_while_the_store_is_in_use_refuses(path):
    program = """
s = store()
s.create(record("one"))
def fork(found):
    if os.fork() == 0:
        try:
            s.get("one")
        except StoreUnavailable:
            os._exit(7)
        os._exit(0)
    return add(found)
s.change("one", fork, record("one", version=1))
statuses = sorted(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(2))
assert statuses == [0, 7], statuses  # the first was decided before, the second within the transaction
assert s.get("one").attempt == 1
s.close()
"""
    said(process(path, program))


# ---- the file


def test_a_file_of_an_unknown_version_stops_the_start_with_a_sentence(path, store):
    with sql(path) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(UnknownVersion, match=f"layout 99 and this Pombo reads {VERSION}"):
        store.ping()
    with sql(path) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",), "it is not ours to change"
        assert db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)


def schema(path: Path) -> dict[str, str]:
    with sql(path) as db:
        return dict(db.execute("SELECT name, sql FROM sqlite_master"))


def as_layout(version: int, path: Path) -> None:
    """Make the file one that an older Pombo left behind."""
    with sql(path) as db:
        db.execute("DROP TABLE registry")
        db.execute("DROP TABLE counters")
        db.execute("DROP INDEX marks_troubled")
        if version == 3:
            return
        db.execute("DROP TABLE marks")
        db.execute("CREATE TABLE credentials (tenant TEXT PRIMARY KEY, fingerprint TEXT NOT NULL) WITHOUT ROWID")
        db.execute("CREATE TABLE blocks (tenant TEXT, sender TEXT, PRIMARY KEY (tenant, sender)) WITHOUT ROWID")
        db.execute("INSERT INTO credentials VALUES ('default', 'f1')")
        db.execute("INSERT INTO blocks VALUES ('default', 's')")
        if version == 1:
            db.execute("DROP INDEX receipts_failed")
            db.execute("DROP INDEX unechoed_failed")
        db.execute(f"PRAGMA user_version = {version}")


@pytest.mark.parametrize("version", [1, 2])
def test_file_of_an_older_layout_is_migrated_and_preserves_its_records(path, store, opened, a_record, version):
    record = a_record(state=State.DONE)
    store.create(record)
    failed = ReceiptReceived("meta", "1", "wamid.1", ReceiptKind.FAILED, NOW)
    note_receipt(store, Echo(record.key, 0, record.correlation_id), failed)
    store.close()
    fresh = schema(path)
    as_layout(version, path)
    again = opened()
    assert [found.key for found in again.listed(Listing.REFUSED, None, None, 10).records] == [record.key]
    assert again.marks(ID) == Marks()
    again.note_receipt_block(ID, NOTED)
    assert schema(path) == fresh
    with sql(path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (VERSION,)


def test_file_without_registry_and_its_index_gets_them_and_preserves_its_marks(path, store, opened):
    store.change_marks(ID, lambda _: Marks(block=A_BLOCK))
    store.change_marks("b" * 40, failing)
    store.note_receipt_block("c" * 40, NOTED)
    marks = store.marks(ID)
    store.close()
    fresh = schema(path)
    as_layout(3, path)
    again = opened()
    assert again.troubled(None, 10) == [ID, "c" * 40]
    assert again.marks(ID) == marks
    assert again.commit_entries([EntryWrite(ENTRY, "acme", {}, None)])
    assert schema(path) == fresh


def test_older_pombo_beside_this_one_can_use_the_file_and_its_marks_are_listed(path, store, opened):
    """With the statements of layout 3: it opens the file, says that it works, writes marks and heals them."""
    store.commit_entries([EntryWrite(ENTRY, "acme", {"n": 1}, None)])
    store.change_marks(ID, lambda _: Marks(block=A_BLOCK))
    with sql(path) as older:
        assert older.execute("PRAGMA user_version").fetchone()[0] in (0, 1, 2, 3), "it refuses any other"
        older.execute("PRAGMA user_version = 3")
        body, noted = to_json({"refused": {"fingerprint": "f1"}}), to_json(encode_mark(NOTED))
        write = "REPLACE INTO marks (id, version, body, receipt_block) VALUES (?, ?, ?, ?)"
        older.execute(write, ("b" * 40, 7, body, None))
        older.execute("INSERT INTO marks (id, version, body, receipt_block) VALUES (?, 8, '{}', ?)", ("c" * 40, noted))
        older.execute(write, ("d" * 40, 9, "no JSON", None))
        assert store.troubled(None, 10) == [ID, "b" * 40, "c" * 40]
        older.execute(write, (ID, 10, "{}", None))
        assert store.troubled(None, 10) == opened().troubled(None, 10) == ["b" * 40, "c" * 40]
    assert opened().entries([ENTRY])[0].fields == {"n": 1}


def test_registry_and_troubled_marks_are_found_by_an_index_however_many_there_are(path, store):
    store.ping()
    names = [EntryName(EntryKind.SENDER, "s"), ENTRY]
    plans = {
        "entries": lambda: store.entries(names),
        "page": lambda: store.entry_page(EntryKind.SENDER, None, "s", 10),
        "page of a tenant": lambda: store.entry_page(EntryKind.SENDER, "acme", "s", 10),
        "troubled": lambda: store.troubled("a", 10),
    }
    asked: list[str] = []
    store._file.read(lambda db: db.set_trace_callback(asked.append))
    for call in plans.values():
        call()
    with sql(path) as db:
        queries = [statement for statement in asked if statement not in ("BEGIN", "COMMIT")]
        steps = [[step for *_, step in db.execute(f"EXPLAIN QUERY PLAN {query}")] for query in queries]
    assert steps == [
        ["SEARCH registry USING PRIMARY KEY (kind=? AND id=?)"],
        ["SEARCH registry USING PRIMARY KEY (kind=? AND id=?)"],
        ["SEARCH registry USING PRIMARY KEY (kind=? AND id>?)"],
        ["SEARCH registry USING INDEX registry_by_tenant (kind=? AND tenant=? AND id>?)"],
        ["SEARCH marks USING INDEX marks_troubled (id>?)"],
    ]


def test_ten_thousand_tenants_and_healthy_senders_cost_no_read_more(path, store):
    """In steps of SQLite's virtual machine."""
    store.commit_entries([EntryWrite(ENTRY, "acme", {}, None), EntryWrite(OTHER, "acme", {}, None)])
    store.change_marks(ID, lambda _: Marks(block=A_BLOCK))

    def steps() -> list[int]:
        def counted(call: Callable[[], object]) -> int:
            count = itertools.count()
            store._file.read(lambda db: db.set_progress_handler(lambda: next(count) and None, 1))
            assert call()
            return next(count)

        return [
            counted(lambda: store.entries([ENTRY, OTHER])),
            counted(lambda: store.entry_page(ENTRY.kind, "acme", None, 10)),
            counted(lambda: store.entry_page(ENTRY.kind, None, None, 1)),
            counted(lambda: store.troubled(None, 10)),
        ]

    few = steps()
    with sql(path) as db:
        rows = [(f"b{n}", f"t{n}", n, "{}") for n in range(10_000)]
        db.execute("BEGIN")
        db.executemany("INSERT INTO registry (kind, id, tenant, version, fields) VALUES ('tenants', ?, ?, ?, ?)", rows)
        db.executemany("INSERT INTO registry (kind, id, tenant, version, fields) VALUES ('senders', ?, ?, ?, ?)", rows)
        healthy = to_json(marks_codec.changes(Marks(), failing(Marks())))
        marks = [(f"b{n}", n, healthy) for n in range(10_000)]
        db.executemany("INSERT INTO marks (id, version, body) VALUES (?, ?, ?)", marks)
        db.execute("COMMIT")
    assert all(now <= before + 3 for now, before in zip(steps(), few, strict=True)), "the end of an index costs less"


def test_empty_file_gets_the_tables(path, store):
    path.touch()
    store.note_receipt_block(ID, NOTED)
    assert store.marks(ID) == Marks(receipt_block=NOTED)
    assert {"marks", "registry"} < schema(path).keys()
    assert not {"credentials", "blocks"} & schema(path).keys()


def test_number_of_an_older_layout_set_again_loses_no_marks(path, store, opened):
    """An older Pombo that still runs on the file sets its own number whenever it is asked whether it works."""
    store.note_receipt_block(ID, NOTED)
    store.close()
    for version in (1, 2):
        with sql(path) as db:
            db.execute(f"PRAGMA user_version = {version}")
        assert opened().marks(ID) == Marks(receipt_block=NOTED)


@pytest.mark.parametrize("listing", Listing)
def test_a_listing_reads_by_an_index_and_not_the_whole_file(path, store, listing):
    store.ping()
    with sql(path) as db:
        asked = []
        db.set_trace_callback(asked.append)
        listings.page(db, listing, None, None, 10)
        db.set_trace_callback(None)
        plan = [step for query in asked for *_, step in db.execute(f"EXPLAIN QUERY PLAN {query}")]
    assert plan
    assert not [step for step in plan if step.startswith("SCAN") and "INDEX" not in step and "subquery" not in step]


def test_what_is_in_the_way_in_a_turn_is_found_by_an_index_of_open_records(path, store):
    store.ping()
    with sql(path) as db:
        asked = []
        db.set_trace_callback(asked.append)
        listings.last_in_turn(db, "a/0/", "a/1/")
        db.set_trace_callback(None)
        (query,) = asked
        plan = [step for *_, step in db.execute(f"EXPLAIN QUERY PLAN {query}")]
        assert plan == ["SEARCH records USING INDEX records_by_place (<expr>>? AND <expr><?)"]
        ((made,),) = db.execute("SELECT sql FROM sqlite_master WHERE name = 'records_by_place'")
        assert made.endswith(" WHERE state IN ('leased', 'pending')"), "a write of any other record evaluates no JSON"


@pytest.mark.parametrize("between", [(None, None), (NOW, NOW)])
@pytest.mark.parametrize("after", [None, ("2026-03-01T12:00:00.000000+00:00", "a" * 40)])
def test_a_history_reads_its_page_by_an_index_and_sorts_nothing(path, store, between, after):
    store.ping()
    with sql(path) as db:
        asked = []
        db.set_trace_callback(asked.append)
        listings.history(db, "default", *between, after, 10)
        db.set_trace_callback(None)
        (query,) = asked
        plan = [step for *_, step in db.execute(f"EXPLAIN QUERY PLAN {query}")]
    assert plan == ["SEARCH records USING COVERING INDEX records_by_age (tenant=? AND received_at>? AND received_at<?)"]


def test_last_page_of_a_history_costs_no_more_steps_than_the_first(path, store, a_record):
    """In steps of SQLite's virtual machine; each page has 10 records."""
    for number in range(300):
        store.create(a_record(received_at=NOW + timedelta(seconds=number)))

    def steps(after: Any) -> int:
        count = itertools.count()
        with sql(path) as db:
            db.set_progress_handler(lambda: next(count) and None, 1)
            assert len(listings.history(db, "default", None, NOW + timedelta(days=1), after, 10).records) == 10
        return next(count)

    first, last = steps(None), steps((moment(NOW + timedelta(seconds=10)), ""))
    assert last <= first + 10


def test_failed_receipts_are_counted_by_an_index_and_not_by_reading_all_records(path, store):
    store.ping()
    with sql(path) as db:
        asked = []
        db.set_trace_callback(asked.append)
        listings.count_refused(db)
        db.set_trace_callback(None)
        (query,) = asked
        plan = [step for *_, step in db.execute(f"EXPLAIN QUERY PLAN {query}")]
    scans = {step for step in plan if step.startswith("SCAN") and "subquery" not in step}
    assert scans == {
        "SCAN receipts USING COVERING INDEX receipts_failed",
        "SCAN unechoed USING COVERING INDEX unechoed_failed",
    }


def test_invalid_body_hides_no_other_record(path, store, a_record):
    for listing, fields_ in ((Listing.DEAD, {"state": State.DEAD}), (Listing.REPLAYED, {"round": 1})):
        good, bad = a_record(**fields_), a_record(**fields_)
        store.create(good)
        store.create(bad)
        with sql(path) as db:
            db.execute("UPDATE records SET body = 'no JSON' WHERE key = ?", (bad.key,))
        assert [found.key for found in store.listed(listing, None, None, 10).records] == [good.key]


def test_load_does_not_count_an_invalid_body_and_the_backlog_does(path, store, a_record):
    good, bad = a_record(), a_record(received_at=NOW - timedelta(seconds=5))
    for record in (good, bad):
        store.create(record)
    with sql(path) as db:
        db.execute("UPDATE records SET body = 'no JSON' WHERE key = ?", (bad.key,))
    assert store.load(None, NOW).messages[State.PENDING] == 1
    backlog = store.backlog()
    assert (backlog.counts[State.PENDING], backlog.oldest_pending) == (2, bad.received_at)


def test_counters_that_no_longer_matter_are_deleted_with_the_next_write(path, store):
    store.keep_counters(COUNTERS)
    store.keep_counters(replace(COUNTERS, process="p2", flushed_at=NOW + 2 * KEPT_FOR))
    store.keep_counters(replace(COUNTERS, process="p3", flushed_at=NOW + 2 * KEPT_FOR + timedelta(seconds=1)))
    with sql(path) as db:
        assert db.execute("SELECT process FROM counters ORDER BY process").fetchall() == [("p2",), ("p3",)]


def test_damaged_counters_hide_no_others(path, store):
    for process in ("p1", "p2"):
        store.keep_counters(replace(COUNTERS, process=process))
    with sql(path) as db:
        db.execute("UPDATE counters SET counts = 'no JSON' WHERE process = 'p1'")
    assert [one.process for one in store.recent_counters(NOW)] == ["p2"]


def test_nothing_is_opened_before_the_first_use(path):
    SqliteStore(path, Limits(), lambda: NOW).close()
    assert not path.exists()


def test_file_is_readable_by_its_owner_only(path, store, a_record):
    store.create(a_record())
    assert {file.stat().st_mode & 0o077 for file in path.parent.glob("pombo.sqlite*")} == {0}


def test_a_commit_is_on_the_disk_before_it_returns(path, store):
    store.ping()
    settings = store._file.read(
        lambda db: [db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
    )
    assert settings == ["wal", 2]


def test_file_that_is_not_a_database_is_unavailable(path, store):
    path.write_bytes(b"not a database at all" * 100)
    with pytest.raises(StoreUnavailable) as refused:
        store.ping()
    assert isinstance(refused.value.__cause__, sqlite3.DatabaseError)
    assert path.read_bytes() == b"not a database at all" * 100


def test_a_missing_directory_is_unavailable_until_it_is_there(tmp_path):
    store = SqliteStore(tmp_path / "later" / "pombo.sqlite", Limits(), lambda: NOW)
    with pytest.raises(StoreUnavailable) as refused:
        store.ping()
    assert str(tmp_path) not in refused.value.sentence
    (tmp_path / "later").mkdir()
    store.ping()
    store.close()


def test_missing_file_is_unavailable_until_it_is_back(path, store, a_record):
    """SQLite alone would go on writing to the deleted file, and every acked record would be lost."""
    record = a_record()
    store.create(record)
    path.rename(path.with_name("aside"))
    for call in (lambda: store.get(record.key), lambda: store.create(record), store.ping):
        with pytest.raises(StoreUnavailable):
            call()
    assert not path.exists()
    path.with_name("aside").rename(path)
    assert store.get(record.key) == record


def test_a_file_that_was_replaced_is_unavailable(path, store, opened, a_record):
    store.create(a_record())
    path.rename(path.with_name("aside"))
    opened().ping()
    with pytest.raises(StoreUnavailable, match="replaced"):
        store.ping()


def test_a_full_disk_is_unavailable_and_nothing_is_half_written(path, store):
    """The limit on a file's size refuses the write just as a full disk does."""
    program = """
s = store()
s.create(record("one"))
whole = tuple(record(f"big-{n}", payload={"body": "x" * 50_000}) for n in range(20))
limit = Path(sys.argv[1] + "-wal").stat().st_size + 400_000
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
try:
    s.change("one", lambda found: Step(Answer(TaskResult.ACK, ""), replace(found, attempt=1), whole))
    raise SystemExit("it went through")
except StoreUnavailable as error:
    print(error.sentence)
assert s.get("one").attempt == 0 and s.get("big-0") is None and s.get("big-19") is None
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
s.change("one", lambda found: Step(Answer(TaskResult.ACK, ""), replace(found, attempt=1), whole))
s.close()
"""
    assert said(process(path, program)).startswith("The store cannot be reached: SQLITE_")
    assert store.get("one").attempt == 1
    assert store.get("big-19") is not None


def test_a_full_page_quota_is_unavailable_and_nothing_is_half_written(store, a_record):
    record = a_record()
    store.create(record)
    store._file.read(lambda db: db.execute("PRAGMA max_page_count = 40"))
    big = tuple(a_record(payload={"body": "x" * 50_000}) for _ in range(20))
    with pytest.raises(StoreUnavailable, match="SQLITE_FULL"):
        store.change(record.key, lambda found: Step(OK, replace(found, attempt=1), big))
    assert store.get(record.key) == record
    assert [store.get(each.key) for each in big] == [None] * 20
    store.change(record.key, lambda found: Step(OK, replace(found, attempt=1), big))
    assert store.get(big[-1].key) == big[-1]


def test_closed_store_refuses_and_leaves_no_connection(path, opened, a_record):
    store = opened()
    store.create(a_record())
    store.close()
    with pytest.raises(StoreUnavailable):
        store.ping()
    assert not path.with_name("pombo.sqlite-wal").exists(), "the last connection takes the log along"


def test_threads_share_few_connections_and_leave_none_behind(store, a_record):
    for _ in range(3):
        threads = [threading.Thread(target=store.create, args=(a_record(),)) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(store._file._open) <= 20
    assert len(store._file._open) == len(store._file._idle)


# ---- purge: nobody else deletes what has expired


def test_only_what_has_expired_is_deleted_and_no_more_than_asked(store, a_record):
    expired = [a_record(state=State.DONE, expire_at=NOW - timedelta(seconds=n)) for n in range(3)]
    kept = [a_record(state=State.DONE, expire_at=NOW + timedelta(seconds=1)), a_record(state=State.DEAD), a_record()]
    for record in expired + kept:
        store.create(record)
    assert store.purge(NOW, limit=2) == 2
    assert store.purge(NOW, limit=2) == 1
    assert store.purge(NOW, limit=2) == 0
    assert [store.get(record.key) for record in expired] == [None] * 3
    assert [store.get(record.key) for record in kept] == kept


def test_receipt_that_cannot_be_stored_stops_no_other(store, a_record):
    record = a_record()
    store.create(record)
    echo = Echo(record.key, 0, record.correlation_id)
    receipts = [
        (echo, replace(receipt(), code=2**70)),
        (echo, receipt()),
        (None, receipt(provider_id="\ud800")),
        (None, receipt(ReceiptKind.READ)),
    ]
    refused, noted, refused_too, kept = store.note_receipts(receipts, Deadline.of_webhook(time.monotonic))
    assert (noted, kept) == (True, True)
    assert isinstance(refused, OverflowError)
    assert isinstance(refused_too, UnicodeEncodeError)
    assert store.get(record.key).current_receipts.sent == NOW


def test_each_kind_of_receipt_without_an_echo_has_its_own_retention(path, a_record):
    now = [NOW]
    store = SqliteStore(path, Limits(), lambda: now[0])
    record = a_record(provider_id="SM1")
    store.create(record)
    note_receipt(store, None, ReceiptReceived("meta", "s", "SM1", ReceiptKind.SENT, NOW))
    now[0] = NOW + timedelta(seconds=60)
    note_receipt(store, None, ReceiptReceived("meta", "s", "SM1", ReceiptKind.READ, NOW))
    over = NOW + Limits().receipt_retention
    assert store.purge(over - timedelta(seconds=1), limit=10) == 0
    assert store.purge(over, limit=10) == 1
    assert store.get(record.key).current_receipts.read == NOW
    assert store.get(record.key).current_receipts.sent is None
    assert store.purge(over + timedelta(seconds=60), limit=10) == 1
    assert store.get(record.key).receipts == {}
    store.close()


def test_ping_writes_because_a_full_disk_takes_no_message(path, store):
    store.ping()
    with sql(path) as other:
        before = other.execute("PRAGMA data_version").fetchone()
        store.ping()
        assert other.execute("PRAGMA data_version").fetchone() != before


def test_purge_of_a_locked_file_is_unavailable(path, store, a_record):
    store.create(a_record())
    with sql(path) as db:
        db.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreUnavailable):
            store.purge(NOW, limit=10)


# ---- races and versions


def test_a_receipt_elsewhere_does_not_make_a_change_decide_twice(store, a_record):
    record, other = a_record(), a_record()
    store.create(record)
    store.create(other)
    calls = []

    def decide(found: Delivery | None) -> Step:
        calls.append(found)
        echo = Echo(other.key, 0, other.correlation_id)
        note_receipt(store, echo, ReceiptReceived("meta", "s", "wamid.1", ReceiptKind.SENT, NOW))
        return adding(found)

    store.change(record.key, decide)
    assert len(calls) == 1


def test_a_change_decides_at_most_twice_however_many_others_write(store, a_record):
    """The second time under the lock: there is no race left to lose."""
    record = a_record()
    store.create(record)
    calls: list[int] = []

    def decide(found: Delivery | None) -> Step:
        calls.append(1)
        if len(calls) == 1:
            for _ in range(5):
                store.change(record.key, adding)
        return adding(found)

    assert store.change(record.key, decide).write.attempt == 6
    assert len(calls) == 2


def test_fields_of_a_newer_version_are_ignored_on_read_and_preserved_on_write(path, store, a_record):
    record = a_record()
    store.create(record)
    with sql(path) as db:
        db.execute("""UPDATE records SET body = json_set(body, '$.colour', json('{"red": null}'))""")
    assert store.get(record.key) == record
    seen = store.change(record.key, adding).write
    store.change(record.key, adding, seen)
    with sql(path) as db:
        body = from_json(db.execute("SELECT body FROM records").fetchone()[0])
    assert body["colour"] == {"red": None}
    assert body["attempt"] == 2


def test_backlog_counts_failed_receipts_beside_invalid_bodies(path, store, a_record):
    good, bad, older = (a_record(state=State.DONE) for _ in range(3))
    for record in (good, bad, older):
        store.create(record)
        failed = ReceiptReceived("meta", "1", "wamid.1", ReceiptKind.FAILED, NOW)
        note_receipt(store, Echo(record.key, 0, record.correlation_id), failed)
    with sql(path) as db:
        db.execute("UPDATE records SET body = 'no JSON' WHERE key = ?", (bad.key,))
        db.execute("UPDATE records SET body = json_remove(body, '$.round') WHERE key = ?", (older.key,))
    assert store.backlog().receipts_failed == 2


@pytest.mark.parametrize("body", ["{", "[]", '{"kind": "of a newer version"}', '{"kind": "conversation"}'])
def test_invalid_body_of_a_conversation_is_an_unknown_state_and_hides_no_other(path, store, a_record, body):
    fields = {"tenant": "default", "provider": "meta", "sender": "s", "contact": "c", "last_message_at": NOW}
    store.create(a_record(), [Conversation(ID, **fields), Conversation("b" * 40, **fields)])
    with sql(path) as db:
        db.execute("UPDATE conversations SET body = ? WHERE id = ?", (body, ID))
    with pytest.raises(UnknownState):
        store.conversation_entries([ID])
    page = store.conversations("default", None, 10)
    assert ([found.id for found in page.conversations], page.unread) == (["b" * 40], 1)


def test_change_of_marks_that_changes_nothing_does_not_wait_for_the_file(path, store):
    marks = store.change_marks(ID, failing)[1]
    with sql(path) as db:
        db.execute("BEGIN IMMEDIATE")
        assert store.change_marks(ID, lambda current: current) == (marks, marks)


def test_change_of_marks_decides_at_most_twice_however_many_others_write(store):
    calls: list[int] = []

    def decide(current: Marks) -> Marks:
        calls.append(1)
        if len(calls) == 1:
            for _ in range(5):
                store.change_marks(ID, failing)
        return failing(current)

    assert store.change_marks(ID, decide)[1].down.wait == timedelta(seconds=6)
    assert len(calls) == 2


def test_unknown_marks_and_fields_of_a_newer_version_are_ignored_and_preserved(path, store):
    credential = Credential("f1", NOW)
    store.change_marks(ID, lambda marks: replace(marks, credential=credential))
    with sql(path) as db:
        db.execute("UPDATE marks SET body = json_set(body, '$.novelty', 'kept', '$.credential.novelty', 1)")
    assert store.marks(ID) == Marks(credential=credential)
    store.change_marks(ID, failing)
    store.note_receipt_block(ID, NOTED)
    with sql(path) as db:
        body = from_json(db.execute("SELECT body FROM marks").fetchone()[0])
    assert body["novelty"] == "kept"
    assert body["credential"]["novelty"] == 1
    assert store.marks(ID) == Marks(credential=credential, down=failing(Marks()).down, receipt_block=NOTED)


@pytest.mark.parametrize("column", ["body", "receipt_block"])
@pytest.mark.parametrize("text", ["{", "[]", "7", '"down"', "null", '{"down": 7}', '{"down": null}'])
def test_invalid_marks_are_an_unknown_state(path, store, column, text):
    store.note_receipt_block(ID, NOTED)
    with sql(path) as db:
        db.execute(f"UPDATE marks SET {column} = ?", (text,))
    with pytest.raises(UnknownState):
        store.marks(ID)


def test_receipt_kind_of_a_newer_version_is_skipped(path, store, a_record):
    record = a_record()
    store.create(record)
    with sql(path) as db:
        db.execute("INSERT INTO receipts VALUES (?, 0, 'pinned', 'h', ?, NULL)", (record.key, NOW.isoformat()))
    assert not store.get(record.key).current_receipts.any


def test_invalid_body_is_an_unknown_state(path, store, a_record):
    record = a_record()
    store.create(record)
    for body in ("{", "{}", "[]", '{"state": "pending"}'):
        with sql(path) as db:
            db.execute("UPDATE records SET body = ?", (body,))
        with pytest.raises(UnknownState):
            store.get(record.key)


# ---- the codec


@pytest.mark.parametrize(
    ("field", "value"), [("state", "parked"), ("kind", "sideways"), ("due_at", "soon"), ("due_at", 7)]
)
def test_unknown_value_is_an_unknown_state(a_record, field, value):
    with pytest.raises(UnknownState):
        decode(encode(a_record()) | {field: value})


def test_field_missing_in_an_older_version_has_its_default(a_record):
    record = a_record()
    plain: dict[str, Any] = {
        name: value for name, value in encode(record).items() if name not in ("doubts", "throttled")
    }
    assert decode(plain) == record


def test_an_attempt_of_an_older_version_has_no_reason_and_reads(a_record):
    record = a_record(attempts_log=(Attempt(NOW, 1, "handler_failed", error="E: x", error_type="E", place="a.py:1"),))
    plain = encode(record)
    older = [{name: one[name] for name in ("at", "attempt", "answer", "code")} for one in plain["attempts_log"]]
    assert decode(plain | {"attempts_log": older}).attempts_log == (Attempt(NOW, 1, "handler_failed"),)


def test_emptied_field_is_not_mistaken_for_an_unknown_one(a_record):
    record = a_record(reason="error")
    assert encode(replace(record, reason=None), over=encode(record) | {"colour": 1})["reason"] is None


def test_the_codec_gives_plain_values_only(a_record):
    plain = encode(a_record(state=State.LEASED, kind=Kind.INBOUND))
    assert (type(plain["state"]), type(plain["kind"])) == (str, str)


@pytest.mark.parametrize(
    ("name", "mark"),
    [
        ("down", {}),
        ("down", {"until": "soon"}),
        ("down", {"until": 7}),
        ("down", {"until": None}),
        ("down", {"until": NOW.isoformat(), "wait": "long"}),
        ("down", {"until": NOW.isoformat(), "wait": 10**30}),
        ("down", {"until": NOW.isoformat(), "claim": 7}),
        ("block", {"until": NOW.isoformat(), "wait": 1}),
        ("block", {"until": NOW.isoformat(), "wait": 1, "code": 1, "by_receipt": "yes"}),
        ("receipt_block", {"code": None, "at": NOW.isoformat()}),
        ("disconnected", {"event": "PARTNER_REMOVED"}),
        ("disconnected", {"event": 7, "since": NOW.isoformat()}),
        ("bucket", {}),
        ("bucket", {"next": 7}),
        ("credential", ["fingerprint", "since"]),
        ("credential", "fingerprint"),
        ("credential", 7),
        ("credential", None),
    ],
    ids=str,
)
def test_unreadable_mark_is_an_unknown_state(name, mark):
    with pytest.raises(UnknownState):
        marks_codec.decode({name: mark}, 1)


def test_mark_is_plain_and_without_what_is_none():
    mark = Outage(NOW.astimezone(timezone(timedelta(hours=5, minutes=30))), timedelta(seconds=1.5), by="e")
    assert encode_mark(mark) == {"until": "2026-03-01T12:00:00.000000+00:00", "wait": 1_500_000, "by": "e"}


def test_changes_of_marks_are_those_that_differ():
    before = Marks(down=Outage(NOW), credential=Credential("f1", NOW))
    after = replace(before, down=None, receipt_block=ReceiptBlock(1, NOW))
    assert marks_codec.changes(before, after) == {
        "down": None,
        "receipt_block": {"code": 1, "at": "2026-03-01T12:00:00.000000+00:00"},
    }


# ---- the turn


def test_writers_get_their_turn_in_the_order_they_came():
    turn, order = FairLock(), []
    assert turn.acquire(lambda: 0)

    def write(number: int) -> None:
        assert turn.acquire(lambda: 60)
        order.append(number)
        turn.release()

    threads = []
    for number in range(8):
        threads.append(threading.Thread(target=write, args=(number,)))
        threads[-1].start()
        wait_until(lambda number=number: len(turn._waiting) == number + 1)
    turn.release()
    for thread in threads:
        thread.join()
    assert order == list(range(8))


def test_a_writer_whose_time_is_over_leaves_the_queue_and_its_turn_to_the_next():
    turn = FairLock()
    assert turn.acquire(lambda: 0)
    assert turn.acquire(lambda: 0) is False
    turn.release()
    assert turn.acquire(lambda: 0)


def test_a_writer_that_is_interrupted_leaves_the_turn_with_its_holder():
    def interrupted() -> float:
        raise KeyboardInterrupt

    turn = FairLock()
    assert turn.acquire(lambda: 0)
    with pytest.raises(KeyboardInterrupt):
        turn.acquire(interrupted)
    assert turn.acquire(lambda: 0) is False
    turn.release()
    assert turn.acquire(lambda: 0)


def test_a_writer_that_is_interrupted_as_its_turn_comes_gives_it_to_the_next():
    def interrupted() -> float:
        turn.release()
        raise KeyboardInterrupt

    turn = FairLock()
    assert turn.acquire(lambda: 0)
    with pytest.raises(KeyboardInterrupt):
        turn.acquire(interrupted)
    assert turn.acquire(lambda: 0)


def wait_until(condition: Callable[[], bool], seconds: float = 10) -> None:
    over = threading.Event()
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        over.wait(0.001)


def test_expired_record_leaves_the_list_of_its_conversation(store, a_record, path):
    for key, expires in (("a" * 40, NOW - timedelta(seconds=1)), ("b" * 40, None)):
        store.create(a_record(key=key, state=State.DONE, conversation="c" * 40, expire_at=expires))
    assert store.purge(NOW, 10) == 1
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT key FROM of_conversation").fetchall() == [("b" * 40,)]
