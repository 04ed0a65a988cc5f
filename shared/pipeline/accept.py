"""Accept: answers a webhook with 200 only when every event in it is stored and has its task.

A POST takes one call to the store for its records, one for its receipts and one to the queue, however many events it
has. New events get their tasks before events that an earlier delivery stored, so each redelivery of a large POST gets
further than the last.
"""

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, assert_never

from shared import logs
from shared.domain.deadline import FAILURE_SECONDS, Deadline
from shared.domain.delivery.create import create, seen_again
from shared.domain.errors import RegistryUnavailable, StoreUnavailable
from shared.domain.events import (
    CHANGED_AT,
    OF_ACCOUNT,
    Change,
    Event,
    MessageReceived,
    Parsed,
    ReceiptReceived,
    Unparsable,
)
from shared.domain.identity import sender_id
from shared.domain.limits import Limits
from shared.domain.record import Delivery, Kind, State, Task
from shared.domain.retention import UNKNOWN_SENDER_PAYLOAD_BYTES
from shared.domain.tasks import own_task
from shared.domain.tenants import Tenant
from shared.domain.turns import position, turn_id
from shared.pipeline import log_fields, receipts
from shared.pipeline.channels import Channels
from shared.pipeline.clock import Clock
from shared.pipeline.counting import NO_COUNTING, WebhookCounting
from shared.pipeline.fairness import in_turns
from shared.pipeline.intake import (
    Addressee,
    Created,
    Exists,
    Incoming,
    IntakeChannel,
    IntakeQueue,
    IntakeStore,
    IntakeTenants,
)
from shared.pipeline.log_fields import log_dead
from shared.pipeline.outcomes import faults_in, outcome_of

_LARGE = 64 * 1024
"""Bytes of a body that take a millisecond or more to parse."""

_WRAPPING = 16
"""Bytes that wrap the beginning of a payload that is too large to keep whole."""


@dataclass(frozen=True, slots=True)
class New:
    """Stored now; it has no task yet. `pair` is the number of its tenant's pair of queues, here and below."""

    record: Delivery
    pair: int | None = None


@dataclass(frozen=True, slots=True)
class SeenUnqueued:
    """Stored before and unchanged since: its task may be missing."""

    record: Delivery
    pair: int | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """Stored before, and either already worked on or needing no work. If the store does not return the record, this
    holds what this event would have stored.
    """

    record: Delivery
    pair: int | None = None


Mark = New | Seen | SeenUnqueued
Arrival = MessageReceived | Change | Unparsable
"""An event that gets a record."""


