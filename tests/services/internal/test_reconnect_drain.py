"""A token that is refused and replaced, or a number that is limited: what waited is sent in order, once each, over
HTTP; other tenants go on.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest

from services.internal.main import create_app
from shared.domain.drains import DRAIN_PATH
from shared.domain.record import Delivery, State, Task
from shared.domain.tenants import Sender, Tenant
from tests.support import parts
from tests.support.internal_service import Handler, Service, TaskRun, told
from tests.support.parts import NOW, TOKEN, a_reply, error, marks_of
from tests.support.pipelines import Tenants

TENANTS = ("acme", "bolt", "cafe")
SENDERS = {tenant: Sender(tenant, "meta", f"20000000000000{n}") for n, tenant in enumerate(TENANTS)}
CONTACTS, EACH = 10, 10


@dataclass
class Tokens:
    """One token a tenant. `cached`: what the process has of it still."""

    used: dict[str, str] = field(default_factory=lambda: {tenant: f"{tenant}-1" for tenant in TENANTS})
    cached: dict[str, str] = field(default_factory=dict)

    def of(self, sender: Sender) -> str:
        return self.cached.get(sender.tenant, self.used[sender.tenant])

    def newest(self, sender: Sender) -> str:
        self.cached.pop(sender.tenant, None)
        return self.used[sender.tenant]


@dataclass
class World:
    """Three tenants with a number each, behind a queue that a test runs."""

    service: Service
    queue: TaskRun
    tokens: Tokens

    def add(self, tenant: str) -> list[Delivery]:
        """A hundred messages: ten to each of ten contacts, each behind the one before."""
        records = []
        for contact in range(CONTACTS):
            after = None
            for number in range(EACH):
                content = {"body": f"{tenant} {contact} {number}"}
                record = a_reply(
                    number=1000 * TENANTS.index(tenant) + EACH * contact + number,
                    tenant=tenant,
                    sender=SENDERS[tenant].provider_id,
                    contact=str(contact),
                    payload={"type": "text", "content": content, "to": f"+1555000{contact}"},
                    after=after,
                    sweep_at=NOW + timedelta(minutes=10),  # as in a project: no sweep before its hop
                )
                self.queue.ensure(Task.of(self.service.put(record)), NOW)
                records.append(record)
                after = record.key
        return records

    def run(self, seconds: float) -> None:
        self.queue.work(self.service, self.service.internal.clock.at + timedelta(seconds=seconds))

    def states(self, records: list[Delivery]) -> set[tuple[State, int]]:
        return {(found.state, found.attempt) for found in map(self.service.get, records)}


@pytest.fixture
def world(tmp_path: Path, provider: parts.Provider) -> Iterator[World]:
    queue, tokens = TaskRun(), Tokens()
    tenants = Tenants(list(SENDERS.values()), {tenant: Tenant(tenant) for tenant in TENANTS})
    internal = parts.internal_parts(tmp_path, Handler(), queue=queue, WHATSAPP_API_BASE_URL=provider.url)
    queue.now, built = internal.clock.now, internal.parts
    given = {"tenants": tenants, "credentials": tokens}
    reconnects = replace(built.sweep.reconnects, **given)
    built = replace(
        built,
        process_outbound=replace(built.process_outbound, **given),
        sweep=replace(built.sweep, reconnects=reconnects),
        drain=replace(built.drain, tenants=tenants),
    )
    with parts.logged():
        yield World(Service(create_app(built).test_client(), replace(internal, parts=built), Handler()), queue, tokens)
    built.process_outbound.channels["meta"].close()
    internal.store.port.close()


def bodies(provider: parts.Provider, tenant: str) -> list[str]:
    """What was sent for this tenant, in the order of the provider's requests."""
    texts = [request["text"]["body"] for request in provider.requests if "text" in request]
    return [text for text in texts if text.startswith(tenant)]


def in_order(sent: list[str], tenant: str) -> bool:
    """Whether each contact's ten messages were sent once each, in order."""
    return all(
        [text for text in sent if text.startswith(f"{tenant} {contact} ")]
        == [f"{tenant} {contact} {number}" for number in range(EACH)]
        for contact in range(CONTACTS)
    )


