"""Ports: what the pipeline needs of the world. Every effect of Pombo is a method call on one of these."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from shared.domain.dead_letters import Listing
from shared.domain.deadline import Deadline
from shared.domain.delivery.answers import Step
from shared.domain.events import Parsed, ReceiptReceived, StateChange
from shared.domain.identity import Echo
from shared.domain.marks import Marks, ReceiptBlock
from shared.domain.messages import Message
from shared.domain.outbound.messages import PlanItem
from shared.domain.record import Delivery, State, Task
from shared.domain.tasks import DueTask
from shared.domain.verdicts import Origin


@dataclass(frozen=True, slots=True)
class Created:
    """The record is new and stored."""


@dataclass(frozen=True, slots=True)
class Exists:
    """There is one already, perhaps by this very call: never a reason to drop anything. None: of an unknown state."""

    record: Delivery | None


@dataclass(frozen=True, slots=True)
class Backlog:
    """How much is open, by state, and when the oldest pending and the oldest dead record were received."""

    counts: Mapping[State, int]
    oldest_pending: datetime | None
    receipts_failed: int = 0
    """Messages that the provider accepted and then could not deliver, as `listed` knows them: until a replay."""
    oldest_dead: datetime | None = None


Cursor = tuple[str, ...]
"""Where a page ends, in the words of the store that gave it."""


@dataclass(frozen=True, slots=True)
class Page:
    """Some of a listing. The records come without payload and metadata, and are no `seen` of any change."""

    records: Sequence[Delivery]
    unread: int = 0
    """Of a newer version: there, and passed over."""
    ends_at: Cursor | None = None
    """Where the next page begins; None where this is the last."""


NotedReceipt = tuple[Echo | None, ReceiptReceived]
"""A receipt and the record that its echo names; None where it carries no echo of ours."""

Decide = Callable[[Delivery | None], Step]
DecideMarks = Callable[[Marks], Marks]


class Store(Protocol):
    """Where records live. All methods raise StoreUnavailable; those that return a record raise UnknownState."""

    def create(self, record: Delivery) -> Created | Exists:
        """Store a new record, once, whoever else tries."""
        ...

    def create_all(self, records: Sequence[Delivery], deadline: Deadline) -> Sequence[Created | Exists | Exception]:
        """As `create`, each record by itself and many at a time; no two have one key. What came of each, in order:
        StoreUnavailable where that is not known, another exception where the store cannot hold the record. Raises
        nothing.
        """
        ...

    def get(self, key: str) -> Delivery | None:
        """The record with its receipts, those that carried no echo included."""
        ...

    def change(self, key: str, decide: Decide, seen: Delivery | None = None) -> Step:
        """Read, decide, write in one commit with the records it creates; again from the new state if another write
        came between. `decide` is pure and may run several times. `seen`: the record as it was last read or written,
        which saves the first read; a Step that writes nothing may answer from it alone. A record of `create` that is
        there already is left as it is. The Step's record comes back as it was written, ready to be the next `seen`.
        """
        ...

    def note_receipt(self, echo: Echo, receipt: ReceiptReceived) -> bool:
        """Write a receipt into its round of the record, whatever its state. False: there is no such record."""
        ...

    def note_unechoed_receipt(self, receipt: ReceiptReceived) -> None:
        """Keep a receipt that carries no key of ours, by the provider's id."""
        ...

    def note_receipts(self, receipts: Sequence[NotedReceipt], deadline: Deadline) -> Sequence[bool | Exception]:
        """As `note_receipt` and, where there is no echo, `note_unechoed_receipt`: each by itself and many at a time.
        What came of each, in order: whether there is such a record (True where there is no echo), or
        StoreUnavailable. Raises nothing.
        """
        ...

    def overdue(self, before: datetime, limit: int) -> Sequence[str]:
        """Keys of open records whose sweep_at has passed, the longest overdue first."""
        ...

    def backlog(self) -> Backlog:
        """How much is open. Exact where nothing is written meanwhile. Else each number is of some moment of the call: a
        record that nobody writes counts once, and one that changes its state may count in both, or in neither.
        """
        ...

    def listed(self, listing: Listing, tenant: str | None, after: Cursor | None, limit: int) -> Page:
        """A page of a listing, of one tenant or of all, in an order of the store's own: what nobody writes meanwhile
        comes once. It may hold fewer than `limit`, even none, and not be the last. What a failed receipt has marked is
        listed until a replay, whether or not the receipt still counts.
        """
        ...

    def purge(self, now: datetime, limit: int) -> int:
        """Delete what has expired, where the back end does not do so by itself. The number deleted."""
        ...

    def by_correlation(self, correlation_id: str) -> Sequence[Delivery]:
        """All records of one event and its replies, the event first."""
        ...

    def by_provider_id(self, provider: str, provider_id: str) -> Delivery | None: ...

    def ids_with_prefix(self, prefix: str, limit: int) -> Sequence[str]:
        """The keys and the correlation ids that begin with this: each once, in order, the first `limit` of them.
        `prefix` is of an id's own characters (shared.domain.identity.is_id_prefix).
        """
        ...

    def marks(self, id: str) -> Marks:
        """The marks of a sender or a backend (shared.domain.marks); empty ones where nothing is stored."""
        ...

    def change_marks(self, id: str, decide: DecideMarks, seen: Marks | None = None) -> tuple[Marks, Marks]:
        """Read, decide, write; again from the new marks if another write came between. `decide` is pure and may run
        several times; what equals what was read is not written. `seen`: the marks as they were last read or written,
        which saves the first read. The marks before, and those that stand now.
        """
        ...

    def note_receipt_block(self, id: str, noted: ReceiptBlock) -> None:
        """Keep what a failed receipt says of a sender, beside its other marks. Blind: the last one stands, until a
        change takes it away.
        """
        ...

    def ping(self) -> None:
        """Raise StoreUnavailable unless the store answers."""
        ...

    def time(self) -> datetime:
        """The store's own clock, in UTC: `pombo doctor` holds ours against it."""
        ...


