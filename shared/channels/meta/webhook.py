"""Webhook parsing: splits one POST from Meta into events, each a message, a receipt or a change."""

# https://developers.facebook.com/documentation/business-messaging/whatsapp/webhooks/overview (seen November 2026):
# up to 1,000 updates and 3 MB in one POST, of several accounts and numbers; everything below `value` may be missing.

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from shared.channels.meta.fields import code_number, customer_ids, identifier, mapping, moment, phone
from shared.channels.meta.other_fields import ACCOUNT_FIELDS, OTHER_FIELDS, STATE_FIELDS, account_of
from shared.channels.meta.sender_codes import concerns_sender
from shared.domain.events import Change, Event, MessageReceived, Parsed, ReceiptReceived, Unparsable
from shared.domain.identity import canonical_json, parse_echo, stable_hash
from shared.domain.phone_numbers import without_variant
from shared.domain.record import ReceiptKind
from shared.domain.retention import RAW_PAYLOAD_BYTES
from shared.net import bounded_json

PROVIDER = "meta"
OBJECT = "whatsapp_business_account"
MESSAGES = "messages"
NEWS = ("errors", "user_actions")
"""What the field `messages` may hold beside messages and receipts: news of the number, stored as a change."""

RECEIPTS: Mapping[str, ReceiptKind] = {
    "sent": ReceiptKind.SENT,
    "delivered": ReceiptKind.DELIVERED,
    "read": ReceiptKind.READ,
    "played": ReceiptKind.PLAYED,  # a voice message, since 2026-03-17
    "failed": ReceiptKind.FAILED,
}

KEPT_IN_PART = OTHER_FIELDS - STATE_FIELDS
"""Fields whose value may be kept in part: `history`, for example, has megabytes, and an operator needs no more."""

MOST_EVENTS = 2_000
"""Twice what Meta puts into one POST, and what every store can write within a POST's time: with more, each delivery
would end in 500. A body with more is not from Meta; its rest is kept as one item."""

LARGEST_CONTACT = 4096
"""Bytes. An entry of contacts[] is stored with each message of its customer, and one POST may hold thousands of those.
Meta's entries have about 300."""

_WRAPPING = 1024
"""Bytes reserved for the fields around a raw form."""

Ignored = defaultdict[str, int]
"""How many items were ignored, by reason."""

_NO_DIGITS = re.compile("[^0-9]+")

TIME_UNKNOWN = datetime.fromtimestamp(0, UTC)
"""The time of a receipt with an unreadable time: the receipt still counts, and a repeat writes the same."""


def parse(body: bytes) -> Parsed:
    """The events of one POST in order, and the ignored items by reason. Raises nothing for any bytes."""
    ignored: Ignored = defaultdict(int)
    try:
        document = bounded_json.loads(body)
    except bounded_json.NotJson:
        return Parsed((), {"not_json": 1})
    found = _events(document, ignored)
    events = list(islice(found, MOST_EVENTS))
    if next(found, None) is not None:
        ignored["too_many"] += 1
        events.append(Unparsable(PROVIDER, "", "", _bounded(document)))
    return Parsed(tuple(events), dict(ignored))


def _events(document: Any, ignored: Ignored) -> Iterator[Event]:
    if mapping(document).get("object") != OBJECT:
        ignored["unknown_object"] += 1
        return
    entries = document.get("entry")
    if not isinstance(entries, list) or not entries:
        ignored["no_entry"] += 1
        return
    for entry in entries:
        changes = mapping(entry).get("changes")
        if not isinstance(changes, list) or not changes:
            ignored["malformed_entry"] += 1
            continue
        for change in changes:
            yield from _change(entry, change, ignored)


def _change(entry: Mapping[str, Any], change: Any, ignored: Ignored) -> Iterator[Event]:
    value = mapping(change).get("value")
    field = _field(mapping(change)) or _field(mapping(value))
    if field is None:
        ignored["malformed_change"] += 1
    elif field == MESSAGES:
        yield from _messages(identifier(entry.get("id")) or "", value, ignored)
    elif field in OTHER_FIELDS:
        yield _other(entry, field, value)
    else:
        ignored["unknown_field"] += 1


