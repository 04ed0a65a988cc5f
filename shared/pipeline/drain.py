"""drain: wakes the waiting messages of a sender that may send again, in order, page by page."""

import json
from dataclasses import dataclass, replace

from shared import logs
from shared.domain.delivery.answers import Ensure
from shared.domain.delivery.drain import drain
from shared.domain.drains import RECONNECTED, DrainTask
from shared.domain.errors import TaskInvalid, UnknownState
from shared.domain.guards import SENDER_REMOVED
from shared.domain.limits import Limits
from shared.domain.listings import Listing
from shared.domain.record import Delivery, Kind
from shared.domain.tenants import Sender
from shared.pipeline import log_fields
from shared.pipeline.channels import Channels
from shared.pipeline.dispatch import TaskDispatch
from shared.pipeline.ports import Channel, Cursor, Store, Tenants
from shared.pipeline.sender_pace import give_back

PAGE = 200
"""Waiting messages of a tenant that one task looks at. Each that it wakes costs a write and a task."""


@dataclass(frozen=True, slots=True)
class Drained:
    """What one page of a drain did: how many messages it woke, and whether another page follows."""

    woken: int
    more: bool


@dataclass(frozen=True, slots=True)
class Drain:
    """One page of a drain. It only hurries: each waiting message also comes back by itself."""

    store: Store
    tenants: Tenants
    channels: Channels[Channel]
    dispatch: TaskDispatch
    limits: Limits

    def __call__(self, task: DrainTask) -> Drained:
        """Wake the sender's messages of this page, then make the task of the next. A repeated page wakes no message
        twice. Raises StoreUnavailable, QueueUnavailable and RegistryUnavailable.
        """
        with logs.context(correlation_id=task.correlation_id):
            sender = next(iter(self.tenants.senders_with([task.sender])), None)
            if sender is not None:
                return self._page(task, sender)
            logs.event("sender_drained", severity="WARNING", sender=task.sender, count=0, reason=SENDER_REMOVED)
            return Drained(0, more=False)

    def _page(self, task: DrainTask, sender: Sender) -> Drained:
        if task.page == 0:
            if task.reason == RECONNECTED:
                logs.event("tenant_reconnected", **self._about(sender))
            give_back(self.store, self.limits, sender, task.since)
        page = self.store.listed(Listing.PENDING, sender.tenant, _cursor_in(task), PAGE)
        ours = sorted((record for record in page.records if _is_of(record, sender)), key=_age)
        woken = sum(self._wake(record.key, task) for record in ours)
        logs.event("sender_drained", **self._about(sender), count=woken, reason=task.reason)
        if page.ends_at is not None:
            self.dispatch.queue.ensure_drain(_following(task, page.ends_at))
        return Drained(woken, more=page.ends_at is not None)

    def _wake(self, key: str, task: DrainTask) -> bool:
        """Whether the message got a task."""
        try:
            step = self.store.change(key, lambda record: drain(record, self.limits, task.since))
        except UnknownState:
            logs.event("state_unknown", severity="WARNING", delivery=key)
            return False
        if not isinstance(step.next, Ensure):
            return False
        self.dispatch.ensure(step.next.record)
        return True

    def _about(self, sender: Sender) -> log_fields.Fields:
        return log_fields.of_sender(sender, self.channels)


def _cursor_in(task: DrainTask) -> Cursor | None:
    """Where the page begins. Raises TaskInvalid for what no page of ours has ended with."""
    if not task.cursor:
        return None
    try:
        parts = json.loads(task.cursor)
    except ValueError:
        parts = None
    if not (isinstance(parts, list) and all(isinstance(part, str) for part in parts)):
        raise TaskInvalid("The task's cursor is no place in a listing.")
    return tuple(parts)


def _following(task: DrainTask, ends_at: Cursor) -> DrainTask:
    return replace(task, cursor=json.dumps(ends_at, separators=(",", ":")), page=task.page + 1)


def _is_of(record: Delivery, sender: Sender) -> bool:
    its = (record.kind, record.provider, record.sender)
    return its == (Kind.OUTBOUND, sender.provider, sender.provider_id)


def _age(record: Delivery) -> tuple[object, ...]:
    """Oldest first. Some stores list by key; each contact's messages keep their order in any case, by a guard."""
    return record.received_at, record.due_at or record.received_at, record.key
