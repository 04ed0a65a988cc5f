"""A backlog behind a slow queue: the sweep hurries nobody who only waits his turn, and nobody starves.

Time is virtual, the queue a model of Cloud Tasks (a name once, a rate, the oldest due first), WhatsApp a list of what
it was given; the sweep, the processing of events and of messages, and the store are the real ones.
"""

import heapq
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import pytest

from shared.domain.delivery.answers import Answer, Step, TaskResult
from shared.domain.identity import Echo
from shared.domain.limits import Limits
from shared.domain.marks import Block
from shared.domain.record import Delivery, Kind, ReceiptKind, State, Task
from shared.domain.send_errors import AnswerLost, LimitReached
from shared.domain.verdicts import LimitScope
from shared.pipeline import process_inbound, sweep
from shared.pipeline.channels import Channels
from tests.support import parts
from tests.support.parts import NOW, InternalParts, a_receipt, a_reply, an_event, doubtful
from tests.support.receipts import note_receipt

MEMORY = Path("/dev/shm")
SWEEP_EVERY = 60
"""Seconds between two calls of the scheduler."""

RETRY = timedelta(seconds=5)
CHAIN = 4
"""Messages that wait for each other."""


@dataclass
class SlowQueue:
    """Tasks come out at a rate, the one that has been due longest first; a name is used once."""

    per_second: int
    names: set[str] = field(default_factory=set)
    waiting: list[tuple[datetime, int, Task]] = field(default_factory=list)
    begun: int = 0
    """Tasks that are no hop of another: a record's first, and those of each new generation."""
    _order: Iterator[int] = field(default_factory=count)

    def ensure(self, task: Task, at: datetime | None) -> None:
        if task.name in self.names:
            return
        self.names.add(task.name)
        self.begun += task.hop == 0
        self.again(task, at or NOW)

    def due(self, now: datetime) -> Iterator[Task]:
        """This second's."""
        for _ in range(self.per_second):
            if not self.waiting or self.waiting[0][0] > now:
                return
            yield heapq.heappop(self.waiting)[2]

    def again(self, task: Task, at: datetime) -> None:
        heapq.heappush(self.waiting, (at, next(self._order), task))

    def queue_of(self, task: Task) -> str:
        return task.kind

    def ping(self) -> None:
        pass


@dataclass
class Taker:
    """A channel that takes every message, and may first refuse one, or lose the answer and let a receipt tell."""

    provider: ClassVar[str] = "meta"
    has_public_sender_ids: ClassVar[bool] = True
    internal: InternalParts | None = None
    trouble: Callable[[str], str] = lambda _: ""
    taken: list[str] = field(default_factory=list)
    tried: Counter[str] = field(default_factory=Counter)

    def fingerprint(self, credential: str) -> str:
        return credential

    def send(self, record: Delivery, echo: Echo, credential: str) -> str:  # noqa: ARG002 — as the port
        self.tried[record.key] += 1
        trouble = self.trouble(record.key) if self.tried[record.key] == 1 else ""
        if trouble == "limited":
            raise LimitReached(131056, limit=LimitScope.CONTACT)
        self.taken.append(record.key)
        if trouble == "lost" and self.internal:
            note_receipt(self.internal.store.port, echo, a_receipt(f"wamid.{record.key}", ReceiptKind.SENT))
            raise AnswerLost
        return f"wamid.{record.key}"

    def probe(self, sender: str, credential: str) -> None:
        """It is there."""


@dataclass(frozen=True)
class Backlog:
    """The internal service behind a slow queue, and what became of its records after so many seconds."""

    internal: InternalParts
    queue: SlowQueue
    taker: Taker
    records: list[Delivery]

    def run(self, seconds: int) -> int:
        """Let time pass until all is done, at most so many seconds; how many have passed."""
        clock = self.internal.clock
        left = {record.key for record in self.records}
        for second in range(seconds):
            if second % SWEEP_EVERY == 0:
                self.internal.parts.sweep()
            for task in self.queue.due(clock.now()):
                answer = self._process(task)
                if answer.result is not TaskResult.ACK:
                    self.queue.again(task, clock.now() + RETRY)
                elif answer.state == State.DONE:
                    left.discard(task.key)
            if not left:
                return second
            clock.go(1)
        return seconds

    def _process(self, task: Task) -> Answer:
        parts_ = self.internal.parts
        return (parts_.process_inbound if task.kind is Kind.INBOUND else parts_.process_outbound)(task)

    @property
    def extra(self) -> int:
        """Tasks beyond each record's first, hops apart."""
        return self.queue.begun - len(self.records)

    def states(self) -> dict[str, int]:
        return {str(state): n for state, n in self.internal.store.port.backlog().counts.items() if n}


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """Without a disk behind it, where there is such a one: the store waits for the disk at every commit."""
    if not os.access(MEMORY, os.W_OK):
        yield tmp_path
        return
    with TemporaryDirectory(prefix="pombo-test-", dir=MEMORY) as name:
        yield Path(name)


