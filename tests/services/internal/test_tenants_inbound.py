"""Several tenants in one process: whose handler is called, and how little one that hangs or is down holds up others."""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from services.internal.main import create_app
from shared.bootstrap.handlers import maker_of_handlers
from shared.domain.errors import SecretsUnavailable
from shared.domain.identity import backend_id
from shared.domain.marks import Block, Disconnected, Marks, Outage, RefusedCredential
from shared.domain.record import Delivery, State, Task
from shared.domain.tenants import Sender, Tenant, TenantHandler, TenantState
from shared.handlers import Drop, Message
from shared.pipeline.handler_places import HandlerPlaces
from shared.pipeline.tenant_handlers import TenantHandlers
from tests.support import parts
from tests.support.fake_tenants import FakeTenants
from tests.support.internal_service import Make, Service, told
from tests.support.parts import NOW, an_event, held

KEY, OTHER_KEY = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", "whsec_" + "b3RoZXItc2VjcmV0LW90aGVyLXNlY3JldA=="
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
THREADS = 16
FIRST, SECOND_SENDER = Sender("acme", "meta", "100000000000011", "3001"), Sender("globex", "meta", "100000000000012")


@dataclass
class World:
    """The service with two tenants: acme, which may get a handler of its own, and globex, which has none."""

    service: Service
    tenants: FakeTenants
    secrets: dict[str, str | Exception]

    def event(self, number: int, tenant: str = "acme", **changes: Any) -> Delivery:
        sender = (FIRST if tenant == "acme" else SECOND_SENDER).provider_id
        return self.service.put(an_event(number, **({"tenant": tenant, "sender": sender} | changes)))

    def own_handler(self, url: str, secret: str = "acme-handler") -> None:
        self.tenants.known["acme"] = Tenant("acme", handler=TenantHandler(url, secret))

    def secret_of(self, name: str) -> str | None:
        found = self.secrets.get(name)
        if isinstance(found, Exception):
            raise found
        return found

    def free(self, tenant: str = "acme") -> int:
        """How many places are free; it leaves them free."""
        places = self.service.internal.parts.process_inbound.places
        taken = sum(places.take(tenant, True) for _ in range(THREADS))
        for _ in range(taken):
            places.give_back(tenant)
        return taken


def several(service: Service) -> World:
    """The same service with a registry of two tenants, and their handlers made as bootstrap makes them."""
    built, store, clock = service.internal.parts, service.internal.store, service.internal.clock
    tenants = FakeTenants({"acme": Tenant("acme"), "globex": Tenant("globex")}, [FIRST, SECOND_SENDER])
    world = World(service, tenants, {"acme-handler": KEY})
    deployment = built.process_inbound.handlers.of("default")
    hung = built.handler._hung
    make = maker_of_handlers(built.config, hung, built.shutdown, store, clock)
    handlers = TenantHandlers(deployment, tenants, world.secret_of, make, built.config["HANDLER_KINDS"])
    process = replace(built.process_inbound, tenants=tenants, handlers=handlers, places=HandlerPlaces(THREADS, hung.of))
    service.internal.parts = replace(built, process_inbound=process)
    service.client = create_app(service.internal.parts).test_client()
    return world


@pytest.fixture
def world(service: Service) -> Iterator[World]:
    world = several(service)
    yield world
    handlers: Any = service.internal.parts.process_inbound.handlers
    for kept in handlers._kept.values():
        kept.code.close()


@pytest.fixture
def backend() -> Iterator[parts.Provider]:
    with parts.a_provider() as server:
        server.accepted = (200, {"replies": []})
        yield server


class Hanging:
    """Calls of the handler that go on until they are let go, by tenant."""

    def __init__(self, service: Service, tenant: str = "acme") -> None:
        self._service, self._tenant = service, tenant
        self._let_go, self._begun = threading.Event(), threading.Semaphore(0)
        self._threads: list[threading.Thread] = []
        service.handler.answer = self._answer

    def _answer(self, message: Message) -> None:
        if message.tenant == self._tenant:
            self._begun.release()
            assert self._let_go.wait(30)

    def begin(self, record: Delivery) -> None:
        process = self._service.internal.parts.process_inbound
        self._threads.append(threading.Thread(target=process, args=(Task.of(record),)))
        self._threads[-1].start()
        assert self._begun.acquire(timeout=30)

    def end(self) -> None:
        self._let_go.set()
        for thread in self._threads:
            thread.join(30)


@pytest.fixture
def hanging(world: World) -> Iterator[Hanging]:
    hanging = Hanging(world.service)
    yield hanging
    hanging.end()


