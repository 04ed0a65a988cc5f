"""Whatever operators do to tenants A and B, in any order: nothing of B shows under A's name, and counts are right."""

from collections import Counter
from contextlib import suppress
from datetime import datetime
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from shared.domain.tenants import Scope, Sender, Tenant
from shared.operations import keys, registry, senders
from shared.operations.registry import Refused
from shared.pipeline.intake import Addressee
from shared.pipeline.registry import EntryKind
from shared.tenants.cache import FRESH_SECONDS
from shared.tenants.entries import QUEUE_USE, read_queue_use
from shared.tenants.environment import EnvironmentTenants
from shared.tenants.registered import RegisteredTenants
from tests.support.memory_registry import MemoryRegistry
from tests.support.parts import NOW, Clock

ENVIRONMENT = EnvironmentTenants.of(("meta", "100"))
PAIRS = 2
tenants = st.sampled_from(["a", "b", "default"])
numbers = st.sampled_from(["100", "200", "201"])
accounts = st.sampled_from(["300", "301"])


class NoRecords:
    """A store without records and marks."""

    def overdue(self, *_: Any) -> list[str]:
        return []

    def listed(self, *_: Any) -> Any:
        from shared.pipeline.ports import Page

        return Page([])

    def change_marks(self, *_: Any) -> None:
        pass

    def time(self) -> datetime:
        return NOW


class Operators(RuleBasedStateMachine):
    """What should be there is counted beside: who has which number and account, and who is suspended."""

    def __init__(self) -> None:
        super().__init__()
        self.registry, self.clock, self.store = MemoryRegistry(), Clock(), NoRecords()
        self.seen = RegisteredTenants(ENVIRONMENT, self.registry, self.clock.monotonic)
        self.active: dict[str, bool] = {}
        self.numbers: dict[str, tuple[str, str]] = {}
        self.keys: dict[str, str] = {}
        self.last: dict[str, str] = {}
        """The tenant that had each account last. Its news is never the environment's."""

    @rule(id=tenants)
    def add_tenant(self, id: str) -> None:
        with suppress(Refused):
            registry.add_tenant(self.registry, self.clock, Tenant(id), PAIRS)
            assert id not in ("default", *self.active)
            self.active[id] = True

    @rule(id=tenants)
    def remove_tenant(self, id: str) -> None:
        with suppress(Refused):
            registry.remove_tenant(self.registry, self.store, self.clock, id)  # type: ignore[arg-type]
            assert id not in {tenant for tenant, _ in self.numbers.values()} | {*self.keys.values()}
            del self.active[id]

    @rule(id=tenants, suspended=st.booleans())
    def suspend_or_resume(self, id: str, suspended: bool) -> None:
        with suppress(Refused):
            (registry.suspend if suspended else registry.resume)(self.registry, self.clock, id)
            self.active[id] = not suspended

    @rule(id=tenants, number=numbers, account=accounts)
    def add_sender(self, id: str, number: str, account: str) -> None:
        ours = ENVIRONMENT.senders_of_environment()
        with suppress(Refused):
            sender = Sender(id, "meta", number, account)
            senders.add_sender(self.registry, self.store, self.clock, ours, sender)  # type: ignore[arg-type]
            assert number not in ("100", *self.numbers)
            assert {tenant for tenant, held in self.numbers.values() if held == account} <= {id}
            self.numbers[number] = (id, account)
            self.last[account] = id

    @rule(number=numbers)
    def remove_sender(self, number: str) -> None:
        with suppress(Refused):
            id = Sender("", "meta", number).id
            senders.remove_sender(self.registry, self.store, self.clock, id)  # type: ignore[arg-type]
            del self.numbers[number]

    @rule(id=st.sampled_from(["a", "b"]), number=st.sampled_from(["200", "201"]), account=accounts)
    def move_sender(self, id: str, number: str, account: str) -> None:
        """At once, as far as operators can, while the former owner is in the cache."""
        self.add_tenant(id)
        self.remove_sender(number)
        self.add_sender(id, number, account)

    @rule(id=tenants)
    def add_key(self, id: str) -> None:
        with suppress(Refused):
            key, _ = keys.add_key(self.registry, self.clock, id, [Scope.READ])
            self.keys[key.id] = id

    @rule()
    def revoke_keys(self) -> None:
        for id in self.keys:
            keys.revoke_key(self.registry, self.clock, id)
        self.keys.clear()

    @rule()
    def look(self) -> None:
        """The cache has an answer for a while."""
        self.owners()

    @invariant()
    def owned_number_has_no_other_owner_by_any_answer_of_the_cache(self) -> None:
        """Neither its former one nor nobody, from the first moment on."""
        numbers, accounts = self.owners()
        assert {number: numbers[number] for number in self.numbers} == {
            number: tenant for number, (tenant, _) in self.numbers.items()
        }
        assert all(accounts[account] == tenant for tenant, account in self.numbers.values())

    @rule(seconds=st.sampled_from([0.5, 2, 4]))
    def wait(self, seconds: float) -> None:
        self.clock.go(seconds)

    @rule()
    def fresh_answers_are_those_of_the_owners(self) -> None:
        self.clock.go(FRESH_SECONDS)
        owners = {number: tenant for number, (tenant, _) in self.numbers.items()}
        last = {account: id if id in self.active else None for account, id in self.last.items()}
        everything = {**dict.fromkeys(["200", "201"]), "100": "default", **owners}
        assert self.owners() == (everything, {"300": "default", "301": "default", **last})

    @invariant()
    def listings_show_what_is_the_tenants_own(self) -> None:
        for id in ("a", "b"):
            mine = [Sender(id, "meta", number).id for number, (tenant, _) in self.numbers.items() if tenant == id]
            listed = registry.values_of(self.registry, EntryKind.SENDER, id)
            assert sorted(sender.id for sender in listed) == sorted(mine)
            in_force = (key for key in registry.values_of(self.registry, EntryKind.KEY, id) if not key.revoked_at)
            assert {key.id for key in in_force} == {key for key, tenant in self.keys.items() if tenant == id}
            for account in ("300", "301"):
                of_account = self.seen.senders_of_account("meta", account, id)
                assert {sender.tenant for sender in of_account} <= {id}

    @invariant()
    def counts_equal_a_recount(self) -> None:
        there = list(registry.values_of(self.registry, EntryKind.TENANT, None))
        assert {tenant.id: not tenant.suspended for tenant in there} == self.active
        use = read_queue_use(self.registry.entries([QUEUE_USE])[0])
        assert use.tenants == Counter(tenant.queue for tenant in there)
        assert use.active == sum(self.active.values())
        fresh = RegisteredTenants(ENVIRONMENT, self.registry, self.clock.monotonic)
        assert fresh.are_several() is bool(there)

    def owners(self) -> tuple[dict[str, str | None], dict[str, str | None]]:
        def owner(id: str, is_account: bool) -> str | None:
            tenant = self.seen.owner_of(Addressee("meta", id, is_account))
            return tenant.id if tenant else None

        found = {number: owner(number, is_account=False) for number in ("100", "200", "201")}
        return found, {account: owner(account, is_account=True) for account in ("300", "301")}


Operators.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestNothingOfOneTenantShowsUnderAnotherOnesName = Operators.TestCase
