"""API keys as callers present them: how old they may be, and what a flood of guesses costs."""

from dataclasses import dataclass

import pytest

from shared.domain.errors import RegistryUnavailable, StoreUnavailable
from shared.domain.tenants import ApiKey, Scope
from shared.operations.keys import add_key, revoke_key
from shared.tenants.api_keys import MOST, ApiKeys, TooManyLooks
from tests.support.memory_registry import MemoryRegistry
from tests.support.parts import Clock, Tapped


@dataclass
class World:
    registry: Tapped
    clock: Clock
    keys: ApiKeys

    def add(self) -> ApiKey:
        key, _ = add_key(self.registry.port, self.clock, None, [Scope.READ])
        return key

    @property
    def looks(self) -> int:
        return len(self.registry.asked("entries"))

    def guess(self, count: int) -> None:
        for number in range(count):
            self.keys.find(f"{number:016x}")


@pytest.fixture
def world() -> World:
    registry, clock = Tapped(MemoryRegistry()), Clock()
    return World(registry, clock, ApiKeys(registry, clock.monotonic))


def test_key_is_looked_up_once_in_five_seconds(world: World) -> None:
    key = world.add()
    assert [world.keys.find(key.id) for _ in range(3)] == [key] * 3
    assert world.looks == 1
    world.clock.go(5)
    world.keys.find(key.id)
    assert world.looks == 2


def test_revocation_is_in_force_after_five_seconds(world: World) -> None:
    key = world.add()
    world.keys.find(key.id)
    revoke_key(world.registry.port, world.clock, key.id)
    world.clock.go(5)
    found = world.keys.find(key.id)
    assert found is not None
    assert found.revoked_at is not None


def test_key_that_does_not_exist_is_looked_up_once_in_five_seconds(world: World) -> None:
    assert [world.keys.find("00" * 8) for _ in range(3)] == [None] * 3
    assert world.looks == 1


def test_twenty_unknown_ids_a_second_are_looked_up_and_no_more(world: World) -> None:
    world.guess(20)
    with pytest.raises(TooManyLooks):
        world.keys.find("ff" * 8)
    assert world.looks == 20
    world.clock.go(0.1)
    world.keys.find("fe" * 8)
    world.keys.find("fd" * 8)
    with pytest.raises(TooManyLooks):
        world.keys.find("fc" * 8)


def test_pause_allows_no_more_than_one_second_of_looks(world: World) -> None:
    world.clock.go(3600)
    world.guess(20)
    with pytest.raises(TooManyLooks):
        world.keys.find("ff" * 8)


def test_flood_of_guesses_does_not_stop_a_key_that_was_right(world: World) -> None:
    key = world.add()
    world.keys.find(key.id)
    world.keys.was_right(key.id)
    world.clock.go(6)
    world.guess(20)
    assert world.keys.find(key.id) == key


def test_key_that_was_right_an_hour_ago_counts_as_unknown(world: World) -> None:
    key = world.add()
    world.keys.was_right(key.id)
    world.clock.go(3600)
    world.guess(20)
    with pytest.raises(TooManyLooks):
        world.keys.find(key.id)


def test_found_id_with_a_wrong_secret_was_not_right(world: World) -> None:
    key = world.add()
    world.keys.find(key.id)
    world.clock.go(6)
    world.guess(20)
    with pytest.raises(TooManyLooks):
        world.keys.find(key.id)


def test_registry_that_is_away_is_an_outage_and_no_answer_is_kept(world: World) -> None:
    key = world.add()
    world.registry.before = lambda *_: StoreUnavailable()
    with pytest.raises(RegistryUnavailable):
        world.keys.find(key.id)
    world.registry.before = lambda *_: None
    assert world.keys.find(key.id) == key


def test_number_of_kept_ids_is_bounded(world: World) -> None:
    first = world.add()
    world.keys.find(first.id)
    for number in range(MOST):
        if number % 20 == 0:
            world.clock.go(1e-9 + 1)
        world.keys.was_right(f"{number:016x}")
        world.keys.find(f"{number:016x}")
    assert len(world.keys._kept) <= MOST
    assert len(world.keys._valid) <= MOST
