"""A receipt is Meta's word on a message it accepted: sent, then delivered, then read, unless a fault says otherwise."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from local.faults import Fault
from local.whatsapp.messages import Message
from local.whatsapp.payloads import Contact, receipt_value, webhook_body
from local.whatsapp.store import Webhook

KINDS = ("sent", "delivered", "read")


@dataclass(frozen=True, slots=True)
class Step:
    """One receipt, so many seconds after the message was accepted."""

    kind: str
    delay: float
    code: int | None = None


def plan(kind: str, delays: Sequence[float], take: Callable[[str, bool], Fault | None]) -> list[Step]:
    """The receipts of one message of this kind; a reaction only ever yields `sent`.

    `take(type, named)` takes a fault: first one that fits the message and changes all its receipts, then, for each
    receipt, one whose match names that receipt as its type.
    """
    kinds = KINDS[:1] if kind == "reaction" else KINDS
    steps = _changed([Step(name, delay) for name, delay in zip(kinds, delays, strict=False)], take(kind, False))
    return [step for planned in steps for step in _changed([planned], take(planned.kind, True))]


def _changed(steps: list[Step], fault: Fault | None) -> list[Step]:
    if fault is None:
        return steps
    match fault.kind:
        case "withhold":
            return []
        case "duplicate":
            return [step for step in steps for _ in range(2)]
        case "reorder" if len(steps) > 1:
            return [replace(step, delay=other.delay) for step, other in zip(steps, reversed(steps), strict=True)]
        case "reorder" | "slow":
            return [replace(step, delay=step.delay + fault.delay) for step in steps]
        case "error":
            sent = [step for step in steps if step.kind == "sent" and len(steps) > 1]
            return [*sent, Step("failed", steps[len(sent)].delay, fault.code)]
        case other:
            raise AssertionError(f"no receipt fault: {other}")


def webhooks(sender: str, message: Message, wamid: str, steps: list[Step], now: float) -> list[Webhook]:
    """Each receipt as a webhook of its own: Meta may batch them and promises nothing."""
    contact = Contact.of(message.wa_id, message.recipient)
    return [
        Webhook(
            body=webhook_body(
                receipt_value(sender, contact, wamid, step.kind, now + step.delay, message.echo, step.code)
            ),
            facts={"to": message.given, "type": step.kind, "phone_number_id": sender},
            due_at=now + step.delay,
        )
        for step in steps
    ]
