"""Sender access: what the registry and the secrets say of a message's sender, before anything is sent for it."""

from dataclasses import dataclass, replace

from shared.domain.errors import CredentialsUnavailable
from shared.domain.guards import CREDENTIALS_UNAVAILABLE, withheld
from shared.domain.limits import DoubtPolicy
from shared.domain.record import Delivery
from shared.domain.tenants import Sender
from shared.domain.verdicts import CredentialRefused, SendVerdict
from shared.pipeline.ports import Channel, Credentials, Tenants


@dataclass(frozen=True, slots=True)
class SenderAccess:
    """A message's sender with its credential; or (`withheld`) why the message has to wait for one. `doubt_policy` is
    its tenant's own; None: the deployment's.
    """

    sender: Sender | None = None
    credential: str = ""
    fingerprint: str = ""
    withheld: str | None = None
    doubt_policy: DoubtPolicy | None = None


@dataclass(frozen=True, slots=True)
class SenderAccounts:
    """Finds the access of each message."""

    tenants: Tenants
    credentials: Credentials

    def access(self, record: Delivery, channel: Channel) -> SenderAccess:
        """The access of this message. A sender that is withheld needs no credential. Raises RegistryUnavailable: what
        the registry would say is then unknown, and the queue retries.
        """
        tenant = self.tenants.tenant(record.tenant)
        sender = self.tenants.sender(record.provider, record.sender)
        access = SenderAccess(
            sender, withheld=withheld(record, tenant, sender), doubt_policy=tenant.in_doubt if tenant else None
        )
        if access.withheld or sender is None:
            return access
        try:
            credential = self.credentials.of(sender)
        except CredentialsUnavailable:
            return replace(access, withheld=CREDENTIALS_UNAVAILABLE)
        return replace(access, credential=credential, fingerprint=channel.fingerprint(credential))

    def judged(self, verdict: SendVerdict, access: SenderAccess, channel: Channel) -> SendVerdict:
        """The verdict on a send. A refused credential is read once again: if another is in use by now, the refusal is
        about the former one. If it cannot be read, the refusal counts.
        """
        if not isinstance(verdict, CredentialRefused) or access.sender is None:
            return verdict
        try:
            newest = self.credentials.newest(access.sender)
        except CredentialsUnavailable:
            return verdict
        return replace(verdict, replaced=channel.fingerprint(newest) != access.fingerprint)
