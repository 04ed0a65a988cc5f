"""Rate limit: what a limited sender costs while many of its messages wait, and how soon they go after its limit."""

import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from shared.domain.delivery.answers import Answer, Step, TaskResult
from shared.domain.delivery.changes import write
from shared.domain.delivery.operator import cancel
from shared.domain.drains import LIMIT_OVER, DrainTask
from shared.domain.errors import StoreUnavailable
from shared.domain.guards import Go, Guard, Wait, outbound_guard
from shared.domain.identity import Echo
from shared.domain.marks import Block, Marks, Outage, lets_go
from shared.domain.rate_limit import LIMITED, RateLimit, after_answer, look_again
from shared.domain.record import Delivery, State, Task
from shared.domain.send_errors import LimitReached, SendRefused
from shared.domain.verdicts import (
    Accepted,
    Blocked,
    BlockScope,
    CredentialRefused,
    Limited,
    LimitScope,
    Lost,
    ProviderDown,
    Refused,
    Released,
    Retry,
    SendVerdict,
)
from tests.support.builders import LIMITS, NO_JITTER, NOW, at, past_doubt, pending
from tests.support.outbound_world import ID, World
from tests.support.pipelines import Channel, Clock, Queue, Store, lines_of

WAITS = LIMITS.waits
RATE = Limited(LimitScope.RATE, 130429)
REACHED = LimitReached(130429, limit=LimitScope.RATE, status=400)
FIVE_MINUTES = timedelta(minutes=5)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def limit(until: float, wait: float = 1) -> RateLimit:
    return RateLimit(at(until), seconds(wait))


# ---- the mark


def test_first_limit_holds_a_sender_for_a_second_and_the_next_four_times_as_long() -> None:
    mark, found = None, []
    for _ in range(5):
        mark = after_answer(mark, mark, RATE, LIMITS, NOW)
        assert mark is not None
        found.append((mark.until, mark.wait))
    assert found == [(at(wait), seconds(wait)) for wait in (1, 4, 16, 32, 32)]


def test_retry_after_moves_the_end_of_the_mark_and_not_its_growth() -> None:
    asked = Limited(LimitScope.RATE, 130429, retry_after=seconds(90))
    assert after_answer(limit(0, 4), limit(0, 4), asked, LIMITS, NOW) == limit(90, 16)
    assert after_answer(None, None, Limited(LimitScope.RATE, 130429, minutes=2), LIMITS, NOW) == limit(120, 1)


@pytest.mark.parametrize("scope", [scope for scope in LimitScope if scope is not LimitScope.RATE])
def test_limit_of_a_contact_or_of_an_account_holds_no_other_message(scope: LimitScope) -> None:
    assert after_answer(None, None, Limited(scope, 131056), LIMITS, NOW) is None


@pytest.mark.parametrize("verdict", [RATE, Accepted("wamid.1")])
@pytest.mark.parametrize(
    ("current", "seen"), [(limit(9, 4), limit(0)), (limit(9), None), (None, limit(0))], ids=["grown", "new", "deleted"]
)
def test_answer_changes_no_mark_that_has_changed_since_its_attempt_looked(
    verdict: SendVerdict, current: RateLimit | None, seen: RateLimit | None
) -> None:
    assert after_answer(current, seen, verdict, LIMITS, NOW) == current


def test_accepted_send_deletes_the_mark_that_it_saw_and_makes_none() -> None:
    assert after_answer(limit(0, 32), limit(0, 32), Accepted("wamid.1"), LIMITS, NOW) is None
    assert after_answer(None, None, Accepted(None), LIMITS, NOW) is None


@pytest.mark.parametrize(
    "verdict",
    [
        Refused(131026),
        Retry(131053),
        Lost(),
        ProviderDown(),
        Released(),
        Blocked(BlockScope.SENDER, 368),
        CredentialRefused(190),
        Limited(LimitScope.CONTACT, 131056),
    ],
    ids=repr,
)
def test_any_other_answer_leaves_the_mark_as_it_is(verdict: SendVerdict) -> None:
    assert after_answer(limit(0, 4), limit(0, 4), verdict, LIMITS, NOW) == limit(0, 4)
    assert after_answer(None, None, verdict, LIMITS, NOW) is None


# ---- who waits for it


def waits_until(mark: RateLimit, hop: int = 0, jitter: float = NO_JITTER) -> datetime:
    return look_again(mark, hop, WAITS, NOW, jitter)


@pytest.mark.parametrize("hop", [0, 1, 9])
@pytest.mark.parametrize("wait", [1, 4])
def test_short_limit_is_waited_out_to_its_end_and_no_longer(hop: int, wait: float) -> None:
    assert waits_until(limit(0.7, wait), hop) == at(0.7)


