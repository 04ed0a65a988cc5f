"""A backlog behind a slow queue: the sweep hurries nobody who only waits his turn, and nobody starves.

Time is virtual, the queue a model of Cloud Tasks (a name once, a rate, the oldest due first); the sweep, the processing
of events and the store are the real ones.
"""

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path

import parts
import pytest
from parts import NOW, InternalParts, an_event

from shared.domain import delivery
from shared.domain.delivery import Answer, Step
from shared.domain.record import Delivery, State, Task
from shared.pipeline import process_inbound

SWEEP_EVERY = 60
"""Seconds between two calls of the scheduler."""

RETRY = timedelta(seconds=5)


@dataclass
class SlowQueue:
    """Tasks come out at a rate, the one that has been due longest first; a name is used once."""

    per_second: int
    names: set[str] = field(default_factory=set)
    waiting: list[tuple[datetime, int, Task]] = field(default_factory=list)
    made: int = 0
    _order: Iterator[int] = field(default_factory=count)

    def ensure(self, task: Task, at: datetime | None) -> None:
        if task.name in self.names:
            return
        self.names.add(task.name)
        self.made += 1
        heapq.heappush(self.waiting, (at or NOW, next(self._order), task))

    def due(self, now: datetime) -> Iterator[Task]:
        """This second's."""
        for _ in range(self.per_second):
            if not self.waiting or self.waiting[0][0] > now:
                return
            yield heapq.heappop(self.waiting)[2]

    def again(self, task: Task, at: datetime) -> None:
        heapq.heappush(self.waiting, (at, next(self._order), task))

    def ping(self) -> None:
        pass


@dataclass(frozen=True)
class Backlog:
    """The internal service behind a slow queue, and what became of its records after so many seconds."""

    internal: InternalParts
    queue: SlowQueue
    records: list[Delivery]

    def run(self, seconds: int) -> int:
        """Let time pass until all is done, at most so many seconds; how many have passed."""
        clock = self.internal.clock
        left = {record.key for record in self.records}
        for second in range(seconds):
            if second % SWEEP_EVERY == 0:
                self.internal.parts.sweep()
            for task in self.queue.due(clock.now()):
                answer = self.internal.parts.process_inbound(task)
                if answer.status != 200:
                    self.queue.again(task, clock.now() + RETRY)
                elif answer.state == State.DONE:
                    left.discard(task.key)
            if not left:
                return second
            clock.go(1)
        return seconds

    @property
    def extra(self) -> int:
        """Tasks beyond each record's first."""
        return self.queue.made - len(self.records)

    def states(self) -> dict[str, int]:
        return {str(state): n for state, n in self.internal.store.port.backlog().counts.items() if n}


Make = Callable[[int, int], Backlog]


@pytest.fixture
def backlog(tmp_path: Path) -> Iterator[Make]:
    """Makes one of so many events, at so many a second. SWEEP_AFTER is 600 s, as in a project."""
    made: list[InternalParts] = []

    def make(events: int, per_second: int) -> Backlog:
        queue = SlowQueue(per_second)
        internal = parts.internal_parts(tmp_path, lambda _: None, queue, SWEEP_AFTER="600s", LOG_LEVEL="ERROR")
        made.append(internal)
        due = NOW + timedelta(seconds=600)
        records = [an_event(number, sweep_at=due) for number in range(events)]
        internal.store.port.change(records[0].key, lambda _: replace(parts.step(records[0]), create=tuple(records[1:])))
        for record in records:
            queue.ensure(Task.of(record), NOW)
        return Backlog(internal, queue, records)

    with parts.logged():
        yield make
    for internal in made:
        internal.store.port.close()


@pytest.mark.parametrize(
    ("events", "per_second", "extra"),
    [
        pytest.param(1_000, 1, 400, id="1,000 at 1 a second"),
        pytest.param(5_000, 5, 2_000, id="5,000 at 5 a second", marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
    ],
)
def test_a_record_gets_at_most_one_task_more_for_each_doubling(
    backlog: Make, events: int, per_second: int, extra: int
) -> None:
    behind = backlog(events, per_second)

    seconds = behind.run(events // per_second * 2)

    assert seconds <= events // per_second, "the further tasks cost the queue no time"
    assert behind.extra <= extra
    assert behind.states() == {}


@pytest.mark.parametrize(
    ("events", "per_second"),
    [
        pytest.param(900, 1, id="900 at 1 a second"),
        pytest.param(12_000, 5, id="12,000 at 5 a second", marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
    ],
)
def test_all_of_a_backlog_that_outlasts_the_sweep_finish_at_the_queues_own_pace(
    backlog: Make, events: int, per_second: int
) -> None:
    behind = backlog(events, per_second)

    seconds = behind.run(events // per_second * 2)

    assert seconds <= events // per_second
    assert behind.states() == {}


def test_a_sweep_that_never_waits_longer_and_drops_older_tasks_starves_them(
    backlog: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trap that the test above is for, planted: most records are bumped before their task is at the head."""
    right_sweep, right_lease = delivery.sweep, process_inbound.lease

    def impatient(record: Delivery | None, limits: object, now: datetime) -> Step:
        step = right_sweep(record, limits, now)  # type: ignore[arg-type]
        if step.write is None:
            return step
        return replace(step, write=replace(step.write, sweeps=0, sweep_at=now + timedelta(seconds=600)))

    def forgetful(record: Delivery | None, task: Task, *more: object) -> Step:
        if record is not None and task.generation < record.generation:
            return Step(Answer(200, "stale"))
        return right_lease(record, task, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(delivery, "sweep", impatient)
    monkeypatch.setattr(process_inbound, "lease", forgetful)
    behind = backlog(1_200, 1)

    behind.run(2_400)

    assert behind.states()["pending"] == 600, "those whose task came before the first sweep are all there are"
