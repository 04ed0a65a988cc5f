"""Log fields: the fields of every line about a task, a record, an event or a receipt. They are built in one place, so
that every line can be found by its ids and none holds private data.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from shared import logs
from shared.domain.events import Change, MessageReceived, ReceiptReceived, Unparsable
from shared.domain.identity import Echo, provider_id_hash
from shared.domain.outbound.types import TYPES
from shared.domain.record import Delivery, Kind, Task, is_invalid
from shared.domain.tasks import first_task
from shared.domain.tenants import Sender
from shared.pipeline.intake import IntakeChannel

Fields = Mapping[str, Any]

KEY_NAME = {Kind.INBOUND: "inbound_event_id", Kind.OUTBOUND: "delivery"}
"""The field name of the record's key."""

MESSAGE = "message"
"""The event type of every customer's message."""

OTHER = "other"
"""The event type for an unknown name: a name from outside may hold private data."""


class QueueNames(Protocol):
    """The part of either queue port that a log line needs."""

    def queue_of(self, task: Task) -> str: ...


def of_task(task: Task, queue: QueueNames) -> Fields:
    """The task's name, its queue, and the record that it refers to."""
    return {
        KEY_NAME[task.kind]: task.key,
        "correlation_id": task.correlation_id or None,
        "stage": task.kind,
        **in_queue(task, queue),
    }


def in_queue(task: Task, queue: QueueNames) -> Fields:
    """The task's name and its queue."""
    return {
        "task_name": task.name,
        "queue": queue.queue_of(task),
        "generation": task.generation,
        "hop": task.hop,
    }


def sender_id(channel: IntakeChannel | None, sender: str) -> logs.PublicId | None:
    """A sender by its provider's id, if the channel allows logging it."""
    return logs.PublicId(sender) if channel is not None and channel.has_public_sender_ids else None


def of_sender(sender: Sender, channels: Mapping[str, IntakeChannel]) -> Fields:
    """A sender outside any message: its tenant, its provider, and its id in the registry, which is a hash."""
    return {
        "tenant": sender.tenant,
        "provider": sender.provider,
        "sender": sender.id,
        "phone_number_id": sender_id(channels.get(sender.provider), sender.provider_id),
    }


def of_record(record: Delivery, channels: Mapping[str, IntakeChannel]) -> Fields:
    """A record's tenant, sender and type. The sender of an account's news is not a phone number id."""
    event_type = type_of(record)
    is_number = record.kind is Kind.OUTBOUND or event_type == MESSAGE
    return {
        KEY_NAME[record.kind]: record.key,
        "correlation_id": record.correlation_id,
        "stage": record.kind,
        "event_type": event_type,
        "tenant": record.tenant or None,
        "provider": record.provider,
        "phone_number_id": sender_id(channels.get(record.provider), record.sender) if is_number else None,
    }


def of_event(event: MessageReceived | Change | Unparsable, tenant: str, pair: int | None, queue: QueueNames) -> Fields:
    """An event of a webhook, with or without a record: its key, its type, and the first task of its record."""
    event_type = MESSAGE if isinstance(event, MessageReceived) else event.field or OTHER
    return {**of_task(first_task(event.key, tenant, pair), queue), "provider": event.provider, "event_type": event_type}


def of_receipt(receipt: ReceiptReceived, echo: Echo | None) -> Fields:
    """A receipt: its kind, a hash in place of the provider's id, and what its echo names."""
    return {
        "delivery": echo.key if echo else None,
        "correlation_id": echo.correlation_id if echo else None,
        "stage": Kind.OUTBOUND,
        "provider": receipt.provider,
        "event_type": receipt.kind,
        "message_hash": message_hash(receipt.provider, receipt.provider_id),
        "code": receipt.code,
    }


def of_failure(record: Delivery) -> Fields:
    """Why the last attempt of this round failed in the handler: an exception by its type and place, since its text may
    be private, or a sentence of ours. Or why a reply cannot be sent: that sentence quotes no input.
    """
    if is_invalid(record):
        return {"cause": record.last_error}
    last = record.attempts_log[-1] if record.attempts_log else None
    if last is None or last.round != record.round:
        return {}
    return {
        "error_type": last.error_type,
        "place": last.place,
        "function": last.function,
        "cause": None if last.error_type else last.error,
    }


def message_hash(provider: str, provider_id: str | None) -> str | None:
    """A hash of the provider's message id, which holds a phone number. A send and its receipts have the same hash."""
    return provider_id_hash(provider, provider_id) if provider_id else None


def type_of(record: Delivery) -> str:
    """For an event, `message` or the webhook's field; for a message, the type that is sent."""
    if record.kind is Kind.OUTBOUND:
        return _known(record.payload.get("type"))
    if "item" in record.payload:
        return MESSAGE
    return str(record.payload.get("field") or OTHER)


def _known(type: Any) -> str:
    return type if isinstance(type, str) and type in TYPES else OTHER


def log_dead(record: Delivery, channels: Mapping[str, IntakeChannel], reply: int | None = None) -> None:
    """Log the error line that a monitor counts. `reply` is its number in its plan, from 1."""
    last = record.attempts_log[-1] if record.attempts_log else None
    logs.event(
        "dead_lettered",
        severity="ERROR",
        **{**of_record(record, channels), "delivery": record.key},
        reply=reply,
        reason=record.reason,
        status="failed",
        attempt=record.attempt,
        code=last.code if last else None,
        **of_failure(record),
    )
