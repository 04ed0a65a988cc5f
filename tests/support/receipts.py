"""Receipts of the contract tests, and one at a time on a store whose port takes many in one call."""

import time
from typing import Any

from shared.domain.deadline import Deadline
from shared.domain.events import ReceiptReceived
from shared.domain.identity import Echo
from shared.domain.record import Delivery, ReceiptKind
from tests.support.backends import NOW

SECONDS = 30.0
"""A store that waits for other writers ends within 10."""


def receipt(kind: ReceiptKind = ReceiptKind.SENT, provider_id: str = "wamid.1") -> ReceiptReceived:
    code = 131026 if kind is ReceiptKind.FAILED else None
    return ReceiptReceived("meta", "100000000000001", provider_id, kind, NOW, code)


def echo_of(record: Delivery) -> Echo:
    return Echo(record.key, 0, record.correlation_id)


def note_receipt(store: Any, echo: Echo | None, receipt: ReceiptReceived) -> bool:
    """Write a receipt, by the provider's id if there is no echo. Returns whether the record exists. Raises the error
    that the store returns in place of an outcome.
    """
    over = time.monotonic() + SECONDS
    (outcome,) = store.note_receipts([(echo, receipt)], Deadline(time.monotonic, over, over))
    if isinstance(outcome, Exception):
        raise outcome
    return bool(outcome)