Make = Callable[[list[Delivery], int], Backlog]


@pytest.fixture
def backlog(directory: Path) -> Iterator[Make]:
    """Makes one of these records, at so many a second. SWEEP_AFTER is 600 s, as in a project."""
    made: list[InternalParts] = []

    def make(records: list[Delivery], per_second: int) -> Backlog:
        queue, taker = SlowQueue(per_second), Taker()
        internal = parts.internal_parts(directory, lambda _: None, queue, SWEEP_AFTER="600s", LOG_LEVEL="ERROR")
        made.append(internal)
        taker.internal = internal
        sending = replace(internal.parts.process_outbound, channels=Channels({"meta": taker}))  # type: ignore[dict-item]
        internal.parts = replace(internal.parts, process_outbound=sending)
        internal.store.port.change(records[0].key, lambda _: replace(parts.step(records[0]), create=tuple(records[1:])))
        for record in records:
            queue.ensure(Task.of(record), NOW)
        return Backlog(internal, queue, taker, records)

    with parts.logged():
        yield make
    for internal in made:
        internal.store.port.close()


def events(number: int) -> list[Delivery]:
    return [an_event(n, sweep_at=NOW + timedelta(seconds=600)) for n in range(number)]


def messages(number: int) -> list[Delivery]:
    """In chains, the first of all before the second of any: whoever comes too early has to hop."""
    chains = [[a_reply(chain * CHAIN + place) for place in range(CHAIN)] for chain in range(number // CHAIN)]
    return [
        replace(chain[place], after=chain[place - 1].key if place else None, sweep_at=NOW + timedelta(seconds=600))
        for place in range(CHAIN)
        for chain in chains
    ]


KINDS: dict[str, Callable[[int], list[Delivery]]] = {"events": events, "messages": messages}


def check_all_finish_at_the_queues_pace(behind: Backlog) -> None:
    turns = len(behind.records) // behind.queue.per_second
    seconds = behind.run(turns * 2)
    assert behind.states() == {}, f"open after {seconds} s"
    assert seconds <= turns, "the further tasks cost the queue no time"


def check_one_task_more_for_each_doubling(behind: Backlog, extra: int) -> None:
    check_all_finish_at_the_queues_pace(behind)
    assert behind.extra <= extra


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("number", "per_second", "extra"),
    [
        pytest.param(1_300, 1, 700, id="1,300 at 1 a second"),
        pytest.param(5_000, 5, 2_000, id="5,000 at 5 a second", marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
    ],
)
def test_a_record_gets_at_most_one_task_more_for_each_doubling(
    backlog: Make, kind: str, number: int, per_second: int, extra: int
) -> None:
    check_one_task_more_for_each_doubling(backlog(KINDS[kind](number), per_second), extra)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("number", "per_second"),
    [
        pytest.param(1_200, 1, id="1,200 at 1 a second"),
        pytest.param(12_000, 5, id="12,000 at 5 a second", marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
    ],
)
def test_backlog_that_outlasts_the_sweep_finishes_at_the_queues_pace(
    backlog: Make, kind: str, number: int, per_second: int
) -> None:
    check_all_finish_at_the_queues_pace(backlog(KINDS[kind](number), per_second))


def test_backlog_of_failing_messages_is_sent_once_each_and_in_order(backlog: Make) -> None:
    """Every fifth is limited at first, and of every seventh the answer is lost and a receipt comes."""
    records = messages(600)
    numbers = {record.key: number for number, record in enumerate(records)}
    behind = backlog(records, 1)
    behind.taker.trouble = lambda key: "limited" if numbers[key] % 5 == 0 else "lost" if numbers[key] % 7 == 0 else ""

    behind.run(3_600)

    assert behind.states() == {}
    assert sorted(behind.taker.taken) == sorted(numbers), "each of them once"
    assert behind.taker.tried.total() == 600 + 120, "and the limited ones were tried once more"
    place = {key: index for index, key in enumerate(behind.taker.taken)}
    assert all(record.after is None or place[record.after] < place[record.key] for record in records)


# ---- planted: the checks above can fail


def impatient(record: Delivery | None, limits: Limits, now: datetime) -> Step:
    """A sweep that never waits longer."""
    step = RIGHT_SWEEP(record, limits, now)
    if step.write is None:
        return step
    return replace(step, write=replace(step.write, sweeps=0, sweep_at=now + limits.sweep_after))


def forgetful(record: Delivery | None, task: Task, *more: Any) -> Step:
    """A task of an older generation does nothing."""
    if record is not None and task.generation < record.generation:
        return Step(Answer(TaskResult.ACK, "stale"))
    return RIGHT_LEASE(record, task, *more)


def counted_from_the_doubt(record: Delivery | None, limits: Limits, now: datetime) -> Step:
    """A sweep whose wait begins when the record was due, and so may be over as it is written."""
    step = RIGHT_SWEEP(record, limits, now)
    if record is None or step.write is None or step.write.sweep_at is None:
        return step
    begins = record.doubt_until or record.due_at or now
    return replace(step, write=replace(step.write, sweep_at=begins + (step.write.sweep_at - now)))


RIGHT_SWEEP, RIGHT_LEASE = sweep.sweep_record, process_inbound.lease


def test_a_sweep_that_never_waits_longer_makes_too_many_tasks(backlog: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "sweep_record", impatient)
    behind = backlog(events(1_300), 1)

    with pytest.raises(AssertionError, match="<= 700"):
        check_one_task_more_for_each_doubling(behind, 700)


def test_a_sweep_that_never_waits_longer_and_drops_older_tasks_starves_them(
    backlog: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most records are bumped before their task is at the head."""
    monkeypatch.setattr(sweep, "sweep_record", impatient)
    monkeypatch.setattr(process_inbound, "lease", forgetful)
    behind = backlog(events(1_200), 1)

    with pytest.raises(AssertionError, match="open after 2400 s"):
        check_all_finish_at_the_queues_pace(behind)

    assert behind.states()["pending"] == 600, "those whose task came before the first sweep are all there are"


# ---- one that waits longer than the longest wait


def check_is_swept_a_few_times(behind: Backlog, sweeps: int) -> None:
    """A sweep a minute, at 20 writes a second of virtual time; nobody takes the tasks."""
    internal = behind.internal
    internal.store.after = lambda name, *_: internal.clock.go(0.05) if name == "change" else None
    for _ in range(sweeps):
        internal.parts.sweep()
        internal.clock.go(SWEEP_EVERY)
    assert len(internal.store.asked("change")) <= 6, "at once, then after 20, 40, 80, 160 and 320 minutes"
    assert behind.extra <= 6


WAITING_LONG = {
    "a message in doubt whose number is blocked": lambda: a_reply(**doubtful(-7 * 3600)),
    "what no sweep came for, for a day": lambda: a_reply(sweep_at=NOW - timedelta(days=1)),
    "what is at work, for hours": lambda: a_reply(
        **parts.held(20 * 3600, sweep_at=NOW - timedelta(hours=7), due_at=NOW - timedelta(hours=8))
    ),
}


@pytest.mark.parametrize("name", WAITING_LONG)
def test_record_that_waits_for_hours_is_swept_a_few_times(backlog: Make, name: str) -> None:
    behind = backlog([WAITING_LONG[name]()], 1)
    block = Block(NOW + timedelta(days=1), timedelta(days=1), 131031)
    parts.put_marks(behind.internal.store.port, block=block)

    check_is_swept_a_few_times(behind, 12 * 60)


def test_wait_counted_from_the_doubt_sweeps_too_often(backlog: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "sweep_record", counted_from_the_doubt)
    behind = backlog([WAITING_LONG["a message in doubt whose number is blocked"]()], 1)

    with pytest.raises(AssertionError, match="320 minutes"):
        check_is_swept_a_few_times(behind, 1)

    assert behind.extra > 800, "one sweep makes hundreds of tasks of one record"
