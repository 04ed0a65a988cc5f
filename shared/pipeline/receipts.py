"""Receipts: the provider's word on a message, one blind write each. A receipt never assigns state."""

from shared import logs
from shared.domain.events import ReceiptReceived
from shared.domain.identity import parse_echo
from shared.pipeline.ports import Store


def note(receipt: ReceiptReceived, store: Store) -> None:
    """Keep a receipt where it will be found: in the record its echo names, else by the provider's id."""
    echo = parse_echo(receipt.echo)
    if echo is None:
        store.note_unechoed_receipt(receipt)
        logs.event("receipt_applied", event_type=receipt.kind, code=receipt.code, reason="no_echo")
    elif store.note_receipt(echo, receipt):
        logs.event(
            "receipt_applied",
            delivery=echo.key,
            correlation_id=echo.correlation_id,
            event_type=receipt.kind,
            code=receipt.code,
        )
    else:
        logs.event("receipt_unknown", severity="WARNING", delivery=echo.key, event_type=receipt.kind)
