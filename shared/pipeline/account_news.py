"""Account news: applies what the provider says about an account to the senders that the tenant has in it."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from shared import logs
from shared.domain.drains import ACCOUNT_NEWS, RECONNECTED
from shared.domain.events import CHANGED_AT
from shared.domain.marks import Marks, account_connected, account_disconnected, is_reconnected, unblocked
from shared.domain.record import Delivery
from shared.domain.state_changes import AccountConnected, AccountDisconnected, AccountReinstated
from shared.domain.tenants import Sender
from shared.pipeline import log_fields
from shared.pipeline.ports import Channel, Store, Tenants


@dataclass(frozen=True, slots=True)
class AccountNews:
    """Changes of accounts, applied as state, so that a repeat is harmless.

    News counts from when it happened, not from when it came: the provider repeats a webhook for days, and in the
    meantime an operator may have connected the sender again, or given it to another tenant.

    A ban changes nothing here: the next send is refused with a code that blocks the sender, and that block is probed.
    `start_drain` wakes the waiting messages of the sender with this id (`Sender.id`), for this reason.
    """

    store: Store
    tenants: Tenants
    start_drain: Callable[[str, str], None]

    def apply(self, record: Delivery, channel: Channel) -> None:
        """Apply what the event says, if anything. Raises StoreUnavailable and RegistryUnavailable."""
        for change in channel.changes(record):
            match change:
                case AccountDisconnected(event=event):
                    for sender in self._senders(record):
                        self._disconnect(sender, event, record, channel)
                case AccountConnected() | AccountReinstated():
                    for sender in self._senders(record):
                        self._connect(sender, record)
                case _:
                    pass

    def _senders(self, record: Delivery) -> list[Sender]:
        return list(self.tenants.senders_of_account(record.provider, record.sender, record.tenant))

    def _disconnect(self, sender: Sender, event: str, record: Delivery, channel: Channel) -> None:
        """A sender of the environment names no account, and the news may be about another one: it is only reported. If
        it is about the sender's own, the next send is refused and says so.
        """
        at = _happened_at(record)
        if sender.created_at and at < sender.created_at:
            return
        if sender.account:
            before, after = self.store.change_marks(sender.id, lambda marks: account_disconnected(marks, event, at))
            if after.disconnected == before.disconnected:
                return
        logs.event(
            "tenant_needs_reauth",
            severity="ERROR",
            tenant=sender.tenant,
            phone_number_id=log_fields.sender_id(channel, sender.provider_id),
            reason=event,
        )

    def _connect(self, sender: Sender, record: Delivery) -> None:
        """Blocks of the sender are over too: the next send is the probe. The message that was blocked last would wait
        for hours otherwise.
        """
        at = _happened_at(record)

        def connected(marks: Marks) -> Marks:
            return account_connected(marks, at) if sender.account else unblocked(marks)

        before, after = self.store.change_marks(sender.id, connected)
        if (before.disconnected or before.block) and not after.disconnected:
            # Where only a block is over, or a refusal still counts, nothing says that the sender can send.
            self.start_drain(sender.id, RECONNECTED if is_reconnected(before, after) else ACCOUNT_NEWS)


def _happened_at(record: Delivery) -> datetime:
    """When the news happened: at the end of the second that the provider names, or when it came if it names none."""
    told, came = record.payload.get(CHANGED_AT), record.received_at
    if not isinstance(told, int) or not 0 < told < came.timestamp():
        return came
    return min(came, datetime.fromtimestamp(told, UTC) + timedelta(seconds=1))
