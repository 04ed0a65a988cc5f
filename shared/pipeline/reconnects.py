"""Reconnects: senders whose refused credential is not the one in use any more, found without a send."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shared import logs
from shared.domain.errors import CredentialsUnavailable, UnknownState
from shared.domain.marks import is_reconnected, lifted
from shared.domain.tenants import Sender
from shared.pipeline.channels import Channels
from shared.pipeline.clock import Clock
from shared.pipeline.dispatch import TaskDispatch
from shared.pipeline.ports import Channel, Credentials, Store, Tenants

LOOKED_AT = 200
"""Senders with marks that are looked at in a run; a mark costs one read."""

CHECKED_AT_MOST = 20
"""Refused senders whose credential is read in a run: each may cost a call of Secret Manager."""

CHECK_SECONDS = 10.0
"""How long a run goes on to the next sender: if Secret Manager is out of reach, each costs seconds."""


@dataclass(frozen=True, slots=True)
class Reconnects:
    """Compares the credentials of refused senders with those in use. A secret replaced by hand is a reconnect too."""

    tenants: Tenants
    credentials: Credentials
    store: Store
    channels: Channels[Channel]
    dispatch: TaskDispatch
    clock: Clock

    def __call__(self) -> None:
        """Check at most CHECKED_AT_MOST refused senders, within CHECK_SECONDS. Each run begins at a random one, so that
        all get their turn without a place to remember. Raises StoreUnavailable and RegistryUnavailable.
        """
        checked, ends = 0, self.clock.monotonic() + CHECK_SECONDS
        for sender in self.tenants.senders_with(troubled(self.store, self.clock, LOOKED_AT)):
            if checked == CHECKED_AT_MOST or self.clock.monotonic() >= ends:
                return
            checked += self.check(sender)

    def check(self, sender: Sender) -> bool:
        """Lift the sender's refusal if another credential is in use, and wake its messages. Returns whether its
        credential had to be read. Raises StoreUnavailable.
        """
        channel = self.channels.get(sender.provider)
        try:
            seen = self.store.marks(sender.id)
            if channel is None or not (seen.refused or seen.disconnected):
                return False
            fingerprint, now = channel.fingerprint(self.credentials.of(sender)), self.clock.now()
            is_newest = bool(sender.credential and seen.credential and fingerprint == seen.credential.previous)
            if is_newest:  # it was put back, unless the cache is older than the newest
                fingerprint = channel.fingerprint(self.credentials.newest(sender))
            before, after = self.store.change_marks(
                sender.id, lambda marks: lifted(marks, fingerprint, now, is_newest), seen
            )
        except (CredentialsUnavailable, UnknownState) as error:
            logs.event("unexpected_error", severity="WARNING", reason=error.code, stage="reconnects", sender=sender.id)
            return True
        if is_reconnected(before, after):
            self.dispatch.start_drain(sender.id)
        return True


def troubled(store: Store, clock: Clock, limit: int) -> Sequence[str]:
    """At most `limit` of the senders with something against them, from a random one on. Raises StoreUnavailable."""
    begins = clock.token()  # random hex digits, as those of an id
    found = list(store.troubled(begins, limit))
    if len(found) < limit:
        found += _up_to(begins, store.troubled(None, limit - len(found)))
    return found


def _up_to(last: str, ids: Sequence[str]) -> Iterator[str]:
    """The first ids, without those that the first look has found."""
    return (id for id in ids if id <= last)
