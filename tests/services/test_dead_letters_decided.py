"""Replay and discard over a real store, where an answer is lost, the queue is away, or the command is killed."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from shared.domain.dead_letters import DISCARDED_BECAUSE, DeadLetterFilter
from shared.domain.errors import QueueUnavailable, RegistryUnreadable, StoreUnavailable
from shared.domain.identity import Echo
from shared.domain.record import Delivery, ReceiptKind, State, Task
from shared.domain.tenants import Tenant
from shared.operations.dead_letters import PAGE, PATIENCE_SECONDS, Decision, Discard, Done, Replay, find, untried
from shared.stores.sqlite.store import SqliteStore
from shared.tenants.environment import EnvironmentTenants
from tests.support import parts
from tests.support.parts import LIMITS, NOW, Clock, NoQueue, Tapped, a_receipt, a_reply, an_event, ended
from tests.support.receipts import note_receipt


@dataclass
class Desk:
    """Where a person decides: a store and a queue that can fail, and a clock."""

    store: Tapped
    queue: Tapped
    clock: Clock

    def replay(self, record: Delivery, may_double: bool = False) -> Decision:
        return Replay(self.store, self.queue, EnvironmentTenants.of(), LIMITS, self.clock, may_double)(record.key)

    def discard(self, record: Delivery, because: str = "a wrong number") -> Decision:
        return Discard(self.store, LIMITS, self.clock, because)(record.key)

    def put(self, record: Delivery, *receipts: ReceiptKind) -> Delivery:
        self.store.port.create(record)
        echo = Echo(record.key, record.round, record.correlation_id)
        for kind in receipts:
            note_receipt(self.store.port, echo, a_receipt("wamid.out", kind))
        return record

    def get(self, record: Delivery) -> Delivery:
        found: Delivery = self.store.port.get(record.key)
        return found

    @property
    def tasks(self) -> list[tuple[str, int]]:
        """Key and generation of every task that was made."""
        return [(task.key, task.generation) for task, _ in self.queue.asked("ensure")]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    clock = Clock()
    store = SqliteStore(tmp_path / "pombo.sqlite", LIMITS, clock.now)
    yield Desk(Tapped(store), Tapped(NoQueue()), clock)
    store.close()


def a_letter(number: int = 1, **changes: Any) -> Delivery:
    return a_reply(number, **ended(State.DEAD, **{"reason": "attempts"} | changes))


def failing(times: int, error: Exception) -> Callable[..., Exception | None]:
    """Fails that often, and works again."""
    left = iter([error] * times)
    return lambda *_: next(left, None)


# ---- one letter


def test_a_replay_writes_the_record_and_then_makes_its_task(desk: Desk) -> None:
    letter = desk.put(a_letter())
    assert desk.replay(letter) == Decision(Done.REPLAYED)
    after = desk.get(letter)
    assert (after.state, after.round, after.attempt) == (State.PENDING, 1, 0)
    assert desk.tasks == [(letter.key, after.generation)]


def test_message_confirmed_meanwhile_becomes_done_without_a_task(desk: Desk) -> None:
    letter = desk.put(a_letter(reason="in_doubt", doubts=2), ReceiptKind.SENT)
    assert desk.replay(letter) == Decision(Done.DONE)
    assert desk.get(letter).state is State.DONE
    assert desk.tasks == []


def test_doubtful_dead_letter_is_skipped_without_may_double(desk: Desk) -> None:
    letter = desk.put(a_letter(reason="in_doubt", doubts=1))
    outcome = desk.replay(letter)
    assert outcome.done is Done.SKIPPED
    assert "--may-double" in str(outcome.why)
    assert desk.get(letter).state is State.DEAD
    assert desk.replay(letter, may_double=True) == Decision(Done.REPLAYED)


def test_missing_record_and_newer_version_are_skipped(desk: Desk) -> None:
    state: Any = "parked"
    newer = desk.put(replace(a_letter(2), state=state))
    for record in (a_letter(1), newer):
        for outcome in (desk.replay(record), desk.discard(record)):
            assert outcome.done is Done.SKIPPED
            assert outcome.why


def test_discarded_dead_letter_stores_its_reason(desk: Desk, capfd: pytest.CaptureFixture[str]) -> None:
    letter = desk.put(a_letter(metadata={"of": "the caller"}))
    with parts.logged():
        assert desk.discard(letter, "c4n4ry") == Decision(Done.DISCARDED)
    after = desk.get(letter)
    assert (after.state, after.reason) == (State.DROPPED, "discarded")
    assert after.metadata == {"of": "the caller", DISCARDED_BECAUSE: "c4n4ry"}
    (line,) = parts.lines(capfd.readouterr().out)
    assert (line["event"], line["delivery"], line["reason"]) == ("discarded", letter.key, "attempts")
    assert "c4n4ry" not in str(line)


def test_a_replay_is_logged_once_with_the_round_that_it_began(desk: Desk, capfd: pytest.CaptureFixture[str]) -> None:
    letter = desk.put(a_letter())
    with parts.logged():
        desk.replay(letter)
        desk.replay(letter)
    (line,) = parts.lines(capfd.readouterr().out)
    assert (line["event"], line["delivery"], line["reason"], line["round"]) == ("replayed", letter.key, "attempts", 1)


# ---- an answer that was lost

WRITTEN = {
    "a replay": (a_letter(), (), lambda desk, one: desk.replay(one), Decision(Done.REPLAYED)),
    "a replay that makes it done": (
        a_letter(reason="in_doubt", doubts=1),
        (ReceiptKind.SENT,),
        lambda desk, one: desk.replay(one),
        Decision(Done.DONE),
    ),
    "a replay that makes it done, and a failed receipt": (
        a_letter(reason="in_doubt", doubts=1),
        (ReceiptKind.SENT, ReceiptKind.FAILED),
        lambda desk, one: desk.replay(one, may_double=True),
        Decision(Done.DONE),
    ),
    "a discard": (a_letter(), (), lambda desk, one: desk.discard(one), Decision(Done.DISCARDED)),
}


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("name", WRITTEN)
def test_write_reported_as_lost_is_not_a_failure(desk: Desk, name: str, times: int) -> None:
    record, receipts, act, said = WRITTEN[name]
    letter = desk.put(record, *receipts)
    desk.store.after = failing(times, StoreUnavailable())
    assert act(desk, letter) == said
    assert len(desk.store.asked("change")) == times + 1
    assert desk.get(letter).round == (said.done is Done.REPLAYED)


@pytest.mark.parametrize("name", WRITTEN)
def test_repeated_request_after_a_lost_store_gets_the_same_answer(desk: Desk, name: str) -> None:
    record, receipts, act, said = WRITTEN[name]
    letter = desk.put(record, *receipts)
    desk.store.after = lambda *_: StoreUnavailable()
    with pytest.raises(StoreUnavailable):
        act(desk, letter)
    desk.store.after = lambda *_: None
    if "failed receipt" not in name:  # its own moment is over: it was refused after all, and that is another replay
        assert act(desk, letter) == said


def test_unavailable_store_is_abandoned_after_the_patience(desk: Desk) -> None:
    letter = desk.put(a_letter())
    desk.store.before = lambda *_: StoreUnavailable()
    with pytest.raises(StoreUnavailable):
        desk.replay(letter)
    assert PATIENCE_SECONDS <= desk.clock.seconds < PATIENCE_SECONDS + 1


def test_queue_is_retried_during_a_short_outage(desk: Desk) -> None:
    letter = desk.put(a_letter())
    desk.queue.before = failing(2, QueueUnavailable())
    assert desk.replay(letter) == Decision(Done.REPLAYED)
    assert desk.get(letter).round == 1


# ---- killed between the record and its task


class Killed(BaseException):
    """What nothing catches."""


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("call", ["change", "ensure"])
def test_run_killed_anywhere_and_repeated_replays_each_once(desk: Desk, call: str, moment: str) -> None:
    letters = [desk.put(a_letter(number)) for number in range(7)]
    port = desk.store if call == "change" else desk.queue
    for nth in (1, 3, 2):
        passed = iter(range(1, 100))

        def kill(name: str, *_: Any, passed: Iterator[int] = passed, nth: int = nth) -> None:
            if name == call and next(passed) == nth:
                raise Killed

        setattr(port, moment, kill)
        with pytest.raises(Killed):
            a_run(desk)
        setattr(port, moment, lambda *_: None)
    a_run(desk)

    after = [desk.get(letter) for letter in letters]
    assert {(one.state, one.round) for one in after} == {(State.PENDING, 1)}
    assert {*desk.tasks} == {(one.key, one.generation) for one in after}, "each has its task, and no other"


def a_run(desk: Desk) -> None:
    """As the command runs, one after the other."""
    again = Replay(desk.store, desk.queue, EnvironmentTenants.of(), LIMITS, desk.clock)
    for record in untried(desk.store.port):
        again.ensure(record)
    for found in find(desk.store.port, DeadLetterFilter()):
        for letter in found.letters:
            again(letter.key)


def test_replayed_record_without_an_attempt_is_found_as_untried(desk: Desk) -> None:
    letter = desk.put(a_letter())
    desk.queue.before = lambda *_: QueueUnavailable()
    with pytest.raises(QueueUnavailable):
        desk.replay(letter)
    assert [one.letters for one in find(desk.store.port, DeadLetterFilter())] == [(), ()]
    (left,) = untried(desk.store.port)
    assert Task.of(left) == Task.of(desk.get(letter))


# ---- finding


def test_search_reads_only_the_requested_pages(desk: Desk) -> None:
    for number in range(2 * PAGE + 5):
        desk.put(a_letter(number))
    desk.store.calls.clear()
    pages = find(desk.store, DeadLetterFilter())  # type: ignore[arg-type] # a tapped store
    assert len(next(pages).letters) == PAGE
    assert len(desk.store.asked("listed")) == 1
    assert sum(len(page.letters) for page in pages) == PAGE + 5


def test_delivered_or_replayed_message_is_not_a_dead_letter(desk: Desk) -> None:
    """Failed and delivered, in any order, is delivered; a failure of the round before is over."""
    done = ended(State.DONE, provider_id="wamid.out")
    desk.put(a_reply(1, **done), ReceiptKind.FAILED, ReceiptKind.DELIVERED)
    again = desk.put(a_reply(2, **done, round=1))
    note_receipt(desk.store.port, Echo(again.key, 0, "correlation-2"), a_receipt("wamid.out", ReceiptKind.FAILED))
    refused = desk.put(a_reply(3, **done), ReceiptKind.FAILED)
    desk.put(replace(a_letter(4), receipts={}), ReceiptKind.FAILED)
    found = [letter for page in find(desk.store.port, DeadLetterFilter()) for letter in page.letters]
    assert sorted((letter.key, letter.error) for letter in found) == sorted(
        [(refused.key, "refused"), (a_letter(4).key, "attempts")]
    )


def test_an_event_of_an_unknown_sender_is_found_by_its_name_alone(desk: Desk) -> None:
    event = desk.put(an_event(1, tenant="", **ended(State.DROPPED, reason="unknown_sender", expire_at=NOW)))
    assert not any(page.letters for page in find(desk.store.port, DeadLetterFilter()))
    (page,) = find(desk.store.port, DeadLetterFilter(errors=frozenset({"unknown_sender"})))
    assert [letter.key for letter in page.letters] == [event.key]


class Registry(EnvironmentTenants):
    """Every tenant has the pair of queues 7, unless its entry cannot be read."""

    unreadable = ""

    def tenant(self, id: str) -> Tenant | None:
        if id == self.unreadable:
            raise RegistryUnreadable
        return Tenant(id, queue=7)


def test_a_replayed_letter_goes_to_the_pair_of_its_tenant(desk: Desk) -> None:
    letter = desk.put(a_reply(1, **ended(State.DEAD, reason="attempts")))
    again = Replay(desk.store, desk.queue, Registry(()), LIMITS, desk.clock)
    assert again(letter.key).done is Done.REPLAYED
    assert [task for task, _ in desk.queue.asked("ensure")] == [Task.of(desk.get(letter), 7)]


def test_letter_of_a_tenant_that_cannot_be_read_stops_no_other_replay(desk: Desk) -> None:
    """Neither now nor in a later run, which begins with what has no task yet."""
    broken = desk.put(a_reply(1, tenant="broken", **ended(State.DEAD, reason="attempts")))
    letter = desk.put(a_reply(2, **ended(State.DEAD, reason="attempts")))
    registry = Registry(())
    registry.unreadable = "broken"
    again = Replay(desk.store, desk.queue, registry, LIMITS, desk.clock)
    began = desk.clock.monotonic()
    assert [again(one.key).done for one in (broken, letter)] == [Done.REPLAYED] * 2
    again.ensure(desk.get(broken))
    assert desk.clock.monotonic() == began, "it is not tried again and again"
    assert [task for task, _ in desk.queue.asked("ensure")] == [Task.of(desk.get(letter), 7)]
