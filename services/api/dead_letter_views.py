"""A dead letter as the API shows it, and how its content begins."""

from services.api import dead_letter_types as types
from services.api.message_views import Read
from shared.domain.dead_letters import DeadLetter
from shared.domain.record import Delivery
from shared.operations.timeline import build as timeline

PREVIEWED = 200
"""Characters of a text."""


def as_letter(letter: DeadLetter, preview: types.Preview | None) -> types.Letter:
    """`preview`: its content, for a caller who may see it."""
    return types.Letter(
        id=letter.key,
        direction=letter.kind.value,
        tenant=letter.tenant,
        sender=letter.sender,
        correlation_id=letter.correlation_id,
        error=letter.error,
        code=letter.code,
        error_type=letter.error_type,
        at=letter.at,
        attempts=letter.tries,
        round=letter.round,
        replay=letter.replays,
        preview=preview,
    )


def as_preview(record: Delivery, read: Read) -> types.Preview:
    """Whom it is for or from, its type, and how its text begins."""
    built = timeline.build([record], read=read)
    reply = built.replies[0] if built.replies else None
    text = reply.text if reply else built.came.text if built.came else None
    kind = reply.type if reply else (built.came.type or built.came.kind) if built.came else ""
    kind = kind or str(record.payload.get("field", ""))
    return types.Preview(contact=record.contact, type=kind, text=text[:PREVIEWED] if text else None)
