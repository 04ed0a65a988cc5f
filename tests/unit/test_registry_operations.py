"""Changes of the registry: tenants, their pairs of queues, numbers, accounts and keys, also many at once."""

import hashlib
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shared.domain.events import ReceiptBlock
from shared.domain.identity import pace_id
from shared.domain.limits import DoubtPolicy
from shared.domain.marks import Block, Bucket, Credential, Disconnected, Marks, RefusedCredential, is_troubled
from shared.domain.record import State
from shared.domain.tenants import Order, Pace, QueueUse, Scope, Sender, Tenant, TenantHandler, TenantState
from shared.operations import keys, registry, senders
from shared.operations.registry import Invalid, NotFound, Refused, Taken
from shared.operations.senders import Auth
from shared.pipeline.clock import SystemClock
from shared.pipeline.intake import Addressee
from shared.pipeline.registry import EntryKind
from shared.stores.sqlite.store import SqliteStore
from shared.tenants.entries import QUEUE_USE, account_name, is_removed, read_account, read_queue_use, tenant_name
from shared.tenants.environment import EnvironmentTenants
from shared.tenants.registered import RegisteredTenants
from tests.support.memory_registry import MemoryRegistry
from tests.support.parts import LIMITS, NOW, Clock, an_event, ended
from tests.support.together import together

OURS = Sender("default", "meta", "100")
HANDLER = TenantHandler("https://b.example/hook", "a-secret")


class World:
    def __init__(self, store: SqliteStore) -> None:
        self.store, self.registry, self.clock = store, MemoryRegistry(), Clock()

    def add(self, id: str = "bakery", pairs: int = 20, **more: Any) -> Tenant:
        return registry.add_tenant(self.registry, self.clock, Tenant(id, **more), pairs)

    def connect(self, tenant: str = "bakery", number: str = "200", account: str = "300") -> Sender:
        sender = Sender(tenant, "meta", number, account)
        return senders.add_sender(self.registry, self.store, self.clock, [OURS], sender)

    def remove(self, id: str = "bakery") -> Tenant:
        return registry.remove_tenant(self.registry, self.store, self.clock, id)

    def disconnect(self, sender: Sender) -> Sender:
        return senders.remove_sender(self.registry, self.store, self.clock, sender.id)

    @property
    def use(self) -> QueueUse:
        return read_queue_use(self.registry.entries([QUEUE_USE])[0])

    def values(self, kind: EntryKind, tenant: str | None = None) -> list[Any]:
        return list(registry.values_of(self.registry, kind, tenant))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(SqliteStore(tmp_path / "pombo.sqlite", LIMITS, lambda: NOW))


# ---- tenants


def test_added_tenant_is_active_and_gets_the_emptiest_pair(world: World) -> None:
    added = [world.add(f"t{number}", pairs=3) for number in range(4)]
    assert [tenant.queue for tenant in added] == [0, 1, 2, 0]
    assert registry.find_tenant(world.registry, "t0") == Tenant("t0", queue=0, created_at=NOW)
    assert world.use == QueueUse({0: 2, 1: 1, 2: 1}, 4)


def test_pair_that_a_removed_tenant_left_is_given_first(world: World) -> None:
    for number in range(4):
        world.add(f"t{number}", pairs=4)
    world.remove("t2")
    assert world.add("new", pairs=4).queue == 2


def test_tenant_uses_the_shared_queues_where_there_are_no_pairs(world: World) -> None:
    assert world.add(pairs=0).queue is None
    assert world.use == QueueUse({}, 1)
    world.remove()
    assert world.use == QueueUse({}, 0)


@pytest.mark.parametrize("id", ["a", "0", "a-b", "a" * 63])
def test_valid_tenant_id_is_accepted(world: World, id: str) -> None:
    assert world.add(id).id == id


@pytest.mark.parametrize("id", ["", "default", "-a", "A", "a_b", "a.b", "a b", "ä", "a\n", "a" * 64])
def test_invalid_tenant_id_is_refused(world: World, id: str) -> None:
    with pytest.raises(Invalid) as refused:
        world.add(id)
    assert refused.value.field == "id"
    assert world.registry.kept == {}


def test_second_tenant_with_an_id_is_refused_and_changes_nothing(world: World) -> None:
    before = world.add(name="Ana's")
    with pytest.raises(Taken, match="There is a tenant bakery already"):
        world.add(name="another")
    assert registry.find_tenant(world.registry, "bakery") == before
    assert world.use.active == 1


