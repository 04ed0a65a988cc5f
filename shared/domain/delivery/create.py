"""Create: a new record, and how a redelivery of the same event is treated."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from shared.domain.delivery.lifecycle import end
from shared.domain.limits import Limits
from shared.domain.record import Delivery, Kind, Retries, State


def create(
    kind: Kind,
    key: str,
    *,
    provider: str,
    tenant: str,
    sender: str,
    contact: str,
    correlation_id: str,
    payload: Mapping[str, Any],
    limits: Limits,
    now: datetime,
    due_at: datetime | None = None,
    after: str | None = None,
    refused: str | None = None,
    error: str | None = None,
    retry: Retries | None = None,
    send_at: datetime | None = None,
    body_hash: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    turn_id: str | None = None,
    position: str | None = None,
) -> Delivery:
    """A new record: pending, or final from the start if `refused` is unparsable, unknown_sender or invalid; `error` is
    the sentence for it.

    `send_at`: when its caller wants a message sent; it is due then. It is given up MESSAGE_MAX_AGE after its first
    attempt is due, so that a message for next week is not too old then.
    """
    first_due = send_at or due_at or now
    waits = refused is None
    record = Delivery(
        key=key,
        kind=kind,
        tenant=tenant,
        sender=sender,
        contact=contact,
        correlation_id=correlation_id,
        state=State.PENDING,
        received_at=now,
        payload=payload,
        due_at=first_due if waits else None,
        sweep_at=first_due + limits.sweep_after if waits else None,
        after=after,
        give_up_at=first_due + limits.message_max_age,
        last_error=error,
        provider=provider,
        retry=retry,
        send_at=send_at,
        joins_lane_later=send_at is not None and send_at > now,
        body_hash=body_hash,
        metadata=metadata or {},
        turn_id=turn_id,
        position=position,
    )
    match refused:
        case None:
            return record
        case "unparsable" | "invalid":
            return end(record, State.DEAD, limits, now, reason=refused)
        case _:
            return end(record, State.DROPPED, limits, now, reason=refused)


def seen_again(record: Delivery) -> bool:
    """Whether a redelivered webhook must ensure the task: the record is unchanged since its creation."""
    return record.state is State.PENDING and record.attempt == 0
