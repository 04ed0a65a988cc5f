"""The mark of a backend around its calls: read before, claimed for a trial, written after, by the inbound pipeline."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from shared.domain.delivery.answers import Answer, TaskResult
from shared.domain.delivery.lease import lease
from shared.domain.errors import StoreUnavailable
from shared.domain.events import ReceiptBlock
from shared.domain.guards import Elect, Go, Wait
from shared.domain.identity import sender_id
from shared.domain.limits import Limits
from shared.domain.marks import Block, Marks, Outage
from shared.domain.messages import Drop
from shared.domain.outbound.messages import OutboundMessage
from shared.domain.record import Attempt, Delivery, Kind, State, Task
from shared.domain.state_changes import AccountBanned, AccountConnected, AccountReinstated, StateChange
from shared.domain.verdicts import BackendDown, HandlerFailed
from shared.pipeline.backend_marks import BackendMarks
from shared.pipeline.channels import Channels
from shared.pipeline.dispatch import TaskDispatch
from shared.pipeline.handler_places import HandlerPlaces
from shared.pipeline.ports import BackendUnavailable, HandlerCall, HandlerFault, HandlerInterrupted
from shared.pipeline.process_inbound import ProcessInbound
from shared.tenants.environment import EnvironmentTenants
from tests.support.builders import LIMITS, MINE, NOW, OTHERS, at, pending, task_for
from tests.support.one_handler import OneHandler
from tests.support.pipelines import ADDRESS, SENDER, Channel, Clock, Lines, Queue, Store, lines_of

DOWN = Elect(frozenset({"down"}), "backend_down")
TOOK, TOOK_NOTHING = BackendUnavailable("502.", took=True), BackendUnavailable("503.", took=False)
A, B = "a" * 40, "b" * 40


def an_event(key: str, **changes: Any) -> Delivery:
    return pending(**{"key": key, "kind": Kind.INBOUND, **changes})


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


@dataclass
class Handler:
    """Answers by the next of its list; the last one stands. `poison`: by event, what it says to that one always."""

    says: list[Exception | str] = field(default_factory=lambda: ["hello"])
    poison: dict[str, Exception] = field(default_factory=dict)
    backend: str | None = ADDRESS
    asked: list[str] = field(default_factory=list)
    during: Callable[[], Any] = lambda: None

    def handles(self, kind: str) -> bool:
        return kind == "text"

    def __call__(self, call: HandlerCall) -> Sequence[OutboundMessage]:
        self.asked.append(call.inbound_event_id[0])
        self.during()
        said = self.poison.get(call.inbound_event_id[0])
        said = said or (self.says.pop(0) if len(self.says) > 1 else self.says[0])
        if isinstance(said, Exception):
            raise said
        return [OutboundMessage.text(said)]


@dataclass
class World:
    """One backend, the events for it, and the instances that call it."""

    store: Store
    clock: Clock
    lines: Lines
    handler: Handler = field(default_factory=Handler)
    channel: Channel = field(default_factory=Channel)
    queue: Queue = field(default_factory=Queue)
    limits: Limits = LIMITS
    stops: bool = False

    def __post_init__(self) -> None:
        self.marks_of = self.an_instance()

    def an_instance(self) -> BackendMarks:
        return BackendMarks(self.handler.backend, self.store, self.limits, self.clock)

    @property
    def down(self) -> Outage | None:
        return self.store.marks(ADDRESS).down

    def mark(self, down: Outage | None) -> Marks:
        """The mark as another instance wrote it."""
        return self.store.change_marks(ADDRESS, lambda _: Marks(down=down))[1]

    def add(self, key: str, **changes: Any) -> Delivery:
        record = pending(Kind.INBOUND, **({"key": key * 40, "generation": 0} | changes))
        self.store.create(record)
        return record

    def process(self, record: Delivery, instance: BackendMarks | None = None, hop: int = 0) -> Answer:
        run = ProcessInbound(
            self.store,
            EnvironmentTenants.of(("meta", SENDER)),
            Channels({"meta": self.channel}),
            OneHandler(self.handler, instance or self.marks_of),
            HandlerPlaces(16),
            TaskDispatch(
                self.queue, self.clock, self.limits, Channels({"meta": self.channel}), EnvironmentTenants.of()
            ),
            self.limits,
            self.clock,
            lambda: self.stops,
            None,
        )
        return run(task_for(self.read(record), hop=hop))

    def read(self, record: Delivery) -> Delivery:
        found = self.store.get(record.key)
        assert found is not None
        return found

    def hops(self) -> list[tuple[int, datetime | None]]:
        return [(task.hop, at) for task, at in self.queue.made if task.kind is Kind.INBOUND]


@pytest.fixture
def world(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> World:
    clock = Clock()
    return World(Store(tmp_path, clock), clock, lines_of(caplog))


# ---- read: a few seconds old at most


def test_a_mark_is_read_again_after_five_seconds(world: World) -> None:
    marks = world.marks_of
    assert marks.read() == Marks()
    written = world.mark(Outage(at(40), seconds(40)))
    world.clock.go(4.9)
    asked = world.store.asked["marks"]
    assert (marks.read(), world.store.asked["marks"]) == (Marks(), asked)
    world.clock.go(0.1)
    assert (marks.read(), world.store.asked["marks"]) == (written, asked + 1)


def test_instance_knows_its_own_mark_without_a_read(world: World) -> None:
    world.marks_of.read()
    world.marks_of.change(lambda _: Marks(down=Outage(at(40), seconds(40))))
    asked = world.store.asked["marks"]
    assert world.marks_of.read().down == Outage(at(40), seconds(40))
    assert world.store.asked["marks"] == asked


def test_code_in_this_process_has_no_marks(world: World) -> None:
    world.handler.backend, world.handler.says = None, [HandlerFault("ValueError"), "hello"]
    instance = world.an_instance()
    for answer in ("rescheduled", "done"):
        assert world.process(world.add(answer[0].replace("r", "a")), instance) == Answer(TaskResult.ACK, answer)
    assert (world.store.asked["marks"], world.store.asked["change_marks"]) == (0, 0)


def test_where_all_is_well_many_events_cost_one_read_and_no_write(world: World) -> None:
    for key in "abcdef":
        assert world.process(world.add(key)) == Answer(TaskResult.ACK, "done")
    assert (world.store.asked["marks"], world.store.asked["change_marks"]) == (1, 0)


# ---- the election


def test_loser_of_the_election_after_a_lost_answer_waits_for_the_probe(world: World) -> None:
    election = Elect(frozenset({"down"}), "backend_probe")
    seen = world.mark(Outage(NOW))
    world.an_instance().elect(seen, election, MINE)
    _, guard = world.marks_of.elect(seen, election, OTHERS)
    assert guard == Wait("backend_probe", at(15))


def test_backend_trial_claim_lasts_as_long_as_the_trial_can_take(world: World) -> None:
    world.limits = replace(LIMITS, handler_timeout=seconds(600))
    marks = world.an_instance()
    seen = world.mark(Outage(NOW, seconds(40)))
    after, guard = marks.elect(seen, DOWN, MINE)
    assert (guard, after.down) == (Go(), Outage(at(630), seconds(40), MINE))
    assert world.an_instance().elect(seen, DOWN, OTHERS) == (after, Wait("backend_down", at(15)))
    marks.give_back(MINE)
    assert world.down == Outage(NOW, seconds(40))


def test_the_claim_of_a_short_trial_lasts_ninety_seconds(world: World) -> None:
    world.limits = replace(LIMITS, handler_timeout=seconds(5))
    after, _ = world.an_instance().elect(world.mark(Outage(NOW)), DOWN, MINE)
    assert after.down == Outage(at(90), claim=MINE)


def test_a_claim_on_an_old_copy_of_the_mark_is_refused(world: World) -> None:
    seen = world.mark(Outage(NOW, seconds(40)))
    world.mark(Outage(at(80), seconds(80)))
    after, guard = world.marks_of.elect(seen, DOWN, MINE)
    assert (guard, after.down) == (Wait("backend_down", at(15)), Outage(at(80), seconds(80)))


# ---- what a failure means


@pytest.mark.parametrize(
    ("current", "failure", "verdict"),
    [
        pytest.param(None, TOOK, HandlerFailed("502."), id="answer lost, no mark: the attempt counts"),
        pytest.param(None, TOOK_NOTHING, BackendDown("503.", at(10)), id="took nothing, no mark"),
        pytest.param(Outage(at(40), seconds(40)), TOOK, BackendDown("502.", at(40)), id="answer lost, a mark"),
        pytest.param(Outage(at(40), seconds(40)), TOOK_NOTHING, BackendDown("503.", at(40)), id="took nothing, a mark"),
        pytest.param(Outage(at(-4), by=B), TOOK, BackendDown("502.", at(-4)), id="answer lost, another event's mark"),
        pytest.param(
            Outage(at(-4), by=B), TOOK_NOTHING, BackendDown("503.", at(10)), id="took nothing, another's mark"
        ),
        pytest.param(Outage(at(90), seconds(40), MINE), TOOK, BackendDown("502.", at(80)), id="the trial fails"),
    ],
)
@pytest.mark.parametrize("is_seen", [True, False], ids=["seen", "came meanwhile"])
def test_backend_failure_counts_against_the_current_mark(
    world: World, current: Outage | None, failure: BackendUnavailable, verdict: Any, is_seen: bool
) -> None:
    now = world.mark(current)
    found, change = world.marks_of.failed(now if is_seen else Marks(), failure, an_event(A), MINE)
    assert found == verdict
    assert world.down == current, "the record comes first"
    world.marks_of.change(change)
    assert isinstance(verdict, HandlerFailed) or world.down is None or world.down.until == verdict.until


def test_a_failure_passes_on_how_long_the_backend_asks_to_wait(world: World) -> None:
    asks = BackendUnavailable("429.", took=False, retry_after=seconds(70))
    assert world.marks_of.failed(Marks(), asks, an_event(A), MINE)[0] == BackendDown("429.", at(10), seconds(70))


# ---- events through an outage


def test_an_event_for_a_backend_that_takes_nothing_spends_no_attempt(world: World) -> None:
    world.handler.says = [TOOK_NOTHING, "hello"]
    record = world.add("a")
    assert world.process(record) == Answer(TaskResult.ACK, "rescheduled")
    after = world.read(record)
    assert (after.attempt, after.generation, after.throttled, after.due_at) == (0, 1, 1, at(10))
    assert after.last_error == "503."
    assert world.down == Outage(at(10), seconds(10), by=A)
    assert world.queue.made == [(Task.of(after), at(10))]
    world.clock.go(10)
    assert world.process(record) == Answer(TaskResult.ACK, "done")
    assert (world.read(record).attempt, world.down) == (1, None)
    assert [line["event"] for line in world.lines("backend_down", "backend_up")] == ["backend_down", "backend_up"]
    assert world.lines("backend_down")[0]["until"] == at(10).isoformat()


def test_a_lost_answer_counts_once_and_then_the_backend_is_down(world: World) -> None:
    world.handler.says = [TOOK]
    record = world.add("a")
    world.process(record)
    assert (world.read(record).attempt, world.down) == (1, Outage(NOW, by=A))
    for wait, due in ((10, 10), (20, 20), (40, 40)):
        world.clock.go(400)
        world.process(record)
        after = world.read(record)
        assert (after.attempt, world.down) == (1, Outage(world.clock.at + seconds(wait), seconds(wait), by=A))
        assert after.due_at == world.clock.at + seconds(due)


def test_a_poisonous_event_holds_back_itself_alone(world: World) -> None:
    world.handler.poison = {"a": TOOK_NOTHING}
    poison, fine = world.add("a"), world.add("b")
    world.process(poison)
    assert world.process(fine) == Answer(TaskResult.ACK, "done")
    assert world.down is None, "an answer to another deletes the mark"
    assert world.lines("inbound_waiting") == []


def test_a_second_event_that_fails_makes_it_an_outage_of_all(world: World) -> None:
    world.handler.says = [TOOK_NOTHING]
    first, second, third = world.add("a"), world.add("b"), world.add("c")
    world.process(first)
    world.clock.go(1)
    assert world.process(second) == Answer(TaskResult.ACK, "rescheduled")
    assert world.down == Outage(at(11), seconds(10))
    assert world.read(second).attempt == 0
    assert world.process(third) == Answer(TaskResult.ACK, "waiting")
    assert world.handler.asked == ["a", "b"]
    assert world.hops()[-1] == (1, at(11))
    assert world.read(third) == third
    (line,) = world.lines("inbound_waiting")
    assert (line["reason"], line["until"]) == ("backend_down", at(11).isoformat())


def test_one_event_is_the_trial_and_the_others_wait(world: World) -> None:
    world.mark(Outage(NOW, seconds(40)))
    records = [world.add(key) for key in "abcd"]
    during: list[Answer] = []
    world.handler.during = lambda: during.extend(world.process(record, world.an_instance()) for record in records[1:])
    world.handler.says = [TOOK]
    world.process(records[0])
    assert (during, world.handler.asked) == ([Answer(TaskResult.ACK, "waiting")] * 3, ["a"])
    assert world.down == Outage(at(80), seconds(80))


@pytest.mark.parametrize("said", [HandlerFault("500."), Drop("spam"), "hello"], ids=["500", "410", "200"])
def test_any_answer_to_the_trial_deletes_the_mark(world: World, said: Exception | str) -> None:
    world.mark(Outage(NOW, seconds(40)))
    world.handler.says = [said]
    world.process(world.add("a"))
    assert world.down is None


def test_unusable_answer_from_backend_spends_an_attempt(world: World) -> None:
    world.mark(Outage(NOW, seconds(40)))
    world.handler.says = [HandlerFault("500.")]
    record = world.add("a")
    world.process(record)
    assert (world.read(record).attempt, world.read(record).last_error) == (1, "500.")


@pytest.mark.parametrize(
    "kind", ["reaction", None, "unparsable"], ids=["not handled", "an account's news", "unparsable"]
)
def test_event_that_calls_no_backend_does_not_wait_for_it(world: World, kind: str | None) -> None:
    mark = Outage(at(40), seconds(40))
    world.mark(mark)
    world.channel.kind = kind
    answer = world.process(world.add("a"))
    assert answer == Answer(TaskResult.ACK, "dead" if kind == "unparsable" else "done")
    assert (world.handler.asked, world.down) == ([], mark)


@pytest.mark.parametrize(
    ("news", "lifts"),
    [
        (AccountConnected("a", "e"), True),
        (AccountReinstated("a"), True),
        (AccountBanned("a", scheduled=False), False),
        (None, False),
    ],
)
def test_change_that_restores_an_account_lifts_the_blocks_of_its_senders(
    world: World, news: StateChange | None, lifts: bool
) -> None:
    blocked = Marks(Outage(at(9)), Block(at(900), seconds(900), 368), receipt_block=ReceiptBlock(131042, NOW))
    world.store.change_marks(sender_id("meta", SENDER), lambda _: blocked)
    world.channel.kind, world.channel.news = None, (news,) if news else ()
    assert world.process(world.add("a")) == Answer(TaskResult.ACK, "done")
    assert world.store.marks(sender_id("meta", SENDER)) == (Marks(Outage(at(9))) if lifts else blocked)


@pytest.mark.parametrize("fault", ["interrupted", "shutdown"])
def test_a_trial_that_did_not_take_place_gives_the_claim_back(world: World, fault: str) -> None:
    world.mark(Outage(NOW, seconds(40)))
    world.handler.says, world.stops = [HandlerInterrupted()], fault == "shutdown"
    record = world.add("a")
    assert world.process(record) == Answer(TaskResult.CONFLICT, "pending")
    assert (world.down, world.read(record).attempt) == (Outage(NOW, seconds(40)), 0)


def test_an_elected_event_whose_lease_is_refused_gives_the_claim_back(world: World) -> None:
    world.mark(Outage(NOW, seconds(40)))
    record = world.add("a")
    elect = world.marks_of.elect

    def slow(*given: Any) -> Any:
        found = elect(*given)
        world.store.change(record.key, lambda now: lease(now, Task.of(record), OTHERS, Go(), LIMITS, NOW))
        return found

    world.marks_of.elect = slow  # type: ignore[method-assign]
    assert world.process(record) == Answer(TaskResult.CONFLICT, "leased")
    assert (world.handler.asked, world.down) == ([], Outage(NOW, seconds(40)))


def test_an_event_that_waited_too_long_is_dead_and_the_backend_is_not_asked(world: World) -> None:
    mark = Outage(NOW, seconds(40))
    world.mark(mark)
    record = world.add("a", give_up_at=NOW)
    assert world.process(record) == Answer(TaskResult.ACK, "dead")
    assert (world.read(record).reason, world.handler.asked, world.down) == ("waited", [], mark)


def test_a_mark_that_was_deleted_while_a_call_failed_stays_deleted(world: World) -> None:
    world.mark(Outage(NOW, seconds(40)))
    world.handler.says = [TOOK_NOTHING]
    world.handler.during = lambda: world.mark(None)
    record = world.add("a")
    world.process(record)
    assert world.down is None
    assert world.read(record).attempt == 0


def test_early_task_after_a_failed_attempt_logs_no_outage(world: World) -> None:
    """What it waits for is its own retry."""
    failed = {"attempt": 1, "due_at": at(9), "attempts_log": (Attempt(at(-1), 1, "handler_failed"),)}
    record = world.add("a", **failed)
    assert world.process(record) == Answer(TaskResult.ACK, "waiting")
    assert world.hops() == [(1, at(9))]
    assert [line.get("reason") for line in world.lines("inbound_waiting")] != ["backend_down"]


def test_early_task_in_an_outage_logs_backend_down(world: World) -> None:
    down = {"due_at": at(9), "attempts_log": (Attempt(at(-1), 1, "backend_down"),)}
    world.process(world.add("a", **down))
    assert [line["reason"] for line in world.lines("inbound_waiting")] == ["backend_down"]


def test_the_end_of_an_event_is_logged_by_what_became_of_it(world: World) -> None:
    world.handler.says = [TOOK_NOTHING]
    record = world.add("a", attempt=LIMITS.max_attempts - 1)
    world.process(record)
    assert world.read(record).state is State.PENDING
    (line,) = world.lines("inbound_rescheduled", "inbound_failed", "inbound_processing_finished")
    assert line["event"] == "inbound_rescheduled"


def test_store_outage_after_a_failed_call_leaves_the_verdict_and_is_logged(world: World) -> None:
    """The verdict rests on the mark as it was seen, and is settled once the store is back."""

    class Away:
        def __getattr__(self, name: str) -> Any:
            raise StoreUnavailable

    marks_of = world.marks_of
    marks_of._store = Away()  # type: ignore[assignment]
    verdict, change = marks_of.failed(Marks(), TOOK_NOTHING, an_event(A), MINE)
    assert verdict == BackendDown("503.", at(10))
    marks_of.change(change)
    (line,) = world.lines("unexpected_error")
    assert (line["reason"], line["stage"]) == ("store_unavailable", "marks")


def test_several_poisonous_events_delay_others_by_one_wait(world: World) -> None:
    """A fresh event is the trial, and its answer closes the breaker: not the poisonous ones, which would double it."""
    world.handler.poison = {"a": TOOK_NOTHING, "b": TOOK_NOTHING}
    poison = [world.add(key) for key in "ab"]
    for record in poison:
        world.process(record)
    assert world.down is not None
    world.clock.go(10)
    assert [world.process(record) for record in poison] == [Answer(TaskResult.ACK, "waiting")] * 2, (
        "they let others go first"
    )
    fine = world.add("c")
    assert world.process(fine) == Answer(TaskResult.ACK, "done")
    assert world.down is None


def test_an_event_that_failed_before_makes_no_outage_of_all(world: World) -> None:
    """Only a first failure says something new: several poisonous events are no outage."""
    world.mark(Outage(at(-4), by=B))
    again = an_event(A, attempts_log=(Attempt(at(-60), 1, "backend_down"),))
    _, change = world.marks_of.failed(world.store.marks(ADDRESS), TOOK_NOTHING, again, MINE)
    world.marks_of.change(change)
    assert world.down == Outage(at(-4), by=B)


def test_a_replayed_event_counts_as_fresh(world: World) -> None:
    world.mark(Outage(at(-4), by=B))
    replayed = an_event(A, round=1, attempts_log=(Attempt(at(-60), 1, "backend_down"),))
    _, change = world.marks_of.failed(world.store.marks(ADDRESS), TOOK_NOTHING, replayed, MINE)
    world.marks_of.change(change)
    assert world.down == Outage(at(10), seconds(10))


# ---- the order of what follows a call: the event, then the mark, then the task


def killed(*_: Any) -> Any:
    raise SystemExit


def test_worker_killed_before_task_creation_has_stored_the_outage(world: World) -> None:
    world.handler.says = [TOOK_NOTHING]
    record = world.add("a")
    world.queue.ensure = killed  # type: ignore[method-assign]
    with pytest.raises(SystemExit):
        world.process(record)
    assert world.down is not None
    assert world.read(record).state is State.PENDING


def test_worker_killed_before_mark_is_stored_has_settled_its_event(world: World) -> None:
    world.handler.says = [TOOK_NOTHING]
    record = world.add("a")
    world.store.change_marks = killed  # type: ignore[method-assign]
    with pytest.raises(SystemExit):
        world.process(record)
    assert (world.read(record).state, world.read(record).attempt) == (State.PENDING, 0)
