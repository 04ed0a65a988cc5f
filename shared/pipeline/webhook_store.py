"""WebhookStore: the part of the store port that the webhook service uses, and all that its account is allowed.

It creates and changes records by their keys, and lists nothing. A test compares the permissions that its calls need
with the role that Terraform gives the account (tests/contract/test_permissions.py), so a new method here needs a new
permission there.
"""

from collections.abc import Sequence
from typing import Protocol

from shared.domain.deadline import Deadline
from shared.domain.events import ReceiptReceived
from shared.domain.identity import Echo
from shared.domain.marks import ReceiptBlock
from shared.domain.record import Delivery
from shared.pipeline.ports import Created, Exists, NotedReceipt


class WebhookStore(Protocol):
    """A part of shared.pipeline.ports.Store, which specifies each method."""

    def create(self, record: Delivery) -> Created | Exists: ...
    def create_all(self, records: Sequence[Delivery], deadline: Deadline) -> Sequence[Created | Exists | Exception]: ...
    def note_receipt(self, echo: Echo, receipt: ReceiptReceived) -> bool: ...
    def note_unechoed_receipt(self, receipt: ReceiptReceived) -> None: ...
    def note_receipts(self, receipts: Sequence[NotedReceipt], deadline: Deadline) -> Sequence[bool | Exception]: ...
    def note_receipt_block(self, id: str, noted: ReceiptBlock) -> None: ...
    def ping(self) -> None: ...