class Queue(Protocol):
    """Where tasks go."""

    def ensure(self, task: Task, at: datetime | None) -> None:
        """Make the task, to run at `at`, or now where that has passed or is None; one of that name is success. Raises
        QueueUnavailable.
        """
        ...

    def ensure_all(self, tasks: Sequence[DueTask], deadline: Deadline) -> Sequence[Exception | None]:
        """As `ensure`, many at a time and in this order. What came of each: None once it is made, else
        QueueUnavailable. Raises nothing.
        """
        ...

    def queue_of(self, task: Task) -> str:
        """The name of the queue that the task goes to, as it is configured. Asks nobody."""
        ...

    def ping(self) -> None:
        """Raise QueueUnavailable unless the queues answer."""
        ...


@dataclass(frozen=True, slots=True)
class Tenant:
    """Whom a sender belongs to."""

    id: str


@dataclass(frozen=True, slots=True)
class Sender:
    """A number of ours, by the provider's id, and whose it is."""

    tenant: str
    provider: str
    id: str


class Tenants(Protocol):
    """The registry: who owns a sender, by the provider's own id."""

    def owner_of(self, provider: str, sender: str) -> Tenant | None:
        """The tenant of a sender; None after a successful look. Raises RegistryUnavailable."""
        ...

    def owner_of_account(self, provider: str, account: str) -> Tenant | None:
        """The tenant of an account, for news that names no sender. Raises RegistryUnavailable."""
        ...

    def senders(self, tenant: str | None = None) -> Sequence[Sender]:
        """The senders of a tenant, or of all. Raises RegistryUnavailable."""
        ...


@dataclass(frozen=True, slots=True)
class Incoming:
    """One HTTP request for a channel, as it came. Nothing in it is to be believed before `Channel.verify`.

    `url` is the path and the query, without scheme and host: a Host header says what the caller likes. A provider that
    signs the whole address is checked against the base address that its channel was configured with.
    """

    provider: str
    method: str
    url: str
    headers: Mapping[str, str]
    """By name in lower case."""
    body: bytes


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """What a provider wants to read in a 200."""

    body: bytes
    content_type: str


