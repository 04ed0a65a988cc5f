"""Send errors: why a message was not sent. Each carries its verdict; there is no other table.

The docstring of a class is the sentence that an operator reads.
"""

from datetime import timedelta

from shared.domain.errors import PomboError
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
        """The verdict on the message. By default the provider may have accepted it."""
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
