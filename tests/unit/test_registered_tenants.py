"""Tenants of the environment and of the registry: who owns what, how old an answer may be, and what it costs."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from shared.domain.deadline import Deadline
from shared.domain.errors import RegistryUnavailable, RegistryUnreadable
from shared.domain.tenants import DEFAULT_TENANT, QueueUse, Sender, Tenant, TenantState
from shared.pipeline.intake import Addressee
from shared.pipeline.registry import Entry
from shared.tenants import entries
from shared.tenants.cache import RegistryCache
from shared.tenants.entries import QUEUE_USE, Account
from shared.tenants.environment import EnvironmentTenants
from shared.tenants.registered import RegisteredTenants
from shared.tenants.registered_intake import RegisteredIntakeTenants
from tests.support import event_loop, parts
from tests.support.memory_registry import MemoryIntakeRegistry, MemoryRegistry
from tests.support.parts import Clock

OURS, BAKERY, FLORIST, STRANGER = "100", "200", "201", "999"
ACCOUNT = "300"


def to(id: str, is_account: bool = False) -> Addressee:
    return Addressee("meta", id, is_account)


class World:
    """Two tenants with one number each; the first also has an account."""

    def __init__(self) -> None:
        self.clock, self.registry = Clock(), MemoryRegistry()
        environment = EnvironmentTenants.of(("meta", OURS))
        self.tenants = RegisteredTenants(environment, self.registry, self.clock.monotonic)
        intake = MemoryIntakeRegistry(self.registry)
        self.intake = RegisteredIntakeTenants(environment, intake, self.clock.monotonic)
        self.bakery = Sender("bakery", "meta", BAKERY, ACCOUNT)
        self.florist = Sender("florist", "meta", FLORIST)
        self.put(entries.write_tenant(Tenant("bakery", queue=3), None))
        self.put(entries.write_tenant(Tenant("florist", queue=4), None))
        self.put(entries.write_sender(self.bakery, None))
        self.put(entries.write_sender(self.florist, None))
        self.put(entries.write_account(Account("meta", ACCOUNT, "bakery", (self.bakery.id,)), None))

    def put(self, write: Any) -> None:
        found = self.registry.kept.get(write.name)
        assert self.registry.commit_entries([replace(write, expected=found.version if found else None)])

    def remove(self, name: Any) -> None:
        assert self.registry.commit_entries([entries.deletion(self.registry.kept[name])])

    def owners(self, *addressees: Addressee) -> Sequence[Any]:
        return event_loop.run(self.intake.owners_of(addressees, Deadline.of_webhook(self.clock.monotonic)))

    def damage(self, name: Any) -> None:
        """What a newer version might have written."""
        found = self.registry.kept[name]
        self.registry.kept[name] = Entry(name, found.tenant, {"state": "archived"}, found.version)


@pytest.fixture
def world() -> World:
    return World()


def ask(world: World, half: str, addressee: Addressee) -> str | None:
    """The owner's id, from the internal service or the webhook service."""
    if half == "internal":
        owner = world.tenants.owner_of(addressee)
    else:
        (owner,) = world.owners(addressee)
        if isinstance(owner, Exception):
            raise owner
    return owner.id if owner else None


each_half = pytest.mark.parametrize("half", ["internal", "webhook"])
OWNERS = {
    "the environment's number": (to(OURS), DEFAULT_TENANT, 0),
    "a registered number": (to(BAKERY), "bakery", 2),
    "a number of nobody": (to(STRANGER), None, 1),
    "a registered account": (to(ACCOUNT, True), "bakery", 2),
    "an account of nobody": (to(STRANGER, True), DEFAULT_TENANT, 1),
    "an account with a registered number's id": (to(BAKERY, True), DEFAULT_TENANT, 1),
    "a number with a registered account's id": (to(ACCOUNT), None, 1),
    "another provider's number with a known id": (Addressee("acme", OURS), None, 1),
    "another provider's account with a known id": (Addressee("acme", ACCOUNT, True), None, 1),
}


