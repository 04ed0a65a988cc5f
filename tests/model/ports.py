"""The ports, played from a script: a call gets the next answer, and the first without an answer stops the code."""

# ruff: noqa: ARG002 - a scripted port has the signatures of the port

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, ClassVar, NamedTuple

from shared.domain.conversations import ConversationEntry
from shared.domain.deadline import Deadline
from shared.domain.delivery.answers import Ensure, EnsureReplies, Run, Step
from shared.domain.drains import DrainTask
from shared.domain.errors import ConversationChanged, PomboError, QueueUnavailable, StoreUnavailable
from shared.domain.events import Event, Parsed, ReceiptBlock, ReceiptReceived
from shared.domain.identity import Echo
from shared.domain.limits import Limits
from shared.domain.marks import Marks
from shared.domain.messages import Contact, Drop, Message
from shared.domain.outbound.messages import OutboundMessage
from shared.domain.record import Delivery, Task
from shared.domain.send_errors import (
    AccessDenied,
    AnswerLost,
    CredentialInvalid,
    LimitReached,
    ProviderUnavailable,
    SenderBlocked,
    SendError,
    SendRefused,
    TryLater,
)
from shared.domain.tasks import DueTask
from shared.domain.tenants import Order, Sender, Tenant, TenantState
from shared.domain.verdicts import LimitScope
from shared.pipeline.intake import Addressee, Created, Exists, Incoming, NotedReceipt
from shared.pipeline.ports import BackendUnavailable, Backlog, Decide, DecideMarks, HandlerCall, HandlerFault
from tests.model.world import (
    CHANGED,
    CORRELATION,
    NOW,
    SENDER,
    TENANT,
    Row,
    Shelf,
    Worker,
    at_times_of,
    normal_marks,
)

READS = frozenset(
    {
        "store.get",
        "store.in_turn",
        "store.conversation_entries",
        "store.marks",
        "store.overdue",
        "credentials.of",
        "credentials.newest",
        "tenants.tenant",
    }
)
CHOICES = frozenset({"clock.monotonic", "process.stopping", "handler.call", "places.take"})
"""Calls that change nothing outside. All others are effects."""

CREATED, WRITTEN, MADE, AWAY = "created", "written", "made", "away"
FRESH, LATE, EXHAUSTED = 0.0, 45.0, 1000.0
"""Seconds of the monotonic clock: time enough to begin a send, too late to, and beyond all patience."""

NOT_SENT: Mapping[str, SendError] = {
    "answer lost": AnswerLost(),
    "refused": SendRefused(131026, status=400),
    "our backoff": TryLater(131000, status=400),
    "provider down": ProviderUnavailable(),
    "limited": LimitReached(130429, limit=LimitScope.RATE, status=400),
    "blocked": SenderBlocked(368, status=400),
    "credential refused": CredentialInvalid(190, status=401),
    "access denied": AccessDenied(10, status=403),
}


class Call(NamedTuple):
    """A call of a port; or "answer", the end of the code, with its HTTP status."""

    name: str
    args: tuple[Any, ...]

    @property
    def reads(self) -> bool:
        return self.name in READS

    @property
    def chooses(self) -> bool:
        return self.name in CHOICES

    @property
    def ends(self) -> bool:
        return self.name == "answer"


class Paused(BaseException):
    """There is no answer yet. No Exception: the code must not catch it."""


@dataclass(frozen=True, slots=True)
class Play:
    """What is the same for all workers of a setting."""

    events: tuple[Event, ...]
    replies: tuple[OutboundMessage, ...]
    limits: Limits
    may_stop: bool
    may_be_suspended: bool
    may_be_busy: bool
    backend: str | None
    turns: bool
    shelf: Shelf
    order: Order | None = None
    lanes: bool = True
    tenants: Mapping[str, str] = field(default_factory=dict)
    """The tenant of each sender that is not the first one's."""
    unanswered: frozenset[str] = frozenset()
    """The events to which there is no reply."""
    sent: tuple[str, ...] = ()
    """The messages of callers."""
    later: frozenset[str] = frozenset()
    """Those of them that are to be sent later."""


class Script:
    """The answers to one worker's calls, in order."""

    def __init__(self, worker: Worker, play: Play) -> None:
        self.worker = worker
        self.play = play
        self.asked: list[Call] = []
        self.times = ""
        """What makes the time matter: "lease" after one was taken, "away" after an unavailable store."""
        self._stopping = False
        self.marks_seen: dict[str, Marks] = {}
        """Of each id the marks that this worker has read or written last."""

    def ask(self, name: str, *args: Any) -> Any:
        place = len(self.asked)
        self.asked.append(Call(name, args))
        if place == len(self.worker.answers):
            raise Paused
        return self.worker.answers[place]

    def write(self, name: str, *args: Any) -> Any:
        self.times = ""
        answer = self.ask(name, *args)
        if answer == CHANGED:
            raise ConversationChanged
        if answer == AWAY:
            self.times = "away"
            raise StoreUnavailable
        return answer

    def stopping(self) -> bool:
        """Once told to end, a process stays told."""
        self._stopping = self._stopping or (self.play.may_stop and bool(self.ask("process.stopping")))
        return self._stopping