# ---- a quarter of the threads


def test_fifth_event_of_a_busy_tenant_waits_without_lease_or_write(
    world: World, hanging: Hanging, capfd: pytest.CaptureFixture[str]
) -> None:
    for number in range(4):
        hanging.begin(world.event(number))
    fifth = world.event(5)
    capfd.readouterr()
    assert world.service.arrive(fifth) == (200, {"state": "waiting"})
    assert world.service.get(fifth) == fifth
    assert (world.service.hopped(fifth), world.service.made[-1][1]) == (True, NOW + SECOND)
    (line,) = told(capfd, "inbound_waiting")
    assert (line["reason"], line["until"], line["tenant"]) == ("busy", (NOW + SECOND).isoformat(), "acme")


def test_busy_tenant_delays_no_event_of_another(world: World, hanging: Hanging) -> None:
    for number in range(4):
        hanging.begin(world.event(number))
    assert world.service.arrive(world.event(9, "globex")) == (200, {"state": "done"})


def test_busy_tenants_event_runs_once_a_place_is_free(world: World, hanging: Hanging) -> None:
    for number in range(4):
        hanging.begin(world.event(number))
    fifth = world.event(5)
    world.service.arrive(fifth)
    hanging.end()
    assert world.service.arrive(fifth, hop=1) == (200, {"state": "done"})
    assert world.service.get(fifth).attempt == 1


@pytest.mark.parametrize(("hop", "seconds"), [(0, 1), (1, 2), (4, 16), (5, 32), (6, 32)])
def test_wait_of_a_busy_tenant_doubles_five_times(world: World, hanging: Hanging, hop: int, seconds: int) -> None:
    for number in range(4):
        hanging.begin(world.event(number))
    world.service.arrive(world.event(5), hop=hop)
    assert world.service.made[-1][1] == NOW + timedelta(seconds=seconds)


def test_older_task_of_a_busy_tenants_event_ensures_its_own_task(world: World, hanging: Hanging) -> None:
    for number in range(4):
        hanging.begin(world.event(number))
    fifth = world.event(5, generation=1)
    assert world.service.arrive(fifth, age=-1) == (200, {"state": "waiting"})
    assert world.service.made == [(Task.of(fifth), fifth.due_at)]


def test_events_that_call_no_handler_need_no_place(world: World, hanging: Hanging) -> None:
    for number in range(4):
        hanging.begin(world.event(number))
    news = {"field": "account_update", "value": {"event": "PARTNER_ADDED"}}
    reaction = {"id": "wamid.r", "from": parts.PERSON, "timestamp": "1772366400", "type": "reaction"}
    payload = an_event().payload | {"item": reaction | {"reaction": {"message_id": "wamid.1", "emoji": "x"}}}
    for number, event in enumerate((news, payload)):
        assert world.service.arrive(world.event(10 + number, payload=event)) == (200, {"state": "done"})


def test_message_to_a_group_calls_no_handler_and_needs_no_place(world: World, hanging: Hanging) -> None:
    for number in range(4):
        hanging.begin(world.event(number))
    item = parts.text("wamid.g") | {"group_id": "Y2FwaV9ncm91cDox"}
    called = len(world.service.handler.called)
    assert world.service.arrive(world.event(5, payload=an_event().payload | {"item": item})) == (200, {"state": "done"})
    assert len(world.service.handler.called) == called


def test_tenant_that_is_alone_may_use_every_thread(world: World, hanging: Hanging) -> None:
    del world.tenants.known["globex"]
    for number in range(5):
        hanging.begin(world.event(number))


def _raise(error: Exception) -> Callable[[Message], Any]:
    def answer(_: Message) -> Any:
        raise error

    return answer


ENDS: dict[str, Callable[[Message], Any]] = {
    "replies": lambda _: "hello",
    "raises": _raise(ValueError("no")),
    "drops": _raise(Drop("spam")),
}


@pytest.mark.parametrize("name", ENDS)
def test_place_is_free_again_with_any_handler_result(world: World, name: str) -> None:
    world.service.handler.answer = ENDS[name]
    world.service.arrive(world.event(1))
    assert world.free() == 4


LOST = {"a live lease": held(30), "no attempt left": {"attempt": 8}, "not due": {"due_at": NOW + MINUTE}}


@pytest.mark.parametrize("name", LOST)
def test_place_is_free_again_although_the_lease_did_not_run(world: World, name: str) -> None:
    world.service.arrive(world.event(1, **LOST[name]))
    assert (world.free(), world.service.handler.called) == (4, [])