@pytest.mark.parametrize(("hop", "wait"), [(0, 60), (1, 200), (2, 200), (99, 200)])
def test_limit_that_lasts_is_looked_at_less_and_less_often(hop: int, wait: float) -> None:
    assert waits_until(limit(3, 16), hop) == at(wait)
    assert (waits_until(limit(3, 16), hop, 0), waits_until(limit(3, 16), hop, 1)) == (at(wait * 0.5), at(wait * 1.5))


def test_thousand_messages_that_began_to_wait_together_look_again_apart() -> None:
    waits = Counter(
        int((waits_until(limit(1, 16), hop, one / 1000) - NOW).total_seconds()) for hop in (0, 1) for one in range(1000)
    )
    assert max(waits.values()) <= 25, "in any second"


def test_no_hop_ends_before_the_mark_and_none_is_longer_than_five_minutes() -> None:
    assert waits_until(limit(61, 32)) == at(61)
    assert max(waits_until(limit(32, 32), hop, 1) for hop in range(9)) == NOW + FIVE_MINUTES


def guarded(marks: Marks, record: Delivery, before: Delivery | None = None, hop: int = 0) -> Guard:
    task = Task(record.key, record.kind, record.correlation_id, record.generation, hop)
    return outbound_guard(marks, "in use", record, before, task, LIMITS, NOW, None, 1.0)


def test_limit_is_waited_for_after_block_and_breaker_and_before_the_predecessor() -> None:
    before, mark = pending(key="0d" * 20), limit(1)
    record = pending(after=before.key)
    assert guarded(Marks(limited=mark), record, before) == Wait(LIMITED, at(1))
    block, down = Block(at(9), seconds(600), 368), Outage(at(9), seconds(10))
    assert guarded(Marks(limited=mark, block=block), record, before) == Wait("blocked", at(9))
    assert guarded(Marks(limited=mark, down=down), record, before) == Wait("provider_down", at(9))
    assert guarded(Marks(limited=limit(0)), record, before) == Wait("predecessor", at(0.3), alone_since=NOW)


def test_limited_message_claims_nothing_and_leaves_a_doubt_open() -> None:
    over = Marks(limited=limit(1), block=Block(NOW, seconds(600), 368), down=Outage(NOW, seconds(10)))
    assert guarded(over, pending()) == Wait(LIMITED, at(1))
    unclear = Marks(limited=limit(1), down=Outage(at(-90), seconds(10)))
    assert guarded(unclear, past_doubt()) == Wait(LIMITED, at(1), unclear=True)


def test_hop_of_a_limited_message_grows_with_its_hops_and_is_spread() -> None:
    found = [guarded(Marks(limited=limit(1, 16)), pending(), hop=hop) for hop in range(3)]
    assert found == [Wait(LIMITED, at(wait)) for wait in (90, 300, 300)]


def test_task_a_little_before_the_end_of_the_mark_counts_as_after_it() -> None:
    assert guarded(Marks(limited=limit(0.05)), pending()) == Go()


@pytest.mark.parametrize(("wait", "said"), [(1, False), (4, False), (16, True), (32, True)])
def test_only_the_end_of_a_limit_that_lasted_lets_messages_go(wait: float, said: bool) -> None:
    marked = Marks(limited=limit(0, wait))
    assert lets_go(marked, Marks(), WAITS) is said
    assert not lets_go(marked, Marks(limited=limit(9, 32)), WAITS)
    assert not lets_go(Marks(), Marks(), WAITS)


# ---- an attempt, in the pipeline


@dataclass
class Provider(Channel):
    """Accepts messages, or answers that the limit is reached: always while `limited`, or beyond so many a second. It
    knows what it took, in order.
    """

    limited: bool = True
    per_second: int | None = None
    clock: Clock = field(default_factory=Clock)
    took: list[str] = field(default_factory=list)
    in_second: Counter[int] = field(default_factory=Counter)

    def send(self, record: Delivery, echo: Echo, credential: str) -> str | None:
        second = int(self.clock.seconds)
        self.in_second[second] += 1
        limited = self.limited if self.per_second is None else self.in_second[second] > self.per_second
        self.sends = [REACHED if limited else f"wamid.{len(self.took)}"]
        answer = super().send(record, echo, credential)
        self.took.append(record.key)
        return answer


@pytest.fixture
def provider() -> Provider:
    return Provider()


@pytest.fixture
def world(tmp_path: Path, provider: Provider, caplog: pytest.LogCaptureFixture) -> World:
    clock = Clock()
    return World(Store(tmp_path, clock), provider, clock, Queue(), lines_of(caplog))


