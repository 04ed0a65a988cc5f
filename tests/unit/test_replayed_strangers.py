# ruff: noqa: ARG002 - the methods of ports, which use what they need
"""An event of an unknown sender that is replayed once its sender is known has its tenant, whatever becomes of it."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from shared.domain.dead_letters import DeadLetterFilter, dead_letter
from shared.domain.delivery.answers import Answer, TaskResult
from shared.domain.errors import RegistryUnavailable, StoreUnavailable
from shared.domain.messages import Drop
from shared.domain.record import Delivery, Kind, State
from shared.operations.dead_letters import find
from shared.pipeline.backend_marks import BackendMarks
from shared.pipeline.channels import Channels
from shared.pipeline.dispatch import TaskDispatch
from shared.pipeline.handler_places import HandlerPlaces
from shared.pipeline.intake import Addressee, Tenant
from shared.pipeline.ports import BackendUnavailable, HandlerCall, HandlerFault, HandlerInterrupted
from shared.pipeline.process_inbound import ProcessInbound
from shared.tenants.environment import EnvironmentTenants
from tests.support.builders import LAST, LIMITS, expired, pending, task_for
from tests.support.one_handler import OneHandler
from tests.support.pipelines import ADDRESS, SENDER, Channel, Clock, Lines, Queue, Store, lines_of

ACCOUNT = "300000000000003"


@dataclass
class Registry:
    """Knows one sender and one account, once it can be asked."""

    fails: bool = False
    asked: list[str] = field(default_factory=list)

    def owner_of(self, addressee: Addressee) -> Tenant | None:
        self.asked.append(addressee.id)
        if self.fails:
            raise RegistryUnavailable
        return Tenant("late") if addressee.id == (ACCOUNT if addressee.is_account else SENDER) else None

    def senders_of_account(self, *_: str) -> tuple[Any, ...]:
        return ()

    def are_several(self) -> bool:
        return True


@dataclass
class Handler:
    says: Exception | None = None
    during: Callable[[], Any] = lambda: None
    backend: str | None = ADDRESS

    def handles(self, kind: str) -> bool:
        return kind == "text"

    def __call__(self, call: HandlerCall) -> list[Any]:
        self.during()
        if self.says:
            raise self.says
        return []


@dataclass
class World:
    store: Store
    clock: Clock
    lines: Lines
    registry: Registry = field(default_factory=Registry)
    handler: Handler = field(default_factory=Handler)
    channel: Channel = field(default_factory=Channel)
    queue: Queue = field(default_factory=Queue)
    stops: bool = False

    def add(self, make: Callable[..., Delivery] = pending, **changes: Any) -> Delivery:
        record = make(Kind.INBOUND, **({"tenant": "", "round": 1, "generation": 1} | changes))
        self.store.create(record)
        return record

    def process(self, record: Delivery) -> Answer:
        run = ProcessInbound(
            self.store,
            self.registry,
            Channels({"meta": self.channel}),
            OneHandler(self.handler, BackendMarks(self.handler.backend, self.store, LIMITS, self.clock)),
            HandlerPlaces(16),
            TaskDispatch(self.queue, self.clock, LIMITS, Channels({"meta": self.channel}), EnvironmentTenants.of()),
            LIMITS,
            self.clock,
            lambda: self.stops,
            None,
        )
        return run(task_for(record))

    def read(self, record: Delivery) -> Delivery:
        found = self.store.get(record.key)
        assert found is not None
        return found


@pytest.fixture
def world(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> World:
    clock = Clock()
    caplog.set_level(logging.DEBUG, "pombo")
    return World(Store(tmp_path, clock), clock, lines_of(caplog))


TOOK_NOTHING = BackendUnavailable("503.", took=False)
OUTCOMES: dict[str, tuple[Exception | None, dict[str, Any], str, State]] = {
    "answers": (None, {}, "done", State.DONE),
    "drops": (Drop("spam"), {}, "dropped", State.DROPPED),
    "fails": (HandlerFault("no"), {}, "rescheduled", State.PENDING),
    "fails at the last attempt": (HandlerFault("no"), {"attempt": LAST - 1}, "dead", State.DEAD),
    "is interrupted by the shutdown": (HandlerInterrupted(), {}, "pending", State.PENDING),
    "is down": (TOOK_NOTHING, {}, "rescheduled", State.PENDING),
}


@pytest.mark.parametrize(("says", "fields", "answer", "state"), OUTCOMES.values(), ids=OUTCOMES)
def test_event_gets_its_tenant_with_any_handler_result(
    world: World, says: Exception | None, fields: dict[str, Any], answer: str, state: State
) -> None:
    record = world.add(**fields)
    world.handler.says = says
    assert world.process(record).state == answer
    after = world.read(record)
    assert (after.state, after.tenant) == (state, "late")
    assert after.provider == record.provider
    names = ("inbound_processing_started", "inbound_processing_finished", "inbound_failed", "inbound_rescheduled")
    lines = world.lines(*names)
    assert len(lines) == 2
    assert {line["tenant"] for line in lines} == {"late"}


def test_a_shutdown_before_the_handler_leaves_the_event_its_tenant(world: World) -> None:
    record = world.add()
    world.stops = True
    assert world.process(record).result is TaskResult.CONFLICT
    assert (world.read(record).state, world.read(record).tenant) == (State.PENDING, "late")


def test_a_worker_that_is_killed_leaves_the_event_its_tenant(world: World) -> None:
    record = world.add()

    def killed() -> None:
        raise SystemExit

    world.handler.during = killed
    with pytest.raises(SystemExit):
        world.process(record)
    assert (world.read(record).state, world.read(record).tenant) == (State.LEASED, "late")


@pytest.mark.parametrize(
    ("fields", "make"), [({"attempt": LAST}, pending), ({"attempt": LAST}, expired)], ids=["pending", "leased"]
)
def test_dead_letter_of_the_event_belongs_to_its_tenant(
    world: World, fields: dict[str, Any], make: Callable[..., Delivery]
) -> None:
    record = world.add(make, **fields)
    assert world.process(record).state == "dead"
    letter = dead_letter(world.read(record))
    assert letter is not None
    assert letter.tenant == "late"
    found = [one.key for page in find(world.store, DeadLetterFilter(tenant="late")) for one in page.letters]
    assert found == [record.key]
    assert [line["tenant"] for line in world.lines("dead_lettered")] == ["late"]


@pytest.mark.parametrize("tenant", ["", "late"])
def test_still_unparsable_event_is_dead_again_with_any_owner(world: World, tenant: str) -> None:
    """Never dropped for want of an owner: what is dropped is deleted some day."""
    record = world.add(sender="999", tenant=tenant)
    world.channel.kind = "unparsable"
    assert world.process(record).state == "dead"
    assert (world.read(record).state, world.read(record).reason) == (State.DEAD, "unparsable")


@pytest.mark.parametrize(("of_account", "tenant"), [({"of_account": True}, "late"), ({}, "")])
def test_unparsable_event_is_looked_up_by_the_account_it_names(
    world: World, of_account: dict[str, bool], tenant: str
) -> None:
    record = world.add(sender=ACCOUNT, payload={"field": "account_update", "unparsable": {}, **of_account})
    world.channel.kind = "unparsable"
    world.process(record)
    assert world.read(record).tenant == tenant


@pytest.mark.parametrize("beside", [{"value": {}}, {"of_account": True}], ids=["value", "of_account"])
def test_message_is_looked_up_by_its_sender_with_any_other_payload_field(world: World, beside: dict[str, Any]) -> None:
    record = world.add(payload={"item": {}, **beside})
    world.process(record)
    assert world.registry.asked == [SENDER]
    assert (world.read(record).state, world.read(record).tenant) == (State.DONE, "late")


def test_a_registry_that_cannot_be_asked_takes_no_lease_and_no_attempt(world: World) -> None:
    record = world.add()
    world.registry.fails = True
    with pytest.raises(RegistryUnavailable):
        world.process(record)
    assert world.read(record) == record


def test_a_sender_that_is_still_unknown_is_dropped_again(world: World) -> None:
    record = world.add(sender="999000000000009")
    assert world.process(record) == Answer(TaskResult.ACK, "dropped")
    assert (world.read(record).reason, world.read(record).tenant) == ("unknown_sender", "")


def test_news_of_an_account_is_looked_up_by_its_account(world: World) -> None:
    world.channel.kind = None
    record = world.add(sender=ACCOUNT, payload={"field": "account_update", "value": {}})
    assert world.process(record) == Answer(TaskResult.ACK, "done")
    assert world.read(record).tenant == "late"
    assert world.registry.asked == [ACCOUNT]


def test_an_event_that_has_its_tenant_asks_no_registry(world: World) -> None:
    record = world.add(tenant="default")
    assert world.process(record) == Answer(TaskResult.ACK, "done")
    assert (world.read(record).tenant, world.registry.asked) == ("default", [])


def test_the_registry_is_asked_once_though_the_decision_is_made_again(world: World) -> None:
    """The store decides again, under a lock, where the record was changed in between."""
    record = world.add()
    owner_of = world.registry.owner_of

    def while_it_is_asked(addressee: Addressee) -> Tenant | None:
        owner = owner_of(addressee)
        if len(world.registry.asked) == 1:
            world.store._file.write(lambda db: db.execute("UPDATE records SET version = version + 1"))
        return owner

    world.registry.owner_of = while_it_is_asked  # type: ignore[method-assign]
    assert world.process(record) == Answer(TaskResult.ACK, "done")
    assert (world.read(record).tenant, world.registry.asked) == ("late", [SENDER])


def test_store_outage_at_the_end_leaves_the_lease_with_its_tenant(world: World) -> None:
    record = world.add()
    change, calls = world.store.change, []

    def away(*given: Any, **named: Any) -> Any:
        calls.append(given)
        if len(calls) > 1:
            raise StoreUnavailable
        return change(*given, **named)

    world.store.change = away  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable):
        world.process(record)
    assert (world.read(record).state, world.read(record).tenant) == (State.LEASED, "late")
