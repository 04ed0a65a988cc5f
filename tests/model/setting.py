"""A setting: what is there at the start, and how often each thing may go wrong. Small, so that all is explored."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property

from shared.domain.events import MessageReceived
from shared.domain.identity import api_message_key, outbound_key
from shared.domain.limits import DoubtPolicy, Limits
from shared.domain.record import Task
from shared.domain.tenants import Order
from tests.model.world import NOW, SENDER, TENANT, Frozen, Mishap

HOLD, RESEND = DoubtPolicy.HOLD, DoubtPolicy.RESEND
IN_TIME, LATE, NEVER = "in time", "late", "never"


def sender_number(number: int) -> str:
    """The provider's id of one of our numbers."""
    return f"{SENDER}{number}" if number else SENDER


@dataclass(frozen=True)
class Setting:
    """`name` says what is explored. `states`, how many there are, is checked by the tests, so that a setting that has
    become empty does not pass unseen.
    """

    name: str
    states: int
    mishaps: Mapping[Mishap, int]
    begins: str = "webhook"  # or "planned": the event is done, its replies have their tasks
    events: int = 1  # in one POST
    turns: bool = False  # those of one contact are handled in turn; the last of the POST was written first
    looks_apart: bool = False  # something may happen between a look at a turn and what follows
    contacts: int = 1  # who wrote the events, in rotation
    senders: int = 1  # to which numbers, in rotation
    tenants: int = 1  # whose numbers these are, in rotation
    order: Order | None = None  # of the messages of a number, with conversations; None: no conversations are kept
    lanes: bool = True  # False: messages wait for none of another plan
    sent: int = 0  # messages that a caller sends, to the first contact
    later: int = 0  # of those, the first ones: with send_at
    replies: int = 1  # to the first of the events
    answered: int = 1  # how many events get these replies, the first ones
    calls: int = 0  # of the replies, the first ones: typing, which may be repeated
    webhooks: int = 1  # at once
    workers: int = 2  # tasks at once
    sends: int = 9  # of those, tasks of messages
    policy: DoubtPolicy = HOLD
    receipts: str = IN_TIME  # before the doubt window is over; LATE: whenever; NEVER
    echo: bool = True  # receipts carry our key; else the provider's id alone
    attempts: int = 2
    hops: int = 1  # what hops further is refused by the queue and comes back
    most_tasks: int = 2  # live ones of one record
    backend: str | None = None  # the id of the backend's marks, where the handler is behind an address
    bells: bool = (
        True  # the replies have those that wait for them in their bells; False: a version without bells planned
    )
    down: bool = False  # the provider is marked as down at the start, and its wait is over
    blocking: bool = False  # a failed receipt speaks of the sender
    sweep: bool = False  # comes where a record has neither task nor worker
    patient: bool = False  # a doubt window outlives every worker, as it does by the real numbers
    every_call: bool = False  # something may happen between any two calls, not only between two that change something

    @cached_property
    def messages(self) -> tuple[MessageReceived, ...]:
        return tuple(
            MessageReceived(
                "meta",
                sender_number(number % self.senders),
                f"wamid.{number}",
                f"1555000{2222 + number % self.contacts}",
                Frozen(text="hello"),
                NOW - timedelta(minutes=number) if self.turns else None,
            )
            for number in range(self.events)
        )

    def comes_before(self, one: str, other: str) -> bool:
        """Whether the contact of the one event wrote it before the other, to the same sender; by their keys."""
        first, second = (self.messages[self.place(key)] for key in (one, other))
        return self.is_one_turn(one, other) and (first.sent_at or NOW) < (second.sent_at or NOW)

    def is_one_turn(self, one: str, other: str) -> bool:
        """Whether the two events are of one contact and one sender."""
        first, second = (self.messages[self.place(key)] for key in (one, other))
        return (first.sender, first.contact) == (second.sender, second.contact)

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Of all records there may be: the events, then the replies, then what a caller sends."""
        events = tuple(message.key for message in self.messages)
        replies = tuple(outbound_key(key, index) for key in events[: self.answered] for index in range(self.replies))
        return events + replies + tuple(api_message_key(TENANT, str(number)) for number in range(self.sent))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What a trace calls them."""
        events = ["the event"] if self.events == 1 else [f"event {number + 1}" for number in range(self.events)]
        replies = [f"reply {number + 1}" for number in range(self.answered * self.replies)]
        return (*events, *replies, *(f"message {number + 1}" for number in range(self.sent)))

    @cached_property
    def limits(self) -> Limits:
        return Limits(max_attempts=self.attempts, doubt_policy=self.policy)

    @cached_property
    def budget(self) -> tuple[int, ...]:
        return tuple(self.mishaps.get(mishap, 0) for mishap in Mishap)

    @property
    def may_be_suspended(self) -> bool:
        return self.budget[Mishap.SUSPENDED] > 0

    @property
    def first_sent(self) -> int:
        """The place of the first message of a caller."""
        return len(self.keys) - self.sent

    def is_message(self, place: int) -> bool:
        """Whether it is a message, no event and no call."""
        is_reply = self.events <= place < self.first_sent
        return place >= self.first_sent or (is_reply and (place - self.events) % self.replies >= self.calls)

    def is_later(self, place: int) -> bool:
        """Whether its caller wants it sent later."""
        return self.first_sent <= place < self.first_sent + self.later

    def event_of(self, place: int) -> int | None:
        """The place of the event that a reply answers; an event is its own."""
        if place >= self.first_sent:
            return None
        return place if place < self.events else (place - self.events) // self.replies

    @cached_property
    def lane_numbers(self) -> tuple[int, ...]:
        """For each place the number of its lane: that of its contact or its sender; without lanes its plan is one."""
        shared: list[object] = []
        for place in range(len(self.keys)):
            message = self.messages[self.event_of(place) or 0]
            if self.order is None or not self.lanes:
                shared.append(place if self.event_of(place) is None else self.event_of(place))
            else:
                shared.append((message.sender, message.contact if self.order is Order.CONTACT else None))
        return tuple(list(dict.fromkeys(shared)).index(one) for one in shared)

    def place(self, key: str) -> int:
        return self.keys.index(key)

    def name_of(self, key: str) -> str:
        return self.names[self.place(key)]

    def task_name(self, task: Task) -> str:
        """In a trace: g is its generation, h its hop; woken: it is a wake task."""
        name = self.name_of(task.key)
        return f"{name} woken" if task.wake else f"{name} g{task.generation}.h{task.hop}"