def test_limited_message_is_rescheduled_as_ever_and_marks_its_sender(world: World) -> None:
    record = world.add("a")
    assert world.process(record) == Answer(TaskResult.ACK, "rescheduled")
    after = world.read(record)
    assert (after.state, after.attempt, after.throttled, after.due_at) == (State.PENDING, 0, 1, at(1.5))
    assert world.marks.limited == limit(1)


def test_other_message_waits_without_lease_attempt_write_or_call(world: World) -> None:
    world.mark(limited=limit(1))
    before = world.add("b")
    record = world.add("a", after=before.key)
    asked = Counter(world.store.asked)
    assert world.process(record) == Answer(TaskResult.ACK, "waiting")
    assert (world.read(record), world.channel.calls, world.hops()) == (record, [], [(1, at(1))])
    (line,) = world.lines("outbound_waiting")
    assert (line["reason"], line["until"]) == (LIMITED, at(1).isoformat())
    counted = {name: world.store.asked[name] - asked[name] for name in ("get", "marks", "change_marks", "change")}
    assert counted == {"get": 3, "marks": 1, "change_marks": 0, "change": 1}, "two reads of the record by the test"


def test_hops_of_a_limit_that_lasts_are_spread_by_chance(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.mark(limited=limit(1, 16))
    monkeypatch.setattr(world.clock, "jitter", lambda: 1.0)
    world.process(world.add("a"))
    assert world.hops() == [(1, at(90))]


@pytest.mark.parametrize(("down", "state"), [(Outage(at(-90), seconds(10)), State.IN_DOUBT), (None, State.DEAD)])
def test_second_doubt_of_a_limited_sender_is_judged_only_while_the_provider_is_up(
    world: World, down: Outage | None, state: State
) -> None:
    world.mark(limited=limit(9), down=down)
    record = world.add("a", past_doubt, doubts=2)
    world.process(record)
    assert (world.read(record).state, world.channel.calls) == (state, [])


def test_second_answer_of_two_at_once_changes_nothing(world: World) -> None:
    first, second = world.add("a"), world.add("b")
    world.mark(limited=limit(0, 4))

    def meanwhile(_: str) -> None:
        world.channel.during = lambda _: None
        world.process(second)
        world.clock.go(1)

    world.channel.during = meanwhile
    world.process(first)
    assert (world.channel.calls, world.marks.limited) == (["send", "send"], limit(16, 16))


def test_limit_that_meets_a_mark_deleted_meanwhile_makes_no_new_one(world: World) -> None:
    record = world.add("a")
    world.mark(limited=limit(0, 4))
    world.channel.during = lambda _: world.mark() and None
    world.process(record)
    assert world.marks.limited is None


def test_message_sent_before_the_limit_began_does_not_end_it(world: World, provider: Provider) -> None:
    record = world.add("a")
    world.mark()
    provider.limited = False
    world.channel.during = lambda _: world.mark(limited=limit(1)) and None
    assert world.process(record) == Answer(TaskResult.ACK, "done")
    assert (world.marks.limited, world.queue.drains) == (limit(1), [])


@pytest.mark.parametrize(("wait", "drains"), [(4, 0), (16, 1)])
def test_accepted_send_deletes_the_mark_and_drains_after_a_limit_that_lasted(
    world: World, provider: Provider, wait: float, drains: int
) -> None:
    provider.limited = False
    world.mark(limited=limit(0, wait))
    for key in "ab":
        world.process(world.add(key))
    assert world.marks.limited is None
    assert [(drain.sender, drain.reason) for drain in world.queue.drains] == [(ID, LIMIT_OVER)] * drains
    assert world.store.asked["change_marks"] == 2, "one by the test, and one deletion"


def test_accepted_call_does_not_end_a_limit_and_a_limited_one_begins_it(world: World, provider: Provider) -> None:
    calls = [world.add(key, payload={"type": "typing"}) for key in "ab"]
    world.process(calls[0])
    assert world.marks.limited == limit(1)
    provider.limited = False
    world.clock.go(1)
    assert world.process(calls[1]) == Answer(TaskResult.ACK, "done")
    assert world.marks.limited == limit(1)


def test_refused_message_does_not_end_a_limit(world: World) -> None:
    world.channel.send = lambda *_: (_ for _ in ()).throw(SendRefused(131026, status=400))  # type: ignore[method-assign]
    world.mark(limited=limit(0, 16))
    world.process(world.add("a"))
    assert world.marks.limited == limit(0, 16)


def test_limited_message_is_settled_although_its_mark_cannot_be_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = world.add("a")
    world.mark()

    def fails(*_: Any) -> Any:
        raise StoreUnavailable

    monkeypatch.setattr(world.store, "change_marks", fails)
    assert world.process(record) == Answer(TaskResult.ACK, "rescheduled")
    assert (world.read(record).due_at, world.marks.limited) == (at(1.5), None)


def test_drain_after_a_limit_says_so_and_not_that_the_sender_was_connected(world: World) -> None:
    world.add("a")
    world.drain(DrainTask(ID, NOW, "correlation-9", reason=LIMIT_OVER))
    assert world.lines("tenant_reconnected") == []
    assert [line["reason"] for line in world.lines("sender_drained")] == ["limit_over"]


# ---- many messages, in time that only the queue passes


@dataclass
class TimedQueue(Queue):
    """Runs its tasks when they are due, thirty a second at most, and none of a name twice."""

    clock: Clock = field(default_factory=Clock)
    waiting: list[tuple[datetime, int, Task]] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    numbers: Iterator[int] = field(default_factory=count)
    is_draining: bool = True

    def ensure(self, task: Task, at: datetime | None) -> None:
        if task.name not in self.names:
            self.names.add(task.name)
            heapq.heappush(self.waiting, (max(at or self.clock.at, self.clock.at), next(self.numbers), task))

    def run(self, world: World, until: datetime) -> int:
        """How many tasks ran until then."""
        for ran in count():
            while self.is_draining and self.drains:
                world.drain(self.drains.pop(0))
            if not self.waiting or self.waiting[0][0] > until or self.clock.at > until:
                self.clock.go(max(0.0, (until - self.clock.at).total_seconds()))
                return ran
            due, _, task = heapq.heappop(self.waiting)
            self.clock.go(max(0.0, (due - self.clock.at).total_seconds()))
            world.outbound(task)
            self.clock.go(1 / 30)
        raise AssertionError


@pytest.fixture
def queue(world: World) -> TimedQueue:
    world.queue = TimedQueue(clock=world.clock)
    return world.queue


def add_many(world: World, number: int, contacts: int) -> list[Delivery]:
    """Each waits for the one before it to the same contact. All have their tasks."""
    keys = [f"{place:040x}" for place in range(number)]
    records = [
        pending(key=key, generation=0, received_at=at(-60), after=keys[place - contacts] if place >= contacts else None)
        for place, key in enumerate(keys)
    ]
    for record in records:
        world.store.create(record)
        world.queue.ensure(Task.of(record), None)
    return records


def check_all_sent_once_in_order(provider: Provider, records: list[Delivery], contacts: int) -> None:
    assert sorted(provider.took) == [record.key for record in records]
    for contact in range(contacts):
        keys = [record.key for record in records[contact::contacts]]
        assert [key for key in provider.took if key in keys] == keys


def test_two_hundred_waiting_messages_cost_few_calls_and_all_go_soon_after(
    world: World, provider: Provider, queue: TimedQueue
) -> None:
    records = add_many(world, 200, contacts=100)
    ran = [queue.run(world, NOW + minute * seconds(60)) for minute in range(1, 7)]
    assert len(provider.calls) <= 5 + 5 * 3, "1, 4, 16, then every 32 s"
    assert sum(world.read(record).attempt for record in records) == 0
    assert ran[0] < 200 * 5
    assert sum(ran[2:]) < 200 * 4, "each at most once in 200 s, and a few that were limited themselves"
    provider.limited = False
    queue.run(world, world.clock.at + seconds(32 + 64 + 200 / 30 + 5))
    check_all_sent_once_in_order(provider, records, 100)
    assert len(world.lines("sender_drained")) == 1


@pytest.mark.parametrize("ends", ["cancelled", "too old"])
def test_messages_go_within_five_minutes_though_no_drain_comes(
    world: World, provider: Provider, queue: TimedQueue, ends: str
) -> None:
    records = add_many(world, 60, contacts=60)
    queue.run(world, at(240))
    tried = [record for record in records if world.read(record).attempts_log]
    assert 0 < len(tried) < 30
    for record in tried:
        if ends == "cancelled":
            world.store.change(record.key, lambda now: cancel(now, LIMITS, world.clock.now()))
        else:
            world.store.change(record.key, aged)
    provider.limited, queue.is_draining = False, False
    queue.run(world, world.clock.at + seconds(32) + FIVE_MINUTES + seconds(5))
    assert sorted(provider.took) == sorted(record.key for record in records if record not in tried)


def aged(now: Delivery | None) -> Step:
    assert now is not None
    return write(replace(now, give_up_at=NOW))


def test_number_that_takes_ten_a_second_is_sent_a_hundred_at_nearly_that_rate(
    world: World, provider: Provider, queue: TimedQueue
) -> None:
    """Its marks never last: messages come back at their ends, and nothing is drained."""
    provider.per_second, provider.clock = 10, world.clock
    records = add_many(world, 100, contacts=100)
    queue.run(world, at(25))
    check_all_sent_once_in_order(provider, records, 100)
    assert queue.drains == [] == world.lines("sender_drained")