def _until_away(call: Callable[..., Any], items: Sequence[tuple[Any, ...]]) -> list[Any]:
    """A plural call as its singular ones in a row, of which the first outage is the last."""
    results: list[Any] = []
    for item in items:
        try:
            results.append(call(*item))
        except PomboError as error:
            return results + [error] * (len(items) - len(results))
    return results


@dataclass(frozen=True, slots=True)
class ScriptedStore:
    """Optimistic, as all stores are: read, decide, write if it is still what was read; else again."""

    script: Script

    def create(self, record: Delivery, entries: Sequence[ConversationEntry] = ()) -> Created | Exists:
        found = self.script.write("store.create", record, tuple(entries))
        return Exists(found.record) if isinstance(found, Row) else Created()

    def create_all(self, records: Sequence[Delivery], deadline: Deadline) -> Sequence[Created | Exists | Exception]:
        return _until_away(self.create, [(record,) for record in records])

    def get(self, key: str, unechoed: bool = True) -> Delivery | None:
        found: Row | None = self.script.ask("store.get", key)
        return found.record if found else None

    def change(self, key: str, decide: Decide, seen: Delivery | None = None) -> Step:
        found = seen or self.get(key)
        while True:
            step = decide(found)
            if step.write is None:
                return step
            if self.script.write("store.commit", key, found, step) == WRITTEN:
                return self._written(step, step.write)
            found = self.get(key)

    def _written(self, step: Step, write: Delivery) -> Step:
        record = self.script.play.shelf.row(write).record
        follows = step.next
        if isinstance(follows, Ensure | EnsureReplies | Run):
            follows = replace(follows, record=record)
        self.script.times = "lease" if isinstance(follows, Run) else ""
        return replace(step, write=record, next=follows)

    def note_receipts(self, receipts: Sequence[NotedReceipt], deadline: Deadline) -> Sequence[bool | Exception]:
        return _until_away(self._note, receipts)

    def _note(self, echo: Echo | None, receipt: ReceiptReceived) -> bool:
        if echo is None:
            self.script.write("store.note_unechoed_receipt", receipt)
            return True
        return bool(self.script.write("store.note_receipt", echo, receipt))

    def in_turn(self, first: str, beyond: str) -> Sequence[Delivery]:
        return [row.record for row in self.script.ask("store.in_turn", first, beyond)]

    def conversation_entries(self, ids: Sequence[str]) -> Mapping[str, ConversationEntry]:
        found: Sequence[ConversationEntry] = self.script.ask("store.conversation_entries", tuple(ids))
        return {entry.id: entry for entry in found}

    def overdue(self, before: datetime, limit: int) -> Sequence[str]:
        return list(self.script.ask("store.overdue"))

    def backlog(self) -> Backlog:
        return Backlog({}, None)

    def troubled(self, after: str | None, limit: int) -> Sequence[str]:
        return ()

    def purge(self, now: datetime, limit: int) -> int:
        return 0

    def marks(self, id: str) -> Marks:
        found: Marks = self.script.ask("store.marks", id)
        seen = self.script.marks_seen.get(id)
        return self._seen(id, at_times_of(found, seen) if seen else found)

    def change_marks(self, id: str, decide: DecideMarks, seen: Marks | None = None) -> tuple[Marks, Marks]:
        found = self.marks(id) if seen is None else seen
        while True:
            after = normal_marks(decide(found))
            if after == found:
                return found, found
            if self.script.write("store.commit_marks", id, found, after) == WRITTEN:
                return found, self._seen(id, after)
            found = self.marks(id)

    def _seen(self, id: str, marks: Marks) -> Marks:
        self.script.marks_seen[id] = marks
        return marks

    def note_receipt_block(self, id: str, noted: ReceiptBlock) -> None:
        self.script.write("store.note_receipt_block", noted)


@dataclass(frozen=True, slots=True)
class ScriptedQueue:
    script: Script

    def ensure(self, task: Task, at: datetime | None) -> None:
        self.script.times = ""
        if self.script.ask("queue.ensure", task) == AWAY:
            raise QueueUnavailable

    def ensure_all(self, tasks: Sequence[DueTask], deadline: Deadline) -> Sequence[Exception | None]:
        return _until_away(self.ensure, tasks)

    def ensure_drain(self, drain: DrainTask) -> None:
        """It only hurries, and nothing here takes any time."""

    def queue_of(self, task: Task) -> str:
        return task.kind