@each_half
@pytest.mark.parametrize(("addressee", "owner", "reads"), OWNERS.values(), ids=OWNERS.keys())
def test_owner_is_found_with_as_few_reads_as_possible(
    world: World, half: str, addressee: Addressee, owner: str | None, reads: int
) -> None:
    assert ask(world, half, addressee) == owner
    assert len(world.registry.reads) == reads


@each_half
def test_environment_number_is_ours_whatever_the_registry_says(world: World, half: str) -> None:
    world.put(entries.write_sender(Sender("bakery", "meta", OURS), None))
    world.registry.is_down = True
    assert ask(world, half, to(OURS)) == DEFAULT_TENANT


@each_half
def test_positive_answer_is_kept_for_five_seconds_and_no_longer(world: World, half: str) -> None:
    assert ask(world, half, to(BAKERY)) == "bakery"
    world.remove(entries.sender_name(world.bakery.id))
    world.clock.go(4.9)
    assert ask(world, half, to(BAKERY)) == "bakery"
    assert len(world.registry.reads) == 2
    world.clock.go(0.1)
    assert ask(world, half, to(BAKERY)) is None


@each_half
def test_unknown_number_is_looked_up_again_each_time(world: World, half: str) -> None:
    assert ask(world, half, to(STRANGER)) is None
    world.put(entries.write_sender(Sender("florist", "meta", STRANGER), None))
    assert ask(world, half, to(STRANGER)) == "florist"


@each_half
def test_number_of_a_tenant_that_is_gone_has_no_owner(world: World, half: str) -> None:
    world.remove(entries.tenant_name("bakery"))
    assert ask(world, half, to(BAKERY)) is None
    assert ask(world, half, to(ACCOUNT, True)) is None


@each_half
@pytest.mark.parametrize("is_account", [False, True], ids=["number", "account"])
def test_new_owner_is_found_though_the_cache_names_a_removed_tenant(world: World, half: str, is_account: bool) -> None:
    """The number was read after its tenant, so that its entry outlives the tenant's in the cache."""
    asked, others = (to(ACCOUNT, True), to(BAKERY)) if is_account else (to(BAKERY), to(ACCOUNT, True))
    ask(world, half, others)
    world.clock.go(2)
    ask(world, half, asked)
    world.remove(entries.tenant_name("bakery"))
    world.put(entries.write_sender(Sender("florist", "meta", BAKERY, ACCOUNT), None))
    world.put(entries.write_account(Account("meta", ACCOUNT, "florist", (world.bakery.id,)), None))
    world.clock.go(3.5)
    assert ask(world, half, asked) == "florist"


@each_half
@pytest.mark.parametrize("addressee", [to(BAKERY), to(ACCOUNT, True), to(STRANGER, True)], ids=str)
def test_registry_that_is_down_answers_for_nobody(world: World, half: str, addressee: Addressee) -> None:
    world.registry.is_down = True
    with pytest.raises(RegistryUnavailable):
        ask(world, half, addressee)


@each_half
def test_entry_of_a_newer_version_counts_as_unavailable_and_is_named(
    world: World, half: str, capfd: pytest.CaptureFixture[str]
) -> None:
    world.damage(entries.tenant_name("bakery"))
    with parts.logged(), pytest.raises(RegistryUnreadable):
        ask(world, half, to(BAKERY))
    (line,) = parts.lines(capfd.readouterr().out)
    assert (line["event"], line["entry"], line["severity"]) == ("state_unknown", "tenants/bakery", "WARNING")
    assert ask(world, half, to(FLORIST)) == "florist"


@each_half
def test_suspended_tenant_stays_the_owner(world: World, half: str) -> None:
    world.put(entries.write_tenant(Tenant("bakery", state=TenantState.SUSPENDED), None))
    assert ask(world, half, to(BAKERY)) == "bakery"


# ---- the webhook: one POST


def test_post_takes_one_read_for_numbers_and_one_for_tenants(world: World) -> None:
    everyone = [to(BAKERY), to(OURS), to(FLORIST), to(STRANGER), to(ACCOUNT, True), to(BAKERY)] * 20
    owners = world.owners(*everyone)
    assert [owner and owner.id for owner in owners[:6]] == ["bakery", "default", "florist", None, "bakery", "bakery"]
    assert [len(names) for names in world.registry.reads] == [4, 2]
    assert owners[0].queue == 3, "its tasks go to its own pair of queues"


