"""A receipt: Meta's report on a message it accepted. Sent, then delivered, then read, unless a fault changes that."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from local.faults import Fault
from local.whatsapp.messages import SentMessage
from local.whatsapp.simulator_store import QueuedWebhook
from local.whatsapp.webhook_payloads import BusinessNumber, SimulatedContact, receipt_value, webhook_body

KINDS = ("sent", "delivered", "read")


@dataclass(frozen=True, slots=True)
class ReceiptStep:
    """One receipt, this many seconds after the message was accepted."""

    kind: str
    delay: float
    code: int | None = None


def plan(kind: str, delays: Sequence[float], take: Callable[[str, bool], Fault | None]) -> list[ReceiptStep]:
    """The receipts of one message of this kind; a reaction only gets `sent`.

    `take(type, named)` returns a matching fault and uses it up. It is called once for the message (that fault changes
    all its receipts), then for each kind of receipt, for faults that name this kind as their type.
    """
    kinds = KINDS[:1] if kind == "reaction" else KINDS
    steps = _changed([ReceiptStep(name, delay) for name, delay in zip(kinds, delays, strict=False)], take(kind, False))
    return [step for planned in steps for step in _changed([planned], take(planned.kind, True))]


def _changed(steps: list[ReceiptStep], fault: Fault | None) -> list[ReceiptStep]:
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
            return [*sent, ReceiptStep("failed", steps[len(sent)].delay, fault.code)]
        case other:
            raise AssertionError(f"no receipt fault: {other}")


def webhooks(
    sender: BusinessNumber, message: SentMessage, wamid: str, steps: list[ReceiptStep], now: float
) -> list[QueuedWebhook]:
    """Each receipt as a separate webhook: Meta may batch them, and documents no rule."""
    contact = SimulatedContact.of(message.wa_id, message.recipient)
    return [
        QueuedWebhook(
            body=webhook_body(
                receipt_value(sender, contact, wamid, step.kind, now + step.delay, message.echo, step.code),
                sender.account,
            ),
            facts={"to": message.given, "type": step.kind, "phone_number_id": sender.id},
            due_at=now + step.delay,
        )
        for step in steps
    ]
