"""What conversations cost on each store, counted: RPCs and documents, Redis commands, steps of SQLite."""

import itertools
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from shared.domain.conversations import Alias, Conversation, SenderLane, Thread, created_in
from shared.domain.delivery.answers import Step
from shared.domain.errors import ConversationChanged
from shared.domain.limits import Limits
from shared.domain.record import Delivery
from shared.stores.firestore.store import FirestoreStore
from shared.stores.redis.store import RedisStore
from shared.stores.sqlite import conversations, listings
from shared.stores.sqlite.store import SqliteStore
from tests.support.firestore_backend import DATABASE, fresh_project, shared_emulator
from tests.support.firestore_middleman import Middleman
from tests.support.redis_backend import RedisServer
from tests.support.store_cases import NOW, OK, at

ID, OTHER, LANE = "1" * 40, "2" * 40, "3" * 40
MANY = 5000
AT_ONCE = 100
"""Entries of one commit."""


def a_conversation(id: str = ID, last_message_at: datetime = NOW, version: int | None = None) -> Conversation:
    return Conversation(
        id, "default", "meta", "100000000000001", "15550002222", last_message_at=last_message_at, version=version
    )


@pytest.fixture
def a_message(a_record: Callable[..., Delivery]) -> Callable[..., Delivery]:
    return lambda **changes: a_record(**{"give_up_at": at(3600)} | changes)


def append(store: Any, message: Delivery) -> None:
    """As the API does."""
    thread = Thread(store.conversation_entries([ID]).get(ID) or a_conversation())
    store.create(*created_in(message, thread, NOW))


def fill(store: Any, a_message: Callable[..., Delivery]) -> None:
    """MANY conversations of one tenant and one of another, a second apart."""
    each = [a_conversation(f"{n:040x}", NOW + timedelta(seconds=n)) for n in range(MANY)]
    each.append(replace(a_conversation(OTHER), tenant="other"))
    for first in range(0, len(each), AT_ONCE):
        store.create(a_message(), each[first : first + AT_ONCE])