def test_post_of_the_environment_number_reads_nothing(world: World) -> None:
    world.owners(to(OURS), to(OURS))
    assert world.registry.reads == []


def test_outage_leaves_the_answers_that_need_no_read(world: World) -> None:
    world.owners(to(BAKERY))
    world.registry.is_down = True
    ours, bakery, florist = world.owners(to(OURS), to(BAKERY), to(FLORIST))
    assert (ours.id, bakery.id) == (DEFAULT_TENANT, "bakery")
    assert isinstance(florist, RegistryUnavailable)


def test_unreadable_tenant_leaves_the_others_of_a_post(world: World) -> None:
    world.damage(entries.tenant_name("bakery"))
    bakery, florist, number = world.owners(to(BAKERY), to(FLORIST), to(STRANGER))
    assert isinstance(bakery, RegistryUnavailable)
    assert (florist.id, number) == ("florist", None)


# ---- the internal service


def test_sender_is_the_environment_one_or_the_registered_one(world: World) -> None:
    assert world.tenants.sender("meta", OURS) == Sender(DEFAULT_TENANT, "meta", OURS)
    assert world.registry.reads == []
    assert world.tenants.sender("meta", BAKERY) == world.bakery
    assert world.tenants.sender("acme", BAKERY) is None


def test_tenant_is_read_by_its_id(world: World) -> None:
    assert world.tenants.tenant(DEFAULT_TENANT) == Tenant(DEFAULT_TENANT)
    assert world.registry.reads == []
    assert world.tenants.tenant("bakery") == Tenant("bakery", queue=3)
    assert world.tenants.tenant("nobody") is None


def test_senders_by_ids_take_one_read_and_skip_what_does_not_exist(world: World) -> None:
    ours = world.tenants.senders_of_environment()[0]
    ids = [world.florist.id, ours.id, "0" * 40, world.bakery.id, world.florist.id]
    assert list(world.tenants.senders_with(ids)) == [world.florist, ours, world.bakery]
    assert len(world.registry.reads) == 1


def test_unreadable_sender_does_not_hide_the_others(world: World) -> None:
    world.damage(entries.sender_name(world.bakery.id))
    assert list(world.tenants.senders_with([world.bakery.id, world.florist.id])) == [world.florist]


def test_account_has_the_senders_of_its_tenant_only(world: World) -> None:
    both = Account("meta", ACCOUNT, "bakery", (world.bakery.id, world.florist.id))
    world.put(entries.write_account(both, None))
    assert list(world.tenants.senders_of_account("meta", ACCOUNT, "bakery")) == [world.bakery]
    assert list(world.tenants.senders_of_account("meta", ACCOUNT, "florist")) == []
    assert list(world.tenants.senders_of_account("meta", ACCOUNT, DEFAULT_TENANT)) == []


def test_account_of_nobody_has_the_environment_senders(world: World) -> None:
    assert list(world.tenants.senders_of_account("meta", STRANGER, DEFAULT_TENANT)) == [Sender("default", "meta", OURS)]
    assert list(world.tenants.senders_of_account("meta", STRANGER, "bakery")) == []


@pytest.mark.parametrize(
    ("use", "several"), [(QueueUse(), False), (QueueUse({0: 1}, 1), True), (QueueUse({}, 1), True)], ids=str
)
def test_one_tenant_beside_the_environment_makes_several(world: World, use: QueueUse, several: bool) -> None:
    world.put(entries.write_queue_use(use, None))
    assert world.tenants.are_several() is several


def test_suspended_tenant_shares_the_threads_as_its_customers_are_answered(world: World) -> None:
    world.put(entries.write_queue_use(QueueUse({0: 1}, 0), None))
    assert world.tenants.are_several() is True


