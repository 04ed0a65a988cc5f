"""Receipts: the provider's reports on a message, one blind write each. A receipt never assigns state."""

from collections.abc import Iterable, Mapping

from shared import logs
from shared.domain.deadline import Deadline
from shared.domain.events import ReceiptBlock, ReceiptReceived
from shared.domain.identity import parse_echo
from shared.domain.record import ReceiptKind
from shared.pipeline import log_fields
from shared.pipeline.fairness import in_turns
from shared.pipeline.intake import IntakeStore, NotedReceipt
from shared.pipeline.outcomes import faults_in


def blocks(receipts: Iterable[ReceiptReceived]) -> Mapping[tuple[str, str], ReceiptBlock]:
    """The latest block of each sender from the receipts of one POST, by the sender's provider and its id there."""
    found: dict[tuple[str, str], ReceiptBlock] = {}
    for receipt in receipts:
        if not receipt.concerns_sender or receipt.code is None:
            continue
        sender, echo = (receipt.provider, receipt.sender), parse_echo(receipt.echo)
        if sender not in found or found[sender].at < receipt.at:
            found[sender] = ReceiptBlock(receipt.code, receipt.at, echo.key if echo else None)
    return found


async def note_all(receipts: Iterable[ReceiptReceived], store: IntakeStore, deadline: Deadline) -> list[Exception]:
    """Store each receipt of a POST in the record that its echo names, or else by the provider's id. Returns what went
    wrong; raises an outage.
    """
    found = [(parse_echo(receipt.echo), receipt) for receipt in receipts]
    made = await store.note_receipts(found, deadline)
    await in_turns(_log_noted, zip(found, made, strict=True))
    return faults_in(made)


def _log_noted(noted: tuple[NotedReceipt, bool | Exception]) -> None:
    """A failed receipt has a separate log event, which metrics count as a failed message."""
    (echo, receipt), there = noted
    if isinstance(there, Exception):
        return
    about = log_fields.of_receipt(receipt, echo)
    if not there:
        logs.event("receipt_unknown", severity="WARNING", **about)
    reason = None if echo else "no_echo"
    if receipt.kind is ReceiptKind.FAILED:
        logs.event("receipt_failed", severity="WARNING", **about, status="failed", reason=reason)
    elif there:
        logs.event("receipt_applied", **about, reason=reason)