def test_settings_of_a_tenant_are_changed_and_nothing_else_is(world: World) -> None:
    world.add()
    new = {"name": "Ana's", "handler": HANDLER, "in_doubt": DoubtPolicy.HOLD}
    forbidden = {"id": "florist", "queue": 7, "state": TenantState.SUSPENDED, "created_at": None}
    changed = registry.set_tenant(
        world.registry, world.clock, "bakery", lambda tenant: replace(tenant, **new, **forbidden)
    )
    assert changed == Tenant("bakery", queue=0, created_at=NOW, **new)  # type: ignore[arg-type]
    assert registry.find_tenant(world.registry, "bakery") == changed


def test_suspended_tenant_keeps_its_pair_and_is_not_counted_as_active(world: World) -> None:
    world.add()
    for _ in range(2):
        assert registry.suspend(world.registry, world.clock, "bakery").suspended
        assert world.use == QueueUse({0: 1}, 0)
    for _ in range(2):
        assert not registry.resume(world.registry, world.clock, "bakery").suspended
        assert world.use == QueueUse({0: 1}, 1)


@pytest.mark.parametrize("change", [registry.suspend, registry.resume], ids=["suspend", "resume"])
@pytest.mark.parametrize(("id", "error"), [("default", Invalid), ("nobody", NotFound), ("NO/BODY", NotFound)])
def test_tenant_without_an_entry_cannot_be_changed(world: World, change: Any, id: str, error: type[Refused]) -> None:
    with pytest.raises(error):
        change(world.registry, world.clock, id)


# ---- removal


def test_removed_tenant_leaves_nothing_but_the_counts(world: World) -> None:
    world.add()
    key, _ = keys.add_key(world.registry, world.clock, "bakery", [Scope.SEND])
    keys.revoke_key(world.registry, world.clock, key.id)
    assert world.remove().id == "bakery"
    assert list(world.registry.kept) == [QUEUE_USE]
    assert world.use == QueueUse({}, 0)
    with pytest.raises(NotFound):
        world.remove()


def test_removal_of_a_suspended_tenant_keeps_the_count_of_active_ones(world: World) -> None:
    world.add()
    world.add("florist")
    registry.suspend(world.registry, world.clock, "bakery")
    world.remove()
    assert world.use == QueueUse({1: 1}, 1)


def test_tenant_is_not_removed_while_anything_of_it_is_left(world: World) -> None:
    world.add()
    world.add("florist")
    sender, second = world.connect(), world.connect(number="201")
    key, _ = keys.add_key(world.registry, world.clock, "bakery", [Scope.SEND])
    open_record = world.store.create(an_event(1, tenant="bakery"))
    world.store.create(an_event(2, tenant="bakery", **ended(State.DEAD, reason="attempts")))
    world.store.create(an_event(3, tenant="bakery", **ended(State.DONE)))
    world.store.create(an_event(4, tenant="florist"))
    assert open_record
    with pytest.raises(Refused) as refused:
        world.remove()
    assert refused.value.sentence == (
        "Tenant bakery is not removed: it still has 2 senders, 1 key, 1 open record and 1 dead letter."
    )
    world.disconnect(sender)
    world.disconnect(second)
    keys.revoke_key(world.registry, world.clock, key.id)
    with pytest.raises(Refused, match=r"it still has 1 open record and 1 dead letter\.$"):
        world.remove()
    assert registry.find_tenant(world.registry, "bakery")
    assert world.use.active == 2


def test_record_that_is_leased_or_in_doubt_keeps_its_tenant(world: World) -> None:
    world.add()
    leased = {"state": State.LEASED, "token": "another", "attempt": 1, "lease_until": NOW}
    world.store.create(an_event(1, tenant="bakery", **leased))
    with pytest.raises(Refused, match=r"still has 1 open record\.$"):
        world.remove()


def test_removal_gives_up_where_too_many_records_are_open(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "MOST_OPEN", 1)
    world.add()
    world.store.create(an_event(1, tenant="florist"))
    world.remove()
    world.add()
    world.store.create(an_event(2, tenant="florist"))
    with pytest.raises(Refused, match="More than 1 records of all tenants are open"):
        world.remove()


def test_many_revoked_keys_are_deleted_with_their_tenant(world: World) -> None:
    world.add()
    for _ in range(25):
        key, _text = keys.add_key(world.registry, world.clock, "bakery", [Scope.SEND])
        keys.revoke_key(world.registry, world.clock, key.id)
    operators, _text = keys.add_key(world.registry, world.clock, None, [Scope.SEND])
    world.remove()
    assert world.values(EntryKind.KEY) == [operators]