@dataclass(frozen=True, slots=True)
class Accept:
    """The webhook's work."""

    store: IntakeStore
    queue: IntakeQueue
    tenants: IntakeTenants
    channels: Channels[IntakeChannel]
    limits: Limits
    clock: Clock
    id_key: bytes | None = field(default=None, repr=False)
    """The key of the ids of turns; None: events take no turns."""
    counting: WebhookCounting = NO_COUNTING

    async def __call__(self, incoming: Incoming, deadline: Deadline | None = None) -> None:
        """Store every event of one POST. Without a deadline, its time begins now.

        Raises SignatureInvalid before anything is read. Raises StoreUnavailable, QueueUnavailable or
        RegistryUnavailable if any event could not be made durable: the provider will redeliver the whole POST.
        """
        deadline = deadline or Deadline.of_webhook(self.clock.monotonic)
        started = self.clock.monotonic()
        channel = self.channels[incoming.provider]
        # A large body takes a thread meanwhile, so that other requests do not wait for it.
        is_large = len(incoming.body) > _LARGE
        parsed = await asyncio.to_thread(_read, channel, incoming) if is_large else _read(channel, incoming)
        for reason, count in parsed.ignored.items():
            logs.event("webhook_ignored", severity="WARNING", reason=reason, count=count)
        self.counting.begin()
        tenants: set[str] = set()
        try:
            await self._accept_all(parsed.events, deadline, tenants)
        finally:
            self.counting.answered(tenants, deadline)
        logs.event(
            "webhook_received",
            count=len(parsed.events),
            duration_ms=round((self.clock.monotonic() - started) * 1000, 1),
        )

    async def mark_if_new(self, events: Sequence[Arrival], deadline: Deadline) -> list[Mark | Exception]:
        """Create the record of each event, or report the existing one. "Exists" alone never means "drop it": the store
        may be reporting this same call's write. The events have distinct keys. One whose owner cannot be told is not
        stored: its outcome is RegistryUnavailable.
        """
        owners = await self.tenants.owners_of([_addressee(event) for event in events], deadline) if events else ()
        now = self.clock.now()
        each = zip(events, owners, range(len(events)), strict=True)
        records = await in_turns(lambda one: outcome_of(self._record, *one, now), each)
        storable = [record for record in records if isinstance(record, Delivery)]
        made = iter(await self.store.create_all(storable, deadline) if storable else ())
        return [_mark_or_fault(record, owner, made) for record, owner in zip(records, owners, strict=True)]

    async def _accept_all(self, events: Sequence[Event], deadline: Deadline, tenants: set[str]) -> None:
        """Accept all events, and add whose they are to `tenants`. A fault in one event does not stop the others; an
        outage of the store or queue does.
        """
        arrivals, repeats = _by_key(events)
        marks = await self.mark_if_new(arrivals, deadline)
        tenants.update([mark.record.tenant for mark in marks if not isinstance(mark, Exception)])
        about: dict[str, Mapping[str, Any]] = {}
        await in_turns(lambda one: self._log(*one, about), zip(arrivals, marks, strict=True))
        self._log_repeats(repeats, arrivals, marks)
        # Outages of the registry are outages for their events alone: one tenant's unreadable entry delays no other
        # tenant's messages.
        faults: list[Exception] = [mark for mark in marks if isinstance(mark, RegistryUnavailable)]
        faults += faults_in(mark for mark in marks if not isinstance(mark, RegistryUnavailable))
        reports = [event for event in events if isinstance(event, ReceiptReceived)]
        if reports:
            faults += await receipts.note_all(reports, self.store, deadline)
        waiting = [mark for mark in marks if isinstance(mark, New) and not mark.record.final]
        again = [mark for mark in marks if isinstance(mark, SeenUnqueued)]
        faults += await self._enqueue([*waiting, *again], about, deadline)
        if reports:
            await self._note_blocks(reports, deadline)
        for fault in faults:
            raise fault

    async def _note_blocks(self, reports: Sequence[ReceiptReceived], deadline: Deadline) -> None:
        """Note the blocks of our senders that failed receipts report. Last, when all else is durable and a redelivery
        is quick.
        """
        found = receipts.blocks(reports)
        if not found:
            return
        owners = await self.tenants.owners_of([Addressee(provider, sender) for provider, sender in found], deadline)
        for ((provider, sender), block), owner in zip(found.items(), owners, strict=True):
            if not isinstance(owner, Tenant):
                continue
            if deadline.left() <= FAILURE_SECONDS:
                raise StoreUnavailable("The store is too slow.")
            await self.store.note_receipt_block(sender_id(provider, sender), block)
        for fault in faults_in(owners):
            raise fault

    async def _enqueue(
        self, marks: Sequence[New | SeenUnqueued], about: Mapping[str, Mapping[str, Any]], deadline: Deadline
    ) -> list[Exception]:
        """Make their tasks. `about` has the log fields of the new ones. Returns what went wrong; raises an outage."""
        if not marks:
            return []
        made = await self.queue.ensure_all([own_task(mark.record, mark.pair) for mark in marks], deadline)
        queued = [mark for mark, fault in zip(marks, made, strict=True) if fault is None]
        await in_turns(lambda mark: self._log_queued(mark, about.get(mark.record.key)), queued)
        return faults_in(made)

    def _log_queued(self, mark: New | SeenUnqueued, about: Mapping[str, Any] | None) -> None:
        logs.event("inbound_enqueued", **(about or self._about(mark)))

    def _log(self, event: Arrival, mark: Mark | Exception, about: dict[str, Mapping[str, Any]]) -> None:
        """Log what became of the event, and keep the log fields of a new one."""
        match mark:
            case New(record):
                about[record.key] = self._log_new(mark)
            case Seen():
                self._log_duplicate(event, mark)
            case _:
                pass

    def _log_repeats(
        self, repeats: Sequence[Arrival], arrivals: Sequence[Arrival], marks: Sequence[Mark | Exception]
    ) -> None:
        if not repeats:
            return
        found = {event.key: mark for event, mark in zip(arrivals, marks, strict=True)}
        for event in repeats:
            self._log_duplicate(event, found.get(event.key))

    def _log_duplicate(self, event: Arrival, mark: Mark | Exception | None) -> None:
        tenant, pair = ("", None) if mark is None or isinstance(mark, Exception) else (mark.record.tenant, mark.pair)
        logs.event("inbound_duplicate", **log_fields.of_event(event, tenant, pair, self.queue))

    def _about(self, mark: New | SeenUnqueued) -> Mapping[str, Any]:
        task = Task.of(mark.record, mark.pair)
        return {**log_fields.of_record(mark.record, self.channels), **log_fields.in_queue(task, self.queue)}

    def _record(self, event: Arrival, owner: Tenant | Exception | None, index: int, now: datetime) -> Delivery:
        if isinstance(owner, Exception):
            raise owner
        match event:
            case MessageReceived():
                sender, contact, payload = event.sender, event.contact, event.payload
            case Change():
                sender, contact = event.account, ""
                payload = {"field": event.field, "value": event.value}
                payload |= {} if event.time is None else {CHANGED_AT: event.time}
            case Unparsable():
                sender, contact = event.account, ""
                payload = {"field": event.field, "unparsable": event.raw}
                payload |= {OF_ACCOUNT: True} if event.of_account else {}
        refused = None
        if isinstance(event, Unparsable):
            refused = "unparsable"
        elif owner is None:
            refused, payload = "unknown_sender", _bounded(payload)
        turn, place = self._place(event, owner, index, now) if owner else (None, None)
        return create(
            Kind.INBOUND,
            event.key,
            provider=event.provider,
            tenant=owner.id if owner else "",
            sender=sender,
            contact=contact,
            correlation_id=self.clock.token(),
            payload=payload,
            limits=self.limits,
            now=now,
            refused=refused,
            turn_id=turn,
            position=place,
        )

    def _place(self, event: Arrival, owner: Tenant, index: int, now: datetime) -> tuple[str, str] | tuple[None, None]:
        """The id of its contact's turn and its position in it. What is no message of a contact has none."""
        if self.id_key is None or not isinstance(event, MessageReceived) or not event.contact:
            return None, None
        turn = turn_id(self.id_key, owner.id, event.provider, event.sender, event.contact)
        return turn, position(event.sent_at, now, index, event.key)

    def _log_new(self, mark: New) -> Mapping[str, Any]:
        about, record = self._about(mark), mark.record
        logs.event("inbound_new", **about, state=record.state, reason=record.reason)
        if record.state is State.DEAD:
            log_dead(record, self.channels)
        return about


