"""Ports: the interfaces that the pipeline needs. Every effect of Pombo is a method call on one of these."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from shared.domain.conversations import Conversation, ConversationEntry
from shared.domain.counters import ProcessCounters
from shared.domain.delivery.answers import Step
from shared.domain.drains import DrainTask
from shared.domain.identity import Echo
from shared.domain.listings import Listing
from shared.domain.marks import Marks
from shared.domain.messages import Message
from shared.domain.outbound.messages import PlanItem
from shared.domain.outbound.recipient import Recipient
from shared.domain.record import Delivery, State, Task
from shared.domain.state_changes import StateChange
from shared.domain.tenants import Sender, Tenant
from shared.domain.verdicts import Origin
from shared.pipeline.intake import Addressee, Created, Exists, IntakeChannel


@dataclass(frozen=True, slots=True)
class Backlog:
    """How many records are open, by state, and when the oldest pending and the oldest dead one were received. A message
    that its caller wants sent later counts as received then.
    """

    counts: Mapping[State, int]
    oldest_pending: datetime | None
    receipts_failed: int = 0
    """Messages that the provider accepted and then could not deliver, counted as `listed` does: until a replay."""
    oldest_dead: datetime | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """The open and the dead records of one tenant, or of all: events for handlers and messages to send, by state."""

    events: Mapping[State, int]
    messages: Mapping[State, int]
    scheduled: int
    """The pending messages that their callers want sent later than now."""
    oldest_pending: datetime | None
    """As in `Backlog`."""


Cursor = tuple[str, ...]
"""Where a page ends, in the format of its store."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of records. Those of a listing have no payload and metadata, and cannot be the `seen` of a change."""

    records: Sequence[Delivery]
    unread: int = 0
    """Skipped records of a newer version."""
    ends_at: Cursor | None = None
    """Where the next page begins; None if this is the last."""


@dataclass(frozen=True, slots=True)
class ConversationPage:
    """One page of conversations. The rest is as in `Page`."""

    conversations: Sequence[Conversation]
    unread: int = 0
    ends_at: Cursor | None = None


Decide = Callable[[Delivery | None], Step]
DecideMarks = Callable[[Marks], Marks]