class Channel(Protocol):
    """One provider, in both directions: everything that is special about it is behind these names."""

    @property
    def provider(self) -> str:
        """Its name, as it is stored with every record."""
        ...

    @property
    def webhooks(self) -> Mapping[str, Sequence[str]]:
        """Where its provider calls, below /webhooks/, and by which HTTP methods: POST brings events, any other is a
        handshake.
        """
        ...

    @property
    def has_public_sender_ids(self) -> bool:
        """Whether the provider's own id of a sender may be logged: not where it is a phone number."""
        ...

    def handshake(self, incoming: Incoming) -> Acknowledgement:
        """Answer a provider that asks whether it may send webhooks here. Raises Forbidden."""
        ...

    def verify(self, incoming: Incoming) -> None:
        """Raises SignatureInvalid unless the provider signed this request."""
        ...

    def parse(self, incoming: Incoming) -> Parsed:
        """The events of one webhook. Pure; raises nothing, whatever the bytes."""
        ...

    def acknowledge(self, incoming: Incoming) -> Acknowledgement:
        """What a webhook is answered once all of it is durable. Pure."""
        ...

    def read(self, record: Delivery) -> Message | None:
        """The message in a stored event, or None where the event is no message. Raises ItemUnparsable."""
        ...

    def changes(self, record: Delivery) -> Sequence[StateChange]:
        """What a stored change says about our own state; nothing where it says nothing. Pure."""
        ...

    def address(self, message: Message) -> Mapping[str, str]:
        """Where a reply to this message goes, as it is stored with the reply."""
        ...

    def fingerprint(self, sender: str) -> str:
        """What tells the credential in use from another, and tells nothing else."""
        ...

    def send(self, record: Delivery, echo: Echo) -> str | None:
        """Hand one message over; the provider's id, None where the answer was unreadable. Raises a SendError."""
        ...

    def probe(self, sender: str) -> None:
        """Ask the provider something that harms nothing, on the endpoint that sends. Returns once the provider answers,
        whatever it says about the question. Raises a SendError: an outage, or a credential that cannot be used.
        """
        ...

    def explain(self, code: int, answer: str) -> str | None:
        """What an error code of the provider's means to a person, once `answer`, the verdict's word, came of it; None
        where nothing is known of it. Pure.
        """
        ...

    def remark(self, record: Delivery) -> str | None:
        """What an operator has to know of a stored event beside what became of it; None: nothing. Pure."""
        ...


NO_ORIGIN = Origin()
"""Of a failure that no code of the team's in this process has caused."""


class HandlerFault(Exception):
    """The team's code raised, overran, or gave what is no answer. Of an exception of the team's (`origin.type`) the
    message may be private, and is for the timeline alone; else it is a sentence of ours.
    """

    def __init__(self, sentence: str, origin: Origin = NO_ORIGIN) -> None:
        super().__init__(sentence)
        self.origin = origin


class BackendUnavailable(HandlerFault):
    """The backend gave no answer. `took`: it may have taken the call; else it took nothing. `retry_after` is the least
    wait that it asks for.
    """

    def __init__(self, sentence: str, *, took: bool, retry_after: timedelta | None = None) -> None:
        super().__init__(sentence)
        self.took = took
        self.retry_after = retry_after


class HandlerInterrupted(Exception):
    """The team's code could not be run to its end here: the process is ending, or takes no more."""


@dataclass(frozen=True, slots=True)
class HandlerCall:
    """One call of the team's code: the message, and which try (from 1) of which event this is."""

    inbound_event_id: str
    correlation_id: str
    attempt: int
    message: Message


class Handler(Protocol):
    """The team's code."""

    @property
    def backend(self) -> str | None:
        """The id of the backend's marks, where the code is behind an address; None where it runs in this process."""
        ...

    def handles(self, kind: str) -> bool: ...

    def __call__(self, call: HandlerCall) -> Sequence[PlanItem]:
        """The replies in order; one that cannot be sent keeps its place. Raises Drop, HandlerFault or
        HandlerInterrupted, and nothing else.
        """
        ...
