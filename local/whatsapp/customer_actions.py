"""An inbound request: what a test asks the simulator to send as a customer: which messages, in which POSTs."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from local.whatsapp.simulator_store import QueuedWebhook
from local.whatsapp.webhook_payloads import (
    BusinessNumber,
    SimulatedContact,
    cut,
    message,
    messages_value,
    new_wamid,
    webhook_body,
)

BATCH_LIMIT = 1000
"""Meta's maximum of updates in one webhook (its page "Create a webhook endpoint", a copy of 2026)."""

TIMES_LIMIT = 1000

FIELDS = frozenset(
    {"from", "user_id", "type", "content", "contents", "id", "batch", "times", "rebatch", "fields", "phone_number_id"}
)


@dataclass(frozen=True, slots=True)
class InboundRequest:
    """Messages in one POST, one for each of `contents`. It is delivered `times` times, with `rebatch` split differently
    each time.

    `fields` are added to the message's own object: context, referral, errors, another timestamp.
    """

    contact: SimulatedContact
    type: str
    contents: tuple[Any, ...]
    id: str | None
    times: int
    rebatch: bool
    fields: dict[str, Any]
    sender: str

    @property
    def batch(self) -> int:
        return len(self.contents)

    def message_ids(self) -> list[str]:
        """The requested id, numbered if there are several; otherwise new ids."""
        if self.id is None:
            address = self.contact.wa_id or self.contact.user_id or ""
            return [new_wamid(address, outbound=False) for _ in range(self.batch)]
        return [self.id] if self.batch == 1 else [f"{self.id}.{place}" for place in range(1, self.batch + 1)]

    def webhooks(self, ids: list[str], number: BusinessNumber) -> list[QueuedWebhook]:
        """The POSTs. `number` is the one that `sender` names."""
        now = time.time()
        messages = [
            message(self.contact, self.type, content, wamid, now, self.fields)
            for wamid, content in zip(ids, self.contents, strict=True)
        ]
        body = webhook_body(messages_value(number, self.contact, messages), number.account)
        address = self.contact.wa_id or self.contact.user_id or ""
        facts = {"to": address, "type": self.type, "phone_number_id": self.sender}
        return [
            QueuedWebhook(part, facts, due_at=now, regroup=self.rebatch)
            for turn in range(self.times)
            for part in self._parts(body, turn)
        ]

    def _parts(self, body: bytes, turn: int) -> list[bytes]:
        if not self.rebatch or not turn or self.batch == 1:
            return [body]
        return cut(body, 1 + (turn - 1) % (self.batch - 1))


def order_from(document: object, sender: str) -> InboundRequest:
    """The order that a JSON document describes; ValueError with one sentence if it is not valid."""
    if not isinstance(document, dict):
        raise ValueError("An inbound order is a JSON object.")
    if unknown := sorted(set(document) - FIELDS):
        raise ValueError(f"An inbound order has no field {unknown[0]!r}; it has {', '.join(sorted(FIELDS))}.")
    number, user_id, kind = (_string(document, name) for name in ("from", "user_id", "type"))
    if not number and not user_id:
        raise ValueError("An inbound order needs from (a phone number) or user_id (a business-scoped user id).")
    if not kind or ("content" in document) is ("contents" in document):
        raise ValueError("An inbound order needs a type and its content, which may be null; or contents, a list.")
    contact = SimulatedContact.of((number or "").removeprefix("+") or None, user_id)
    return InboundRequest(
        contact,
        kind,
        _contents(document, kind),
        _string(document, "id"),
        _whole(document, "times", TIMES_LIMIT),
        _flag(document, "rebatch"),
        _object(document, "fields"),
        _string(document, "phone_number_id") or sender,
    )


def _contents(document: Mapping[str, object], kind: str) -> tuple[object, ...]:
    """One content per message: the same one `batch` times, or several."""
    if "contents" not in document:
        return (_content(document["content"], kind),) * _whole(document, "batch", BATCH_LIMIT)
    contents = document["contents"]
    if not isinstance(contents, list) or not 1 <= len(contents) <= BATCH_LIMIT or "batch" in document:
        raise ValueError(f"contents is a list of 1 to {BATCH_LIMIT}, one for each message; then there is no batch.")
    return tuple(_content(content, kind) for content in contents)


def _content(content: object, kind: str) -> object:
    """Meta's object, `{"body": "hi"}`; accepts `{"text": {"body": "hi"}}` too."""
    return content[kind] if isinstance(content, dict) and set(content) == {kind} else content


def _string(document: Mapping[str, object], name: str) -> str | None:
    value = document.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} is a string.")
    return value


def _whole(document: Mapping[str, object], name: str, most: int) -> int:
    value = document.get(name)
    if value is None:
        return 1
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise ValueError(f"{name} is a whole number from 1 to {most}.")
    return value


def _flag(document: Mapping[str, object], name: str) -> bool:
    value = document.get(name)
    if value is not None and not isinstance(value, bool):
        raise ValueError(f"{name} is true or false.")
    return bool(value)


def _object(document: Mapping[str, object], name: str) -> dict[str, Any]:
    value = document.get(name)
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"{name} is an object.")
    return value or {}
