"""Receipts: the provider's word on a message, one blind write each. A receipt never assigns state."""

from collections.abc import Iterable, Mapping

from shared import logs
from shared.domain.events import Event, ReceiptReceived
from shared.domain.identity import Echo, parse_echo
from shared.domain.marks import ReceiptBlock, sender_id
from shared.domain.record import Kind, ReceiptKind
from shared.pipeline.ports import Store


def blocks(events: Iterable[Event]) -> Mapping[str, ReceiptBlock]:
    """What the failed receipts of one POST say of senders, by the id of the sender's marks: of each the latest."""
    found: dict[str, ReceiptBlock] = {}
    for receipt in events:
        if not (isinstance(receipt, ReceiptReceived) and receipt.concerns_sender and receipt.code is not None):
            continue
        id, echo = sender_id(receipt.provider, receipt.sender), parse_echo(receipt.echo)
        if id not in found or found[id].at < receipt.at:
            found[id] = ReceiptBlock(receipt.code, receipt.at, echo.key if echo else None)
    return found


def note(receipt: ReceiptReceived, store: Store) -> None:
    """Keep a receipt where it will be found: in the record its echo names, else by the provider's id."""
    echo = parse_echo(receipt.echo)
    if echo is None:
        store.note_unechoed_receipt(receipt)
        _log(receipt, None, reason="no_echo")
    elif store.note_receipt(echo, receipt):
        _log(receipt, echo)
    else:
        logs.event("receipt_unknown", severity="WARNING", delivery=echo.key, event_type=receipt.kind)
        if receipt.kind is ReceiptKind.FAILED:
            _log(receipt, echo)


def _log(receipt: ReceiptReceived, echo: Echo | None, reason: str | None = None) -> None:
    """A failed receipt has an event of its own, which metrics count as a message that failed."""
    failed = receipt.kind is ReceiptKind.FAILED
    logs.event(
        "receipt_failed" if failed else "receipt_applied",
        severity="WARNING" if failed else "INFO",
        delivery=echo.key if echo else None,
        correlation_id=echo.correlation_id if echo else None,
        event_type=receipt.kind,
        code=receipt.code,
        stage=Kind.OUTBOUND if failed else None,
        status="failed" if failed else None,
        reason=reason,
    )
