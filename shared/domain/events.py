"""Events: the facts in a webhook. One POST may hold a thousand of them, for several senders."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from shared.domain.identity import change_event_id, message_event_id
from shared.domain.record import ReceiptKind


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """A customer wrote to a sender. `payload` is what the channel needs to read it again: `item` is what the provider
    sent, and the channel may add other fields. `item` is always there, and distinguishes a stored message from news.
    """

    provider: str
    sender: str
    message_id: str
    contact: str
    payload: Mapping[str, Any]

    @property
    def key(self) -> str:
        return message_event_id(self.provider, self.sender, self.message_id)


@dataclass(frozen=True, slots=True)
class ReceiptReceived:
    """The provider's report on a message of ours, named by its id or our echo. With an echo the id may be empty. `at`
    is the provider's time, so that a repeat writes the same.
    """

    provider: str
    sender: str
    provider_id: str
    kind: ReceiptKind
    at: datetime
    code: int | None = None
    echo: str | None = None
    concerns_sender: bool = False
    """Whether the code is about the sender: it is blocked, or its account or credential is refused."""


@dataclass(frozen=True, slots=True)
class Change:
    """Any other news of an account or a sender: `field` and `value` as the provider names them."""

    provider: str
    account: str
    field: str
    value: Any
    time: int | None = None

    @property
    def key(self) -> str:
        return change_event_id(self.provider, self.account, self.field, self.value, self.time)


@dataclass(frozen=True, slots=True)
class Unparsable:
    """An item that should be an event but cannot be read or stored. Its raw form is kept, so nothing is lost.

    `of_account`: its owner is named by an account, not a sender.
    """

    provider: str
    account: str
    field: str
    raw: Any
    message_id: str | None = None
    of_account: bool = False

    @property
    def key(self) -> str:
        if self.message_id is not None:
            return message_event_id(self.provider, self.account, self.message_id)
        return change_event_id(self.provider, self.account, self.field, self.raw, None)


OF_ACCOUNT = "of_account"
"""The payload field of a stored Unparsable that holds `of_account`."""

Event = MessageReceived | ReceiptReceived | Change | Unparsable


# ---- what a change, or a system message, says about our own state


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


@dataclass(frozen=True, slots=True)
class Parsed:
    """The content of one POST: its events in order, and how many items were ignored, by reason."""

    events: tuple[Event, ...]
    ignored: Mapping[str, int] = field(default_factory=dict)
