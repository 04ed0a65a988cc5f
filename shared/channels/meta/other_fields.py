"""The other fields of Meta's webhooks: the list, and the owner of each."""

# https://developers.facebook.com/documentation/business-messaging/whatsapp/webhooks/reference (each field has its
# page; seen November 2026; `user_id_update` left it on 2026-08-11 and is still seen).

from collections.abc import Mapping
from typing import Any

from shared.channels.meta.fields import identifier, mapping

ACCOUNT_FIELDS = frozenset(
    {
        "account_alerts",
        "account_review_update",
        "account_settings_update",
        "account_update",
        "business_capability_update",
        "business_username_update",  # in the JSON of Meta's page; the other name is its heading
        "business_username_updates",
        "flows",
        "message_template_components_update",
        "message_template_quality_update",
        "message_template_status_update",
        "partner_solutions",
        "payment_configuration_update",
        "phone_number_name_update",
        "phone_number_quality_update",
        "security",
        "template_category_update",
        "template_correct_category_detection",
    }
)
"""Fields of an account. They carry entry.time, which distinguishes two equal changes."""

SENDER_FIELDS = frozenset(
    {
        "automatic_events",
        "calls",
        "group_lifecycle_update",
        "group_participants_update",
        "group_settings_update",
        "group_status_update",
        "history",
        "messaging_handovers",
        "smb_app_state_sync",
        "smb_message_echoes",
        "standby",
        "user_id_update",
        "user_preferences",
    }
)
"""Fields of a number or a customer. None is a message to us; they include what the business wrote itself (echoes),
earlier messages (history) and what another partner answers (standby)."""

OTHER_FIELDS = ACCOUNT_FIELDS | SENDER_FIELDS

STATE_FIELDS = frozenset(
    {"account_update", "message_template_status_update", "phone_number_quality_update", "user_preferences"}
)
"""Fields that affect our own state, each with its reader in changes.py. If such a value is too large to keep whole, it
needs an operator."""


def account_of(entry: Mapping[str, Any], field: str, value: Any) -> str | None:
    """The account that the news is about. If a partner is added or removed, entry.id is a business portfolio, and the
    value names the account (page of account_update).
    """
    named = mapping(mapping(value).get("waba_info")).get("waba_id") if field == "account_update" else None
    return identifier(named) or identifier(entry.get("id"))