def refuse(provider: parts.Provider, world: World) -> None:
    """Meta refuses the first tokens of acme and bolt."""

    def answer(body: bytes) -> None:
        if any(tenant.encode() in body and world.tokens.used[tenant].endswith("-1") for tenant in ("acme", "bolt")):
            provider.answers.insert(0, error(190, 401))

    provider.during = answer


def test_messages_that_waited_for_a_token_are_sent_in_order_once_each(
    world: World, provider: parts.Provider, capfd: pytest.CaptureFixture[str]
) -> None:
    records = {tenant: world.add(tenant) for tenant in TENANTS}
    refuse(provider, world)
    world.run(300)
    assert in_order(bodies(provider, "cafe"), "cafe"), "no other tenant notices"
    assert world.states(records["acme"]) == world.states(records["bolt"]) == {(State.PENDING, 0)}
    for tenant in ("acme", "bolt"):
        provider.requests.clear()
        capfd.readouterr()
        world.tokens.used[tenant] = f"{tenant}-2"
        assert world.service.internal.parts.sweep.reconnects.check(SENDERS[tenant])
        world.run(100)
        assert in_order(bodies(provider, tenant), tenant), "before any of them would have come back by itself"
        assert world.states(records[tenant]) == {(State.DONE, 1)}
        assert len(provider.requests) == 100, "and nothing for anybody else"
        (line,) = told(capfd, "tenant_reconnected")
        assert (line["tenant"], line["sender"]) == (tenant, SENDERS[tenant].id)


def limit(provider: parts.Provider) -> None:
    """Meta limits acme's number until the answer is changed."""

    def answer(body: bytes) -> None:
        if b"acme" in body:
            provider.answers.insert(0, error(130429))

    provider.during = answer


def test_limited_number_makes_few_calls_and_its_messages_go_soon_after_its_limit(
    world: World, provider: parts.Provider, capfd: pytest.CaptureFixture[str]
) -> None:
    records = {tenant: world.add(tenant) for tenant in ("acme", "bolt")}
    limit(provider)
    world.run(150)
    assert world.states(records["bolt"]) == {(State.DONE, 1)}, "no other tenant notices"
    assert world.states(records["acme"]) == {(State.PENDING, 0)}
    assert len(bodies(provider, "acme")) <= 3 + 150 / 32, "after 1, 4 and 16 s, then every 32 s"
    assert len(told(capfd, "outbound_waiting")) < 100 * 6
    provider.requests.clear()
    provider.during = lambda _: None
    world.run(32 + 64 + 5)
    assert in_order(bodies(provider, "acme"), "acme"), "before most of them would have come back by themselves"
    assert world.states(records["acme"]) == {(State.DONE, 1)}
    (line,) = told(capfd, "sender_drained")
    assert (line["tenant"], line["reason"]) == ("acme", "limit_over")
    assert told(capfd, "tenant_reconnected") == []


def test_late_refusal_of_the_former_token_holds_nothing_back(world: World, provider: parts.Provider) -> None:
    """The process had the former token in its cache; Meta refused it once the new one was in use."""
    records = world.add("acme")
    world.tokens.cached["acme"], world.tokens.used["acme"] = "acme-1", "acme-2"
    provider.answers = [error(190, 401)]
    world.run(100)
    assert marks_of(world.service.internal.store.port, SENDERS["acme"].provider_id).refused is None
    assert world.states(records) == {(State.DONE, 1)}
    assert in_order(bodies(provider, "acme")[1:], "acme")


def test_sweep_finds_a_replaced_token_and_wakes_what_waits(world: World, provider: parts.Provider) -> None:
    records = world.add("acme")
    refuse(provider, world)
    world.run(300)
    provider.requests.clear()
    world.tokens.used["acme"] = "acme-2"
    answer = world.service.client.post("/internal/sweep", headers={"X-Internal-Token": TOKEN})
    assert answer.status_code == 200
    world.run(100)
    assert world.states(records) == {(State.DONE, 1)}


def test_drain_answers_what_it_woke(world: World) -> None:
    world.add("acme")
    body = {"v": 1, "sender": SENDERS["acme"].id, "since": NOW.isoformat(), "cursor": "", "page": 0}
    answer = world.service.client.post(
        DRAIN_PATH, json={**body, "correlation_id": "correlation-9"}, headers={"X-Internal-Token": TOKEN}
    )
    assert (answer.status_code, answer.json) == (200, {"woken": 100, "more": False})
