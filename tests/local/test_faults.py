"""The book of faults: what it hands out, to whom, and how often."""

import multiprocessing
import os
import signal
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from local.faults import Fault, FaultBook, fault_from


@pytest.fixture
def book(tmp_path: Path) -> FaultBook:
    return FaultBook(tmp_path / "faults.sqlite")


def test_an_empty_book_has_nothing_to_take(book: FaultBook) -> None:
    assert book.take("send", {}) is None


def test_fault_applies_as_often_as_its_times_then_disappears(book: FaultBook) -> None:
    book.add(Fault("send", "error", code=2, times=2))
    assert [fault and fault.code for fault in (book.take("send", {}) for _ in range(3))] == [2, 2, None]
    assert book.active() == []


def test_fault_with_times_0_applies_until_cleared(book: FaultBook) -> None:
    book.add(Fault("task", "drop", times=0))
    assert all(book.take("task", {}) for _ in range(5))
    book.clear()
    assert book.take("task", {}) is None


def test_the_oldest_that_fits_comes_first(book: FaultBook) -> None:
    book.add(Fault("send", "error", code=1, match={"type": "image"}))
    book.add(Fault("send", "error", code=2))
    book.add(Fault("send", "error", code=3))
    codes = [fault.code for _ in range(2) if (fault := book.take("send", {"type": "text"}))]
    assert codes == [2, 3]


def test_a_fault_stays_at_its_place(book: FaultBook) -> None:
    book.add(Fault("task", "drop"))
    assert book.take("send", {}) is None


def test_only_requested_kinds_of_fault_are_returned(book: FaultBook) -> None:
    book.add(Fault("task", "free_name"))
    assert book.take("task", {}, frozenset({"drop"})) is None
    assert book.take("task", {}, frozenset({"free_name"})) == Fault("task", "free_name")


def test_number_matches_with_and_without_its_plus() -> None:
    assert Fault("send", "error", match={"to": "15550002222"}).fits({"to": "+15550002222"})
    assert Fault("send", "error", match={"to": "+15550002222"}).fits({"to": "15550002222"})
    assert not Fault("send", "error", match={"to": "15550002222"}).fits({"to": "+15550003333"})
    assert not Fault("send", "error", match={"to": "15550002222"}).fits({})


def test_named_match_leaves_general_faults_alone(book: FaultBook) -> None:
    book.add(Fault("send", "error"))
    assert book.take("send", {"type": "read"}, named="type") is None
    book.add(Fault("send", "slow", match={"type": "read"}))
    assert book.take("send", {"type": "read"}, named="type") == Fault("send", "slow", match={"type": "read"})


def test_fault_written_by_another_process_is_seen_at_once(tmp_path: Path) -> None:
    reader, writer = (FaultBook(tmp_path / "faults.sqlite") for _ in range(2))
    assert reader.take("task", {}) is None
    writer.add(Fault("task", "drop"))
    assert reader.take("task", {}) == Fault("task", "drop")


def test_threads_apply_a_fault_no_more_often_than_its_times(book: FaultBook) -> None:
    book.add(Fault("send", "error", times=50))
    with ThreadPoolExecutor(16) as pool:
        taken = list(pool.map(lambda _: book.take("send", {}), range(200)))
    assert sum(fault is not None for fault in taken) == 50


def take_all(path: Path) -> int:
    book = FaultBook(path)
    return sum(book.take("task", {}) is not None for _ in range(40))


def test_processes_apply_a_fault_no_more_often_than_its_times(tmp_path: Path) -> None:
    path = tmp_path / "faults.sqlite"
    book = FaultBook(path)
    book.add(Fault("task", "drop", times=60))
    book.close()
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        assert sum(pool.map(take_all, [path] * 4)) == 60