class Interrupted(MemoryRegistry):
    """Another operator's change comes just before the next commit."""

    before: Callable[[], Any] | None = None

    def commit_entries(self, writes: Any) -> bool:
        change, self.before = self.before, None
        if change:
            change()
        return super().commit_entries(writes)


@pytest.mark.parametrize("what", ["sender", "key"])
def test_tenant_that_gets_something_during_its_removal_stays(world: World, what: str) -> None:
    world.registry = kept = Interrupted()
    world.add()
    adds = {
        "sender": world.connect,
        "key": lambda: keys.add_key(world.registry, world.clock, "bakery", [Scope.SEND]),
    }
    kept.before = adds[what]
    with pytest.raises(Refused, match=f"it still has 1 {what}"):
        world.remove()


@pytest.mark.parametrize("what", ["sender", "key"])
def test_nothing_is_added_to_a_tenant_that_is_removed_meanwhile(world: World, what: str) -> None:
    world.registry = kept = Interrupted()
    world.add()
    kept.before = world.remove
    adds = {
        "sender": world.connect,
        "key": lambda: keys.add_key(world.registry, world.clock, "bakery", [Scope.SEND]),
    }
    with pytest.raises(NotFound):
        adds[what]()
    assert list(world.registry.kept) == [QUEUE_USE]


# ---- numbers and accounts


def test_number_belongs_to_one_tenant(world: World) -> None:
    world.add()
    world.add("florist")
    sender = world.connect()
    for tenant in ("florist", "bakery"):
        with pytest.raises(Taken, match="belongs to tenant bakery already"):
            world.connect(tenant, account="301")
    assert world.values(EntryKind.SENDER) == [sender]
    assert account_name("meta", "301") not in world.registry.kept


def test_account_belongs_to_one_tenant_until_its_last_number_is_removed(world: World) -> None:
    world.add()
    world.add("florist")
    first, second = world.connect(number="200"), world.connect(number="201")
    with pytest.raises(Taken, match="account belongs to tenant bakery"):
        world.connect("florist", number="202")
    world.disconnect(first)
    with pytest.raises(Taken):
        world.connect("florist", number="202")
    assert read_account(world.registry.kept[account_name("meta", "300")]).senders == (second.id,)
    world.disconnect(second)
    assert read_account(world.registry.kept[account_name("meta", "300")]).senders == ()
    third = world.connect("florist", number="202")
    assert read_account(world.registry.kept[account_name("meta", "300")]).senders == (third.id,)


def test_number_of_the_environment_cannot_be_claimed(world: World) -> None:
    world.add()
    with pytest.raises(Taken, match="tenant default"):
        world.connect(number="100")


def test_number_without_a_known_account_is_added_and_removed(world: World) -> None:
    world.add()
    sender = world.connect(account="")
    assert {name.kind for name in world.registry.kept} == {EntryKind.TENANT, EntryKind.QUEUE_USE, EntryKind.SENDER}
    world.disconnect(sender)
    assert world.values(EntryKind.SENDER) == []


def test_number_is_free_for_another_tenant_once_no_process_knows_its_former_owner(world: World) -> None:
    world.add()
    world.add("florist")
    sender = world.connect()
    seen = RegisteredTenants(EnvironmentTenants.of(("meta", "100")), world.registry, world.clock.monotonic)
    addressees = [Addressee("meta", "200"), Addressee("meta", "300", is_account=True)]

    def owners() -> list[str | None]:
        return [owner.id if owner else None for owner in map(seen.owner_of, addressees)]

    def while_it_is_removed(seconds: float) -> None:
        for number, account in (("200", "301"), ("202", "300")):
            with pytest.raises(Taken, match="bakery"):
                world.connect("florist", number=number, account=account)
        with pytest.raises(NotFound):
            senders.set_sender(world.registry, world.clock, sender.id, lambda it: it)
        world.clock.go(seconds)
        assert owners() == [None, "bakery"]

    assert owners() == ["bakery", "bakery"]
    world.clock.sleep = while_it_is_removed  # type: ignore[method-assign]
    world.disconnect(sender)
    world.connect("florist")
    assert owners() == ["florist", "florist"], "at once"


