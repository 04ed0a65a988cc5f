"""Tenants' handlers: whose code is called, with which address and secret, and when it is made anew."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from shared.domain.errors import SecretsUnavailable
from shared.domain.message_kinds import DEFAULT_KINDS
from shared.domain.tenants import Tenant, TenantHandler
from shared.pipeline.tenant_handlers import MOST, TenantCode, TenantHandlers
from tests.support.fake_tenants import FakeTenants

OWN = TenantHandler("https://acme.example.com/pombo", "acme-handler")


class Code:
    """Handler and marks in one: only which it is matters here."""

    def __init__(self, *made_from: Any) -> None:
        self.made_from = made_from
        self.closed = 0

    def close(self) -> None:
        self.closed += 1

    def handles(self, kind: str) -> bool:
        return kind == "reaction"


@dataclass
class World:
    tenants: FakeTenants = field(
        default_factory=lambda: FakeTenants({"acme": Tenant("acme", handler=OWN), "globex": Tenant("globex")})
    )
    secrets: dict[str, str] = field(default_factory=lambda: {"acme-handler": "one"})
    made: list[Code] = field(default_factory=list)
    read: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        shared: Any = Code()
        self.shared = TenantCode(shared, shared)
        self.handlers = TenantHandlers(self.shared, self.tenants, self.secret_of, self.make, DEFAULT_KINDS)

    def secret_of(self, name: str) -> str | None:
        self.read.append(name)
        return self.secrets.get(name)

    def make(self, *given: Any) -> TenantCode:
        code: Any = Code(*given)
        self.made.append(code)
        return TenantCode(code, code, code.close)

    def set_handler(self, tenant: str, own: TenantHandler | None) -> None:
        self.tenants.known[tenant] = replace(self.tenants.known[tenant], handler=own)


@pytest.fixture
def world() -> World:
    return World()


def test_tenant_without_own_handler_gets_the_deployments(world: World) -> None:
    assert world.handlers.of("globex") is world.shared
    assert (world.made, world.read) == ([], [])


def test_own_handler_is_made_once_from_its_address_and_secret(world: World) -> None:
    first = world.handlers.of("acme")
    assert world.handlers.of("acme") is first
    assert [code.made_from for code in world.made] == [("acme", OWN, "one")]
    assert world.made[0].closed == 0


@pytest.mark.parametrize("what", ["address", "secret"])
def test_changed_address_or_secret_replaces_and_closes_the_handler(world: World, what: str) -> None:
    first = world.handlers.of("acme")
    if what == "address":
        world.set_handler("acme", replace(OWN, url="https://new.example.com"))
    else:
        world.secrets["acme-handler"] = "two"
    second = world.handlers.of("acme")
    assert second is not first
    assert [code.closed for code in world.made] == [1, 0]
    assert world.handlers.of("acme") is second


def test_removed_own_handler_is_closed_and_the_deployments_is_called(world: World) -> None:
    world.handlers.of("acme")
    world.set_handler("acme", None)
    assert world.handlers.of("acme") is world.shared
    assert world.made[0].closed == 1


@pytest.mark.parametrize("value", [None, ""], ids=["missing", "empty"])
def test_missing_secret_is_unavailable_and_makes_nothing(world: World, value: str | None) -> None:
    world.secrets = {"acme-handler": value} if value is not None else {}
    with pytest.raises(SecretsUnavailable):
        world.handlers.of("acme")
    assert world.made == []


def test_kept_handler_is_not_called_once_its_secret_is_gone(world: World) -> None:
    world.handlers.of("acme")
    world.secrets.clear()
    with pytest.raises(SecretsUnavailable):
        world.handlers.of("acme")


def test_events_of_a_removed_tenant_go_to_no_handler(world: World) -> None:
    with pytest.raises(SecretsUnavailable):
        world.handlers.of("removed")
    with pytest.raises(SecretsUnavailable):
        world.handlers.handles("removed", "text")


def test_own_handler_is_called_for_the_configured_kinds_without_a_secret(world: World) -> None:
    world.secrets.clear()
    assert [kind for kind in ("text", "reaction") if world.handlers.handles("acme", kind)] == ["text"]
    assert [kind for kind in ("text", "reaction") if world.handlers.handles("globex", kind)] == ["reaction"]
    assert world.read == []


def test_handlers_used_longest_ago_are_closed_beyond_the_limit(world: World) -> None:
    names = [f"tenant-{number}" for number in range(MOST)]
    world.tenants.known |= {name: Tenant(name, handler=OWN) for name in (*names, "late")}
    for name in names:
        world.handlers.of(name)
    world.handlers.of(names[0])
    world.handlers.of("late")
    assert [code.made_from[0] for code in world.made if code.closed] == [names[1]]
    assert len(world.handlers._kept) == MOST


def test_representation_of_the_kept_handlers_shows_no_secret(world: World) -> None:
    world.secrets["acme-handler"] = "a-secret-value"
    world.handlers.of("acme")
    assert "a-secret-value" not in repr(world.handlers._kept)