def _read(channel: IntakeChannel, incoming: Incoming) -> Parsed:
    channel.verify(incoming)
    return channel.parse(incoming)


def _addressee(event: Arrival) -> Addressee:
    match event:
        case MessageReceived():
            return Addressee(event.provider, event.sender)
        case Change():
            return Addressee(event.provider, event.account, is_account=True)
        case Unparsable():
            return Addressee(event.provider, event.account, is_account=event.of_account)


def _by_key(events: Iterable[Event]) -> tuple[list[Arrival], list[Arrival]]:
    """The events that get a record, one for each key, and their duplicates in the same POST."""
    first: dict[str, Arrival] = {}
    repeats: list[Arrival] = []
    for event in events:
        if not isinstance(event, ReceiptReceived) and first.setdefault(event.key, event) is not event:
            repeats.append(event)
    return list(first.values()), repeats


def _mark(record: Delivery, owner: Tenant | None, made: Created | Exists) -> Mark:
    match made:
        case Created():
            return New(record, _pair(record, owner))
        case Exists(existing) if existing is not None and seen_again(existing):
            return SeenUnqueued(existing, _pair(existing, owner))
        case Exists(existing):
            return Seen(existing or record, _pair(existing or record, owner))
        case _:
            assert_never(made)


def _pair(record: Delivery, owner: Tenant | None) -> int | None:
    """The pair of queues of the record's tenant. A record that was stored under another tenant than today's owner goes
    through the shared queues.
    """
    return owner.queue if owner and owner.id == record.tenant else None


def _mark_or_fault(
    record: Delivery | Exception, owner: Tenant | Exception | None, made: Iterator[Created | Exists | Exception]
) -> Mark | Exception:
    """`made` has one item for each record."""
    if isinstance(record, Exception):
        return record
    if isinstance(owner, Exception):
        return owner
    one = next(made)
    return one if isinstance(one, Exception) else _mark(record, owner, one)


def _bounded(payload: Any) -> Any:
    """The part that is kept of a message to an unknown sender."""
    text = json.dumps(payload, ensure_ascii=False)
    if len(text.encode()) <= UNKNOWN_SENDER_PAYLOAD_BYTES:
        return payload
    # As a JSON string the text at most doubles in length: only quotes and backslashes need escaping.
    return {"truncated": text.encode()[: UNKNOWN_SENDER_PAYLOAD_BYTES // 2 - _WRAPPING].decode(errors="ignore")}