def test_interrupted_removal_of_a_number_is_repeated(world: World) -> None:
    world.add()
    sender = world.connect()
    world.clock.sleep = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        world.disconnect(sender)
    del world.clock.sleep
    with pytest.raises(Taken, match="being removed"):
        world.connect()
    assert world.disconnect(sender) == sender
    kept = {EntryKind.TENANT, EntryKind.QUEUE_USE, EntryKind.ACCOUNT}
    assert {name.kind for name in world.registry.kept} == kept


def test_news_of_a_removed_account_is_never_the_environments(world: World) -> None:
    """A business leaves: its number is removed, then the tenant, and then it disconnects its account from us. Such news
    of an unknown account would disconnect the environment's number.
    """
    world.add()
    sender = world.connect()
    tenants = RegisteredTenants(EnvironmentTenants.of(("meta", "100")), world.registry, world.clock.monotonic)
    account = Addressee("meta", "300", is_account=True)
    world.disconnect(sender)
    owner = tenants.owner_of(account)
    assert owner
    assert (owner.id, tenants.senders_of_account("meta", "300", "bakery")) == ("bakery", [])
    world.remove()
    world.clock.go(6)
    assert tenants.owner_of(account) is None


def interrupted(_: float) -> None:
    raise KeyboardInterrupt


def test_account_that_gets_another_number_during_a_removal_stays(world: World) -> None:
    world.add()
    sender = world.connect()
    world.clock.sleep = lambda _: world.connect(number="201")  # type: ignore[method-assign]
    world.disconnect(sender)
    account = world.registry.kept[account_name("meta", "300")]
    assert (read_account(account).senders, is_removed(account)) == ((Sender("", "meta", "201").id,), False)


@pytest.mark.parametrize(("tenant", "error"), [("nobody", NotFound), ("default", Invalid)])
def test_number_needs_a_tenant_of_the_registry(world: World, tenant: str, error: type[Refused]) -> None:
    with pytest.raises(error):
        world.connect(tenant)
    assert world.registry.kept == {}


def test_sender_is_found_by_its_id_its_beginning_or_the_providers_id(world: World) -> None:
    world.add()
    sender, _ = world.connect(), world.connect(number="201")
    for id in (sender.id, sender.id[:8], "200"):
        assert senders.find_sender(world.registry, id, ["acme", "meta"]) == sender
    for id in (sender.id[:7], "999", "0" * 40, sender.id + "0"):
        with pytest.raises(NotFound):
            senders.find_sender(world.registry, id, ["acme", "meta"])


def test_ambiguous_beginning_of_a_sender_id_is_refused(world: World) -> None:
    world.add()
    sender = world.connect()
    found = world.registry.kept[next(name for name in world.registry.kept if name.kind is EntryKind.SENDER)]
    twin = found.name._replace(id=sender.id[:-1] + ("0" if sender.id[-1] != "0" else "1"))
    world.registry.kept[twin] = replace(found, name=twin)
    with pytest.raises(NotFound, match="Several ids of senders begin with this") as refused:
        senders.find_sender(world.registry, sender.id[:10])
    assert {sender.id, twin.id} <= {*re.findall("[0-9a-f]{40}", refused.value.sentence)}
    assert senders.find_sender(world.registry, sender.id) == sender


def test_settings_of_a_sender_are_changed_and_its_owner_is_not(world: World) -> None:
    world.add()
    sender = world.connect()
    new = {"display": "Ana's", "credential": "a-secret", "order": Order.SENDER, "pace": Pace(1)}
    forbidden = {"tenant": "florist", "provider_id": "999", "account": "999"}
    changed = senders.set_sender(world.registry, world.clock, sender.id, lambda it: replace(it, **new, **forbidden))
    assert changed == replace(sender, **new)
    assert senders.find_sender(world.registry, sender.id) == changed


def test_removed_sender_leaves_no_marks_to_the_next_owner(world: World) -> None:
    world.add()
    sender = world.connect()
    refused = RefusedCredential("print", 190, NOW)
    world.store.change_marks(sender.id, lambda marks: replace(marks, refused=refused))
    pace = pace_id("meta", "200")
    world.store.change_marks(pace, lambda marks: replace(marks, bucket=Bucket(NOW)))
    world.disconnect(sender)
    assert world.store.marks(sender.id) == world.store.marks(pace) == Marks()


