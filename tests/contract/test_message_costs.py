"""What a message of a customer, its reply and their receipts cost on Firestore, counted at the wire."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from shared.domain.delivery.create import create
from shared.domain.identity import Echo, message_event_id, outbound_key
from shared.domain.outbound.messages import OutboundMessage
from shared.domain.record import Delivery, Kind, ReceiptKind
from shared.domain.tasks import own_task
from shared.domain.turns import position, turn_id
from shared.pipeline.backend_marks import BackendMarks
from shared.pipeline.channels import Channels
from shared.pipeline.conversations import Conversations
from shared.pipeline.dispatch import TaskDispatch
from shared.pipeline.handler_places import HandlerPlaces
from shared.pipeline.process_inbound import ProcessInbound
from shared.pipeline.process_outbound import ProcessOutbound
from shared.stores.firestore.records import noting
from shared.stores.firestore.store import FirestoreStore
from shared.tenants.environment import EnvironmentTenants
from tests.support.builders import LIMITS, NOW
from tests.support.firestore_backend import DATABASE, fresh_project, shared_emulator
from tests.support.firestore_middleman import Middleman
from tests.support.one_handler import OneHandler
from tests.support.pipelines import Channel, Clock, Credentials, Queue

SENDER, KEY = "100000000000001", b"a key"


class Echoing:
    """Handles every message, in this process."""

    backend = None

    def handles(self, _: str) -> bool:
        return True

    def __call__(self, _: Any) -> list[OutboundMessage]:
        return [OutboundMessage.text("hello to you")]


@dataclass
class World:
    """The internal service on Firestore behind a middleman that counts. `looked`: documents that queries returned."""

    middleman: Middleman
    store: FirestoreStore
    clock: Clock = field(default_factory=Clock)
    queue: Queue = field(default_factory=Queue)
    looked: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        look = self.store.in_turn

        def counted(*given: str) -> Any:
            found = look(*given)
            self.looked.append(max(1, len(found)))
            return found

        self.store.in_turn = counted  # type: ignore[method-assign]
        channels: Any = Channels({"meta": Channel()})  # type: ignore[dict-item]
        tenants = EnvironmentTenants.of(("meta", SENDER))
        dispatch = TaskDispatch(self.queue, self.clock, LIMITS, channels, tenants)
        conversations = Conversations(self.store, self.clock, KEY)
        handler: Any = OneHandler(Echoing(), BackendMarks(None, self.store, LIMITS, self.clock))
        common = (dispatch, LIMITS, self.clock, lambda: False, conversations)
        self.inbound = ProcessInbound(self.store, tenants, channels, handler, HandlerPlaces(2), *common)
        self.outbound = ProcessOutbound(self.store, tenants, Credentials(), channels, *common)

    def costs(self) -> tuple[int, int]:
        """Documents written and read since the last time."""
        calls = self.middleman.calls
        costs = sum(call.writes for call in calls), sum(call.reads for call in calls) + sum(self.looked)
        calls.clear()
        self.looked.clear()
        return costs

    def receive(self, number: int) -> Delivery:
        """As the webhook service stores it."""
        record = create(
            Kind.INBOUND,
            message_event_id("meta", SENDER, f"wamid.{number}"),
            provider="meta",
            tenant="default",
            sender=SENDER,
            contact="c",
            correlation_id=f"correlation-{number}",
            payload={"item": {}},
            limits=LIMITS,
            now=self.clock.now(),
        )
        where = position(None, record.received_at, 0, record.key)
        placed = replace(record, turn_id=turn_id(KEY, "meta", SENDER, "c"), position=where)
        self.store.create(placed)
        return placed

    def answer(self, number: int) -> Delivery:
        """The message is received, handled and answered, and the reply is sent. Returns the reply."""
        event = self.receive(number)
        assert self.inbound(own_task(event, None)[0]).state == "done"
        self.queue.made.clear()
        reply = self.store.get(outbound_key(event.key, 0))
        assert reply is not None
        self.middleman.calls.pop()  # that look was the test's own
        assert self.outbound(own_task(reply, None)[0]).state == "done"
        return reply


@pytest.fixture
def world() -> Iterator[World]:
    with Middleman(shared_emulator()[0].address) as middleman:
        store = FirestoreStore(fresh_project(), DATABASE, emulator=middleman.address)
        store.ping()
        middleman.calls.clear()
        yield World(middleman, store)
        store.close()


def test_message_its_reply_and_three_receipts_cost_10_writes_and_6_reads(world: World) -> None:
    world.answer(1)
    world.costs()
    world.clock.go(60)
    reply = world.answer(2)
    for kind in (ReceiptKind.SENT, ReceiptKind.DELIVERED, ReceiptKind.READ):
        echo = Echo(reply.key, 0, reply.correlation_id)
        write = noting(echo.key, echo.round, kind, NOW + timedelta(minutes=2), None, "0" * 40)
        world.store._rpc.commit([write], world.store._rpc.patience())
    assert world.costs() == (10, 6)


def test_first_message_of_a_contact_costs_no_read_more_and_two_writes_more(world: World) -> None:
    """There is no message to wait for, but its number may have had a conversation, and gets an alias; the first send
    with a credential notes that.
    """
    world.answer(1)
    assert world.costs() == (7 + 1 + 1, 6)
