"""A message as the API shows it, from its record."""

from collections.abc import Callable
from typing import Any

from services.api.message_types import ListedMessage, Message, Moment
from shared.domain.identity import sender_id
from shared.domain.messages import Message as ReceivedMessage
from shared.domain.record import Delivery, Kind
from shared.operations.timeline import build as timeline
from shared.operations.timeline.sentences import Explain
from shared.pipeline.accept_message import CALLERS_METADATA

Read = Callable[[Delivery], ReceivedMessage | None]
"""The message in a stored event; None if the event is not a message."""


def as_message(record: Delivery, explain: Explain, read: Read) -> dict[str, Any]:
    """With its timeline."""
    moments = timeline.build([record], explain=explain).events
    shown = [Moment(at=one.at, what=one.what, sentence=one.sentence) for one in moments]
    return Message(**_fields(record, read), timeline=shown).model_dump(mode="json", exclude_none=True)


def as_listed(record: Delivery, read: Read) -> dict[str, Any]:
    """Without its timeline."""
    return ListedMessage(**_fields(record, read)).model_dump(mode="json", exclude_none=True)


def _fields(record: Delivery, read: Read) -> dict[str, Any]:
    shown, why = timeline.shown(record)
    is_ours = record.kind is Kind.OUTBOUND
    return {
        "id": record.key,
        "direction": record.kind.value,
        "state": record.state,
        "shown": shown,
        "why": why,
        "reason": record.reason,
        "tenant": record.tenant,
        "sender": sender_id(record.provider, record.sender),
        "contact": record.contact,
        "type": str(record.payload.get("type", "")) if is_ours else _received_type(record, read),
        "content": record.payload.get("content") if is_ours else record.payload.get("item"),
        "correlation_id": record.correlation_id,
        "created_at": record.received_at,
        "send_at": record.send_at,
        "metadata": dict(record.metadata.get(CALLERS_METADATA, {})),
    }


def _received_type(record: Delivery, read: Read) -> str:
    """Of a message its provider's type, or its kind; of another event the webhook's field."""
    message = read(record)
    if message is None:
        return str(record.payload.get("field", ""))
    return message.media.type if message.media else message.kind