AUTH = {
    "nothing known": (Marks(), Auth("connected")),
    "refused": (Marks(refused=RefusedCredential("a", 190, NOW)), Auth("needs_reauth", 190, NOW)),
    "refused and in use": (
        Marks(refused=RefusedCredential("a", 190, NOW), credential=Credential("a", NOW)),
        Auth("needs_reauth", 190, NOW),
    ),
    "refused and replaced": (
        Marks(refused=RefusedCredential("a", 190, NOW), credential=Credential("b", NOW)),
        Auth("connected"),
    ),
    "refused without a token": (
        Marks(refused=RefusedCredential("", 0, NOW), credential=Credential("b", NOW)),
        Auth("needs_reauth", 0, NOW),
    ),
    "blocked": (Marks(block=Block(NOW, timedelta(hours=1), 368)), Auth("blocked", 368)),
    "blocked by a receipt": (Marks(receipt_block=ReceiptBlock(131031, NOW)), Auth("blocked", 131031, NOW)),
    "disconnected and refused": (
        Marks(disconnected=Disconnected("PARTNER_REMOVED", NOW), refused=RefusedCredential("a", 190, NOW)),
        Auth("disconnected", "PARTNER_REMOVED", NOW),
    ),
}


@pytest.mark.parametrize(("marks", "auth"), AUTH.values(), ids=AUTH.keys())
def test_auth_of_a_sender_follows_from_its_marks(marks: Marks, auth: Auth) -> None:
    assert senders.auth_of(marks) == auth


def test_every_kind_of_trouble_shows_in_the_auth() -> None:
    troubles = {
        "refused": RefusedCredential("a", 190, NOW),
        "block": Block(NOW, timedelta(hours=1), 368),
        "receipt_block": ReceiptBlock(131031, NOW),
        "disconnected": Disconnected("PARTNER_REMOVED", NOW),
    }
    others = {mark.name for mark in fields(Marks)} - troubles.keys()
    assert others == {"down", "credential", "bucket", "limited", "version"}, "a new kind of mark: does it belong here?"
    for name, mark in troubles.items():
        marks = replace(Marks(), **{name: mark})  # type: ignore[arg-type]
        assert is_troubled(marks)
        assert senders.auth_of(marks).state != "connected"


def test_events_from_before_a_number_was_known_are_found(world: World) -> None:
    world.add()
    sender = world.connect()
    dropped = {**ended(State.DROPPED, reason="unknown_sender"), "tenant": "", "attempt": 0}
    world.store.create(an_event(1, sender="200", **dropped))
    world.store.create(an_event(2, sender="999", **dropped))
    world.store.create(an_event(3, sender="200", provider="acme", **dropped))
    assert [record.key for record in senders.came_before(world.store, sender)] == [an_event(1).key]


# ---- keys


def test_key_has_256_random_bits_and_only_their_hash_is_kept(world: World) -> None:
    world.add()
    key, text = keys.add_key(world.registry, world.clock, "bakery", [Scope.SEND, Scope.READ])
    match = re.fullmatch(r"pombo_([0-9a-f]{16})_([0-9a-f]{64})", text)
    assert match
    assert match[1] == key.id
    assert key.digest == hashlib.sha256(match[2].encode()).hexdigest()
    assert match[2] not in str(world.registry.kept)
    assert world.values(EntryKind.KEY, "bakery") == [key]
    assert (key.tenant, key.scopes, key.created_at) == ("bakery", {Scope.SEND, Scope.READ}, NOW)


def test_no_two_keys_are_alike(world: World) -> None:
    texts = [keys.add_key(world.registry, world.clock, None, [Scope.READ])[1] for _ in range(50)]
    assert len({part for text in texts for part in text.split("_")[1:]}) == 100


def test_only_the_right_secret_of_a_key_in_force_is_right(world: World) -> None:
    key, text = keys.add_key(world.registry, world.clock, None, [Scope.READ])
    _, other = keys.add_key(world.registry, world.clock, None, [Scope.READ])
    presented, wrong = keys.parse_key(text), keys.parse_key(other)
    assert presented
    assert wrong
    assert presented.id == key.id
    assert keys.is_right(key, presented)
    assert not keys.is_right(key, wrong)
    assert not keys.is_right(keys.revoke_key(world.registry, world.clock, key.id), presented)


@pytest.mark.parametrize(
    "text",
    ["", "pombo", "pombo__", f"pombo_{'a' * 16}_", f"pombo_{'a' * 16}_{'a' * 65}", f"Pombo_{'a' * 16}_{'a' * 64}",
     f"pombo_{'A' * 16}_{'a' * 64}", f"pombo_{'a' * 16}_{'a' * 64}\n"],
)  # fmt: skip
def test_text_that_is_no_key_is_not_parsed(text: str) -> None:
    assert keys.parse_key(text) is None


