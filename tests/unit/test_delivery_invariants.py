"""What holds whatever happens: hypothesis drives one event and its replies through every mishap it can think of.

The store, the queue and the workers here are the smallest that can hold a record, a task and a token. Tasks come early,
twice and long after; workers stall, crash and answer late; writes are applied and reported refused; receipts of any
kind and round arrive; people replay and discard. At the end everything must come to an end by its tasks alone: no
sweep helps it.
"""

from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from services.task_responses import STATUS
from shared.domain.calls import is_call
from shared.domain.delivery.answers import Ensure, EnsureReplies, Hop, NotAllowed, Run, Step, TaskResult
from shared.domain.delivery.create import create, seen_again
from shared.domain.delivery.lease import lease
from shared.domain.delivery.operator import discard, replay
from shared.domain.delivery.settle import settle
from shared.domain.delivery.sweep import sweep
from shared.domain.guards import Elect, Go, Guard, Never, Wait, outbound_guard
from shared.domain.identity import outbound_key
from shared.domain.limits import DoubtPolicy, Limits
from shared.domain.marks import Marks, Outage
from shared.domain.record import WAKE, Delivery, Kind, ReceiptKind, Receipts, State, Task
from shared.domain.tasks import wake_tasks
from shared.domain.verdicts import (
    Accepted,
    BackendDown,
    Blocked,
    BlockScope,
    CredentialRefused,
    Dropped,
    HandlerFailed,
    HandlerVerdict,
    Limited,
    LimitScope,
    Lost,
    ProviderDown,
    Refused,
    Released,
    Replied,
    Retry,
    SendVerdict,
)
from tests.support.builders import EVENT_KEY, NOW

Name = tuple[str, int, int]
"""Of a task: key, generation, hop."""

ATTEMPTS = 3
NOT_ACCEPTED: dict[str, SendVerdict] = {
    "provider down": ProviderDown(2),
    "retry": Retry(131053),
    "limited": Limited(LimitScope.CONTACT, 131056),
    "credential": CredentialRefused(190),
    "blocked": Blocked(BlockScope.SENDER, 368),
    "refused": Refused(131026),
}
SENDS = ("accepted", "unreadable", "accepted, answer lost", "lost", "lost in an outage", *NOT_ACCEPTED, "shutdown")
HANDLINGS: dict[str, HandlerVerdict] = {
    "fails": HandlerFailed("no"),
    "backend down": BackendDown("no"),
    "drops": Dropped("spam"),
    "shutdown": Released(),
}
SPENDS_NONE = {"limited", "credential_refused", "credential_replaced", "blocked", "provider_down", "backend_down"}
GUARDS = {"open": Go(), "closed": Wait("blocked", NOW), "closed for good": Never("window")}

PICK = st.integers(0, 99)
HANDLING = st.sampled_from(["replies"] * 3 + list(HANDLINGS))
MISHAP = st.sampled_from(["none"] * 5 + ["ambiguous", "crash", "answer lost", "stall"])

PLANNED = ("webhook", "replies")
STARTS: dict[str, tuple[str | int, ...]] = {
    "nothing": (),
    "an event": ("webhook",),
    "an event with two workers": ("webhook", "arrives", "answers", 91, "arrives"),
    "a plan": PLANNED,
    "a message with a worker": (*PLANNED, "arrives"),
    "a message whose worker stalled": (*PLANNED, "arrives", "answers", 61, "arrives"),
    "a message in doubt": (*PLANNED, "accepted, answer lost"),
    "a message past its doubt": (*PLANNED, "accepted, answer lost", 301),
    "a message resent": (*PLANNED, "accepted, answer lost", 301, "arrives"),
    "a message with two workers": (*PLANNED, "arrives", "answers", 61, "arrives", 301, "arrives"),
    "a message in doubt again": (*PLANNED, "lost", 301, "arrives", 61, "arrives"),
    "a message refused": (*PLANNED, "refused"),
    "a message limited": (*PLANNED, "limited"),
    "a message that failed later": (*PLANNED, "accepted", "failed receipt"),
    "a message replayed": (*PLANNED, "accepted", "failed receipt", "replayed"),
}
"""Where a run may begin: deep enough that a few steps more reach every row."""