def test_place_is_free_again_after_a_store_outage(world: World) -> None:
    world.service.internal.store.before = lambda name, *_: OSError("gone") if name == "change" else None
    with suppress(OSError):
        world.service.arrive(world.event(1))
    assert world.free() == 4


def test_call_that_was_given_up_keeps_its_place_until_it_ends(make: Make) -> None:
    """Its thread still runs the team's code, although its request was answered."""
    world = several(make(HANDLER_TIMEOUT="1s", TIME_SCALE="20"))
    hanging = Hanging(world.service)
    for number in range(4):
        hanging.begin(world.event(number))
    parts.until(lambda: all(not thread.is_alive() for thread in hanging._threads))
    parts.until(lambda: world.free() == 0 and world.service.internal.parts.handler._hung.of("acme") == 4)
    fifth = world.event(5)
    assert world.service.arrive(fifth) == (200, {"state": "waiting"})
    assert world.service.arrive(world.event(9, "globex")) != (200, {"state": "waiting"})
    hanging.end()
    parts.until(lambda: world.free() == 4)


# ---- a tenant's own handler


def test_tenant_with_its_own_handler_is_called_there_and_no_other_is(world: World, backend: parts.Provider) -> None:
    world.own_handler(backend.url)
    assert world.service.arrive(world.event(1)) == (200, {"state": "done"})
    assert world.service.handler.called == []
    assert [(asked["message"]["tenant"], asked["message"]["text"]) for asked in backend.requests] == [
        ("acme", "hello 1")
    ]
    assert world.service.arrive(world.event(2, "globex")) == (200, {"state": "done"})
    assert ([message.tenant for message in world.service.handler.called], len(backend.requests)) == (["globex"], 1)


def test_own_handler_that_is_down_delays_no_other_tenant_at_the_same_address(
    world: World, backend: parts.Provider
) -> None:
    world.own_handler(backend.url)
    world.tenants.known["globex"] = Tenant("globex", handler=TenantHandler(backend.url, "acme-handler"))
    backend.during = lambda body: backend.answers.append((503, b"")) if b'"acme"' in body else None
    for number in (1, 2):
        assert world.service.arrive(world.event(number)) == (200, {"state": "rescheduled"})
    assert world.service.arrive(world.event(3)) == (200, {"state": "waiting"})
    assert world.free() == 4
    assert world.service.arrive(world.event(4, "globex")) == (200, {"state": "done"})
    store = world.service.internal.store.port
    down = store.marks(backend_id(backend.url, "acme")).down
    assert isinstance(down, Outage)
    assert store.marks(backend_id(backend.url, "globex")).down is None
    assert store.marks(backend_id(backend.url)).down is None


