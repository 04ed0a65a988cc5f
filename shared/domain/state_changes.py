"""State changes: what a change, or a system message, says about our own state."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class AccountDisconnected:
    """The account was disconnected or deleted: nothing can be sent for it until it is connected again."""

    account: str
    event: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class AccountConnected:
    """We may send for the account, again or for the first time: a block on it is over."""

    account: str
    event: str


@dataclass(frozen=True, slots=True)
class AccountBanned:
    """The provider has disabled the account, or (`scheduled`) will. `since` is the provider's text."""

    account: str
    scheduled: bool
    since: str | None = None


@dataclass(frozen=True, slots=True)
class AccountReinstated:
    """The provider lifted its ban: a block on the account is over."""

    account: str


@dataclass(frozen=True, slots=True)
class AccountRestricted:
    """The account may not do one thing, named by the provider, until a time or (None) without an end."""

    account: str
    restriction: str
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class TemplateStatusChanged:
    """A template may be sent (`status` APPROVED, REINSTATED, …), or may not."""

    account: str
    template_id: str
    name: str | None
    language: str | None
    status: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class NumberLimitChanged:
    """How many people a day a number may write to first, in the provider's terms (such as TIER_1K)."""

    account: str
    phone: str | None
    event: str | None
    limit: str | None


@dataclass(frozen=True, slots=True)
class MarketingPreferenceChanged:
    """A customer opted out of marketing messages, or opted in again."""

    contact: str
    phone: str | None
    wants: bool
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ContactChanged:
    """A customer's number or user id changed: both contacts are one customer. Unknown parts are None."""

    old_phone: str | None
    old_user_id: str | None
    new_phone: str | None
    new_user_id: str | None


StateChange = (
    AccountDisconnected
    | AccountConnected
    | AccountBanned
    | AccountReinstated
    | AccountRestricted
    | TemplateStatusChanged
    | NumberLimitChanged
    | MarketingPreferenceChanged
    | ContactChanged
)