@dataclass
class Worker:
    """One attempt: it holds a token, whether or not that still stands."""

    key: str
    token: str
    task: Task
    resend: bool
    round: int
    asked_at: datetime
    verdict: HandlerVerdict | SendVerdict | None = None


class Deliveries(RuleBasedStateMachine):
    """One event, its replies, their tasks, and the workers upon them."""

    # ---- the world

    @initialize(
        replies=st.integers(1, 3),
        policy=st.sampled_from(list(DoubtPolicy)),
        start=st.sampled_from(list(STARTS)),
        types=st.lists(st.sampled_from(["text", "text", "text", "typing", "read", "invalid"]), min_size=3, max_size=3),
    )
    def begin(self, replies: int, policy: DoubtPolicy, start: str, types: list[str]) -> None:
        self.limits = Limits(max_attempts=ATTEMPTS, doubt_policy=policy)
        if STARTS[start] and types[0] == "invalid":
            types[0] = "text"  # what happens at the start happens to the first reply
        self.payloads = tuple({"n": index, "type": types[index]} for index in range(replies))
        self.invalid = {index: "It is empty." for index in range(replies) if types[index] == "invalid"}
        self.now = NOW
        self.records: dict[str, Delivery] = {}
        self.live: set[Name] = set()
        self.used: set[Name] = set()
        self.workers: list[Worker] = []
        self.stalled: list[tuple[Step, Task]] = []
        self.guard = "open"
        self.tokens = 0
        self.handed: Counter[tuple[str, int]] = Counter()
        self.mishaps: Counter[str] = Counter()
        self.meta_waits, self.person_waits = True, set[str]()
        for happening in STARTS[start]:
            self.happens(happening)

    def happens(self, happening: str | int) -> None:
        """One step of a start: seconds pass, or somebody does something to the first task."""
        match happening:
            case int():
                self.now += timedelta(seconds=happening)
            case "webhook":
                self.webhook("none")
            case "arrives":
                if self.live:  # under hold a doubt may have ended it
                    self.arrive(self.first_task(), "none")
            case "replies":
                self.attempt(0, "accepted", "replies")
            case "answers":
                self.work(self.workers[-1], "accepted, answer lost", "replies")
            case "failed receipt":
                first = outbound_key(EVENT_KEY, 0)
                self.records[first] = replace(self.records[first], receipts={0: Receipts(failed=self.now)})
            case "replayed":
                self.replay(self.records[outbound_key(EVENT_KEY, 0)], False, "none")
            case outcome:
                self.attempt(sorted(self.live).index(self.first_task()), str(outcome), "replies")

    def first_task(self) -> Name:
        """Of the first reply, or of the event while there is none."""
        return min(self.live, key=lambda name: (name[0] != outbound_key(EVENT_KEY, 0), name))

    def task_of(self, name: Name) -> Task:
        kind = Kind.INBOUND if name[0] == EVENT_KEY else Kind.OUTBOUND
        return Task(name[0], kind, "correlation-1", name[1], name[2])

    def make_task(self, name: Name) -> None:
        """A name that is or was in use is success."""
        if name not in self.used:
            self.live.add(name)

    def answered(self, task: Task, status: int) -> None:
        """If it is 200, the queue forgets the task. Anything else: it comes back."""
        name = (task.key, task.generation, task.hop)
        if status == 200 and name in self.live:
            self.live.discard(name)
            self.used.add(name)

    def write(self, before: Delivery | None, step: Step) -> None:
        """Store what a step wrote; every write is looked at here."""
        if step.write is None:
            assert not step.create
            return
        after = step.write
        if before is not None:
            assert after.generation >= before.generation
            assert after.round >= before.round
            assert after.attempts_log[: len(before.attempts_log)] == before.attempts_log
            assert before.state is not State.DROPPED, "what is dropped here is dropped for good"
        if (
            before
            and after.attempts_log
            and after.attempts_log[-1].answer in SPENDS_NONE
            and after.token == before.token
        ):
            assert after.reason != "attempts", "an outage spent the attempts"
        if after.state is State.DEAD:
            assert not after.current_receipts.any, "a receipt of the round is thrown away"
        if after.state is State.DONE and after.kind is Kind.OUTBOUND:
            assert self.handed[after.key, after.round] or after.current_receipts.any
        self.records[after.key] = after
        for reply in step.create:
            assert reply.key not in self.records
            self.records[reply.key] = reply

    def follow(self, step: Step, task: Task | None) -> None:
        """What the pipeline does after the write, before it answers."""
        for wake in wake_tasks(step.rings, None) if step.rings else ():
            self.make_task((wake.key, WAKE, int(str(wake.wake)[:8], 16)))
        match step.next:
            case Ensure(record):
                self.make_task((record.key, record.generation, 0))
            case EnsureReplies(record):
                for index in range(record.plan_size or 0):
                    self.make_task((outbound_key(record.key, index), 0, 0))
            case Hop():
                assert task is not None
                self.make_task((task.key, task.generation, task.hop + 1))

    def after_write(self, step: Step, task: Task, mishap: str) -> None:
        if mishap == "crash":
            self.mishaps[task.key] += 1
        elif mishap == "stall":
            self.mishaps[task.key] += 1
            self.stalled.append((step, task))
        else:
            self.follow(step, task)
            if mishap == "answer lost":
                self.mishaps[task.key] += 1
            else:
                self.answered(task, STATUS[step.answer.result])

    def guard_of(self, record: Delivery | None, task: Task) -> Guard:
        if record is None:
            return Go()
        if record.kind is Kind.INBOUND:
            return Wait("backend_down", self.now + timedelta(seconds=10)) if self.guard == "down" else Go()
        down = Outage(self.now + timedelta(seconds=10), timedelta(seconds=10)) if self.guard == "down" else None
        if self.guard not in ("open", "down"):
            guard = GUARDS[self.guard]
            return replace(guard, until=self.now + timedelta(seconds=600)) if isinstance(guard, Wait) else guard
        before = self.records.get(record.after or "")
        return outbound_guard(Marks(down=down), "fingerprint", record, before, task, self.limits, self.now)

    # ---- Meta and the webhook

    @rule(mishap=MISHAP)
    def webhook(self, mishap: str) -> None:
        record = self.records.get(EVENT_KEY)
        if record is None:
            record = self.records[EVENT_KEY] = create(
                Kind.INBOUND,
                EVENT_KEY,
                provider="meta",
                tenant="default",
                sender="1",
                contact="2",
                correlation_id="correlation-1",
                payload={},
                limits=self.limits,
                now=self.now,
            )
        if mishap in ("crash", "stall"):
            return
        if seen_again(record):
            self.make_task((EVENT_KEY, record.generation, 0))
        self.meta_waits = False

    # ---- the queue and the workers

    @precondition(lambda self: self.live)
    @rule(pick=PICK, mishap=MISHAP)
    def a_task_arrives(self, pick: int, mishap: str) -> None:
        self.arrive(sorted(self.live)[pick % len(self.live)], mishap)

    @precondition(lambda self: self.used)
    @rule(pick=PICK, mishap=MISHAP)
    def a_task_arrives_again_though_it_was_answered(self, pick: int, mishap: str) -> None:
        self.arrive(sorted(self.used)[pick % len(self.used)], mishap)

    def arrive(self, name: Name, mishap: str) -> None:
        self.tokens += 1
        token, task, before = f"token-{self.tokens}", self.task_of(name), self.records.get(name[0])
        guard = self.guard_of(before, task)
        step = lease(before, task, token, guard, self.limits, self.now)
        if isinstance(step.next, Elect):
            assert step.write is None, "written by an attempt that is not elected"
            assert before is not None
            assert before.doubts, "where nothing is marked only a doubt makes an attempt probe"
            is_elected = mishap in ("none", "ambiguous", "answer lost")
            guard = Go() if is_elected else Wait("provider_down", self.now + timedelta(seconds=15), guard.unclear)
            step = lease(before, task, token, guard, self.limits, self.now)
        self.write(before, step)
        if mishap == "ambiguous" and step.write:
            stored = self.records[task.key]
            again = lease(stored, task, token, guard, self.limits, self.now)
            assert again.write is None, "its own write was not recognised"
            assert again.next == step.next or stored.final
            step = again
        if isinstance(step.next, Run):
            assert self.guard != "down", "sent in an outage"
            assert before is None or before.state is not State.PENDING or before.due(self.now), "sent early"
            if step.next.resend:
                assert not self.records[task.key].current_receipts.any, "resent though a receipt came"
            if mishap != "crash":
                record = step.next.record
                self.workers.append(Worker(record.key, token, task, step.next.resend, record.round, self.now))
            return
        if isinstance(step.next, Hop):
            assert task.generation >= self.records[task.key].generation, "a T- hopped"
            assert step.next.until >= self.now
        self.after_write(step, task, mishap)

    @precondition(lambda self: self.live)
    @rule(pick=PICK, outcome=st.sampled_from(SENDS), handling=HANDLING, seconds=st.sampled_from([0, 0, 61, 301]))
    def an_attempt_is_made(self, pick: int, outcome: str, handling: str, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)
        self.attempt(pick, outcome, handling)

    def attempt(self, pick: int, outcome: str, handling: str) -> None:
        """Arrive, work and settle, with nothing in between."""
        workers = len(self.workers)
        self.arrive(sorted(self.live)[pick % len(self.live)], "none")
        for worker in self.workers[workers:]:
            self.work(worker, outcome, handling)
            self.settle(worker, "none", 0.5)

    def some_worker(self, pick: int) -> Worker:
        return self.workers[pick % len(self.workers)]

    @precondition(lambda self: any(worker.verdict is None for worker in self.workers))
    @rule(pick=PICK, outcome=st.sampled_from(SENDS), handling=HANDLING)
    def a_worker_does_its_work(self, pick: int, outcome: str, handling: str) -> None:
        idle = [worker for worker in self.workers if worker.verdict is None]
        self.work(idle[pick % len(idle)], outcome, handling)

    def work(self, worker: Worker, outcome: str, handling: str) -> None:
        if worker.task.kind is Kind.INBOUND:
            worker.verdict = HANDLINGS.get(handling, Replied(self.payloads, invalid=self.invalid))
        elif outcome == "shutdown" or self.now - worker.asked_at > self.limits.begin_within:
            worker.verdict = Released(worker.resend)
        elif outcome in NOT_ACCEPTED:
            worker.verdict = NOT_ACCEPTED[outcome]
        else:
            self.hand_over(worker) if not outcome.startswith("lost") else None
            wamid = f"wamid.{len(self.handed)}.{self.handed.total()}"
            lost = Lost(outage=True) if outcome == "lost in an outage" else Lost(1)
            worker.verdict = {"accepted": Accepted(wamid), "unreadable": Accepted(None)}.get(outcome, lost)

    def hand_over(self, worker: Worker) -> None:
        """The provider takes it. A call it may take as often as it is tried."""
        key, most = (worker.key, worker.round), 1 if self.limits.doubt_policy is DoubtPolicy.HOLD else 2
        most = ATTEMPTS if is_call(self.records[worker.key].payload) else most
        self.handed[key] += 1
        assert self.handed[key] <= most, f"handed over {self.handed[key]} times in one round"
        before = self.records.get(self.records[worker.key].after or "")
        if before is not None and before.round == 0 and worker.round == 0:
            assert before.finished, "handed over before the reply before it"

    @precondition(lambda self: any(worker.verdict is not None for worker in self.workers))
    @rule(pick=PICK, mishap=MISHAP, jitter=st.sampled_from([0.0, 1.0]))
    def a_worker_settles(self, pick: int, mishap: str, jitter: float) -> None:
        ready = [worker for worker in self.workers if worker.verdict is not None]
        self.settle(ready[pick % len(ready)], mishap, jitter)

    def settle(self, worker: Worker, mishap: str, jitter: float) -> None:
        assert worker.verdict is not None
        self.workers.remove(worker)
        before = self.records[worker.key]
        step = settle(before, worker.token, worker.verdict, self.limits, self.now, jitter)
        if before.token != worker.token:
            assert step.write is None, "a token that lost wrote"
            assert (step.answer.result, step.next) == (TaskResult.CONFLICT, None)
        self.write(before, step)
        if mishap == "ambiguous" and step.write:
            stored = self.records[worker.key]
            step = settle(stored, worker.token, worker.verdict, self.limits, self.now, jitter)
            assert step.write is None, "its own write was not recognised"
        self.after_write(step, worker.task, mishap)

    @precondition(lambda self: self.workers)
    @rule(pick=PICK)
    def a_worker_crashes(self, pick: int) -> None:
        self.workers.remove(self.some_worker(pick))

    @precondition(lambda self: self.stalled)
    @rule(pick=PICK)
    def a_stalled_worker_goes_on_after_its_write(self, pick: int) -> None:
        step, task = self.stalled.pop(pick % len(self.stalled))
        self.follow(step, task)
        self.answered(task, STATUS[step.answer.result])

    # ---- the provider

    @precondition(lambda self: len(self.records) > 1)
    @rule(pick=PICK, kind=st.sampled_from(list(ReceiptKind)), rounds_ago=st.integers(-1, 2))
    def a_receipt_arrives(self, pick: int, kind: ReceiptKind, rounds_ago: int) -> None:
        record = self.reply(pick)
        number = record.round - rounds_ago
        if number >= 0:
            known = record.receipts.get(number, Receipts())
            said = known.merged(Receipts(**{kind.value: self.now}))
            self.records[record.key] = replace(record, receipts={**record.receipts, number: said})

    def reply(self, pick: int) -> Delivery:
        replies = sorted(key for key in self.records if key != EVENT_KEY)
        return self.records[replies[pick % len(replies)]]

    @rule(guard=st.sampled_from(["open", "open", "closed", "closed for good", "down"]))
    def a_guard_changes(self, guard: str) -> None:
        self.guard = guard

    # ---- time, sweep, people

    @rule(seconds=st.sampled_from([1, 10, 31, 61, 91, 301, 601, 3600, 25 * 3600]))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @precondition(lambda self: self.records)
    @rule(pick=PICK, mishap=MISHAP)
    def a_sweep_passes(self, pick: int, mishap: str) -> None:
        before = self.some_record(pick)
        step = sweep(before, self.limits, self.now)
        if step.write:
            assert step.write.state is before.state
            assert step.write.sweep_at is not None
            assert step.write.sweep_at > self.now
        self.write(before, step)
        if mishap == "ambiguous":
            step = sweep(self.records[before.key], self.limits, self.now)
            assert step.write is None
        if mishap != "crash":
            self.follow(step, None)

    def some_record(self, pick: int) -> Delivery:
        return self.records[sorted(self.records)[pick % len(self.records)]]

    @precondition(lambda self: self.records)
    @rule(pick=PICK, may_double=st.booleans(), mishap=MISHAP)
    def a_person_replays(self, pick: int, may_double: bool, mishap: str) -> None:
        self.replay(self.some_record(pick), may_double, mishap)

    def replay(self, before: Delivery, may_double: bool, mishap: str) -> None:
        try:
            step = replay(before, self.limits, self.now, may_double)
        except NotAllowed:
            return
        if step.write and step.write.state is State.PENDING:
            assert may_double or not before.doubts
            assert step.write.round == before.round + 1
        self.write(before, step)
        if mishap == "ambiguous" and step.write and step.write.state is State.PENDING:
            step = replay(self.records[before.key], self.limits, self.now, may_double)
            assert step.write is None
        if mishap == "crash":
            self.person_waits.add(before.key)
        else:
            self.follow(step, None)
            self.person_waits.discard(before.key)

    @precondition(lambda self: any(record.state is State.DEAD for record in self.records.values()))
    @rule(pick=PICK)
    def a_person_discards(self, pick: int) -> None:
        dead = sorted(key for key, record in self.records.items() if record.state is State.DEAD)
        before = self.records[dead[pick % len(dead)]]
        self.write(before, discard(before, self.limits, self.now))

    # ---- what always holds

    @invariant()
    def attempts_and_doubts_stay_in_their_bounds(self) -> None:
        for record in self.records.values():
            assert 0 <= record.attempt <= ATTEMPTS
            assert 0 <= record.doubts <= 2
            assert record.throttled >= 0

    @invariant()
    def what_is_open_or_dead_never_expires_and_what_is_final_is_never_swept(self) -> None:
        for record in self.records.values():
            assert (record.expire_at is not None) is (record.state in (State.DONE, State.DROPPED))
            assert (record.sweep_at is None) is record.final

    @invariant()
    def a_lease_and_a_doubt_have_an_end(self) -> None:
        for record in self.records.values():
            if record.state is State.LEASED:
                assert record.lease_until is not None
                assert record.token is not None
            if record.state is State.IN_DOUBT:
                assert record.doubt_until is not None
                assert record.kind is Kind.OUTBOUND
            if is_call(record.payload):
                assert record.state is not State.IN_DOUBT
                assert record.doubts == 0

    @invariant()
    def no_message_waits_for_a_call_and_nothing_for_what_cannot_be_sent(self) -> None:
        for record in self.records.values():
            before = self.records[record.after].payload if record.after else {}
            assert is_call(record.payload) or not is_call(before)
            assert before.get("type") != "invalid"

    @invariant()
    def what_cannot_be_sent_is_dead_until_it_is_given_up(self) -> None:
        for record in self.records.values():
            if record.payload.get("type") == "invalid":
                assert record.reason in ("invalid", "discarded")
                assert (record.attempt, record.round) == (0, 0)

    @invariant()
    def what_is_not_final_has_a_task_or_somebody_who_still_owes_it_one(self) -> None:
        """With the sweep off: no sweep ever made up for a task that was lost."""
        for key, record in self.records.items():
            owed = key in self.person_waits or (self.meta_waits and seen_again(record))
            planned = record.kind is Kind.OUTBOUND and self.has_task(EVENT_KEY)
            assert record.final or owed or planned or self.has_task(key), f"{record.state} without a task"

    def has_task(self, key: str) -> bool:
        return any(name[0] == key for name in self.live)

    @invariant()
    def the_live_tasks_of_a_record_stay_few(self) -> None:
        for key, record in self.records.items():
            of_generation = Counter(name[1] for name in self.live if name[0] == key)
            for count in of_generation.values():
                assert count <= 2 + self.mishaps[key]
            assert max(of_generation, default=0) <= record.generation

    # ---- and how it ends

    def teardown(self) -> None:
        """Tasks alone bring everything to its end, once mishaps are over; the sweep stays off."""
        if not getattr(self, "records", None):
            return
        self.guard, self.workers = "open", []
        while self.stalled:
            self.a_stalled_worker_goes_on_after_its_write(0)
        if self.meta_waits:
            self.webhook("none")
        for key in sorted(self.person_waits):
            self.replay(self.records[key], False, "none")
        for _ in range(60):
            if all(record.final for record in self.records.values()) and not self.live:
                break
            for name in sorted(self.live):
                if name in self.live:
                    self.arrive(name, "none")
                while self.workers:
                    self.work(self.workers[0], "accepted", "replies")
                    self.settle(self.workers[0], "none", 0.5)
            self.now += timedelta(seconds=91)
        assert {record.state.value for record in self.records.values() if not record.final} == set()
        assert self.live == set()


BOUNDED: dict[str, Any] = {
    "deadline": None,
    "derandomize": True,
    "database": None,
    "suppress_health_check": list(HealthCheck),
}


def test_no_sequence_of_events_breaks_an_invariant() -> None:
    run_state_machine_as_test(Deliveries, settings=settings(max_examples=180, stateful_step_count=25, **BOUNDED))