def test_revoked_key_stays_in_the_list_with_its_first_time(world: World) -> None:
    key, _ = keys.add_key(world.registry, world.clock, None, [Scope.MANAGE])
    world.clock.go(60)
    revoked = keys.revoke_key(world.registry, world.clock, key.id)
    assert revoked == replace(key, revoked_at=NOW + timedelta(minutes=1))
    world.clock.go(60)
    assert keys.revoke_key(world.registry, world.clock, key.id) == revoked
    assert world.values(EntryKind.KEY) == [revoked]


@pytest.mark.parametrize("id", ["", "0" * 16, "../../x"])
def test_unknown_key_cannot_be_revoked(world: World, id: str) -> None:
    with pytest.raises(NotFound):
        keys.revoke_key(world.registry, world.clock, id)


def test_key_needs_a_scope_and_a_tenant_that_exists(world: World) -> None:
    with pytest.raises(Invalid):
        keys.add_key(world.registry, world.clock, None, [])
    for nobody in ("nobody", ""):  # an empty variable in a script must not make an operator's key
        with pytest.raises(NotFound):
            keys.add_key(world.registry, world.clock, nobody, [Scope.SEND])
    assert world.registry.kept == {}


def test_key_of_the_environments_tenant_needs_no_entry_of_it(world: World) -> None:
    key, _ = keys.add_key(world.registry, world.clock, "default", [Scope.SEND])
    assert key.tenant == "default"
    assert [name.kind for name in world.registry.kept] == [EntryKind.KEY]


# ---- listings


def test_listing_pages_through_all_and_marks_what_is_unreadable(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "PAGE", 2)
    for number in range(5):
        world.add(f"t{number}")
    found = world.registry.kept[tenant_name("t3")]
    world.registry.kept[tenant_name("t3")] = replace(found, fields={"state": "archived"})
    listed = world.values(EntryKind.TENANT)
    assert [tenant and tenant.id for tenant in listed] == ["t0", "t1", "t2", None, "t4"]


# ---- many at once


def test_sixty_four_tenants_added_at_once_are_spread_evenly(world: World) -> None:
    def add(number: int) -> Tenant:
        return registry.add_tenant(world.registry, SystemClock(), Tenant(f"t{number}"), 20)

    added = together([partial(add, number) for number in range(64)])
    assert Counter(Counter(tenant.queue for tenant in added).values()) == {3: 16, 4: 4}
    assert world.use.active == 64
    assert world.use.tenants == Counter(tenant.queue for tenant in added)


def test_one_of_many_gets_a_contested_number(world: World) -> None:
    for number in range(8):
        world.add(f"t{number}")

    def claim(number: int) -> Sender:
        sender = Sender(f"t{number}", "meta", "200", f"30{number}")
        return senders.add_sender(world.registry, world.store, SystemClock(), [OURS], sender)

    results = together([partial(claim, number) for number in range(8)])
    (winner,) = [it for it in results if isinstance(it, Sender)]
    assert sum(isinstance(it, Taken) for it in results) == 7
    assert world.values(EntryKind.SENDER) == [winner]
    assert [account.tenant for account in world.values(EntryKind.ACCOUNT)] == [winner.tenant]


def test_change_that_always_comes_second_gives_up(world: World) -> None:
    class Losing(MemoryRegistry):
        def commit_entries(self, _: Any) -> bool:
            return False

    world.registry = Losing()
    began = world.clock.seconds
    with pytest.raises(Exception, match="Other changes of the registry came first"):
        world.add()
    assert registry.PATIENCE_SECONDS < world.clock.seconds - began < registry.PATIENCE_SECONDS + 1


def test_registry_takes_no_time_of_the_machine(world: World) -> None:
    """What a test sets is what is kept: `created_at` of a tenant is the clock's."""
    world.clock.at = datetime(2027, 1, 1, tzinfo=UTC)
    assert world.add().created_at == world.clock.at


def test_number_is_added_at_the_time_of_the_store(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """News of its account is compared with it: the clock of an operator's machine may be an hour ahead."""
    monkeypatch.setattr(world.store, "time", lambda: NOW)
    world.clock.at = NOW + timedelta(hours=1)
    world.add()
    assert world.connect().created_at == NOW
    (kept,) = world.values(EntryKind.SENDER)
    assert kept.created_at == NOW
