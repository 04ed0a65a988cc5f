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
    `sent_at` is the provider's time; None if it says none.
    """

    provider: str
    sender: str
    message_id: str
    contact: str
    payload: Mapping[str, Any]
    sent_at: datetime | None = None

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
    """Any other news of an account or a sender: `field` and `value` as the provider names them. `time` is when it
    happened, as far as the provider says, in whole seconds since 1970.
    """

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

CHANGED_AT = "time"
"""The payload field of a stored Change that holds its `time`, if it has one."""

Event = MessageReceived | ReceiptReceived | Change | Unparsable


@dataclass(frozen=True, slots=True)
class Parsed:
    """The content of one POST: its events in order, and how many items were ignored, by reason."""

    events: tuple[Event, ...]
    ignored: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReceiptBlock:
    """A failed receipt about the sender: its code, its time, and the key of the message that failed."""

    code: int
    at: datetime
    key: str | None = None
