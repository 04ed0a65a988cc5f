"""Intake: the ports of the webhook service, and all that its account is allowed. Each call carries many items.

The store's part creates and changes records by their keys, and lists nothing. A test compares the permissions that its
calls need with the role that Terraform gives the account (tests/contract/test_permissions.py), so a new method here
needs a new permission there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from shared.domain.counters import ProcessCounters
from shared.domain.deadline import Deadline
from shared.domain.events import Parsed, ReceiptBlock, ReceiptReceived
from shared.domain.identity import Echo
from shared.domain.record import Delivery, Task
from shared.domain.tasks import DueTask
from shared.domain.tenants import Tenant


@dataclass(frozen=True, slots=True)
class Created:
    """The record is new and stored."""


@dataclass(frozen=True, slots=True)
class Exists:
    """The record exists already, perhaps written by an earlier try of this same call: never a reason to drop an event.
    None if this version cannot read it.
    """

    record: Delivery | None


NotedReceipt = tuple[Echo | None, ReceiptReceived]
"""A receipt and the record that its echo names; None if it has no echo of ours."""


class IntakeStore(Protocol):
    """Where the webhook service stores. An outcome is StoreUnavailable if it is unknown."""

    async def create_all(
        self, records: Sequence[Delivery], deadline: Deadline
    ) -> Sequence[Created | Exists | Exception]:
        """Store new records with distinct keys, each exactly once, even if several callers try. Each is independent of
        the others. Returns each outcome in order; another exception if the store cannot hold the record. Raises
        nothing.
        """
        ...

    async def note_receipts(self, receipts: Sequence[NotedReceipt], deadline: Deadline) -> Sequence[bool | Exception]:
        """Write each receipt into its round of the record that its echo names, in any state; without an echo of ours,
        keep it by the provider's id. Returns each outcome in order: whether the record exists (True without an echo).
        Raises nothing.
        """
        ...

    async def note_receipt_block(self, id: str, noted: ReceiptBlock) -> None:
        """Store the block that a failed receipt reports of a sender, beside its other marks. A blind write: the last
        one stays until a change removes it. Raises StoreUnavailable.
        """
        ...

    async def keep_counters(self, counters: ProcessCounters) -> None:
        """As `Store.keep_counters`."""
        ...

    async def ping(self) -> None:
        """Raise StoreUnavailable unless the store answers."""
        ...

    def close(self) -> None:
        """End the connections, on the event loop of the calls. Those in flight may fail, and no other may follow."""
        ...


class IntakeQueue(Protocol):
    """Where the webhook service makes tasks."""

    async def ensure_all(self, tasks: Sequence[DueTask], deadline: Deadline) -> Sequence[Exception | None]:
        """Make each task, to run when it is due, in this order; one that exists is success. Returns each outcome: None
        if made, else QueueUnavailable. Raises nothing.
        """
        ...

    def queue_of(self, task: Task) -> str:
        """The name of the queue that the task goes to."""
        ...

    async def ping(self) -> None:
        """Raise QueueUnavailable unless the shared queues answer."""
        ...

    def close(self) -> None:
        """As `IntakeStore.close`."""
        ...


class Addressee(NamedTuple):
    """To whom an event of a webhook is addressed, by the provider's own id."""

    provider: str
    id: str
    is_account: bool = False
    """Whether the id is an account's: news of an account names no sender."""


class IntakeTenants(Protocol):
    """The registry, as the webhook service asks it: once for all events of a POST."""

    async def owners_of(
        self, addressees: Sequence[Addressee], deadline: Deadline
    ) -> Sequence[Tenant | Exception | None]:
        """The tenant of each, in order; None if the registry answered that there is none; RegistryUnavailable if it did
        not answer in time. An answer is 5 s old at most; that there is none is said only after a look at the store. The
        same addressee may come many times. Raises nothing.
        """
        ...


@dataclass(frozen=True, slots=True)
class Incoming:
    """One HTTP request for a channel, as received. Do not trust anything in it before `IntakeChannel.verify`.

    `url` is the path and the query, without scheme and host, because the caller chooses the Host header. If a provider
    signs the whole address, its channel checks it against its configured base address.
    """

    provider: str
    method: str
    url: str
    headers: Mapping[str, str]
    """By name in lower case."""
    body: bytes


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """The body and content type that a provider expects in a 200."""

    body: bytes
    content_type: str


class IntakeChannel(Protocol):
    """The receiving half of one provider's adapter. The other half is in `shared.pipeline.ports.Channel`."""

    @property
    def provider(self) -> str:
        """The provider's name, as stored with every record."""
        ...

    @property
    def webhooks(self) -> Mapping[str, Sequence[str]]:
        """The paths below /webhooks/ that the provider calls, and the HTTP methods: POST brings events, any other is a
        handshake.
        """
        ...

    @property
    def has_public_sender_ids(self) -> bool:
        """Whether the provider's id of a sender may be logged: not if it is a phone number."""
        ...

    def handshake(self, incoming: Incoming) -> Acknowledgement:
        """Answer a provider that asks whether it may send webhooks here. Raises Forbidden."""
        ...

    def verify(self, incoming: Incoming) -> None:
        """Raises SignatureInvalid unless the provider signed this request."""
        ...

    def parse(self, incoming: Incoming) -> Parsed:
        """The events of one webhook. Pure; raises nothing for any bytes."""
        ...

    def acknowledge(self, incoming: Incoming) -> Acknowledgement:
        """The answer to a webhook once all of it is durable. Pure."""
        ...
