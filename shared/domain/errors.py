"""Errors: one tree of classes that say what went wrong. A send's error carries its verdict; there is no other table.

The docstring of a class is the sentence that an operator reads. No message here holds a phone number, a name or a text.
"""

from datetime import timedelta
from typing import ClassVar

from shared.domain.verdicts import (
    Blocked,
    BlockScope,
    CredentialRefused,
    Limited,
    LimitScope,
    Lost,
    ProviderDown,
    Refused,
    Retry,
    SendVerdict,
)


class PomboError(Exception):
    """Something went wrong."""

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False
    scope: ClassVar[str] = "us"  # message, contact, sender, tenant, provider or us
    alert: ClassVar[bool] = False

    @property
    def sentence(self) -> str:
        """The sentence for the operator."""
        return str(self) or (type(self).__doc__ or "").strip().splitlines()[0]


# ---- ours


class StoreUnavailable(PomboError):
    """The store cannot be reached."""

    code = "store_unavailable"
    retryable = True


class QueueUnavailable(PomboError):
    """The task queue cannot be reached."""

    code = "queue_unavailable"
    retryable = True


class RegistryUnavailable(PomboError):
    """The registry of tenants cannot be reached."""

    code = "registry_unavailable"
    retryable = True


class CertificatesUnavailable(PomboError):
    """The certificates that verify callers cannot be fetched."""

    code = "certificates_unavailable"
    retryable = True


class UnknownState(PomboError):
    """A newer version of Pombo wrote this record; this version cannot read it."""

    code = "state_unknown"
    retryable = True


class Forbidden(PomboError):
    """The caller could not be authenticated."""

    code = "forbidden"

    def __init__(self, cause: str = "") -> None:
        super().__init__()
        self.cause = cause
        """What was wrong: a code for the log, not for the caller."""


class TaskInvalid(PomboError):
    """The request is not a valid task."""

    code = "task_invalid"


class TokenCheck(TaskInvalid):
    """The request only checks the token; it carries no task."""


# ---- of a webhook


class SignatureInvalid(PomboError):
    """The webhook is not signed by the provider."""

    code = "signature_invalid"


class ItemUnparsable(PomboError):
    """The provider sent an item that Pombo cannot parse."""

    code = "unparsable"
    scope = "message"
    alert = True


# ---- of a send: each says what it means for the message


class SendError(PomboError):
    """The message was not sent. `minutes` is the minimum wait that the provider documents for the code."""

    scope = "message"

    def __init__(
        self,
        code: int | None = None,
        *,
        status: int | None = None,
        retry_after: timedelta | None = None,
        minutes: int = 0,
    ) -> None:
        super().__init__()
        self.provider_code = code
        self.status = status
        self.retry_after = retry_after
        self.minutes = minutes

    @property
    def verdict(self) -> SendVerdict:
        """What this means for the message. By default the provider may have it."""
        return Lost(self.provider_code)

    @property
    def answered(self) -> bool:
        """Whether the provider answered with a status."""
        return self.status is not None


class AnswerLost(SendError):
    """The provider's response was lost: the provider may or may not have the message."""

    code = "answer_lost"

    @property
    def verdict(self) -> SendVerdict:
        is_silent = self.status is None or self.status >= 500  # an unreadable 4xx is about this request
        return Lost(self.provider_code, outage=self.provider_code is None and is_silent)


class OutageInSuccess(AnswerLost):
    """The provider reported an outage in a success response: the provider may or may not have the message."""

    code = "outage_in_success"

    @property
    def verdict(self) -> SendVerdict:
        return Lost(self.provider_code, outage=True)


class ProviderUnavailable(SendError):
    """The provider is unavailable and did not accept the message."""

    code = "provider_unavailable"
    retryable = True
    scope = "provider"

    @property
    def verdict(self) -> SendVerdict:
        return ProviderDown(self.provider_code, self.retry_after)


class TryLater(SendError):
    """The provider did not accept the message this time."""

    code = "try_later"
    retryable = True

    @property
    def verdict(self) -> SendVerdict:
        return Retry(self.provider_code, self.retry_after, self.minutes)


class LimitReached(SendError):
    """A limit of the provider is reached."""

    code = "limited"
    retryable = True
    scope = "sender"

    def __init__(
        self,
        code: int | None = None,
        *,
        limit: LimitScope = LimitScope.ACCOUNT,
        status: int | None = None,
        retry_after: timedelta | None = None,
        minutes: int = 0,
    ) -> None:
        super().__init__(code, status=status, retry_after=retry_after, minutes=minutes)
        self.limit = limit

    @property
    def verdict(self) -> SendVerdict:
        return Limited(self.limit, self.provider_code or 0, self.retry_after, self.minutes)


class CredentialInvalid(SendError):
    """The provider rejected the credential: reconnect the number."""

    code = "credential_refused"
    retryable = True
    scope = "tenant"
    alert = True

    @property
    def verdict(self) -> SendVerdict:
        return CredentialRefused(self.provider_code or 0, retry_after=self.retry_after)


class AccessDenied(CredentialInvalid):
    """The credential lacks a permission: grant it, or reconnect the number."""

    code = "access_denied"

    @property
    def verdict(self) -> SendVerdict:
        return CredentialRefused(self.provider_code or 0, curable=True, retry_after=self.retry_after)


class SenderBlocked(SendError):
    """The provider has blocked the business number."""

    code = "sender_blocked"
    retryable = True
    scope = "sender"
    alert = True

    def __init__(
        self,
        code: int | None = None,
        *,
        block: BlockScope = BlockScope.SENDER,
        status: int | None = None,
        retry_after: timedelta | None = None,
    ) -> None:
        super().__init__(code, status=status, retry_after=retry_after)
        self.block = block

    @property
    def verdict(self) -> SendVerdict:
        return Blocked(self.block, self.provider_code or 0, retry_after=self.retry_after)


class SendRefused(SendError):
    """The provider refused the message permanently."""

    code = "refused"
    alert = True

    @property
    def verdict(self) -> SendVerdict:
        return Refused(self.provider_code, on_fault=self.status is not None and self.status >= 500)