def _field(holder: Mapping[str, Any]) -> str | None:
    """The name of a field. It is beside the value; in two examples of Meta's page on account_update, inside it."""
    field = holder.get("field")
    return field if isinstance(field, str) else None


def _other(entry: Mapping[str, Any], field: str, value: Any) -> Event:
    """News of an account or a number, not parsed here."""
    account = account_of(entry, field, value)
    too_large = bounded_json.size(value) > RAW_PAYLOAD_BYTES
    if account is None or (too_large and field not in KEPT_IN_PART):
        return Unparsable(PROVIDER, account or "", field, _bounded(value), of_account=True)
    if too_large:
        value = _beginning(canonical_json(value))
    time = entry.get("time")
    timed = field in ACCOUNT_FIELDS and isinstance(time, int) and not isinstance(time, bool)
    return Change(PROVIDER, account, field, value, time if timed else None)


def _messages(account: str, value: Any, ignored: Ignored) -> Iterator[Event]:
    """The field `messages`: messages, receipts, or neither and an error of the number."""
    if not isinstance(value, dict):
        yield Unparsable(PROVIDER, account, MESSAGES, _bounded(value), of_account=True)
        return
    metadata = mapping(value.get("metadata"))
    sender = identifier(metadata.get("phone_number_id"))
    messages, statuses = _items(value.get("messages")), value.get("statuses")
    contacts = _Contacts.of(value.get("contacts"), messages)
    around = _ValueContext(account, sender, _digits(metadata.get("display_phone_number")), contacts)
    for item in messages:
        yield _message(item, around)
    for item in _items(statuses):
        if _is_of_message(item):
            yield from _receipt(item, around, ignored)
        else:
            yield _other({"id": account}, MESSAGES, {"metadata": metadata, "statuses": [item]})
    if [name for name in NEWS if value.get(name)]:
        beside = {name: part for name, part in value.items() if name not in ("messages", "statuses")}
        yield _other({"id": account}, MESSAGES, beside)
    elif not (messages or statuses):
        ignored["no_items"] += 1


def _items(value: Any) -> list[Any]:
    """The items of a list. Another value in its place is one item, which is unreadable and kept."""
    if isinstance(value, list):
        return value
    return [value] if value else []


@dataclass(frozen=True, slots=True)
class _Contacts:
    """An index of contacts[] of one value: it may hold a thousand messages and a thousand contacts."""

    by_user_id: Mapping[str, Mapping[str, Any]]
    by_phone: Mapping[str, Mapping[str, Any]]
    by_line: Mapping[str, Mapping[str, Any]]
    """By number without its country's variant, without entries whose exact number another item of the value has."""
    only: Mapping[str, Any]

    @classmethod
    def of(cls, value: Any, messages: Sequence[Any]) -> "_Contacts":
        contacts = (
            [_brief(contact) for contact in value if isinstance(contact, dict)] if isinstance(value, list) else []
        )
        by_user_id = {key: c for c in contacts if (key := identifier(c.get("user_id")))}
        numbered = [(number, c) for c in contacts if (number := phone(c.get("wa_id")))]
        named = {phone(mapping(item).get("from")) for item in messages}
        by_line = _unambiguous((without_variant(number), c) for number, c in numbered if number not in named)
        only = contacts[0] if len(contacts) == len(messages) == 1 else {}
        return cls(by_user_id, _unambiguous(numbered), by_line, only)

    def of_item(self, item: Mapping[str, Any]) -> Mapping[str, Any]:
        """The entry of the item's sender: one that shares an id with it. A guess could answer another customer. Only if
        a single message names no sender does a single entry count as its sender's.
        """
        user_id, number = identifier(item.get("from_user_id")), phone(item.get("from"))
        if user_id is None and number is None:
            return self.only
        contact = self.by_user_id.get(user_id or "") or self._of_number(number or "")
        return {} if _differ(user_id, identifier(contact.get("user_id"))) else contact

    def _of_number(self, number: str) -> Mapping[str, Any]:
        """The entry of this number, or of the same phone line in its other form."""
        if number in self.by_phone:
            return self.by_phone[number]
        return self.by_line.get(without_variant(number), {})