@dataclass(frozen=True, slots=True)
class ScriptedChannel:
    script: Script
    provider: ClassVar[str] = "meta"
    has_public_sender_ids: ClassVar[bool] = True

    def verify(self, incoming: Incoming) -> None: ...

    def parse(self, incoming: Incoming) -> Parsed:
        """One receipt, or all the events of the setting."""
        subject = self.script.worker.subject
        return Parsed((subject,) if isinstance(subject, ReceiptReceived) else self.script.play.events)

    def read(self, record: Delivery) -> Message:
        return Message("text", "hello", "wamid.0", Contact(record.contact), record.sender, record.tenant, NOW)

    def address(self, message: Message) -> Mapping[str, str]:
        return {}

    def fingerprint(self, credential: str) -> str:
        return credential

    def send(self, record: Delivery, echo: Echo, credential: str) -> str:
        self.script.times = ""
        answer: str = self.script.ask("channel.send", record, echo, credential)
        if answer in NOT_SENT:
            raise NOT_SENT[answer]
        return answer

    def probe(self, sender: str, credential: str) -> None:
        self.script.times = ""
        answer: str = self.script.ask("channel.probe")
        if answer in NOT_SENT:
            raise NOT_SENT[answer]


@dataclass(frozen=True, slots=True)
class ScriptedHandler:
    script: Script

    @property
    def backend(self) -> str | None:
        return self.script.play.backend

    def handles(self, kind: str) -> bool:
        return True

    def __call__(self, call: HandlerCall) -> Sequence[OutboundMessage]:
        if self.script.play.turns:
            self.script.ask("handler.begin")  # others may come while it is at work
        match self.script.ask("handler.call"):
            case "takes nothing":
                raise BackendUnavailable("it takes nothing", took=False)
            case "does not answer":
                raise BackendUnavailable("it does not answer", took=True)
            case "raises":
                raise HandlerFault("it failed")
            case "drops":
                raise Drop("not for us")
            case _:
                return () if call.inbound_event_id in self.script.play.unanswered else self.script.play.replies


@dataclass(frozen=True, slots=True)
class ScriptedPlaces:
    """Other messages of the tenant may have all places."""

    script: Script

    def take(self, tenant: str, is_shared: bool) -> bool:
        return not self.script.play.may_be_busy or bool(self.script.ask("places.take"))

    def give_back(self, tenant: str) -> None: ...


@dataclass(frozen=True, slots=True)
class ScriptedClock:
    script: Script

    def now(self) -> datetime:
        return NOW

    def monotonic(self) -> float:
        if not self.script.times:
            return FRESH
        seconds: float = self.script.ask("clock.monotonic", self.script.times)
        return seconds

    def sleep(self, seconds: float) -> None: ...

    def jitter(self) -> float:
        return 0.5

    def token(self) -> str:
        """A webhook's is the correlation id, of which there is one."""
        return CORRELATION if self.script.worker.entry == "webhook" else self.script.worker.token


@dataclass(frozen=True, slots=True)
class OneTenant:
    """The tenant of the environment; or whose each sender is."""

    script: Script

    async def owners_of(self, addressees: Sequence[Addressee], deadline: Deadline) -> Sequence[Tenant]:
        return [self.owner_of(addressee) for addressee in addressees]

    def owner_of(self, addressee: Addressee) -> Tenant:
        return Tenant(self.script.play.tenants.get(addressee.id, TENANT))

    def tenant(self, id: str) -> Tenant:
        return Tenant(id)

    def sender(self, provider: str, provider_id: str) -> Sender:
        tenant, order = self.script.play.tenants.get(provider_id, TENANT), self.script.play.order
        return Sender(tenant, provider, provider_id, order=order or Order.CONTACT)

    def senders_with(self, ids: Sequence[str]) -> Sequence[Sender]:
        return [sender for sender in self.senders_of_environment() if sender.id in ids]

    def senders_of_account(self, provider: str, account: str, tenant: str) -> Sequence[Sender]:
        return self.senders_of_environment()

    def senders_of_environment(self) -> Sequence[Sender]:
        return (Sender(TENANT, "meta", SENDER),)

    def are_several(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class ScriptedTenants(OneTenant):
    """Whether the tenant is suspended is asked where it may be."""

    def tenant(self, id: str) -> Tenant:
        is_suspended = self.script.play.may_be_suspended and self.script.ask("tenants.tenant")
        return Tenant(id, state=TenantState.SUSPENDED if is_suspended else TenantState.ACTIVE)


@dataclass(frozen=True, slots=True)
class ScriptedCredentials:
    script: Script

    def of(self, sender: Sender) -> str:
        return fingerprint(self.script.ask("credentials.of"))

    def newest(self, sender: Sender) -> str:
        return fingerprint(self.script.ask("credentials.newest"))


class NoSenders(OneTenant):
    def senders_of_environment(self) -> Sequence[Sender]:
        return ()


def fingerprint(credential: int) -> str:
    return f"credential {credential}"
