"""What every store promises of marks, and of finding the senders in trouble."""

from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.errors import UnknownState
from shared.domain.events import ReceiptBlock
from shared.domain.marks import (
    DOWN,
    Block,
    Bucket,
    Credential,
    Disconnected,
    Marks,
    Outage,
    RefusedCredential,
    claimed,
    is_elected,
    is_troubled,
)
from shared.domain.rate_limit import RateLimit
from shared.pipeline.ports import DecideMarks
from shared.stores.codec import TROUBLES
from tests.support.store_cases import (
    A_DAY,
    ID,
    NOTED,
    NOW,
    OTHER_ID,
    THREADS,
    at,
    codes,
    keys,
    many,
    moments,
    setting,
    words,
)
from tests.support.together import together

# ---- marks


MARKS: dict[str, tuple[Any, Any]] = {
    "down": (Outage(at(1)), Outage(at(1.000001), timedelta(microseconds=1), "token", "d" * 40)),
    "block": (
        Block(at(2), timedelta(seconds=600), 368),
        Block(at(2.000002), timedelta(hours=6, microseconds=1), 131031, "token", by_receipt=True, confirming=True),
    ),
    "refused": (
        RefusedCredential("f1", 190, at(3)),
        RefusedCredential("f2", 0, at(3.000003), at(7203.000003), "token"),
    ),
    "credential": (Credential("f1", at(4)), Credential("f2", at(4.000004), "f1")),
    "receipt_block": (ReceiptBlock(131031, at(5)), NOTED),
    "disconnected": (Disconnected("", at(6)), Disconnected("PARTNER_REMOVED", at(6.000006))),
    "bucket": (Bucket(at(7)), Bucket(at(7.000007))),
    "limited": (RateLimit(at(8), timedelta(seconds=1)), RateLimit(at(8.000008), timedelta(microseconds=1))),
}
"""Of each mark one with its required fields alone, and one with every field."""


def claim_with(token: str, seen: Marks) -> DecideMarks:
    return lambda current: claimed(current, seen, {DOWN}, token, at(90))


def recording(decide: DecideMarks, found: list[Marks]) -> DecideMarks:
    """The decision, which also keeps what it was given."""
    return lambda current: found.append(current) or decide(current)


def test_tested_marks_have_every_field():
    assert MARKS.keys() == {field.name for field in fields(Marks)} - {"version"}
    for _, full in MARKS.values():
        assert [field.name for field in fields(full) if getattr(full, field.name) == field.default] == []


def test_marks_are_empty_where_nothing_is_stored(store):
    assert (store.marks(ID), store.marks(ID).version) == (Marks(), None)


@pytest.mark.parametrize("name", MARKS)
def test_mark_survives_a_round_trip_with_and_without_its_optional_fields(store, name):
    bare, full = MARKS[name]
    before = Marks()
    for mark in (bare, full, bare, None, full):
        after = Marks(**{name: mark})
        assert store.change_marks(ID, setting(**{name: mark})) == (before, after)
        assert store.marks(ID) == after
        before = after


words_or_none = st.none() | words
spans = st.timedeltas(timedelta(), timedelta(days=4000))
all_marks = st.builds(
    Marks,
    st.none() | st.builds(Outage, moments, spans, words_or_none, words_or_none),
    st.none() | st.builds(Block, moments, spans, codes, words_or_none, st.booleans(), st.booleans()),
    st.none() | st.builds(RefusedCredential, words, codes, moments, st.none() | moments, words_or_none),
    st.none() | st.builds(Credential, words, moments, words_or_none),
    st.none() | st.builds(ReceiptBlock, codes, moments, words_or_none),
    st.none() | st.builds(Disconnected, words, moments),
    st.none() | st.builds(Bucket, moments),
    st.none() | st.builds(RateLimit, moments, spans),
)


@many
@given(before=all_marks, after=all_marks)
def test_all_changed_marks_survive_a_round_trip(store, before, after):
    id = next(keys)
    seen = store.change_marks(id, lambda _: before)[1]
    assert seen == store.marks(id) == before
    assert store.change_marks(id, lambda _: after, seen) == (before, after)
    assert store.marks(id) == after