def in_the_middle() -> tuple[str, str]:
    return at(MANY // 2).isoformat(timespec="microseconds"), f"{MANY // 2:040x}"


# ---- Firestore


@pytest.fixture
def middleman() -> Iterator[Middleman]:
    with Middleman(shared_emulator()[0].address) as middleman:
        yield middleman


@pytest.fixture
def watched(middleman: Middleman) -> Iterator[FirestoreStore]:
    store = FirestoreStore(fresh_project(), DATABASE, emulator=middleman.address)
    store.ping()
    middleman.calls.clear()
    yield store
    store.close()


def asked(middleman: Middleman, call: Callable[[], Any]) -> Sequence[tuple[str, int, int]]:
    """The RPCs of a call, each with the documents that it reads by name and writes."""
    middleman.calls.clear()
    call()
    return [(it.method, it.reads, it.writes) for it in middleman.calls]


def test_firestore_creates_a_message_with_entries_in_one_commit_without_a_read(watched, middleman, a_message):
    entries = [a_conversation(), Alias(OTHER, ID), SenderLane(LANE)]
    assert asked(middleman, lambda: watched.create(a_message(), entries)) == [("Commit", 0, 4)]
    ids = [ID, OTHER, LANE]
    assert asked(middleman, lambda: watched.conversation_entries(ids)) == [("BatchGetDocuments", 3, 0)]


def test_firestore_changes_a_record_with_an_entry_for_one_write_more(watched, middleman, a_message):
    event = a_message()
    watched.create(event, [a_conversation()])
    seen, (found,) = watched.get(event.key), watched.conversation_entries([ID]).values()

    def end(it: Delivery) -> Step:
        return Step(OK, replace(it, plan_size=1), entries=(replace(found, unread=1),))

    assert asked(middleman, lambda: watched.change(event.key, end, seen)) == [("Commit", 0, 2)]


@pytest.mark.parametrize("is_new", [True, False])
def test_firestore_tells_by_one_read_that_an_entry_has_moved(watched, middleman, a_message, is_new):
    stored = a_message()
    watched.create(stored, [a_conversation()])
    seen, entries = watched.get(stored.key), (a_conversation(version=1_700_000_000_000_000_000), SenderLane(LANE))

    def end(it: Delivery) -> Step:
        return Step(OK, replace(it, plan_size=1), entries=entries)

    def refused() -> None:
        with pytest.raises(ConversationChanged):
            watched.create(a_message(), entries) if is_new else watched.change(stored.key, end, seen)

    assert asked(middleman, refused) == [("Commit", 0, 3), ("BatchGetDocuments", 3, 0)]


def test_firestore_message_costs_the_same_however_many_its_conversation_has(watched, middleman, a_message):
    def cost() -> tuple[Sequence[tuple[str, int, int]], Sequence[int]]:
        made = asked(middleman, lambda: append(watched, a_message()))
        return made, [len(it.request) // 100 for it in middleman.calls]

    append(watched, a_message())
    second = cost()
    for _ in range(100):
        append(watched, a_message())
    assert cost() == second
    assert second[0] == [("BatchGetDocuments", 1, 0), ("Commit", 0, 2)]


def test_firestore_page_of_5000_conversations_is_one_query_for_its_page(watched, middleman, a_message):
    fill(watched, a_message)
    for after in (None, in_the_middle()):
        middleman.answered = 0
        assert asked(middleman, lambda after=after: watched.conversations("default", after, 10)) == [("RunQuery", 0, 0)]
        assert middleman.answered < 10 * 1000, "ten documents"
    page = watched.conversations("default", in_the_middle(), 10)
    assert [found.id for found in page.conversations] == [f"{MANY // 2 - n:040x}" for n in range(1, 11)]


def test_firestore_page_of_a_conversation_is_one_query_for_its_page(watched, middleman, a_message):
    for number in range(9):
        watched.create(a_message(received_at=at(number), payload={"body": "x" * 50_000}, conversation=ID))
    page = watched.of_conversation(ID, None, 2)
    middleman.answered = 0
    assert asked(middleman, lambda: watched.of_conversation(ID, page.ends_at, 2)) == [("RunQuery", 0, 0)]
    assert middleman.answered < 3 * 50_000


# ---- Redis


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path) as server:
        yield server


@pytest.fixture
def redis(server: RedisServer) -> Iterator[RedisStore]:
    store = RedisStore(server.url, Limits(), lambda: NOW)
    yield store
    store.close()


def commands(server: RedisServer, call: Callable[[], Any]) -> int:
    """How many commands Redis runs for a call, in its script too. `PEXPIRE` is left out: a set that got its life in
    the same millisecond needs none.
    """
    ignored = ("cmdstat_info", "cmdstat_ping", "cmdstat_pexpire")

    def ran() -> int:
        stats = server.raw.info("commandstats")
        return sum(its["calls"] for name, its in stats.items() if name not in ignored)

    call()  # the script is known from here on
    before = ran()
    call()
    return ran() - before


def test_redis_page_of_5000_conversations_costs_its_page(server, redis, a_message):
    fill(redis, a_message)
    first, middle = (
        commands(server, lambda after=after: redis.conversations("default", after, 10))
        for after in (None, in_the_middle())
    )
    assert first <= 10 + 2
    assert middle <= first + 1 + 13, "a search by halves"
    page = redis.conversations("default", in_the_middle(), 10)
    assert [found.id for found in page.conversations] == [f"{MANY // 2 - n:040x}" for n in range(1, 11)]


def test_redis_message_costs_the_same_however_many_its_conversation_has(server, redis, a_message):
    def cost() -> int:
        return commands(server, lambda: append(redis, a_message()))

    append(redis, a_message())
    early = cost()
    for _ in range(100):
        append(redis, a_message())
    assert cost() == early


def test_redis_record_without_a_conversation_costs_no_command_more(server, redis, a_message):
    without, within = (
        commands(server, lambda entries=entries, id=id: redis.create(a_message(conversation=id), entries()))
        for entries, id in ((lambda: (), None), (lambda: [a_conversation(a_message().key)], ID))
    )
    assert without <= 17
    assert within <= without + 4 + 6, "the entry: its version, tenant, hash and place; the set of the conversation"


# ---- SQLite


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pombo.sqlite"


@pytest.fixture
def sqlite(path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(path, Limits(), lambda: NOW)
    store.ping()
    yield store
    store.close()


PAGES: Mapping[str, Callable[[sqlite3.Connection, Any], Any]] = {
    "INDEX conversations_by_age (": lambda db, after: conversations.conversation_page(db, "default", after, 10),
    "of_conversation USING PRIMARY KEY (": lambda db, after: listings.records_of_conversation(db, ID, after, 10),
}
"""Each page by the index that it is read by."""


@pytest.mark.parametrize("index", PAGES)
@pytest.mark.parametrize("after", [None, in_the_middle()])
def test_sqlite_reads_a_page_by_an_index_and_sorts_nothing(path, sqlite, index, after):
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        run: list[str] = []
        db.set_trace_callback(run.append)
        PAGES[index](db, after)
        db.set_trace_callback(None)
        (query,) = run
        (step,) = [step for *_, step in db.execute(f"EXPLAIN QUERY PLAN {query}")]
    assert step.startswith("SEARCH")
    assert index in step
    assert step.count("?") == 2, "the owner and the time"


def test_sqlite_page_of_5000_conversations_costs_its_page(path, sqlite, a_message):
    """In steps of SQLite's virtual machine."""

    def steps(after: Any) -> int:
        count = itertools.count()
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.set_progress_handler(lambda: next(count) and None, 1)
            conversations.conversation_page(db, "default", after, 10)
        return next(count)

    sqlite.create(a_message(), [a_conversation(f"few-{n:036x}", at(n - 100)) for n in range(20)])
    few = steps(None)
    fill(sqlite, a_message)
    assert steps(None) <= few + 10
    assert steps(in_the_middle()) <= few + 20
