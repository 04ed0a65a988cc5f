"""The outbound pipeline on a SQLite store, with a channel, a registry and a queue that a test controls."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from shared.domain.delivery.answers import Answer
from shared.domain.identity import sender_id
from shared.domain.marks import Credential, Marks
from shared.domain.record import Delivery
from shared.domain.tenants import Sender
from shared.pipeline.channels import Channels
from shared.pipeline.conversations import Conversations
from shared.pipeline.dispatch import TaskDispatch
from shared.pipeline.drain import Drain
from shared.pipeline.process_outbound import ProcessOutbound
from shared.pipeline.reconnects import Reconnects
from shared.pipeline.sender_health import Senders
from shared.pipeline.sender_marks import SenderMarks
from tests.support.builders import LIMITS, at, pending, task_for
from tests.support.pipelines import IN_USE, SENDER, Channel, Clock, Credentials, Lines, Queue, Store, Tenants

ID = sender_id("meta", SENDER)
USED = Credential(IN_USE, at(-900))


@dataclass
class World:
    """One sender, its messages, and what happens to them."""

    store: Store
    channel: Channel
    clock: Clock
    queue: Queue
    lines: Lines
    limits: Any = LIMITS
    stops: bool = False
    tenants: Tenants = field(default_factory=Tenants)
    credentials: Credentials = field(default_factory=Credentials)

    @property
    def channels(self) -> Channels:
        return Channels({"meta": self.channel})  # type: ignore[dict-item]

    @property
    def senders(self) -> SenderMarks:
        return SenderMarks(self.store, self.channel, self.dispatch, self.limits, self.clock)

    @property
    def dispatch(self) -> TaskDispatch:
        return TaskDispatch(self.queue, self.clock, self.limits, self.channels, self.tenants)  # type: ignore[arg-type]

    @property
    def marks(self) -> Marks:
        return self.store.marks(ID)

    def mark(self, **given: Any) -> Marks:
        """These marks and no others, with a credential that has been in use for long."""
        return self.store.change_marks(ID, lambda _: Marks(**({"credential": USED} | given)))[1]

    def add(self, key: str, make: Callable[..., Delivery] = pending, **changes: Any) -> Delivery:
        record = make(**({"key": key * 40, "generation": 0} | changes))
        self.store.create(record)
        return record

    def process(self, record: Delivery, hop: int = 0) -> Answer:
        """The record's own task arrives."""
        return self.outbound(task_for(self.read(record), hop=hop))

    @property
    def outbound(self) -> ProcessOutbound:
        return ProcessOutbound(
            self.store,
            self.tenants,  # type: ignore[arg-type]
            self.credentials,
            self.channels,
            self.dispatch,
            self.limits,
            self.clock,
            lambda: self.stops,
            Conversations(self.store, self.clock, b"a key"),
        )

    def health(self, *named: Sender, store: Any = None, channels: Any = None, backend: str | None = None) -> Senders:
        """What is told of these senders of the environment; usually of ours."""
        tenants = replace(self.tenants, named=named or self.tenants.senders)
        return Senders(
            tenants,  # type: ignore[arg-type]
            self.credentials,
            store or self.store,
            channels or self.channels,
            LIMITS,
            self.clock,
            backend,
        )

    def read(self, record: Delivery) -> Delivery:
        found = self.store.get(record.key)
        assert found is not None
        return found

    def hops(self) -> list[tuple[int, datetime | None]]:
        return [(task.hop, at) for task, at in self.queue.made]

    @property
    def reconnects(self) -> Reconnects:
        return Reconnects(self.tenants, self.credentials, self.store, self.channels, self.dispatch, self.clock)  # type: ignore[arg-type]

    @property
    def drain(self) -> Drain:
        return Drain(self.store, self.tenants, self.channels, self.dispatch, self.limits)  # type: ignore[arg-type]
