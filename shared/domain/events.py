"""Events: the facts in a webhook. One POST of a provider may hold a thousand of them, of several senders."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from shared.domain.identity import change_event_id, message_event_id
from shared.domain.record import ReceiptKind


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """A person wrote to a sender. `payload` is what is needed to read it again: the item as the provider sent it."""

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
    """The provider's word on a message of ours. `at` is the provider's time, so that a repeat writes the same."""

    provider: str
    sender: str
    provider_id: str
    kind: ReceiptKind
    at: datetime
    code: int | None = None
    echo: str | None = None


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
    """An item that should be an event and cannot be read or stored. Its raw form is kept, so nothing is lost."""

    provider: str
    account: str
    field: str
    raw: Any
    message_id: str | None = None

    @property
    def key(self) -> str:
        if self.message_id is not None:
            return message_event_id(self.provider, self.account, self.message_id)
        return change_event_id(self.provider, self.account, self.field, self.raw, None)


Event = MessageReceived | ReceiptReceived | Change | Unparsable


@dataclass(frozen=True, slots=True)
class Parsed:
    """All of one POST: its events in order, and how often something was not for us, by reason."""

    events: tuple[Event, ...]
    ignored: Mapping[str, int] = field(default_factory=dict)