def _unambiguous(contacts: Iterable[tuple[str, Mapping[str, Any]]]) -> Mapping[str, Mapping[str, Any]]:
    """The entries by their keys. If several share a key, only the fields that agree: they may be two customers."""
    found: dict[str, Mapping[str, Any]] = {}
    for key, contact in contacts:
        known = found.get(key, contact)
        found[key] = {name: part for name, part in contact.items() if name in known and known[name] == part}
    return found


def _brief(contact: Mapping[str, Any]) -> Mapping[str, Any]:
    """The entry; only the ids of a huge one."""
    if bounded_json.size(contact) <= LARGEST_CONTACT:
        return contact
    return {name: contact[name] for name in ("user_id", "wa_id") if identifier(contact.get(name))}


def _digits(value: Any) -> str:
    """The digits of a number in any notation; empty if it is not a number."""
    return _NO_DIGITS.sub("", value) if isinstance(value, str) else ""


def _differ(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and one != other


@dataclass(frozen=True, slots=True)
class _ValueContext:
    """What all items of one value share."""

    account: str
    sender: str | None
    own_number: str
    contacts: _Contacts

    def unparsable(self, raw: Any, message_id: str | None = None) -> Unparsable:
        """An item of this value that cannot be read."""
        owner = self.sender or self.account
        return Unparsable(PROVIDER, owner, MESSAGES, raw, message_id, of_account=self.sender is None)


def _message(item: Any, around: _ValueContext) -> Event:
    fields = mapping(item)
    message_id, kind = identifier(fields.get("id")), identifier(fields.get("type"))
    contact = around.contacts.of_item(fields)
    payload = {"field": MESSAGES, "item": item, "contact": contact, "phone_number_id": around.sender}
    if around.own_number and without_variant(_digits(fields.get("from"))) == without_variant(around.own_number):
        payload["echo"] = True  # the business wrote it, so a handler would answer its own message
    user_id, number = customer_ids(fields, contact)
    who = user_id or number
    if around.sender and message_id and kind and who and bounded_json.size(payload) <= RAW_PAYLOAD_BYTES:
        return MessageReceived(PROVIDER, around.sender, message_id, who, payload, moment(fields.get("timestamp")))
    del payload["field"]
    return around.unparsable(_bounded(payload), message_id)


def _is_of_message(item: Any) -> bool:
    """Whether a status is of a message. Payments and calls have statuses with a `type`; a message's needs none."""
    return mapping(item).get("type") in (None, "message")


def _receipt(item: Any, around: _ValueContext, ignored: Ignored) -> Iterator[Event]:
    """The provider's report on a message of ours, matched by the echo or the id, not by the recipient."""
    fields = mapping(item)
    provider_id, word = identifier(fields.get("id")), fields.get("status")
    echo = identifier(fields.get("biz_opaque_callback_data"))
    sender = around.sender or around.account
    if not isinstance(word, str) or (provider_id is None and parse_echo(echo) is None):
        yield around.unparsable(_bounded(item))
    elif (kind := RECEIPTS.get(word)) is None:
        ignored["unknown_receipt"] += 1
    else:
        at = moment(fields.get("timestamp")) or TIME_UNKNOWN
        code = _first_code(fields.get("errors")) if kind is ReceiptKind.FAILED else None
        yield ReceiptReceived(
            PROVIDER, sender, provider_id or "", kind, at, code, echo, code is not None and concerns_sender(code)
        )


def _first_code(errors: Any) -> int | None:
    return code_number(mapping(errors[0]).get("code")) if isinstance(errors, list) and errors else None


def _bounded(raw: Any) -> Any:
    """The raw form, or its beginning if it is too large."""
    text = bounded_json.dumps(raw)
    return raw if len(text.encode()) <= RAW_PAYLOAD_BYTES - _WRAPPING else _beginning(text)


def _beginning(text: str) -> Mapping[str, Any]:
    """The beginning of a text that is too large, and a hash that distinguishes texts with the same beginning."""
    encoded = text.encode()
    # As a JSON string the text at most doubles in length: only quotes and backslashes need escaping.
    beginning = encoded[: (RAW_PAYLOAD_BYTES - _WRAPPING) // 2].decode(errors="ignore")
    return {"truncated": beginning, "bytes": len(encoded), "hash": stable_hash(text)}