def test_change_of_one_mark_leaves_the_others(store):
    full = Marks(**{name: full for name, (_, full) in MARKS.items()})
    store.change_marks(ID, lambda _: full)
    for name, (bare, _) in MARKS.items():
        store.change_marks(ID, setting(**{name: bare}))
        full = replace(full, **{name: bare})
        assert store.marks(ID) == full


def test_change_of_marks_that_changes_nothing_writes_nothing(store):
    same = setting()
    assert store.change_marks(ID, same) == store.change_marks(ID, same, Marks()) == (Marks(), Marks())
    assert store.marks(ID).version is None
    stored = store.change_marks(ID, setting(down=Outage(NOW)))[1]
    equal = replace(stored, version=None)
    for before, after in (
        store.change_marks(ID, same),
        store.change_marks(ID, same, stored),
        store.change_marks(ID, lambda _: equal),
        store.change_marks(ID, lambda _: equal, stored),
    ):
        assert before == after == stored
        assert before.version == after.version == store.marks(ID).version == stored.version


def test_change_from_seen_that_writes_nothing_does_not_ask_the_store(backend, store):
    seen = store.change_marks(ID, setting(down=Outage(NOW)))[1]
    with backend.unreachable():
        assert store.change_marks(ID, setting(), seen) == (seen, seen)


def test_written_marks_are_current_for_the_next_change(store):
    found: list[Marks] = []
    seen = store.change_marks(ID, setting(down=Outage(NOW)))[1]
    for wait in range(3):
        mark = Outage(NOW, timedelta(seconds=wait + 1))
        seen = store.change_marks(ID, recording(setting(down=mark), found), seen)[1]
        assert (seen, seen.version) == (store.marks(ID), store.marks(ID).version)
    assert len(found) == 3
    store.change_marks(ID, recording(setting(down=None), found), store.marks(ID))
    assert len(found) == 4


def test_stale_seen_is_read_again(backend, store):
    old = store.change_marks(ID, setting(down=Outage(NOW)))[1]
    now = backend.client().change_marks(ID, setting(credential=Credential("f1", NOW)))[1]
    found: list[Marks] = []
    before, after = store.change_marks(ID, recording(setting(down=None), found), old)
    assert found == [old, now]
    assert (before, after) == (now, Marks(credential=Credential("f1", NOW)))
    assert store.marks(ID) == after


def test_stale_seen_whose_second_decision_changes_nothing_writes_nothing(backend, store):
    old = store.change_marks(ID, setting(down=Outage(NOW)))[1]
    now = backend.client().change_marks(ID, setting(down=Outage(at(1))))[1]
    before, after = store.change_marks(ID, claim_with("late", old), old)
    assert (before, after) == (now, now)
    assert before.version == after.version == store.marks(ID).version == now.version


def test_marks_are_decided_again_when_another_write_came_between(store):
    found: list[Marks] = []

    def decide(current: Marks) -> Marks:
        if not found:
            store.change_marks(ID, setting(credential=Credential("f1", NOW)))
        found.append(current)
        return replace(current, down=Outage(NOW))

    before, after = store.change_marks(ID, decide)
    assert found == [Marks(), before] == [Marks(), Marks(credential=Credential("f1", NOW))]
    assert store.marks(ID) == after == replace(before, down=Outage(NOW))


@pytest.mark.parametrize("start", [Marks(), Marks(down=Outage(NOW))], ids=["no mark", "a mark that is over"])
def test_one_of_64_claims_is_elected(backend, start):
    clients = [backend.client(), backend.client()]
    clients[0].change_marks(ID, lambda _: start)
    seen = clients[0].marks(ID)
    calls = [
        lambda token=f"token-{n}", client=clients[n % 2]: client.change_marks(ID, claim_with(token, seen), seen)
        for n in range(THREADS)
    ]
    results = together(calls)
    elected = [n for n, (_, after) in enumerate(results) if is_elected(after, {DOWN}, f"token-{n}")]
    stored = clients[0].marks(ID)
    assert elected == [n for n in range(THREADS) if stored.down.claim == f"token-{n}"]
    assert len(elected) == 1
    assert {after for _, after in results} == {stored}
    assert [n for n, (before, after) in enumerate(results) if before != after] == elected