class Store(Protocol):
    """Where records live. All methods raise StoreUnavailable; those that return a record raise UnknownState."""

    def create(self, record: Delivery, entries: Sequence[ConversationEntry] = ()) -> Created | Exists:
        """Store a new record, exactly once, even if several callers try, with entries of its conversation in the same
        commit. If the record exists, nothing is written. Raises ConversationChanged, and writes nothing, if one of the
        entries is not as it was read.
        """
        ...

    def get(self, key: str, unechoed: bool = True) -> Delivery | None:
        """The record with its receipts, including those without an echo; without these if `unechoed` is False and they
        would cost a further read.
        """
        ...

    def change(self, key: str, decide: Decide, seen: Delivery | None = None) -> Step:
        """Read, decide, and write in one commit with the records that the Step creates. If another write came between,
        start again from the new state. `decide` is pure and may run several times. `seen` is the record as last read or
        written; it saves the first read, and a Step that writes nothing may use it alone. A record of `create` that
        exists stays as it is. The returned Step has the record as written, ready to be the next `seen`. Raises
        ConversationChanged, and writes nothing, if one of the Step's `entries` is not as it was read.
        """
        ...

    def conversation_entries(self, ids: Sequence[str]) -> Mapping[str, ConversationEntry]:
        """The conversations, aliases and lanes with these ids, without those that do not exist."""
        ...

    def conversations(self, tenant: str, after: Cursor | None, limit: int) -> ConversationPage:
        """A page of a tenant's conversations, that with the newest message first; of one moment, the greatest id first.
        One that gets no message meanwhile comes once. A page may hold fewer than `limit`, even none, and not be the
        last. It costs its page, however many the tenant has.
        """
        ...

    def of_conversation(self, id: str, after: Cursor | None, limit: int) -> Page:
        """A page of the records that have this conversation, as `history` returns those of a tenant."""
        ...

    def in_turn(self, first: str, beyond: str) -> Sequence[Delivery]:
        """The LOOKED_AT records with the last places in the index of turns (shared.domain.turns) from `first` to before
        `beyond`, the last one first. It sees every write that was reported before.
        """
        ...

    def overdue(self, before: datetime, limit: int) -> Sequence[str]:
        """Keys of open records whose sweep_at has passed, longest overdue first."""
        ...

    def backlog(self) -> Backlog:
        """How many records are open. Exact if nothing is written during the call. Otherwise each number is of some
        moment of the call: an unchanged record counts once, and one that changes state may count in both or neither.
        """
        ...

    def load(self, tenant: str | None, now: datetime) -> Load:
        """The same of one tenant or of all, with events and messages apart. It may take longer. Skips records that only
        a newer version can read.
        """
        ...

    def keep_counters(self, counters: ProcessCounters) -> None:
        """Write what a process has counted, in place of what it wrote before. It is deleted some time after
        `counters.KEPT_FOR`.
        """
        ...

    def recent_counters(self, since: datetime) -> Sequence[ProcessCounters]:
        """What each process has counted that wrote since then, at most 1,000 of them. Without what only a newer version
        can read.
        """
        ...

    def listed(self, listing: Listing, tenant: str | None, after: Cursor | None, limit: int) -> Page:
        """A page of a listing, of one tenant or of all, in the store's order. A record that is not written meanwhile
        comes once. A page may hold fewer than `limit` records, even none, and not be the last. A record that a failed
        receipt marked is listed until a replay, whether or not the receipt still counts.
        """
        ...

    def history(
        self, tenant: str, since: datetime | None, until: datetime | None, after: Cursor | None, limit: int
    ) -> Page:
        """A page of a tenant's records, whole, that were received from `since` to `until`, the newest first; of one
        moment, the greatest key first. The cursor is a time and a key. A record that exists all the while comes once. A
        page may hold fewer than `limit` records, even none, and not be the last. It costs its page, whatever the tenant
        has.
        """
        ...

    def purge(self, now: datetime, limit: int) -> int:
        """Delete expired records, if the database does not do so by itself. Returns the number deleted."""
        ...

    def by_correlation(self, correlation_id: str) -> Sequence[Delivery]:
        """All records of one event and its replies as of one moment, the event first."""
        ...

    def by_provider_id(self, provider: str, provider_id: str) -> Delivery | None: ...

    def ids_with_prefix(self, prefix: str, limit: int) -> Sequence[str]:
        """The first `limit` keys and correlation ids that begin with this, in order, each once. `prefix` has only
        characters of an id (shared.domain.identity.is_id_prefix).
        """
        ...

    def marks(self, id: str) -> Marks:
        """The marks of a sender or a backend (shared.domain.marks); empty ones if none are stored."""
        ...

    def change_marks(self, id: str, decide: DecideMarks, seen: Marks | None = None) -> tuple[Marks, Marks]:
        """Read, decide, write. If another write came between, start again from the new marks. `decide` is pure and may
        run several times; unchanged marks are not written. `seen` is the marks as last read or written, which saves the
        first read. Returns the marks before and after.
        """
        ...

    def troubled(self, after: str | None, limit: int) -> Sequence[str]:
        """The first `limit` ids, in order, whose marks hold a refused credential, a block or news of an account that
        disconnects a sender (shared.domain.marks.is_troubled), and that come after `after`.
        """
        ...

    def ping(self) -> None:
        """Raise StoreUnavailable unless the store answers."""
        ...

    def time(self) -> datetime:
        """The store's clock, in UTC. `pombo doctor` compares ours with it."""
        ...


class Tenants(Protocol):
    """The registry of tenants and senders. An answer is 5 s old at most; that there is no such tenant or sender is said
    only after a look at the store. All methods raise RegistryUnavailable.
    """

    def owner_of(self, addressee: Addressee) -> Tenant | None:
        """The tenant of a sender or an account; None if there is none."""
        ...

    def tenant(self, id: str) -> Tenant | None:
        """The tenant with this id; None if there is none, perhaps no longer."""
        ...

    def sender(self, provider: str, provider_id: str) -> Sender | None:
        """The sender with the provider's id; None if there is none, perhaps no longer."""
        ...

    def senders_with(self, ids: Sequence[str]) -> Sequence[Sender]:
        """The senders with these ids (`Sender.id`), without those that do not exist."""
        ...

    def only_sender_of(self, tenant: str) -> Sender | None:
        """The tenant's sender if it has exactly one, else None."""
        ...

    def senders_of_account(self, provider: str, account: str, tenant: str) -> Sequence[Sender]:
        """This tenant's senders in an account; all of the environment's, which names no account, if it is theirs."""
        ...

    def senders_of_environment(self) -> Sequence[Sender]:
        """The senders that the environment names. Makes no call."""
        ...

    def are_several(self) -> bool:
        """Whether there is more than one tenant, also a suspended one. This answer is a minute old at most."""
        ...


class Credentials(Protocol):
    """The access tokens of senders. A token is 60 s old at most."""

    def of(self, sender: Sender) -> str:
        """The token; "" if the sender has none. Raises CredentialsUnavailable."""
        ...

    def newest(self, sender: Sender) -> str:
        """The token, read again now. Raises CredentialsUnavailable."""
        ...


