"""Accept: a webhook is answered 200 only when every event in it is stored and has its task."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, wait
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

from shared import logs
from shared.domain.delivery import create, seen_again
from shared.domain.errors import PomboError, StoreUnavailable
from shared.domain.events import Change, Event, MessageReceived, ReceiptReceived, Unparsable
from shared.domain.limits import Limits
from shared.domain.marks import ReceiptBlock
from shared.domain.record import Delivery, Kind, State, Task
from shared.domain.retention import UNKNOWN_SENDER_PAYLOAD_BYTES
from shared.pipeline import receipts
from shared.pipeline.clock import Clock
from shared.pipeline.follow import log_dead
from shared.pipeline.ports import Channel, Created, Exists, Queue, Store, Tenants

PARALLEL = 16
"""How many events of all POSTs are written at once, in one process."""

PATIENCE_SECONDS = 9.5
"""A healthy large POST may take 10 s; what is not done by then is left to the redelivery."""

_WRAPPING = 16
"""Bytes around the beginning of what is too large to be kept whole."""

FAILURE_SECONDS = 4.5
"""A POST that meets a dead store or queue is answered within 5 s, whatever is still under way."""


@dataclass(frozen=True, slots=True)
class New:
    """Stored now; its task is still to be made."""

    record: Delivery


@dataclass(frozen=True, slots=True)
class SeenUnqueued:
    """Stored before and untouched since: its task may never have been made."""

    record: Delivery


@dataclass(frozen=True, slots=True)
class Seen:
    """Stored before, and somebody has worked on it, or it needs no work."""


Mark = New | Seen | SeenUnqueued
SenderNews = tuple[str, ReceiptBlock]
"""What the failed receipts of a POST say of one sender, with the id of its marks."""


@dataclass(frozen=True, slots=True)
class Accept:
    """The webhook's work."""

    store: Store
    queue: Queue
    tenants: Tenants
    channel: Channel
    limits: Limits
    clock: Clock
    pool: Callable[[], Executor]

    def __call__(self, body: bytes, signature: str | None) -> None:
        """Store every event of one POST.

        Raises SignatureInvalid before anything is read, and StoreUnavailable, QueueUnavailable or
        RegistryUnavailable when not everything could be made durable: the provider will deliver all of it again.
        """
        started = self.clock.monotonic()
        self.channel.verify(body, signature)
        parsed = self.channel.parse(body)
        for reason, count in parsed.ignored.items():
            logs.event("webhook_ignored", severity="WARNING", reason=reason, count=count)
        self._accept_all(parsed.events, started)
        logs.event(
            "webhook_received",
            count=len(parsed.events),
            duration_ms=round((self.clock.monotonic() - started) * 1000, 1),
        )

    def mark_if_new(self, event: MessageReceived | Change | Unparsable) -> Mark:
        """Create the event's record, or say what is there already. "Exists" alone never means "drop it": the store
        may be reporting this very call's own write.
        """
        record = self._record(event)
        made = self.store.create(record)
        match made:
            case Created():
                return New(record)
            case Exists(existing) if existing is not None and seen_again(existing):
                return SeenUnqueued(existing)
            case _:
                return Seen()

    def _accept_all(self, events: tuple[Event, ...], started: float) -> None:
        """All of them, several at once. What needs no store stops nothing; a store that is gone stops what is left."""
        todo = _Todo((*events, *receipts.blocks(events).items()))

        def drain() -> None:
            for event in todo:
                if self.clock.monotonic() - started > PATIENCE_SECONDS:
                    todo.fail(StoreUnavailable("The store is too slow."), stop=True)
                    return
                try:
                    self._accept(event)
                except PomboError as error:
                    todo.fail(error, stop=error.retryable)
                except Exception as error:  # noqa: BLE001 - one event's own fault never stops the others
                    todo.fail(error, stop=False)

        helpers = [self.pool().submit(copy_context().run, drain) for _ in range(min(PARALLEL, len(events)) - 1)]
        drain()
        patience = FAILURE_SECONDS if todo.stopped else PATIENCE_SECONDS
        unfinished = wait(helpers, timeout=max(0.0, started + patience - self.clock.monotonic())).not_done
        if todo.failure is not None:
            raise todo.failure
        if any(not helper.cancel() for helper in unfinished):
            raise StoreUnavailable("The store is too slow.")

    def _accept(self, event: Event | SenderNews) -> None:
        if isinstance(event, tuple):
            self.store.note_receipt_block(*event)
            return
        if isinstance(event, ReceiptReceived):
            receipts.note(event, self.store)
            return
        mark = self.mark_if_new(event)
        match mark:
            case New(record):
                self._log_new(record, event)
                if not record.final:
                    self._enqueue(record)
            case SeenUnqueued(record):
                self._enqueue(record)
            case Seen():
                logs.event("inbound_duplicate", inbound_event_id=event.key)

    def _enqueue(self, record: Delivery) -> None:
        task = Task.of(record)
        self.queue.ensure(task, None if record.generation == 0 else record.due_at)
        logs.event("inbound_enqueued", inbound_event_id=record.key, correlation_id=record.correlation_id)

    def _record(self, event: MessageReceived | Change | Unparsable) -> Delivery:
        match event:
            case MessageReceived():
                owner = self.tenants.owner_of(event.provider, event.sender)
                sender, contact, payload = event.sender, event.contact, event.payload
            case Change():
                owner = self.tenants.owner_of_account(event.provider, event.account)
                sender, contact = event.account, ""
                payload = {"field": event.field, "value": event.value}
            case Unparsable():
                owner = self.tenants.owner_of(event.provider, event.account)
                sender, contact = event.account, ""
                payload = {"field": event.field, "unparsable": event.raw}
        refused = None
        if isinstance(event, Unparsable):
            refused = "unparsable"
        elif owner is None:
            refused, payload = "unknown_sender", _bounded(payload)
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
            now=self.clock.now(),
            refused=refused,
        )

    def _log_new(self, record: Delivery, event: MessageReceived | Change | Unparsable) -> None:
        logs.event(
            "inbound_new",
            inbound_event_id=record.key,
            correlation_id=record.correlation_id,
            tenant=record.tenant or None,
            phone_number_id=record.sender if isinstance(event, MessageReceived) else None,
            event_type="message" if isinstance(event, MessageReceived) else event.field,
            state=record.state,
            reason=record.reason,
        )
        if record.state is State.DEAD:
            log_dead(record)


class _Todo:
    """The events of one POST, handed out one by one until a failure says stop."""

    def __init__(self, events: tuple[Event | SenderNews, ...]) -> None:
        self._events = iter(events)
        self._lock = threading.Lock()
        self.failure: Exception | None = None
        self.stopped = False

    def __iter__(self) -> Iterator[Event | SenderNews]:
        while True:
            with self._lock:
                event = None if self.stopped else next(self._events, None)
            if event is None:
                return
            yield event

    def fail(self, error: Exception, *, stop: bool) -> None:
        with self._lock:
            if self.failure is None or stop:
                self.failure = error
            self.stopped = self.stopped or stop


def _bounded(payload: Any) -> Any:
    """What is kept of a stranger's message."""
    text = json.dumps(payload, ensure_ascii=False)
    if len(text.encode()) <= UNKNOWN_SENDER_PAYLOAD_BYTES:
        return payload
    # As a string in JSON the text grows to at most twice its length: only quotes and backslashes need escaping.
    return {"truncated": text.encode()[: UNKNOWN_SENDER_PAYLOAD_BYTES // 2 - _WRAPPING].decode(errors="ignore")}