def test_claim_that_was_written_and_not_answered_is_recognised(backend, store):
    """As after an answer that was lost: what is there is this very attempt's own write."""
    seen = store.change_marks(ID, setting(down=Outage(NOW)))[1]
    applied = backend.client().change_marks(ID, claim_with("mine", seen), seen)[1]
    after = store.change_marks(ID, claim_with("mine", seen), seen)[1]
    assert is_elected(after, {DOWN}, "mine")
    assert (after, after.version) == (applied, applied.version)


def test_marks_that_do_not_exist_are_created_once_and_the_other_decides_again(backend, store):
    found: list[Marks] = []
    first = backend.client().change_marks(ID, claim_with("first", Marks()), Marks())
    assert is_elected(first[1], {DOWN}, "first")
    second = store.change_marks(ID, recording(claim_with("second", Marks()), found), Marks())
    assert found == [Marks(), first[1]]
    assert second == (first[1], first[1])
    assert store.marks(ID).version == second[1].version == first[1].version


def test_no_change_of_marks_and_no_noted_receipt_is_lost_among_threads(backend):
    clients = [backend.client(), backend.client()]

    def longer(current: Marks) -> Marks:
        return replace(current, down=Outage(NOW, (current.down or Outage(NOW)).wait + timedelta(seconds=1)))

    noted = [ReceiptBlock(131031, at(n)) for n in range(8)]
    results = together(
        [lambda c=client: c.change_marks(ID, longer) for client in clients * 16]
        + [lambda n=each: clients[0].note_receipt_block(ID, n) for each in noted]
    )
    assert sorted(after.down.wait.seconds for _, after in results[:32]) == list(range(1, 33))
    stored = clients[1].marks(ID)
    assert stored.down.wait == timedelta(seconds=32)
    assert stored.receipt_block in noted


def test_marks_of_one_id_do_not_touch_anothers(store):
    other = store.change_marks(OTHER_ID, setting(down=Outage(NOW)))[1]
    store.change_marks(ID, setting(down=Outage(at(1))))
    store.note_receipt_block(ID, NOTED)
    assert store.marks(ID) == Marks(down=Outage(at(1)), receipt_block=NOTED)
    assert (store.marks(OTHER_ID), store.marks(OTHER_ID).version) == (other, other.version)


def test_last_noted_receipt_stands_beside_the_other_marks(store):
    store.note_receipt_block(ID, ReceiptBlock(1, NOW))
    store.note_receipt_block(ID, NOTED)
    assert store.marks(ID) == Marks(receipt_block=NOTED)
    rest = {name: full for name, (_, full) in MARKS.items() if name != "receipt_block"}
    store.change_marks(ID, setting(**rest))
    store.note_receipt_block(ID, ReceiptBlock(2, NOW))
    assert store.marks(ID) == Marks(**rest, receipt_block=ReceiptBlock(2, NOW))


@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("is_seen", [False, True])
def test_noted_receipt_and_a_concurrent_change_are_both_stored(backend, store, is_stored, is_seen):
    if is_stored:
        store.change_marks(ID, setting(credential=Credential("f1", NOW)))
    start, found = store.marks(ID), []

    def decide(current: Marks) -> Marks:
        if not found:
            backend.client().note_receipt_block(ID, NOTED)
        found.append(current)
        return replace(current, down=Outage(NOW))

    both = replace(start, down=Outage(NOW), receipt_block=NOTED)
    assert store.change_marks(ID, decide, start if is_seen else None) == (replace(start, receipt_block=NOTED), both)
    assert found == [start, replace(start, receipt_block=NOTED)]
    assert store.marks(ID) == both


def test_change_removes_only_the_noted_receipt_it_decided_on(backend, store):
    old = ReceiptBlock(1, NOW)
    store.note_receipt_block(ID, old)
    seen = store.marks(ID)
    take = setting(receipt_block=None)

    def decide(current: Marks) -> Marks:
        return take(current) if current.receipt_block == old else current

    backend.client().note_receipt_block(ID, NOTED)
    assert store.change_marks(ID, decide, seen)[1] == store.marks(ID) == Marks(receipt_block=NOTED)
    store.change_marks(ID, take)
    assert store.marks(ID) == Marks()
    store.note_receipt_block(ID, old)
    assert store.marks(ID) == Marks(receipt_block=old)


def test_decision_on_marks_that_raises_changes_nothing_and_propagates(store):
    def decide(current: Marks) -> Marks:
        raise LookupError("no")

    with pytest.raises(LookupError):
        store.change_marks(ID, decide)
    assert store.marks(ID).version is None


