"""What a test asks the simulator to change about accounts: numbers, tokens, and news of an account."""

import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from local.whatsapp.accounts import AccessToken, Accounts, TokenState
from local.whatsapp.simulator_store import QueuedWebhook
from local.whatsapp.webhook_payloads import DISPLAY_PHONE_NUMBER, BusinessNumber, account_update_body

ACCESS = frozenset({"app_id", "accounts", "scopes", "target_ids", "expires_at", "data_access_expires_at"})
"""What a test may change of a token, besides its state."""

_LISTS = frozenset({"accounts", "scopes"})


def add_sender(accounts: Accounts, document: object) -> None:
    """{"phone_number_id", "waba", "token", "display"?, "subscribed"?}. ValueError if it is invalid."""
    fields = _fields(document, {"phone_number_id", "waba", "token", "display", "subscribed"})
    id, account, token = (_text(fields, name) for name in ("phone_number_id", "waba", "token"))
    number = BusinessNumber(id, account, fields.get("display") or DISPLAY_PHONE_NUMBER)
    accounts.add(number, token, subscribed=fields.get("subscribed", True) is True)


def shown_senders(accounts: Accounts) -> list[dict[str, Any]]:
    """Without the tokens."""
    return [
        {
            "phone_number_id": number.id,
            "waba": number.account,
            "display": number.display,
            "subscribed": accounts.is_subscribed(number.account),
        }
        for number in accounts.numbers()
    ]


def change_token(accounts: Accounts, document: object) -> None:
    """{"token", "state"?: valid | expired | revoked, "replace"?: a new token with the same access, which revokes this
    one, and any field of ACCESS}. A token that does not exist is created. ValueError if it is invalid.
    """
    fields = _fields(document, {"token", "state", "replace", *ACCESS})
    token = _text(fields, "token")
    try:
        changed: dict[str, Any] = {name: fields[name] for name in ACCESS if name in fields}
        changed |= {name: tuple(changed[name]) for name in _LISTS if name in changed}
        state = TokenState(fields.get("state", TokenState.VALID))
    except (TypeError, ValueError):
        raise ValueError("state is valid, expired or revoked; accounts and scopes are lists.") from None
    entry = replace(accounts.token(token) or AccessToken(app_id=accounts.app_id), **changed)
    if "replace" in fields:
        accounts.keep(_text(fields, "replace"), replace(entry, state=TokenState.VALID))
        state = TokenState.REVOKED
    accounts.keep(token, replace(entry, state=state))


def account_update(document: object) -> QueuedWebhook:
    """{"waba", "event", "fields"?: further fields of the value} as a webhook. ValueError if it is invalid."""
    fields = _fields(document, {"waba", "event", "fields"})
    extra = fields.get("fields") or {}
    if not isinstance(extra, dict):
        raise ValueError("fields is an object.")
    now = time.time()
    body = account_update_body(_text(fields, "waba"), _text(fields, "event"), extra, now)
    return QueuedWebhook(body, {"type": "account_update"}, due_at=now)


def sender_to_remove(document: object) -> str | None:
    """{"phone_number_id"}, or nothing: all that were added."""
    fields = _fields(document, {"phone_number_id"})
    return _text(fields, "phone_number_id") if fields else None


def _fields(document: object, known: Collection[str]) -> Mapping[str, Any]:
    if not isinstance(document, dict):
        raise ValueError("The body is a JSON object.")
    if unknown := sorted(set(document) - set(known)):
        raise ValueError(f"There is no field {unknown[0]!r} here; there are {', '.join(sorted(known))}.")
    return document


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} is a string, and required.")
    return value
