"""Settling an attempt while the store is away: as long as there is time, and at a shutdown once."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from shared.domain.delivery.answers import Answer, Step, TaskResult
from shared.domain.errors import ConversationChanged, StoreUnavailable
from shared.domain.record import Delivery, State
from shared.domain.verdicts import Accepted, Retry
from shared.pipeline.settle_with_retry import PAUSE_SECONDS, settle_with_retry
from tests.support.builders import LIMITS, MINE, leased
from tests.support.pipelines import Clock, Store

SENT = Accepted("wamid.1")


@dataclass
class Away:
    """A store that is away for its first calls; `meanwhile` happens with each of those."""

    port: Store
    times: int
    meanwhile: Callable[[], Any] = lambda: None
    error: type[Exception] = StoreUnavailable
    seen: list[Delivery | None] = field(default_factory=list)

    def change(self, key: str, decide: Any, seen: Delivery | None = None) -> Step:
        self.seen.append(seen)
        if len(self.seen) <= self.times:
            self.meanwhile()
            raise self.error
        return self.port.change(key, decide, seen)


@dataclass
class World:
    clock: Clock
    store: Store
    record: Delivery
    stops: bool = False

    def settle(self, away: Away, until: float = 60.0, verdict: Any = SENT) -> Step:
        return settle_with_retry(
            away,  # type: ignore[arg-type] # one method of the port
            self.record,
            MINE,
            verdict,
            LIMITS,
            self.clock,
            until,
            lambda: self.stops,
        )

    @property
    def state(self) -> State:
        found = self.store.get(self.record.key)
        assert found is not None
        return found.state

    def stop(self) -> None:
        self.stops = True


@pytest.fixture
def world(tmp_path: Path) -> World:
    clock = Clock()
    store = Store(tmp_path, clock)
    store.create(leased(token=MINE))
    record = store.get(leased().key)
    assert record is not None
    return World(clock, store, record)


def test_settle_is_retried_during_a_short_store_outage(world: World) -> None:
    assert world.settle(Away(world.store, times=3)).answer == Answer(TaskResult.ACK, "done")
    assert (world.state, world.clock.seconds) == (State.DONE, 3 * PAUSE_SECONDS)


def test_leased_record_is_settled_without_a_read(world: World) -> None:
    """It saves a read."""
    away = Away(world.store, times=1)
    world.settle(away)
    assert away.seen == [world.record, world.record]


def test_shutdown_leaves_one_attempt_to_settle(world: World) -> None:
    """What was sent must be written down, though the process has been told to end."""
    world.stop()
    assert world.settle(Away(world.store, times=0)).answer == Answer(TaskResult.ACK, "done")
    assert (world.state, world.clock.seconds) == (State.DONE, 0)


def test_shutdown_does_not_wait_for_an_unavailable_store(world: World) -> None:
    world.stop()
    away = Away(world.store, times=1)
    with pytest.raises(StoreUnavailable):
        world.settle(away)
    assert (len(away.seen), world.clock.seconds, world.state) == (1, 0, State.LEASED)


def test_a_shutdown_in_between_ends_the_waiting_at_the_next_failure(world: World) -> None:
    away = Away(world.store, times=9, meanwhile=lambda: len(away.seen) == 3 and world.stop())
    with pytest.raises(StoreUnavailable):
        world.settle(away)
    assert (len(away.seen), world.clock.seconds) == (3, 2 * PAUSE_SECONDS)


@pytest.mark.parametrize(("until", "tries"), [(0.0, 1), (0.24, 1), (0.25, 2), (1.0, 5)])
def test_settle_is_not_retried_after_the_time_is_over(world: World, until: float, tries: int) -> None:
    away = Away(world.store, times=99)
    with pytest.raises(StoreUnavailable):
        world.settle(away, until)
    assert len(away.seen) == tries
    assert world.clock.seconds <= until


def test_jitter_is_drawn_once_for_all_attempts_to_settle(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that was made and not reported is recognised by what it wrote."""
    drawn: list[float] = []

    def jitter() -> float:
        drawn.append(0.5)
        return 0.5

    monkeypatch.setattr(world.clock, "jitter", jitter)
    world.settle(Away(world.store, times=4), verdict=Retry(131053))
    assert len(drawn) == 1


def test_conversation_that_changes_for_ever_is_given_up_when_the_lease_ends(world: World) -> None:
    away = Away(world.store, times=1000, error=ConversationChanged)
    with pytest.raises(StoreUnavailable):
        world.settle(away, until=world.clock.monotonic() + 1)
    assert (len(away.seen) < 1000, world.state) == (True, State.LEASED)