def test_health_counts_a_tenants_own_backend_and_stays_ok(
    world: World, backend: parts.Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.internal.outages.OUTAGES_SECONDS", -1.0)
    world.own_handler(backend.url)
    backend.answers = [(503, {})] * 2
    events = [world.event(number) for number in range(2)]

    def health() -> tuple[Any, Any]:
        found = world.service.client.get("/health").json
        return found["status"], found["outages"]["backend_down"]

    assert health() == ("ok", 0)
    for event in events:
        world.service.arrive(event)
    assert health() == ("ok", 1)
    world.service.internal.clock.go(60)
    assert world.service.arrive(world.service.get(events[0])) == (200, {"state": "done"})
    assert health() == ("ok", 0)


def test_event_that_waits_for_its_backend_needs_no_place(
    world: World, backend: parts.Provider, capfd: pytest.CaptureFixture[str]
) -> None:
    world.own_handler(backend.url)
    down = Outage(NOW + MINUTE, MINUTE)
    world.service.internal.store.port.change_marks(backend_id(backend.url, "acme"), lambda _: Marks(down=down))
    places = world.service.internal.parts.process_inbound.places
    while places.take("acme", True):
        pass
    assert world.service.arrive(world.event(1)) == (200, {"state": "waiting"})
    (line,) = told(capfd, "inbound_waiting")
    assert (line["reason"], line["until"]) == ("backend_down", (NOW + MINUTE).isoformat())


def test_replayed_event_of_an_unknown_sender_is_dropped_again(world: World) -> None:
    stranger = world.event(1, "", sender=parts.STRANGER, round=1)
    assert world.service.arrive(stranger) == (200, {"state": "dropped"})
    assert (world.service.get(stranger).reason, world.service.handler.called) == ("unknown_sender", [])


def test_replayed_event_of_a_new_sender_is_handled_for_its_tenant(world: World) -> None:
    """Also its place is its tenant's."""
    event = world.event(1, "", sender=FIRST.provider_id, round=1)
    assert world.service.arrive(event) == (200, {"state": "done"})
    assert ([message.tenant for message in world.service.handler.called], world.free()) == (["acme"], 4)


def test_trial_of_an_own_handler_closes_its_breaker(world: World, backend: parts.Provider) -> None:
    world.own_handler(backend.url)
    id = backend_id(backend.url, "acme")
    store = world.service.internal.store.port
    store.change_marks(id, lambda marks: replace(marks, down=Outage(NOW, timedelta(seconds=10))))
    assert world.service.arrive(world.event(1)) == (200, {"state": "done"})
    assert (store.marks(id).down, world.free()) == (None, 4)


def test_changed_address_of_a_handler_is_used_by_the_next_event(world: World, backend: parts.Provider) -> None:
    world.own_handler("http://127.0.0.1:9")
    assert world.service.arrive(world.event(1)) == (200, {"state": "rescheduled"})
    world.own_handler(backend.url)
    assert world.service.arrive(world.event(2)) == (200, {"state": "done"})


UNUSABLE = {
    "missing": None,
    "unreadable": SecretsUnavailable("no answer"),
    "no list of keys": "whsec_short",
    "only commas": ",",
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_event_waits_a_minute_for_the_secret_of_its_handler(
    world: World, backend: parts.Provider, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    world.own_handler(backend.url)
    found = UNUSABLE[name]
    world.secrets = {} if found is None else {"acme-handler": found}
    event = world.event(1)
    assert world.service.arrive(event) == (200, {"state": "waiting"})
    assert world.service.get(event) == event, "no lease, no attempt"
    assert (world.service.hopped(event), world.service.made[-1][1]) == (True, NOW + MINUTE)
    (line,) = told(capfd, "inbound_waiting")
    assert (line["reason"], line["severity"]) == ("credentials_unavailable", "WARNING")
    assert (backend.requests, world.service.handler.called, world.free()) == ([], [], 4)
    world.secrets = {"acme-handler": f"{KEY}, {OTHER_KEY}"}
    assert world.service.arrive(event, hop=1) == (200, {"state": "done"})


def test_missing_secret_delays_no_event_that_calls_no_handler(world: World, backend: parts.Provider) -> None:
    world.own_handler(backend.url)
    world.secrets = {}
    news = {"field": "account_update", "value": {"event": "PARTNER_REMOVED"}}
    event = world.event(1, payload=news, sender=FIRST.account)
    assert world.service.arrive(event) == (200, {"state": "done"})
    marks = world.service.internal.store.port.marks(FIRST.id)
    assert marks.disconnected is not None
    assert marks.disconnected.since == event.received_at


def test_events_of_a_suspended_tenant_are_handled(world: World) -> None:
    world.tenants.known["acme"] = Tenant("acme", state=TenantState.SUSPENDED)
    world.service.handler.answer = lambda _: "hello"
    event = world.event(1)
    assert world.service.arrive(event) == (200, {"state": "done"})
    assert world.service.get(event).plan_size == 1


def test_events_are_handled_while_the_number_cannot_send(world: World) -> None:
    """Disconnected, with a refused token and blocked: only what it sends waits."""
    gone, token = Disconnected("PARTNER_REMOVED", NOW), RefusedCredential("in-use", 190, NOW)
    block = Block(NOW + MINUTE, MINUTE, 368)
    parts.put_marks(world.service.internal.store.port, FIRST.provider_id, disconnected=gone, refused=token, block=block)
    world.service.handler.answer = lambda _: "hello"
    assert world.service.arrive(world.event(1)) == (200, {"state": "done"})


def test_event_that_became_free_while_it_was_read_is_handled_by_its_next_task(world: World) -> None:
    """Another attempt held it when the task came, so nothing was prepared for a call."""
    event = world.event(1, **held(30))
    calls = world.service.internal.store

    def released(name: str, *_: Any) -> None:
        if name == "change":
            world.service.internal.clock.go(31)

    calls.before = released
    assert world.service.arrive(event) == (200, {"state": "waiting"})
    calls.before = lambda *_: None
    assert world.service.get(event).state is State.LEASED, "no lease without a place and a handler"
    assert [at for _, at in world.service.made] == [NOW + timedelta(seconds=1)]
    assert world.service.arrive(event, hop=1) == (200, {"state": "done"})
    assert len(world.service.handler.called) == 1