class Secrets(Protocol):
    """Where secrets are kept: each by its name, and only the newest enabled version counts. All methods raise
    SecretsUnavailable, also if this process may not do that.
    """

    def newest(self, name: str) -> str | None:
        """The value; None if there is no such secret, or none of its versions is enabled."""
        ...

    def add(self, name: str, value: str) -> None:
        """Add a version, and the secret if it does not exist."""
        ...

    def remove(self, name: str) -> None:
        """Remove the secret with all its versions; success if it does not exist."""
        ...


class Queue(Protocol):
    """Where tasks go."""

    def ensure(self, task: Task, at: datetime | None) -> None:
        """Make the task, to run at `at`, or now if that has passed or is None. An existing task of that name is
        success. Raises QueueUnavailable.
        """
        ...

    def ensure_drain(self, drain: DrainTask) -> None:
        """Make a drain's task, to run now. An existing task of that name is success. Raises QueueUnavailable."""
        ...

    def queue_of(self, task: Task) -> str:
        """The name of the queue that the task goes to. Makes no call."""
        ...

    def ping(self) -> None:
        """Raise QueueUnavailable unless the shared queues answer."""
        ...


class Channel(IntakeChannel, Protocol):
    """The adapter of one provider, in both directions. Everything specific to the provider is behind it."""

    def read(self, record: Delivery) -> Message | None:
        """The message in a stored event, or None if the event is not a message. Raises ItemUnparsable."""
        ...

    def changes(self, record: Delivery) -> Sequence[StateChange]:
        """What a stored change says about our own state; may be empty. Pure."""
        ...

    def address(self, message: Message) -> Mapping[str, str]:
        """The address of a reply to this message, as stored with the reply."""
        ...

    def recipient(self, to: str) -> Recipient:
        """The recipient of a message that answers none: a phone number with +, or the provider's id of a user. Raises
        ValueError with a sentence. Pure.
        """
        ...

    def fingerprint(self, credential: str) -> str:
        """A fingerprint that identifies a credential and reveals nothing else; "" for none. Pure."""
        ...

    def send(self, record: Delivery, echo: Echo, credential: str) -> str | None:
        """Send one message with this credential. Returns the provider's id, None if the answer was unreadable. Raises a
        SendError.
        """
        ...

    def probe(self, sender: str, credential: str) -> None:
        """Send the provider a harmless request on the endpoint that sends. Returns once the provider answers, even with
        a refusal. Raises a SendError: an outage, or a credential that cannot be used.
        """
        ...

    def explain(self, code: int, answer: str) -> str | None:
        """What a provider's error code means to an operator, given `answer`, the verdict on it. None for an unknown
        code. Pure.
        """
        ...

    def remark(self, record: Delivery) -> str | None:
        """What an operator must know of a stored event beside its outcome; None if nothing. Pure."""
        ...


NO_ORIGIN = Origin()
"""The origin of a failure that no team code in this process caused."""


class HandlerFault(Exception):
    """The team's code raised, timed out, or returned an invalid answer. If it raised (`origin.type`), the message may
    be private and is only for the timeline; otherwise it is a sentence of ours.
    """

    def __init__(self, sentence: str, origin: Origin = NO_ORIGIN) -> None:
        super().__init__(sentence)
        self.origin = origin


class BackendUnavailable(HandlerFault):
    """The backend gave no answer. `took`: it may have taken the call; otherwise it took nothing. `retry_after` is the
    minimum wait that it asks for.
    """

    def __init__(self, sentence: str, *, took: bool, retry_after: timedelta | None = None) -> None:
        super().__init__(sentence)
        self.took = took
        self.retry_after = retry_after


class HandlerInterrupted(Exception):
    """The team's code could not run to its end here: the process is shutting down or takes no more calls."""


@dataclass(frozen=True, slots=True)
class HandlerCall:
    """One call of the team's code: the message, its event, and the number of the attempt (from 1)."""

    inbound_event_id: str
    correlation_id: str
    attempt: int
    message: Message


class Handler(Protocol):
    """The team's code."""

    @property
    def backend(self) -> str | None:
        """The id of the backend's marks if the code is behind an address; None if it runs in this process."""
        ...

    def handles(self, kind: str) -> bool: ...

    def __call__(self, call: HandlerCall) -> Sequence[PlanItem]:
        """The replies in order; one that cannot be sent keeps its place. Raises only Drop, HandlerFault and
        HandlerInterrupted.
        """
        ...
