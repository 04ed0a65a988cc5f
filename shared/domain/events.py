"""Events: the facts in a webhook. One POST of a provider may hold a thousand of them, of several senders."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from shared.domain.identity import change_event_id, message_event_id
from shared.domain.record import ReceiptKind


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """A person wrote to a sender. `payload` is what the channel needs to read it again: under `item`, which it always
    has, what the provider sent, and beside it whatever else. By `item` a stored message is told from news, so the other
    names are the channel's to choose.
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
    """The provider's word on a message of ours, named by its id or our echo; the id may be empty where the echo is.
    `at` is the provider's time, so that a repeat writes the same.
    """

    provider: str
    sender: str
    provider_id: str
    kind: ReceiptKind
    at: datetime
    code: int | None = None
    echo: str | None = None
    concerns_sender: bool = False
    """The code speaks of the sender: it is blocked, or its account or credential is refused."""


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
    """An item that should be an event and cannot be read or stored. Its raw form is kept, so nothing is lost.

    `of_account`: what names its owner is an account, not a sender.
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
"""Where the payload of a stored Unparsable says so."""

Event = MessageReceived | ReceiptReceived | Change | Unparsable


# ---- what a change, or a message of the system, says about our own state


@dataclass(frozen=True, slots=True)
class AccountDisconnected:
    """The account was taken from us, or is no more: nothing can be sent for it until it is connected again."""

    account: str
    event: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class AccountConnected:
    """We may send for the account, again or for the first time: a block that was waited for is over."""

    account: str
    event: str


@dataclass(frozen=True, slots=True)
class AccountBanned:
    """The provider has disabled the account, or (`scheduled`) is about to. `since` is in the provider's words."""

    account: str
    scheduled: bool
    since: str | None = None


@dataclass(frozen=True, slots=True)
class AccountReinstated:
    """The provider took its ban back: a block that was waited for is over."""

    account: str


@dataclass(frozen=True, slots=True)
class AccountRestricted:
    """The account may not do one thing, by the provider's word for it, until then or (None) without an end."""

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
    """How many people a day a number may write to first, in the provider's words (TIER_1K, say)."""

    account: str
    phone: str | None
    event: str | None
    limit: str | None


@dataclass(frozen=True, slots=True)
class MarketingPreferenceChanged:
    """A person wants no marketing messages any more, or does want them."""

    contact: str
    phone: str | None
    wants: bool
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ContactChanged:
    """A person has another number or another user id: both are one person. What is unknown of one is None."""

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
    """All of one POST: its events in order, and how often something was not for us, by reason."""

    events: tuple[Event, ...]
    ignored: Mapping[str, int] = field(default_factory=dict)
