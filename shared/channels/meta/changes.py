"""What the other fields of Meta's webhooks change in our own state."""

# https://developers.facebook.com/documentation/business-messaging/whatsapp/webhooks/reference (each field has its
# page; seen November 2026). other_fields.py lists the fields; those that change nothing of ours are stored as received.

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from shared.channels.meta.fields import identifier, mapping, moment, objects, phone, text_value
from shared.domain.messages import Message
from shared.domain.record import Delivery
from shared.domain.state_changes import (
    AccountBanned,
    AccountConnected,
    AccountDisconnected,
    AccountReinstated,
    AccountRestricted,
    ContactChanged,
    MarketingPreferenceChanged,
    NumberLimitChanged,
    StateChange,
    TemplateStatusChanged,
)

DISCONNECTING = frozenset({"PARTNER_REMOVED", "PARTNER_APP_UNINSTALLED", "ACCOUNT_OFFBOARDED", "ACCOUNT_DELETED"})
CONNECTING = frozenset({"PARTNER_ADDED", "PARTNER_APP_INSTALLED", "ACCOUNT_RECONNECTED"})
BAN_STATES: Mapping[str, bool] = {"SCHEDULE_FOR_DISABLE": True, "DISABLE": False}
PREFERENCES: Mapping[str, bool] = {"stop": False, "resume": True, "signup": True}


def changes_in(record: Delivery) -> tuple[StateChange, ...]:
    """What a stored event says about our own state."""
    kept = record.payload
    return state_changes(record.sender, kept["field"], kept["value"]) if "value" in kept and "field" in kept else ()


def state_changes(account: str, field: str, value: Any) -> tuple[StateChange, ...]:
    """What the value of this field says about our own state; may be empty. Raises nothing."""
    reader = _READERS.get(field)
    return tuple(reader(account, value)) if reader else ()


def contact_change(message: Message) -> ContactChanged | None:
    """The customer's new number or user id, if a system message reports one."""
    system = message.system
    if system is None or not (system.wa_id or system.user_id):
        return None
    old_phone = message.contact.phone
    new_phone = system.wa_id
    old_user_id = system.previous_user_id or message.contact.user_id
    if new_phone in (None, old_phone) and system.user_id in (None, old_user_id):
        return None
    return ContactChanged(old_phone, old_user_id, new_phone, system.user_id)


def _account_update(account: str, value: Any) -> Iterator[StateChange]:
    event = mapping(value).get("event")
    if not isinstance(event, str):
        return
    if event in DISCONNECTING:
        yield AccountDisconnected(account, event, text_value(mapping(value.get("disconnection_info")).get("reason")))
    elif event in CONNECTING:
        yield AccountConnected(account, event)
    elif event == "DISABLED_UPDATE":
        yield from _ban(account, objects(value.get("ban_info")))
    elif event == "ACCOUNT_RESTRICTION":
        for one in objects(value.get("restriction_info")):
            if restriction := text_value(one.get("restriction_type")):
                yield AccountRestricted(account, restriction, _time(one.get("expiration")))


def _ban(account: str, infos: list[Mapping[str, Any]]) -> Iterator[StateChange]:
    """Meta's page shows an object; a list of one occurs too."""
    for info in infos:
        state = info.get("waba_ban_state")
        if state == "REINSTATE":
            yield AccountReinstated(account)
        elif isinstance(state, str) and state in BAN_STATES:
            yield AccountBanned(account, BAN_STATES[state], text_value(info.get("waba_ban_date")))


def _template_status(account: str, value: Any) -> Iterator[StateChange]:
    """The id of a template is a number here, unlike all other ids of Meta."""
    fields = mapping(value)
    given, status = fields.get("message_template_id"), text_value(fields.get("event"))
    template_id = str(given) if isinstance(given, int) and not isinstance(given, bool) else identifier(given)
    if template_id and status:
        name, language = (text_value(fields.get(f"message_template_{part}")) for part in ("name", "language"))
        reason = text_value(fields.get("reason"))
        yield TemplateStatusChanged(
            account, template_id, name, language, status, None if reason in (None, "NONE") else reason
        )


def _number_quality(account: str, value: Any) -> Iterator[StateChange]:
    """`max_daily_conversations_per_business` replaces `current_limit` since 2025."""
    fields = mapping(value)
    event = text_value(fields.get("event"))
    limit = fields.get("max_daily_conversations_per_business") or fields.get("current_limit")
    told = str(limit) if isinstance(limit, str | int) and not isinstance(limit, bool) else None
    if event or told:
        yield NumberLimitChanged(account, phone(fields.get("display_phone_number")), event, told)


def _preferences(_account: str, value: Any) -> Iterator[StateChange]:
    for one in objects(mapping(value).get("user_preferences")):
        number, word = phone(one.get("wa_id")), one.get("value")
        contact = identifier(one.get("user_id")) or number
        marketing = one.get("category") == "marketing_messages"
        if contact and marketing and isinstance(word, str) and word in PREFERENCES:
            yield MarketingPreferenceChanged(contact, number, PREFERENCES[word], moment(one.get("timestamp")))


def _time(value: Any) -> datetime | None:
    """A time in seconds, or as text with its zone."""
    if not isinstance(value, str) or value.isdecimal():
        return moment(value)
    try:
        at = datetime.fromisoformat(value)
        return at.astimezone(UTC) if at.tzinfo else None
    except (ValueError, OverflowError):  # on the first and the last day, the time in UTC may be out of range
        return None


_READERS: Mapping[str, Callable[[str, Any], Iterator[StateChange]]] = {
    "account_update": _account_update,
    "message_template_status_update": _template_status,
    "phone_number_quality_update": _number_quality,
    "user_preferences": _preferences,
}