@pytest.mark.parametrize("name", MARKS)
def test_marks_that_cannot_be_stored_leave_no_trace(store, name):
    times = {"down": "until", "block": "until", "refused": "since", "credential": "since", "receipt_block": "at"}
    times |= {"disconnected": "since", "bucket": "next", "limited": "until"}
    without_zone = replace(MARKS[name][0], **{times[name]: NOW.replace(tzinfo=None)})
    with pytest.raises(ValueError):
        store.change_marks(ID, setting(**{name: without_zone}))
    assert store.marks(ID).version is None


@pytest.mark.parametrize(
    "mark", [{"block": Block(NOW, timedelta(), "368")}, {"credential": Credential(7, NOW)}], ids=str
)
def test_invalid_mark_is_an_unknown_state(store, mark):
    """As a newer version might have written it."""
    store.change_marks(ID, setting(**mark))
    with pytest.raises(UnknownState):
        store.marks(ID)
    with pytest.raises(UnknownState):
        store.change_marks(ID, setting(down=Outage(NOW)))
    with pytest.raises(UnknownState):
        store.change_marks(ID, setting(down=Outage(NOW)), Marks())
    store.note_receipt_block(ID, NOTED)
    with pytest.raises(UnknownState):
        store.marks(ID)


# ---- troubled senders


TROUBLED = ["block", "disconnected", "receipt_block", "refused"]


def ids_of(count: int) -> list[str]:
    return [f"{number:040x}" for number in range(1, count + 1)]


def test_troubles_are_the_marks_that_make_a_sender_troubled():
    marks = {name: Marks(**{name: full}) for name, (_, full) in MARKS.items()}
    assert sorted(TROUBLES) == TROUBLED == sorted(name for name, alone in marks.items() if is_troubled(alone))


@pytest.mark.parametrize("name", MARKS)
def test_marks_are_listed_only_while_they_are_troubled(store, name):
    for mark in MARKS[name]:
        store.change_marks(ID, lambda _, mark=mark: Marks(down=Outage(NOW), **{name: mark} if name != "down" else {}))
        assert list(store.troubled(None, 10)) == ([ID] if name in TROUBLED else [])
    store.change_marks(ID, setting(**{name: None}))
    assert list(store.troubled(None, 10)) == []


def test_marks_with_two_troubles_are_listed_until_both_are_over(store):
    store.change_marks(ID, setting(block=MARKS["block"][0], refused=MARKS["refused"][0]))
    store.change_marks(ID, setting(block=None))
    assert list(store.troubled(None, 10)) == [ID]
    store.change_marks(ID, setting(refused=None))
    assert list(store.troubled(None, 10)) == []


@pytest.mark.parametrize("is_stored", [False, True], ids=["no marks before", "healthy marks before"])
def test_noted_receipt_makes_marks_troubled_until_a_change_removes_it(store, is_stored):
    if is_stored:
        store.change_marks(ID, setting(credential=Credential("f1", NOW)))
    store.note_receipt_block(ID, NOTED)
    assert list(store.troubled(None, 10)) == [ID]
    store.change_marks(ID, setting(down=Outage(NOW)))
    assert list(store.troubled(None, 10)) == [ID]
    store.change_marks(ID, setting(receipt_block=None))
    assert list(store.troubled(None, 10)) == []


@pytest.mark.parametrize("limit", [1, 3, 20])
def test_troubled_marks_come_in_pages_in_the_order_of_their_ids(store, limit):
    ids = ids_of(8)
    for id in reversed(ids):
        store.change_marks(id, setting(block=MARKS["block"][0]))
    store.change_marks(ids[2], setting(block=None))
    found: list[str] = []
    while page := store.troubled(found[-1] if found else None, limit):
        assert len(page) <= limit
        found += page
    assert found == [id for id in ids if id != ids[2]]
    assert list(store.troubled(ids[2], 1)) == [ids[3]], "after an id that is not troubled itself"
    assert list(store.troubled(ids[-1], 1)) == []


def test_marks_never_expire(backend, store):
    store.change_marks(ID, setting(down=Outage(NOW)))
    store.note_receipt_block(ID, NOTED)
    backend.expire(store, at(4000 * A_DAY))
    assert store.marks(ID) == Marks(down=Outage(NOW), receipt_block=NOTED)