@pytest.mark.parametrize(
    "document",
    [
        {"on": "send", "kind": "refuse"},
        {"on": "send", "kind": "error", "code": 131056, "times": 0, "match": {"to": "+15550002222"}},
        {"on": "send", "kind": "error", "status": 429, "retry_after": 5},
        {"on": "receipt", "kind": "slow", "seconds": 0.5, "match": None},
        {"on": "task", "kind": "early", "match": {"queue": "inbound"}},
        {"on": "provider", "kind": "error", "status": 429, "retry_after": 5, "match": {"type": "read"}},
        {"on": "provider", "kind": "error", "code": 2, "subcode": 1, "transient": True, "times": 3},
        {"on": "provider", "kind": "refuse", "times": 0, "retry_after": 5},
        {"on": "provider", "kind": "unreachable"},
        {"on": "provider", "kind": "unreachable", "times": 0, "seconds": 3},
        {"on": "provider", "kind": "hang", "times": 3, "seconds": 3, "match": {"to": "+15550002222"}},
    ],
)
def test_valid_document_becomes_a_fault(document: dict) -> None:
    fault = fault_from(document)
    assert (fault.on, fault.kind, fault.times) == (document["on"], document["kind"], document.get("times", 1))


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"on": "sends", "kind": "error"},
        {"on": ["send"], "kind": "error"},
        {"on": "send", "kind": "withhold"},
        {"on": "send", "kind": ["error"]},
        {"on": "send", "kind": "error"},
        {"on": "send", "kind": "error", "code": "131056"},
        {"on": "send", "kind": "error", "status": 200},
        {"on": "send", "kind": "slow", "seconds": -1},
        {"on": "send", "kind": "slow", "seconds": "1"},
        {"on": "send", "kind": "refuse", "times": -1},
        {"on": "send", "kind": "refuse", "times": True},
        {"on": "send", "kind": "refuse", "match": []},
        {"on": "send", "kind": "refuse", "match": {"to": 15550002222}},
        {"on": "send", "kind": "refuse", "match": {"from": "15550002222"}},
        {"on": "send", "kind": "refuse", "transient": 1},
        {"on": "send", "kind": "refuse", "time": 2},
        {"on": "send", "kind": "unreachable"},
        {"on": "send", "kind": "drop", "match": {"type": "read"}},
        {"on": "provider", "kind": "drop"},
        {"on": "provider", "kind": "error"},
        {"on": "provider", "kind": "error", "code": 2, "seconds": 1},
        {"on": "provider", "kind": "refuse", "code": 2},
        {"on": "provider", "kind": "hang", "status": 500},
        {"on": "provider", "kind": "hang", "seconds": -1},
        {"on": "provider", "kind": "unreachable", "match": {"type": "read"}},
        {"on": "provider", "kind": "unreachable", "until": 5},
    ],
)
def test_invalid_fault_is_refused_with_one_sentence(document: object) -> None:
    with pytest.raises(ValueError) as refusal:
        fault_from(document)
    assert str(refusal.value).endswith(".")


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (
            {"on": "provider", "kind": "unreachable", "times": 2},
            "times is 0 or 1 for unreachable: it lasts for seconds, or until cleared, not for calls.",
        ),
        (
            {"on": "provider", "kind": "refuse", "seconds": 2},
            "refuse on provider has no seconds; it has match, retry_after, times.",
        ),
    ],
)
def test_invalid_provider_fault_names_the_wrong_field(document: dict, sentence: str) -> None:
    with pytest.raises(ValueError) as refusal:
        fault_from(document)
    assert str(refusal.value) == sentence


def test_unreachable_without_seconds_lasts_until_cleared(book: FaultBook) -> None:
    assert not book.unreachable()
    book.add(Fault("provider", "unreachable"))
    assert book.unreachable()
    book.clear()
    assert not book.unreachable()


def test_unreachable_that_is_over_leaves_the_book(book: FaultBook) -> None:
    book.add(Fault("provider", "unreachable", seconds=0))
    assert not book.unreachable()
    assert book.active() == []


def test_the_longest_of_two_unreachable_faults_counts(book: FaultBook) -> None:
    book.add(Fault("provider", "unreachable", seconds=3600))
    book.add(Fault("provider", "unreachable", seconds=0))
    assert book.unreachable()
    assert [fault.seconds for fault in book.active()] == [3600]
    assert book.made() == {"provider unreachable": 2}


def test_applied_faults_are_counted_by_place_and_kind_after_clearing(book: FaultBook) -> None:
    book.add(Fault("send", "error", code=2, times=2))
    book.add(Fault("task", "drop"))
    for place in ("send", "send", "send", "task"):
        book.take(place, {})
    book.clear()
    assert book.made() == {"send error": 2, "task drop": 1}


def test_process_stopped_during_a_read_blocks_no_writer(book: FaultBook, tmp_path: Path) -> None:
    stopped = sqlite3.connect(tmp_path / "faults.sqlite", isolation_level=None)
    stopped.execute("BEGIN")
    stopped.execute("SELECT count(*) FROM faults").fetchone()
    try:
        book.add(Fault("send", "error", code=2))
        assert book.take("send", {}) is not None
    finally:
        stopped.close()


def test_frozen_process_blocks_no_reader_or_writer(tmp_path: Path) -> None:
    """It was stopped while the book was held, hence not in the middle of a write; it may have been reading."""
    path = tmp_path / "faults.sqlite"
    book = FaultBook(path)
    book.add(Fault("task", "drop", times=0))
    busy = multiprocessing.get_context("spawn").Process(target=_take_for_ever, args=(path,))
    busy.start()
    try:
        while book.made().get("task drop", 0) < 20:
            assert busy.is_alive()
        with book.held():
            os.kill(busy.pid or 0, signal.SIGSTOP)
        book.add(Fault("send", "error", code=2))
        assert book.take("send", {}) is not None
    finally:
        busy.kill()
        busy.join()


def _take_for_ever(path: Path) -> None:
    book = FaultBook(path)
    while True:
        book.take("task", {})