def test_counts_that_cannot_be_read_share_the_threads_and_stop_nobody(world: World) -> None:
    world.put(entries.write_queue_use(QueueUse({0: 1}, 1), None))
    world.damage(QUEUE_USE)
    assert [world.tenants.are_several() for _ in range(3)] == [True] * 3
    assert len(world.registry.reads) == 1


def test_number_of_active_tenants_is_read_once_a_minute(world: World) -> None:
    assert world.tenants.are_several() is False
    world.clock.go(59.9)
    assert world.tenants.are_several() is False
    assert world.registry.reads == [(QUEUE_USE,)]
    world.put(entries.write_queue_use(QueueUse({0: 1}, 1), None))
    world.clock.go(0.1)
    assert world.tenants.are_several() is True


def test_every_call_reports_a_registry_that_is_down(world: World) -> None:
    world.registry.is_down = True
    calls: list[Any] = [
        lambda: world.tenants.tenant("bakery"),
        lambda: world.tenants.sender("meta", BAKERY),
        lambda: world.tenants.senders_with([world.bakery.id]),
        lambda: world.tenants.senders_of_account("meta", ACCOUNT, "bakery"),
        lambda: world.tenants.are_several(),
    ]
    for call in calls:
        with pytest.raises(RegistryUnavailable):
            call()
    assert world.tenants.sender("meta", OURS) is not None


# ---- the cache


def test_cache_is_bounded_and_forgets_the_oldest(world: World) -> None:
    cache = RegistryCache(world.clock.monotonic, most=2)
    names = [entries.tenant_name(id) for id in ("a", "b", "c")]
    for name in names:
        cache.put(name, name.id, 0.0)
    assert cache.fresh(names) == {names[1]: "b", names[2]: "c"}


def test_later_answer_is_not_replaced_by_an_earlier_question(world: World) -> None:
    cache, name = RegistryCache(world.clock.monotonic), entries.tenant_name("a")
    cache.put(name, "later", 2.0)
    cache.put(name, "earlier", 1.0)
    assert cache.fresh([name]) == {name: "later"}


def test_answer_is_as_old_as_its_question(world: World) -> None:
    cache, name = RegistryCache(world.clock.monotonic), entries.tenant_name("a")
    asked = cache.begin()
    world.clock.go(4)
    cache.put(name, "a", asked)
    assert cache.fresh([name]) == {name: "a"}
    world.clock.go(1)
    assert cache.fresh([name]) == {}


def test_cache_serves_many_threads(world: World) -> None:
    cache = RegistryCache(world.clock.monotonic, most=5)
    names = [entries.tenant_name(str(number)) for number in range(50)]
    wrong: list[Any] = []

    def work() -> None:
        try:
            for name in names * 20:
                cache.put(name, name.id, 0.0)
                wrong.extend(item for item in cache.fresh(names).items() if item[0].id != item[1])
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(cache.fresh(names)) == 5


# ---- cost: 200 tenants, one message a minute each, so that no cache is warm


def test_message_of_a_quiet_tenant_costs_two_reads_in_each_service(world: World) -> None:
    numbers = [str(1000 + number) for number in range(200)]
    for number in numbers:
        world.put(entries.write_tenant(Tenant(f"t{number}"), None))
        world.put(entries.write_sender(Sender(f"t{number}", "meta", number), None))
    world.put(entries.write_queue_use(QueueUse({0: 200}, 200), None))
    webhook, internal = 0, 0
    for number in numbers:
        world.clock.go(60 / len(numbers))
        before = entries_read(world)
        (owner,) = world.owners(to(number))
        webhook += (middle := entries_read(world)) - before
        # the handler's place and address, then the reply's tenant and sender
        assert world.tenants.tenant(owner.id) is not None
        world.tenants.are_several()
        assert world.tenants.sender("meta", number) is not None
        assert world.tenants.tenant(owner.id) is not None
        internal += entries_read(world) - middle
    assert webhook == 2 * 200
    assert internal <= 2 * 200 + 2, "and one a minute for the number of active tenants"


def entries_read(world: World) -> int:
    """Documents, which is what a store counts."""
    return sum(len(names) for names in world.registry.reads)
