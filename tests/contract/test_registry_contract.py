"""What every store promises of the registry. A case knows the ports alone; conftest.BACKENDS has the back ends."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.domain.deadline import Deadline
from shared.domain.errors import StoreUnavailable
from shared.pipeline.registry import Entry, EntryKind, EntryName, EntryWrite
from shared.stores.entries import MOST_WRITES
from tests.support import event_loop
from tests.support.backends import Backend
from tests.support.together import together

TENANT, SENDER = EntryKind.TENANT, EntryKind.SENDER
A, B = EntryName(TENANT, "a"), EntryName(TENANT, "b")
FIELDS = {"name": "Café 漢字 👩‍👩‍👧‍👦", "queue": 7, "limits": [None, True, 2.5, {"": []}]}
THREADS = 64

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    # Not NUL and not lone surrogates: `storable` refuses the latter in every store.
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5).filter(str.isascii), inner),
    max_leaves=8,
)


def a_deadline(seconds: float = 30) -> Deadline:
    over = time.monotonic() + seconds
    return Deadline(time.monotonic, over, over)


def creating(name: EntryName, tenant: str = "", /, **fields: Any) -> EntryWrite:
    return EntryWrite(name, tenant, fields, None)


def changing(entry: Entry, /, **fields: Any) -> EntryWrite:
    return EntryWrite(entry.name, entry.tenant, fields, entry.version)


def deleting(entry: Entry) -> EntryWrite:
    return EntryWrite(entry.name, entry.tenant, None, entry.version)


def created(store: Any, name: EntryName = A, tenant: str = "", /, **fields: Any) -> Entry:
    """The entry, new and stored."""
    assert store.commit_entries([creating(name, tenant, **fields)]) is True
    return the(store, name)


def the(store: Any, name: EntryName = A) -> Entry:
    (entry,) = store.entries([name])
    assert entry is not None
    return entry


def is_there(store: Any, name: EntryName = A) -> bool:
    return store.entries([name]) != [None]


# ---- reading


def test_entry_that_does_not_exist_is_none(store):
    assert list(store.entries([A, EntryName(EntryKind.KEY, "a")])) == [None, None]
    assert list(store.entries([])) == []


def test_entries_come_in_the_order_asked_and_the_same_one_twice(store):
    a, b = created(store, A, n=1), created(store, B, n=2)
    missing = EntryName(TENANT, "c")
    assert list(store.entries([B, A, missing, B, A])) == [b, a, None, b, a]


def test_an_entry_is_read_as_it_was_written(store):
    entry = created(store, A, "t1", **FIELDS)
    assert entry == Entry(A, "t1", FIELDS, entry.version)
    assert type(entry.version) is int


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(fields=st.dictionaries(st.text("abcß", max_size=4), json_values, max_size=4))
def test_fields_that_json_can_hold_survive_a_round_trip(store, fields):
    found = store.entries([A])[0]
    assert store.commit_entries([EntryWrite(A, "t", fields, found and found.version)])
    assert the(store).fields == fields


def test_entries_of_one_id_and_several_kinds_are_apart(store):
    for kind in EntryKind:
        created(store, EntryName(kind, "a"), "t", kind=kind.value)
    assert [the(store, EntryName(kind, "a")).fields["kind"] for kind in EntryKind] == [*map(str, EntryKind)]


@pytest.mark.parametrize(
    "id", ["", "a/b", "..", "a b", "a:b", "A", "ä", "a\u0000", "a\n", "\ud800", "x" * 65, "__a__/b"], ids=ascii
)
def test_id_that_no_entry_can_have_does_not_exist(backend, store, id):
    """It may come from a stranger: the id in an API key."""
    a = created(store)
    names = [EntryName(EntryKind.KEY, id), A]
    assert list(store.entries(names)) == list(store.intake.entries(names, a_deadline())) == [None, a]
    with backend.unreachable():
        assert list(store.entries(names[:1])) == [None]
    with pytest.raises(ValueError, match="characters"):
        store.commit_entries([creating(names[0])])


def test_longest_id_is_stored(store):
    name = EntryName(TENANT, "_-" + "z" * 62)
    assert created(store, name) == store.entry_page(TENANT, None, None, 10)[0]


@pytest.mark.parametrize("text", ["{", "", "[]", "7", "null", '"a"'])
def test_damaged_entry_has_no_fields_and_hides_no_other(backend, store, text):
    b, _ = created(store, B, "b", n=1), created(store, A, "a", n=1)
    backend.spoil(A, text)
    damaged = the(store)
    assert damaged.fields == {}
    assert list(store.entries([B, A])) == [b, damaged]
    assert list(store.entry_page(TENANT, None, None, 10)) == [damaged, b]
    assert list(store.intake.entries([B, A], a_deadline())) == [b, damaged]
    assert store.commit_entries([deleting(damaged)]), "an operator can remove it"


# ---- one write


def test_entry_is_created_only_if_it_does_not_exist(store):
    entry = created(store, A, "t1", n=1)
    assert store.commit_entries([creating(A, "t2", n=2)]) is False
    assert the(store) == entry


def test_entry_is_changed_only_at_the_version_that_was_read(store):
    first = created(store, n=1)
    assert store.commit_entries([changing(first, n=2)]) is True
    second = the(store)
    assert (second.fields, second.version != first.version) == ({"n": 2}, True)
    assert store.commit_entries([changing(first, n=3)]) is False
    assert the(store) == second


def test_same_content_written_again_is_a_new_version(store):
    first = created(store, n=1)
    assert store.commit_entries([changing(first, n=1)]) is True
    assert the(store).version != first.version


def test_entry_is_deleted_only_at_the_version_that_was_read(store):
    first = created(store, n=1)
    store.commit_entries([changing(first, n=2)])
    assert store.commit_entries([deleting(first)]) is False
    assert store.commit_entries([deleting(the(store))]) is True
    assert not is_there(store)
    assert store.entry_page(TENANT, None, None, 10) == store.entry_page(TENANT, "", None, 10) == []


def test_deleted_entry_is_neither_changed_nor_deleted_again(store):
    entry = created(store)
    store.commit_entries([deleting(entry)])
    assert store.commit_entries([changing(entry, n=2)]) is False
    assert store.commit_entries([deleting(entry)]) is False
    assert not is_there(store)


def test_version_of_a_recreated_entry_is_none_of_its_earlier_ones(store):
    first = created(store, n=1)
    store.commit_entries([deleting(first)])
    second = created(store, n=1)
    assert second.version != first.version
    assert store.commit_entries([changing(first, n=2)]) is False
    assert store.commit_entries([deleting(first)]) is False
    assert the(store) == second


def test_second_client_and_the_webhook_see_a_write_at_once(backend, store):
    other = backend.client()
    entry = created(store, A, "t1", **FIELDS)
    assert list(other.entries([A])) == list(other.intake.entries([A, A], a_deadline()))[:1] == [entry]
    other.commit_entries([deleting(entry)])
    assert not is_there(store)
    assert list(store.intake.entries([A], a_deadline())) == [None]


def test_entries_never_expire(backend, store):
    entry = created(store, n=1)
    backend.expire(store, datetime(2026, 3, 1, 12, tzinfo=UTC) + timedelta(days=4000))
    assert the(store) == entry


# ---- several writes


def test_a_commit_creates_changes_and_deletes_at_once(store):
    changed, deleted = created(store, A, n=1), created(store, B, n=1)
    new = EntryName(SENDER, "a")
    assert store.commit_entries([changing(changed, n=2), deleting(deleted), creating(new, "t", n=3)]) is True
    assert [entry and entry.fields for entry in store.entries([A, B, new])] == [{"n": 2}, None, {"n": 3}]


@pytest.mark.parametrize("place", [0, 1, 2, 3])
@pytest.mark.parametrize("stale", ["exists already", "was changed", "was deleted", "never existed"])
def test_one_write_at_another_version_refuses_all(store, stale, place):
    a, b, gone = created(store, A, n=1), created(store, B, n=1), created(store, EntryName(TENANT, "gone"))
    store.commit_entries([deleting(gone), changing(b, n=2)])
    refused = {
        "exists already": creating(B, n=9),
        "was changed": changing(b, n=9),
        "was deleted": deleting(gone),
        "never existed": EntryWrite(EntryName(TENANT, "never"), "", {"n": 9}, b.version),
    }
    other = created(store, EntryName(SENDER, "b"), n=1)
    writes = [changing(a, n=9), deleting(other), creating(EntryName(SENDER, "new"))]
    before = store.entry_page(TENANT, None, None, 10), store.entry_page(SENDER, None, None, 10)
    assert store.commit_entries([*writes[:place], refused[stale], *writes[place:]]) is False
    assert (store.entry_page(TENANT, None, None, 10), store.entry_page(SENDER, None, None, 10)) == before


def test_twenty_writes_are_one_commit_and_more_are_none(store):
    names = [EntryName(SENDER, f"s{n}") for n in range(MOST_WRITES + 1)]
    with pytest.raises(ValueError, match="20 writes"):
        store.commit_entries([creating(name) for name in names])
    assert store.entry_page(SENDER, None, None, 50) == []
    assert store.commit_entries([creating(name) for name in names[:MOST_WRITES]]) is True
    assert len(store.entry_page(SENDER, None, None, 50)) == MOST_WRITES


def test_commit_of_nothing_is_made(backend, store):
    with backend.unreachable():
        assert store.commit_entries([]) is True
        assert list(store.entries([])) == []


@pytest.mark.parametrize(
    "bad",
    [
        creating(A, n=object()),
        creating(A, n=float("nan")),
        creating(A, n="\ud800"),
        creating(B),
        EntryWrite(A, "", None, None),
    ],
    ids=["no JSON", "not a number", "half a character", "the same entry twice", "a deletion of nothing"],
)
def test_commit_that_cannot_be_stored_leaves_no_trace(store, bad):
    with pytest.raises((TypeError, ValueError)):
        store.commit_entries([creating(B), bad])
    assert list(store.entries([A, B])) == [None, None]


# ---- many at once


def test_no_change_of_one_entry_is_lost_among_64_threads(backend):
    clients = [backend.client(), backend.client()]
    created(clients[0], n=0)

    def add(client: Any) -> int:
        while True:
            entry = the(client)
            if client.commit_entries([changing(entry, n=entry.fields["n"] + 1)]):
                return int(entry.fields["n"]) + 1

    assert sorted(together([lambda c=client: add(c) for client in clients * (THREADS // 2)])) == [*range(1, 65)]
    assert the(clients[1]).fields == {"n": THREADS}


def test_one_of_64_creations_is_made(backend):
    clients = [backend.client(), backend.client()]
    calls = [lambda n=n: clients[n % 2].commit_entries([creating(A, n=n)]) for n in range(THREADS)]
    made = together(calls)
    assert made.count(True) == 1
    assert the(clients[0]).fields == {"n": made.index(True)}


def test_commits_that_cross_are_never_mixed(backend):
    """Each writes its own number to the same two entries, in one order or the other."""
    clients = [backend.client(), backend.client()]
    created(clients[0], A, n=0)
    created(clients[0], B, n=0)

    def write(n: int) -> None:
        while True:
            found = clients[n % 2].entries([A, B])
            assert {entry.fields["n"] for entry in found if entry} != set()
            writes = [changing(entry, n=n) for entry in found if entry]
            if clients[n % 2].commit_entries(writes if n % 3 else writes[::-1]):
                return

    assert together([lambda n=n: write(n) for n in range(1, 17)]) == [None] * 16
    a, b = clients[0].entries([A, B])
    assert a.fields == b.fields


# ---- pages


def test_entries_of_a_kind_come_in_the_order_of_their_ids(store):
    ids = ["b", "a-1", "a", "a_1", "0", "zz", "z", "-", "_"]
    for id in ids:
        created(store, EntryName(TENANT, id), "t")
        created(store, EntryName(SENDER, f"s{id}"), "t")
    found = [entry.name for entry in store.entry_page(TENANT, None, None, 100)]
    assert found == [EntryName(TENANT, id) for id in sorted(ids)]
    assert [entry.name.id for entry in store.entry_page(TENANT, "t", None, 100)] == sorted(ids)


def test_page_holds_whole_entries_after_an_id_up_to_the_limit(store):
    entries = [created(store, EntryName(TENANT, f"t{n}"), "t", n=n) for n in range(6)]
    for tenant in (None, "t"):
        assert list(store.entry_page(TENANT, tenant, None, 2)) == entries[:2]
        assert list(store.entry_page(TENANT, tenant, "t1", 3)) == entries[2:5]
        assert list(store.entry_page(TENANT, tenant, "t1-deleted", 1)) == [entries[2]]
        assert list(store.entry_page(TENANT, tenant, "t5", 3)) == []
        assert list(store.entry_page(TENANT, tenant, "", 1)) == entries[:1]


def test_page_of_a_tenant_holds_no_other_tenants_entries(store):
    owners = ["t1", "t2", "", "t1", "t", "t1-2"]
    for n, owner in enumerate(owners):
        created(store, EntryName(SENDER, f"s{n}"), owner)
    for owner in [*owners, "none"]:
        page = store.entry_page(SENDER, owner, None, 10)
        assert [entry.name.id for entry in page] == [f"s{n}" for n, its in enumerate(owners) if its == owner]
        assert {entry.tenant for entry in page} <= {owner}


def test_entry_that_changes_its_owner_leaves_the_old_owners_page(store):
    entry = created(store, EntryName(SENDER, "s"), "t1", n=1)
    assert store.commit_entries([EntryWrite(entry.name, "t2", {"n": 2}, entry.version)])
    assert store.entry_page(SENDER, "t1", None, 10) == []
    assert [entry.fields for entry in store.entry_page(SENDER, "t2", None, 10)] == [{"n": 2}]
    assert len(store.entry_page(SENDER, None, None, 10)) == 1


def test_entry_that_was_deleted_and_made_anew_is_on_its_new_owners_page_alone(store):
    entry = created(store, EntryName(SENDER, "s"), "t1", n=1)
    assert store.commit_entries([EntryWrite(entry.name, "t1", None, entry.version)])
    created(store, entry.name, "t2", n=2)
    assert store.entry_page(SENDER, "t1", None, 10) == []
    assert [found.tenant for found in store.entry_page(SENDER, "t2", None, 10)] == ["t2"]


@pytest.mark.parametrize("limit", [300, 1000])
def test_a_thousand_entries_come_once_each_in_pages(store, limit):
    names = [EntryName(SENDER, f"s{n:04}") for n in range(1000)]
    for start in range(0, 1000, MOST_WRITES):
        some = enumerate(names[start : start + MOST_WRITES])
        assert store.commit_entries([creating(name, f"t{n % 2}", n=n) for n, name in some])
    found: list[str] = []
    while page := store.entry_page(SENDER, None, found[-1] if found else None, limit):
        assert len(page) <= limit
        found += [entry.name.id for entry in page]
    assert found == [name.id for name in names]
    assert [entry.name.id for entry in store.entry_page(SENDER, "t1", None, 1000)] == found[1::2]


# ---- the webhook's


def test_webhook_reads_entries_in_the_order_asked(store):
    a, b = created(store, A, n=1), created(store, B, n=2)
    missing = EntryName(SENDER, "a")
    assert list(store.intake.entries([B, A, missing, B], a_deadline())) == [b, a, None, b]
    assert list(store.intake.entries([], a_deadline())) == []


def test_webhook_reads_many_entries_of_many_posts_at_once(store):
    names = [EntryName(SENDER, f"s{n}") for n in range(MOST_WRITES)]
    store.commit_entries([creating(name, n=n) for n, name in enumerate(names)])

    async def read(n: int) -> Any:
        return await store.intake.intake.entries([names[n % MOST_WRITES]] * 3, a_deadline())

    async def posts() -> Any:
        return await asyncio.gather(*map(read, range(100)))

    for n, found in enumerate(event_loop.run(posts())):
        assert [entry.fields["n"] for entry in found] == [n % MOST_WRITES] * 3


def test_webhooks_read_past_its_deadline_is_unavailable(store):
    created(store)
    with pytest.raises(StoreUnavailable, match="too slow"):
        store.intake.entries([A], a_deadline(0))


# ---- unreachable


def test_unreachable_registry_is_unavailable_in_time_and_unchanged_after(backend, store):
    entry = created(store, n=1)
    store.intake.entries([A], a_deadline())
    calls: list[Callable[[], Any]] = [
        lambda: store.commit_entries([changing(entry, n=2)]),
        lambda: store.commit_entries([deleting(entry)]),
        lambda: store.commit_entries([creating(B)]),
    ]
    if backend.proxy:  # another process that holds the SQLite file stops no reader
        calls += [
            lambda: store.entries([A]),
            lambda: store.entry_page(TENANT, None, None, 10),
            lambda: store.intake.entries([A], a_deadline()),
        ]

    with backend.unreachable():
        began = time.monotonic()
        results = together(calls)
        took = time.monotonic() - began
    assert [type(it) for it in results] == [StoreUnavailable] * len(calls)
    assert took < 3, "about 2 s, and a slow machine's slack"
    assert list(store.entries([A, B])) == [entry, None]


def test_error_of_an_unreachable_registry_contains_nothing_private(backend, store):
    entry = created(store, EntryName(SENDER, "15550002222"), n=1)
    with backend.unreachable(), pytest.raises(StoreUnavailable) as refused:
        store.commit_entries([EntryWrite(entry.name, "canary", {"secret": "canary"}, entry.version)])
    assert "15550002222" not in refused.value.sentence
    assert "canary" not in refused.value.sentence


# ---- the answer is lost


@contextmanager
def losing_an_answer(backend: Backend, store: Any) -> Iterator[None]:
    """The answer to the next call is lost: its connection breaks after it was made. A file loses no answers."""
    if backend.proxy is None:
        yield
        return
    # From here on the server knows the script, and the client has a connection.
    store.commit_entries([creating(EntryName(EntryKind.QUEUE_USE, "warm"))])
    before = backend.proxy.swallowed
    backend.proxy.swallow_next_answer(holding=b"answer-is-lost")
    yield
    assert backend.proxy.swallowed == before + 1


LOST = EntryName(TENANT, "answer-is-lost")


def test_creation_whose_answer_was_lost_is_made(backend, store):
    with losing_an_answer(backend, store):
        assert store.commit_entries([creating(LOST, n=1)]) is True
    assert the(store, LOST).fields == {"n": 1}


def test_change_whose_answer_was_lost_is_made_once(backend, store):
    entry = created(store, LOST, n=1)
    with losing_an_answer(backend, store):
        assert store.commit_entries([changing(entry, n=2), creating(B)]) is True
    now = the(store, LOST)
    assert now.fields == {"n": 2}
    assert store.commit_entries([changing(now, n=3)]) is True, "what is read is current"


def test_deletion_whose_answer_was_lost_is_made(backend, store):
    entry, other = created(store, LOST), created(store, B)
    with losing_an_answer(backend, store):
        assert store.commit_entries([deleting(entry), deleting(other)]) is True
    assert list(store.entries([LOST, B])) == [None, None]


def test_deletion_with_a_change_whose_answer_was_lost_is_made(backend, store):
    entry, other = created(store, LOST), created(store, B, n=1)
    with losing_an_answer(backend, store):
        assert store.commit_entries([deleting(entry), changing(other, n=2)]) is True
    assert not is_there(store, LOST)
    assert the(store, B).fields == {"n": 2}


def test_refusal_whose_answer_was_lost_is_refused_again(backend, store):
    entry = created(store, LOST, n=1)
    store.commit_entries([changing(entry, n=2)])
    for write in (creating(LOST, n=9), changing(entry, n=9), deleting(entry)):
        with losing_an_answer(backend, store):
            assert store.commit_entries([write, creating(B)]) is False
    assert the(store, LOST).fields == {"n": 2}
    assert not is_there(store, B)


def test_refused_deletion_whose_answer_was_lost_is_refused_again(backend, store):
    """Of an entry that exists: it was changed, not deleted."""
    entry = created(store, LOST, n=1)
    store.commit_entries([changing(entry, n=2)])
    with losing_an_answer(backend, store):
        assert store.commit_entries([deleting(entry)]) is False
    assert the(store, LOST).fields == {"n": 2}


def test_read_whose_answer_was_lost_is_made_again(backend, store):
    entry = created(store, LOST, n=1)
    with losing_an_answer(backend, store):
        assert list(store.entries([LOST])) == [entry]
