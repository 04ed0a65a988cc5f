"""The services over one store, in this process: what one contact writes, what answers it, what the API sends them."""

from dataclasses import dataclass, field
from itertools import count
from typing import Any

from shared.domain.delivery.create import create
from shared.domain.identity import message_event_id
from shared.domain.messages import Contact, Message
from shared.domain.outbound.messages import OutboundMessage
from shared.domain.outbound.recipient import Recipient
from shared.domain.record import Delivery, Kind, Task
from shared.domain.tasks import own_task
from shared.domain.tenants import Sender
from shared.domain.turns import position, turn_id
from shared.pipeline.accept_message import AcceptMessage, MessageRequest
from shared.pipeline.backend_marks import BackendMarks
from shared.pipeline.channels import Channels
from shared.pipeline.conversations import Conversations
from shared.pipeline.dispatch import TaskDispatch
from shared.pipeline.handler_places import HandlerPlaces
from shared.pipeline.process_inbound import ProcessInbound
from shared.pipeline.process_outbound import ProcessOutbound
from shared.pipeline.recent_marks import RecentMarks
from shared.tenants.environment import EnvironmentTenants
from tests.support import parts
from tests.support.builders import LIMITS
from tests.support.one_handler import OneHandler
from tests.support.pipelines import Channel, Clock, Credentials, Queue

SENDER, ID_KEY = "100000000000001", b"a key"
USER_ID, NUMBER = "US.900000000000000", "15550002222"
"""The contact's two names, as a webhook has them."""


class _Answering:
    """Answers every message."""

    backend = None

    def handles(self, _: str) -> bool:
        return True

    def __call__(self, _: Any) -> list[OutboundMessage]:
        return [OutboundMessage.text("hello to you")]


class _Channel(Channel):
    """All events are of the one contact. The provider's ids differ."""

    def read(self, record: Delivery) -> Message:
        contact = Contact(USER_ID, phone=NUMBER, user_id=USER_ID)
        return Message("text", "hello", "wamid.in", contact, SENDER, "default", record.received_at)

    def _said(self, call: str, _: list[Any]) -> str:
        self.calls.append(call)
        return f"wamid.sent.{len(self.calls)}"


@dataclass
class WholePipeline:
    """Each method is one step of a message, and calls the store as the service does."""

    store: Any
    clock: Clock = field(default_factory=Clock)
    queue: Queue = field(default_factory=Queue)
    numbers: Any = field(default_factory=lambda: count(1))

    def __post_init__(self) -> None:
        channels: Any = Channels({"meta": _Channel()})  # type: ignore[dict-item]
        tenants = EnvironmentTenants.of(("meta", SENDER))
        dispatch = TaskDispatch(self.queue, self.clock, LIMITS, channels, tenants)
        conversations = Conversations(self.store, self.clock, ID_KEY)
        handler: Any = OneHandler(_Answering(), BackendMarks(None, self.store, LIMITS, self.clock))
        common = (dispatch, LIMITS, self.clock, lambda: False, conversations)
        self.inbound = ProcessInbound(self.store, tenants, channels, handler, HandlerPlaces(2), *common)
        self.outbound = ProcessOutbound(self.store, tenants, Credentials(), channels, *common)
        marks = RecentMarks(self.store, LIMITS.marks_age, self.clock)
        self.accept = AcceptMessage(self.store, dispatch, LIMITS, self.clock, marks, conversations)

    def receive(self) -> Task:
        """An event of the contact is stored, as the webhook service does it. Returns its task."""
        number, now = next(self.numbers), self.clock.now()
        key = message_event_id("meta", SENDER, f"wamid.new.{number}")
        record = create(
            Kind.INBOUND,
            key,
            provider="meta",
            tenant="default",
            sender=SENDER,
            contact=USER_ID,
            correlation_id=f"correlation-{number}",
            payload={"item": parts.text(f"wamid.new.{number}")},
            limits=LIMITS,
            now=now,
            turn_id=turn_id(ID_KEY, "default", "meta", SENDER, USER_ID),
            position=position(None, now, 0, key),
        )
        self.store.create(record)
        return own_task(record, None)[0]

    def handle(self, task: Task) -> Task:
        """The event is handled and ends, with its reply. Returns the reply's task."""
        assert self.inbound(task).state == "done"
        return self._task_made()

    def send(self, task: Task) -> None:
        """A message is sent."""
        assert self.outbound(task).state == "done"

    def take_message(self) -> Task:
        """A message of the API to the contact's number is stored. Returns its task."""
        recipient = Recipient(NUMBER, {"to": f"+{NUMBER}"})
        message = OutboundMessage.text("Your appointment is at nine.")
        self.accept(MessageRequest(Sender("default", "meta", SENDER), recipient, message, "0a" * 20))
        return self._task_made()

    def _task_made(self) -> Task:
        ((task, _),) = self.queue.made
        self.queue.made.clear()
        return task
