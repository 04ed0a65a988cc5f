"""Meta's answers during onboarding: what a token may do, which apps are subscribed, and what each refusal means."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, auto
from typing import Any

from shared.channels.meta.codes import INVALID_PARAMETER, OBJECT_GONE, sentence_for
from shared.channels.meta.errors import GraphError, error_for
from shared.channels.meta.fields import mapping, objects
from shared.domain.errors import PomboError
from shared.domain.onboarding import OnboardingRefused, OnboardingUnavailable
from shared.domain.send_errors import (
    AccessDenied,
    AnswerLost,
    CredentialInvalid,
    LimitReached,
    ProviderUnavailable,
    TryLater,
)

SCOPES = ("whatsapp_business_management", "whatsapp_business_messaging")
"""The permissions that a token needs: one for the account and its webhooks, one for messages."""

WRONG_APP_SECRET = frozenset({1, 101, 190})
"""What Meta answers to a wrong app id or secret: "Error validating client secret", "Error validating application",
"Invalid OAuth access token"."""

NO_ACCOUNT_ID = (
    "The account must be the id of the WhatsApp Business account, all digits. WhatsApp Manager shows it in the "
    "account's settings."
)
NOT_ITS_ACCOUNT = (
    "The access token has no access to this WhatsApp Business account. Give the account's own id (waba_id), not that "
    "of the business portfolio (business_id), or create a token with access to it."
)
NOT_ITS_NUMBER = (
    "The WhatsApp Business account has no such phone number ID. Check both ids in WhatsApp Manager: a phone number ID "
    "is not the phone number."
)
_WRONG_APP = "Meta does not know META_APP_ID with META_APP_SECRET. Copy both from the app's basic settings."
_OTHER_APP = (
    "The access token was created for another Meta app than META_APP_ID, whose webhooks Pombo cannot verify. Create it "
    "for this app."
)
_INVALID_TOKEN = "Meta says that the access token is invalid: it has expired or was revoked. Create a new one."  # noqa: S105
_LAST_SECOND = 253_402_300_799  # the end of the year 9999, where datetime ends


class Step(Enum):
    """A call of the onboarding."""

    INSPECT = auto()  # debug_token
    NUMBERS = auto()  # phone_numbers
    SUBSCRIBE = auto()
    SUBSCRIBED = auto()  # the list of subscribed apps


@dataclass(frozen=True, slots=True)
class Inspected:
    """When a token ends; None: never."""

    expires_at: datetime | None = None
    data_access_expires_at: datetime | None = None


def inspected(document: Mapping[str, Any], app_id: str, account: str) -> Inspected:
    """What `debug_token` says, if the token may be used for this account. Raises OnboardingRefused, and
    OnboardingUnavailable if nothing was said.
    """
    data = mapping(document.get("data"))
    if not isinstance(data.get("is_valid"), bool):
        raise OnboardingUnavailable("Meta's answer about the token cannot be read. Try again later.")
    if not data["is_valid"]:
        raise OnboardingRefused(_INVALID_TOKEN)
    if str(data.get("app_id")) != app_id:
        raise OnboardingRefused(_OTHER_APP)
    scopes = data.get("scopes")
    missing = [scope for scope in SCOPES if scope not in (scopes if isinstance(scopes, list) else ())]
    if missing:
        raise OnboardingRefused(f"The access token lacks {' and '.join(missing)}. Create one with both permissions.")
    if not _covers(data.get("granular_scopes"), account):
        raise OnboardingRefused(NOT_ITS_ACCOUNT)
    return Inspected(_moment(data.get("expires_at")), _moment(data.get("data_access_expires_at")))


def _covers(granular_scopes: Any, account: str) -> bool:
    """Whether the accounts that a scope is limited to contain this one. Without a list, the account itself decides."""
    needed = [granted.get("target_ids") for granted in objects(granular_scopes) if granted.get("scope") in SCOPES]
    lists = [ids for ids in needed if isinstance(ids, list) and ids]
    return all(account in {str(id) for id in ids} for ids in lists)


def is_subscribed(document: Mapping[str, Any], app_id: str | None) -> bool:
    """Whether an account's list of subscribed apps has ours, or any if our id is not known."""
    apps = [mapping(item.get("whatsapp_business_api_data")) for item in objects(document.get("data"))]
    return any(app_id is None or str(app.get("id")) == app_id for app in apps)


def next_page(document: Mapping[str, Any]) -> str | None:
    """The cursor of the next page; None if this is the last. Meta's own link is not followed: it holds the token."""
    paging = mapping(document.get("paging"))
    after = mapping(paging.get("cursors")).get("after")
    return after if paging.get("next") and isinstance(after, str) and after else None


def failure(step: Step, status: int, error: GraphError | None) -> PomboError:
    """What an answer with an error means: a refusal, or that Meta is down. Without a readable error it may come from a
    proxy, and proves nothing.
    """
    if error is None:
        return OnboardingUnavailable(f"Meta answered HTTP {status} without a reason. Try again later.")
    if step is Step.INSPECT and 400 <= status < 500 and error.code in WRONG_APP_SECRET:
        return OnboardingRefused(_WRONG_APP, error.code)
    found = error_for(status, error, None)
    if isinstance(found, ProviderUnavailable | TryLater | AnswerLost | LimitReached):
        return OnboardingUnavailable(f"{_known(error.code)} (code {error.code}). Try again later.")
    return OnboardingRefused(_refusal(error.code, found), error.code)


def _refusal(code: int, found: PomboError) -> str:
    if isinstance(found, AccessDenied):
        return (
            f"The access token lacks a permission on this account (code {code}). Create one with "
            f"{' and '.join(SCOPES)}, and assign the account to its system user."
        )
    if isinstance(found, CredentialInvalid):
        return f"Meta rejected the access token (code {code}): it has expired or was revoked. Create a new one."
    if code in (INVALID_PARAMETER, OBJECT_GONE):
        return NOT_ITS_ACCOUNT
    return f"{_known(code)} (code {code})."


def _known(code: int) -> str:
    return (sentence_for(code) or "Meta refused, for a reason that Pombo does not know.").rstrip(".")


def _moment(seconds: Any) -> datetime | None:
    """A time in Unix seconds; None for 0, which is never."""
    is_time = isinstance(seconds, int) and not isinstance(seconds, bool) and 0 < seconds <= _LAST_SECOND
    return datetime.fromtimestamp(seconds, UTC) if is_time else None
