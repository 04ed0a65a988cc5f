"""accept_message: stores a message that a caller of the API wants sent, and makes its task. It never asks the provider.

The message is its own idempotency record: its key is derived from the tenant and the caller's Idempotency-Key, so a
request that comes again finds what the first one stored, as long as the message is kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from shared.domain.conversations import created_in
from shared.domain.delivery.answers import NotAllowed
from shared.domain.delivery.create import create, seen_again
from shared.domain.delivery.operator import cancel
from shared.domain.errors import PomboError, QueueUnavailable, RegistryUnavailable, StoreUnavailable, UnknownState
from shared.domain.guards import refused_at_once
from shared.domain.identity import api_message_key
from shared.domain.limits import Limits
from shared.domain.outbound.messages import OutboundMessage
from shared.domain.outbound.recipient import Recipient
from shared.domain.phone_numbers import without_variant
from shared.domain.record import Delivery, Kind, Retries
from shared.domain.tenants import Sender
from shared.pipeline.clock import Clock
from shared.pipeline.conversations import Conversations, Party
from shared.pipeline.dispatch import TaskDispatch
from shared.pipeline.intake import Created, Exists
from shared.pipeline.ports import Store
from shared.pipeline.recent_marks import RecentMarks

CALLERS_METADATA = "caller"
"""The part of a record's metadata that is the caller's own."""


@dataclass(frozen=True, slots=True)
class MessageRequest:
    """What a caller wants sent, already checked. `body_hash` identifies the request's body: the same Idempotency-Key
    with another one is a conflict. Without a key, each request is another message.
    """

    sender: Sender
    recipient: Recipient
    message: OutboundMessage
    body_hash: str
    idempotency_key: str | None = None
    correlation_id: str | None = None
    send_at: datetime | None = None
    retry: Retries | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


class SenderUnusable(PomboError):
    """The sender cannot send now, and a person must mend it. `code` is one of guards.py: why it cannot."""

    def __init__(self, code: str) -> None:
        super().__init__()
        self.code = code  # type: ignore[misc] # of this one error, not of its class


class IdempotencyConflict(PomboError):
    """This Idempotency-Key was used before with another body: use a new key for another message."""

    code: ClassVar[str] = "idempotency_conflict"


@dataclass(frozen=True, slots=True)
class AcceptMessage:
    """For a new message one or two reads (its conversation), one commit and one task."""

    store: Store
    dispatch: TaskDispatch
    limits: Limits
    clock: Clock
    marks: RecentMarks
    conversations: Conversations | None
    """None: none are kept."""

    def repeated(self, tenant: str, idempotency_key: str, body_hash: str) -> Delivery | None:
        """The message that an earlier request with this key stored, with its task; None if there was none. It tells a
        repeated request from a wrong one, if its sender has been removed meanwhile. Raises as __call__ does.
        """
        stored = self.store.get(api_message_key(tenant, idempotency_key))
        return self._again(stored, body_hash) if stored else None

    def __call__(self, request: MessageRequest) -> Delivery:
        """The message as it was stored first. Raises SenderUnusable, IdempotencyConflict, UnknownState, and the errors
        of the store, the queue and the registry: then the same request with its key may be repeated until it succeeds.
        """
        key = self._key(request)
        unusable = self._unusable(request)
        if unusable:
            stored = self.store.get(key) if request.idempotency_key else None
            if stored is None:
                raise SenderUnusable(unusable)
            return self._again(stored, request.body_hash)
        record, made = self._created(self._record(request, key), request)
        match made:
            case Exists(None):
                raise UnknownState
            case Exists(stored) if stored is not None:
                return self._again(stored, request.body_hash)
        self._enqueue(record, request)
        return record

    def _created(self, record: Delivery, request: MessageRequest) -> tuple[Delivery, Created | Exists]:
        """The message as it is stored, in its place in the contact's conversation."""
        conversations, sender = self.conversations, request.sender
        if conversations is None:
            return record, self.store.create(record)
        names = [without_variant(request.recipient.contact)]
        party = Party(sender.tenant, sender.provider, sender.provider_id, sender.order, names)

        def commit() -> tuple[Delivery, Created | Exists]:
            thread = conversations.readable_thread(party)
            if thread is None:
                return record, self.store.create(record)
            placed, entries = created_in(record, thread, self.clock.now())
            return placed, self.store.create(placed, entries)

        return conversations.committed(commit)

    def _key(self, request: MessageRequest) -> str:
        return api_message_key(request.sender.tenant, request.idempotency_key or self.clock.token())

    def _unusable(self, request: MessageRequest) -> str | None:
        """Why the sender cannot send now, which says nothing about a message for later. What was read a while ago
        refuses nothing.
        """
        id, now = request.sender.id, self.clock.now()
        if request.send_at is not None and request.send_at > now:
            return None
        return refused_at_once(self.marks(id), now) and refused_at_once(self.marks.newest(id), now)

    def _record(self, request: MessageRequest, key: str) -> Delivery:
        message, sender = request.message, request.sender
        reply_to = {"reply_to": message.reply_to} if message.reply_to else {}
        return create(
            Kind.OUTBOUND,
            key,
            provider=sender.provider,
            tenant=sender.tenant,
            sender=sender.provider_id,
            contact=request.recipient.contact,
            correlation_id=request.correlation_id or self.clock.token(),
            payload={"type": message.type, "content": message.content, **reply_to, **request.recipient.address},
            limits=self.limits,
            now=self.clock.now(),
            send_at=request.send_at,
            retry=request.retry,
            body_hash=request.body_hash,
            metadata={CALLERS_METADATA: request.metadata} if request.metadata else None,
        )

    def _again(self, stored: Delivery, body_hash: str) -> Delivery:
        """The message that an earlier request with this key stored. Its task is made again, under the same name."""
        if stored.body_hash != body_hash:
            raise IdempotencyConflict
        if seen_again(stored):
            self.dispatch.ensure(stored)
        return stored

    def _enqueue(self, record: Delivery, request: MessageRequest) -> None:
        """Make the task. If that fails, a caller without a key cannot repeat the request without sending twice, so
        the message is taken back; the sweep would send it otherwise. With a key the repeated request makes the task.
        """
        try:
            self.dispatch.ensure(record)
        except (QueueUnavailable, RegistryUnavailable):
            if request.idempotency_key or self._taken_back(record):
                raise

    def _taken_back(self, record: Delivery) -> bool:
        """Whether the message is cancelled. If it cannot be any more, its task was made although the call failed."""
        now = self.clock.now()
        try:
            self.store.change(record.key, lambda found: cancel(found or record, self.limits, now), seen=record)
        except NotAllowed:
            return False
        except (StoreUnavailable, UnknownState):
            pass  # unknown: the error of the queue is what the caller gets
        return True
