"""Changes of the registry on every store: the life of a tenant, and many operators at once."""

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from shared.domain.errors import StoreUnavailable
from shared.domain.record import Delivery, State
from shared.domain.tenants import QueueUse, Scope, Sender, Tenant
from shared.operations import keys, registry, senders
from shared.operations.registry import Refused, Taken
from shared.pipeline.clock import SystemClock
from shared.pipeline.intake import Addressee
from shared.pipeline.registry import EntryKind
from shared.tenants.entries import QUEUE_USE, read_queue_use
from shared.tenants.environment import EnvironmentTenants
from shared.tenants.registered import RegisteredTenants
from tests.support.backends import Backend
from tests.support.parts import Clock
from tests.support.together import together

CLOCK = SystemClock()
ENVIRONMENT = EnvironmentTenants.of(("meta", "100"))
THREADS = 64


def use_of(store: Any) -> QueueUse:
    return read_queue_use(store.entries([QUEUE_USE])[0])


def owner(store: Any, id: str, is_account: bool = False) -> str | None:
    """As a process sees it that has just started."""
    tenants = RegisteredTenants(ENVIRONMENT, store, CLOCK.monotonic)
    tenant = tenants.owner_of(Addressee("meta", id, is_account))
    return tenant.id if tenant else None


def test_tenant_comes_sends_and_goes(store: Any, a_record: Callable[..., Delivery]) -> None:
    added = registry.add_tenant(store, CLOCK, Tenant("bakery", name="Ana's"), 20)
    sender = senders.add_sender(store, store, CLOCK, [], Sender("bakery", "meta", "200", "300"))
    key, _ = keys.add_key(store, CLOCK, "bakery", [Scope.SEND])
    assert registry.find_tenant(store, "bakery") == added
    assert senders.find_sender(store, sender.id[:8]) == sender
    assert list(registry.values_of(store, EntryKind.KEY, "bakery")) == [key]
    assert (owner(store, "200"), owner(store, "300", is_account=True), owner(store, "100")) == (
        "bakery",
        "bakery",
        "default",
    )
    assert registry.suspend(store, CLOCK, "bakery").suspended
    assert use_of(store) == QueueUse({0: 1}, 0)

    late = CLOCK.now() + timedelta(hours=1)
    store.create(a_record(tenant="bakery", sweep_at=late))
    store.create(a_record(tenant="bakery", state=State.DEAD, reason="attempts", finished_at=late))
    with pytest.raises(Refused, match="1 sender, 1 key, 1 open record and 1 dead letter"):
        registry.remove_tenant(store, store, CLOCK, "bakery")
    senders.remove_sender(store, store, Clock(), sender.id)
    assert (owner(store, "200"), owner(store, "300", is_account=True)) == (None, "bakery")


def test_tenant_without_anything_leaves_nothing(store: Any) -> None:
    for id in ("bakery", "florist"):
        registry.add_tenant(store, CLOCK, Tenant(id), 20)
    key, _ = keys.add_key(store, CLOCK, "bakery", [Scope.SEND])
    keys.revoke_key(store, CLOCK, key.id)
    registry.remove_tenant(store, store, CLOCK, "bakery")
    assert [tenant.id for tenant in registry.values_of(store, EntryKind.TENANT, None)] == ["florist"]
    assert list(registry.values_of(store, EntryKind.KEY, None)) == []
    assert use_of(store) == QueueUse({1: 1}, 1)


def test_tenants_added_at_once_are_spread_evenly(backend: Backend) -> None:
    """Of 24 writers on one record each waits for the others, so twice as many take four times as long."""
    clients = [backend.client() for _ in range(4)]

    def add(number: int) -> Tenant:
        """On a busy machine 24 writers at once may find the store unavailable, as an operator would: once more."""
        while True:
            try:
                return registry.add_tenant(clients[number % 4], CLOCK, Tenant(f"t{number}"), 7)
            except StoreUnavailable:
                continue
            except Taken:
                return registry.find_tenant(clients[0], f"t{number}")

    pairs = Counter(tenant.queue for tenant in together([partial(add, number) for number in range(24)]))
    assert sorted(pairs.values()) == [3] * 4 + [4] * 3
    assert use_of(clients[0]) == QueueUse(pairs, 24)


def test_number_claimed_by_many_at_once_gets_one_owner(backend: Backend) -> None:
    clients = [backend.client() for _ in range(4)]
    for number in range(4):
        registry.add_tenant(clients[0], CLOCK, Tenant(f"t{number}"), 20)

    def claim(number: int) -> Sender:
        sender = Sender(f"t{number % 4}", "meta", "200", f"30{number % 4}")
        return senders.add_sender(clients[number % 4], clients[number % 4], CLOCK, [], sender)

    results = together([partial(claim, number) for number in range(THREADS)])
    (winner,) = [it for it in results if isinstance(it, Sender)]
    assert sum(isinstance(it, Taken) for it in results) == THREADS - 1, results
    assert owner(clients[1], "200") == winner.tenant
    assert owner(clients[1], winner.account, is_account=True) == winner.tenant
