"""When a chaos run gives up, and what it says while it waits."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli.chaos import drain
from cli.chaos.drain import STANDSTILL_SECONDS, DrainWatch
from cli.chaos.progress import TELL_EVERY, UNCHANGED_EVERY, Progress
from local.faults import Fault, FaultBook


class Clock:
    """Time passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.every: Callable[[float], None] = lambda _now: None

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.every(self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(drain, "time", clock)
    return clock


def waiting(book: FaultBook, open_until: float, clock: Clock) -> DrainWatch:
    """One record is open until then, and nothing else changes."""
    store: Any = SimpleNamespace(backlog=lambda: SimpleNamespace(counts={"pending": int(clock.now < open_until)}))
    control: Any = SimpleNamespace(post=lambda *_: None, get=lambda _: {"pending": 0})
    watch = DrainWatch(store, control, book, {}, time_scale=1)
    watch.tasks = lambda: 0  # type: ignore[method-assign]
    return watch


def test_a_run_waits_while_faults_are_still_met_one_by_one(tmp_path: Path, clock: Clock) -> None:
    book = FaultBook(tmp_path / "faults.sqlite")
    book.add(Fault("send", "refuse", times=4))
    apart = 0.8 * STANDSTILL_SECONDS
    met: list[float] = []

    def meet(now: float) -> None:
        if now > apart * (len(met) + 1) and book.take("send", {}):
            met.append(now)

    clock.every = meet

    assert waiting(book, 4.5 * apart, clock).wait(lambda _: None) == (True, 0)
    assert len(met) == 4


def test_run_stops_waiting_when_nothing_changes_and_no_fault_occurs(tmp_path: Path, clock: Clock) -> None:
    book = FaultBook(tmp_path / "faults.sqlite")
    book.add(Fault("send", "error", code=131026, times=0))
    book.add(Fault("send", "refuse", times=4))

    assert waiting(book, 10 * STANDSTILL_SECONDS, clock).wait(lambda _: None) == (False, 0)
    assert clock.now == pytest.approx(STANDSTILL_SECONDS, abs=2)


def test_faults_that_never_end_owe_no_turns(tmp_path: Path) -> None:
    book = FaultBook(tmp_path / "faults.sqlite")
    book.add(Fault("send", "error", code=131026, times=0))
    book.add(Fault("provider", "refuse", times=4))
    book.add(Fault("task", "drop"))
    book.take("provider", {})
    book.take("send", {})

    assert book.owed() == 4


def test_unchanged_progress_is_reported_once_a_minute(clock: Clock) -> None:
    told: list[str] = []
    progress = Progress(told.append, clock.monotonic)
    while clock.now < 3 * UNCHANGED_EVERY:
        clock.sleep(0.5)
        progress.tell("51 records open")

    assert told == ["51 records open", "51 records open, unchanged for 60 s", "51 records open, unchanged for 120 s"]

    clock.sleep(TELL_EVERY)
    progress.tell("50 records open")
    assert told[3:] == ["50 records open"]


def test_changing_progress_is_reported_every_five_seconds(clock: Clock) -> None:
    told: list[str] = []
    progress = Progress(told.append, clock.monotonic)
    while clock.now < 4 * TELL_EVERY:
        clock.sleep(0.5)
        progress.tell(f"{clock.now:g} s")

    assert told == ["5 s", "10 s", "15 s", "20 s"]
