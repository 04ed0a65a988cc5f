"""Intake: the ports of the webhook service, and all that its account is allowed. Each call carries many items.

The store's part creates and changes records by their keys, and lists nothing. A test compares the permissions that its
calls need with the role that Terraform gives the account (tests/contract/test_permissions.py), so a new method here
needs a new permission there.
"""

from collections.abc import Sequence
from typing import Protocol

from shared.domain.deadline import Deadline
from shared.domain.marks import ReceiptBlock
from shared.domain.record import Delivery, Task
from shared.domain.tasks import DueTask
from shared.pipeline.ports import Created, Exists, NotedReceipt


class IntakeStore(Protocol):
    """Where the webhook service stores. An outcome is StoreUnavailable if it is unknown."""

    async def create_all(
        self, records: Sequence[Delivery], deadline: Deadline
    ) -> Sequence[Created | Exists | Exception]:
        """Store new records with distinct keys, each exactly once, even if several callers try. Each is independent of
        the others. Returns each outcome in order; another exception if the store cannot hold the record. Raises
        nothing.
        """
        ...

    async def note_receipts(self, receipts: Sequence[NotedReceipt], deadline: Deadline) -> Sequence[bool | Exception]:
        """Write each receipt into its round of the record that its echo names, in any state; without an echo of ours,
        keep it by the provider's id. Returns each outcome in order: whether the record exists (True without an echo).
        Raises nothing.
        """
        ...

    async def note_receipt_block(self, id: str, noted: ReceiptBlock) -> None:
        """Store what a failed receipt says about a sender. Raises StoreUnavailable."""
        ...

    async def ping(self) -> None:
        """Raise StoreUnavailable unless the store answers."""
        ...


class IntakeQueue(Protocol):
    """Where the webhook service makes tasks."""

    async def ensure_all(self, tasks: Sequence[DueTask], deadline: Deadline) -> Sequence[Exception | None]:
        """Make each task, to run when it is due, in this order; one that exists is success. Returns each outcome: None
        if made, else QueueUnavailable. Raises nothing.
        """
        ...

    def queue_of(self, task: Task) -> str:
        """The configured name of the queue that the task goes to."""
        ...

    async def ping(self) -> None:
        """Raise QueueUnavailable unless the queue answers."""
        ...
