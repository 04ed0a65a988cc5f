"""What a message of a customer, its reply and their receipts cost on Firestore, counted at the wire."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from shared.domain.identity import Echo
from shared.domain.record import ReceiptKind, Task
from shared.stores.firestore.records import noting
from shared.stores.firestore.store import FirestoreStore
from tests.support.builders import NOW
from tests.support.firestore_backend import DATABASE, fresh_project, shared_emulator
from tests.support.firestore_middleman import Middleman
from tests.support.whole_pipeline import WholePipeline


@dataclass
class World:
    """The services on Firestore behind a middleman that counts. `looked`: documents that queries returned."""

    middleman: Middleman
    store: FirestoreStore
    pipeline: WholePipeline = field(init=False)
    looked: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        look = self.store.in_turn

        def counted(*given: str) -> Any:
            found = look(*given)
            self.looked.append(max(1, len(found)))
            return found

        self.store.in_turn = counted  # type: ignore[method-assign]
        self.pipeline = WholePipeline(self.store)

    def costs(self) -> tuple[int, int]:
        """Documents written and read since the last time."""
        calls = self.middleman.calls
        costs = sum(call.writes for call in calls), sum(call.reads for call in calls) + sum(self.looked)
        calls.clear()
        self.looked.clear()
        return costs

    def answer(self) -> Task:
        """A message is received, handled and answered, and the reply is sent. Returns the reply's task."""
        reply = self.pipeline.handle(self.pipeline.receive())
        self.pipeline.send(reply)
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
    world.answer()
    world.costs()
    world.pipeline.clock.go(60)
    reply = world.answer()
    for kind in (ReceiptKind.SENT, ReceiptKind.DELIVERED, ReceiptKind.READ):
        echo = Echo(reply.key, 0, reply.correlation_id)
        write = noting(echo.key, echo.round, kind, NOW + timedelta(minutes=2), None, "0" * 40)
        world.store._rpc.commit([write], world.store._rpc.patience())
    assert world.costs() == (10, 6)


def test_first_message_of_a_contact_costs_no_read_more_and_two_writes_more(world: World) -> None:
    """There is no message to wait for, but its number may have had a conversation, and gets an alias; the first send
    with a credential notes that.
    """
    world.answer()
    assert world.costs() == (7 + 1 + 1, 6)
