"""Meta's error codes: one table from a code to what it means for a message, and to a sentence for a person."""

# https://developers.facebook.com/documentation/business-messaging/whatsapp/support/error-codes (seen November 2026)
# Throttles and expired tokens come with HTTP 400 as well as 429 and 401: the code decides, the status does not.

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from shared.channels import bounded_json
from shared.domain.errors import (
    AnswerLost,
    CredentialInvalid,
    LimitReached,
    ProviderUnavailable,
    SenderBlocked,
    SendError,
    SendRefused,
    TryLater,
)

INVALID_PARAMETER = 100
OBJECT_GONE = 33
"""As a code, or as the subcode of 100: the number was deleted or disconnected from us (PARTNER_REMOVED)."""

_CODES: Mapping[int, tuple[type[SendError], str]] = {
    # the provider as a whole
    1: (AnswerLost, "Meta reported an unknown error; it may or may not have the message."),
    2: (ProviderUnavailable, "Meta is overloaded or down."),
    131000: (AnswerLost, "Meta reported an unknown error; it may or may not have the message."),
    131016: (ProviderUnavailable, "Meta's message service is down for a moment."),
    133004: (ProviderUnavailable, "Meta's server is down for a moment."),
    # our access
    0: (CredentialInvalid, "Meta no longer accepts the access token: reconnect the number."),
    3: (CredentialInvalid, "The access token lacks a permission: reconnect the number."),
    10: (CredentialInvalid, "The access token lacks a permission, or it was taken back: reconnect the number."),
    102: (CredentialInvalid, "The session of the access token has ended: reconnect the number."),
    190: (CredentialInvalid, "The access token has expired or was revoked: reconnect the number."),
    467: (CredentialInvalid, "The access token is invalid: reconnect the number."),
    131005: (CredentialInvalid, "The access token has no access to this number: reconnect the number."),
    # limits
    4: (LimitReached, "Our app has called Meta too often; all its numbers wait."),
    17: (LimitReached, "Meta was called too often with this access token."),
    613: (LimitReached, "Meta was called too often."),
    80007: (LimitReached, "The WhatsApp account has called Meta too often."),
    130429: (LimitReached, "The number sends faster than Meta allows."),
    131056: (LimitReached, "Too many messages to this person in a short time."),
    131057: (LimitReached, "Meta is upgrading the number; that takes about a minute."),
    131208: (LimitReached, "Too many group operations in a short time."),
    132069: (LimitReached, "The flow may be sent only ten times an hour until it is mended."),
    # the business number or its account
    33: (SenderBlocked, "The number no longer exists at Meta, or was disconnected: reconnect it."),
    368: (SenderBlocked, "Meta has blocked the WhatsApp account for breaking a policy."),
    131031: (SenderBlocked, "Meta has locked the WhatsApp account."),
    131037: (SenderBlocked, "The number needs an approved display name before it may send."),
    131042: (SenderBlocked, "There is a problem with the payment for the WhatsApp account."),
    131044: (SenderBlocked, "There is a problem with the payment for calls."),
    131045: (SenderBlocked, "The number is not properly registered: register it again."),
    131048: (SenderBlocked, "Meta holds the number back because too many people blocked or reported it."),
    131064: (SenderBlocked, "Meta holds back templates of this account: some were filed under a wrong category."),
    133000: (SenderBlocked, "An earlier deregistration of the number failed: deregister it again."),
    133010: (SenderBlocked, "The number is not registered with the Cloud API: register it."),
    134011: (SenderBlocked, "The terms of payments on WhatsApp have not been accepted."),
    # not this time
    133015: (TryLater, "The number was just deleted; Meta needs some minutes."),
    134101: (TryLater, "The template is still being synchronised; that takes up to ten minutes."),
    2494100: (TryLater, "The number is under maintenance for a moment."),
    # this message, for good
    100: (SendRefused, "Meta refused it: a field of the message is unknown or invalid."),
    130403: (SendRefused, "Meta refused it: the business has blocked this person."),
    130472: (SendRefused, "Meta did not deliver it: this person is in an experiment that receives no marketing."),
    130497: (SendRefused, "Meta refused it: the account may not message people in this country."),
    130501: (SendRefused, "Meta refused it: this type of message cannot be sent there."),
    131008: (SendRefused, "Meta refused it: a required field is missing."),
    131009: (SendRefused, "Meta refused it: a field has an invalid value."),
    131020: (SendRefused, "Meta refused it: the group cannot take it."),
    131021: (SendRefused, "Meta refused it: the recipient is the business number itself."),
    131026: (SendRefused, "Meta could not deliver it: the person is not on WhatsApp, or cannot receive it."),
    131030: (SendRefused, "Meta refused it: a test number sends only to the recipients on its list."),
    131036: (SendRefused, "Meta could not deliver it within the time it keeps such messages."),
    131041: (SendRefused, "Meta refused it: the group cannot take it."),
    131047: (SendRefused, "Meta refused it: more than 24 hours since their last message."),
    131049: (SendRefused, "Meta chose not to deliver it: this person has received enough marketing for now."),
    131050: (SendRefused, "Meta did not deliver it: this person has stopped marketing messages of this business."),
    131051: (SendRefused, "Meta refused it: this type of message is not supported."),
    131052: (SendRefused, "Meta could not fetch the file that the person sent."),
    131053: (SendRefused, "Meta could not take the file of this message."),
    131055: (SendRefused, "Meta refused it: only marketing templates may be sent this way."),
    131059: (SendRefused, "Meta refused it: the cursor of a list is invalid."),
    131060: (SendRefused, "The message is not available."),
    131062: (SendRefused, "Meta refused it: this message needs the person's phone number, and we only have a user id."),
    131063: (SendRefused, "Meta refused it: the account does not send marketing messages this way."),
    132000: (SendRefused, "Meta refused it: the template takes another number of parameters."),
    132001: (SendRefused, "Meta refused it: there is no such approved template in this language."),
    132005: (SendRefused, "Meta refused it: the template's text is too long once filled in."),
    132007: (SendRefused, "Meta refused it: the template breaks a content policy."),
    132008: (SendRefused, "Meta refused it: a parameter of the template has an invalid value."),
    132012: (SendRefused, "Meta refused it: a parameter of the template has the wrong format."),
    132015: (SendRefused, "Meta refused it: the template is paused because of its quality."),
    132016: (SendRefused, "Meta refused it: the template is disabled because of its quality."),
    132018: (SendRefused, "Meta refused it: the parameters do not fit the template."),
    132068: (SendRefused, "Meta refused it: the flow is blocked."),
    133016: (SendRefused, "The number was registered too often: wait 72 hours."),
    134100: (SendRefused, "Meta refused it: the template is no marketing template."),
    134102: (SendRefused, "Meta refused it: the template is not available for this."),
    135000: (SendRefused, "Meta refused it: a parameter is wrong, and Meta does not say which."),
    137000: (SendRefused, "Meta refused it: the person's identity key has changed."),
}

_RANGES: tuple[tuple[range, type[SendError], str], ...] = (
    (range(200, 300), CredentialInvalid, "The access token lacks a permission, or it was taken back: reconnect."),
    (range(131200, 131300), SendRefused, "Meta refused it: the group cannot take it."),
)

_CODE_TEXT = re.compile(r"-?[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class GraphError:
    """Meta's own word on a request that failed."""

    code: int
    subcode: int | None = None
    transient: bool = False


def graph_error(body: bytes | None) -> GraphError | None:
    """The error in an answer, or None where there is none that can be read: without a code it says nothing."""
    try:
        answer = bounded_json.loads(body or b"")
    except bounded_json.NotJson:
        return None
    error = answer.get("error") if isinstance(answer, dict) else None
    code = number(error.get("code")) if isinstance(error, dict) else None
    if not isinstance(error, dict) or code is None:
        return None
    return GraphError(code, number(error.get("error_subcode")), error.get("is_transient") is True)


def error_for(status: int, error: GraphError | None, retry_after: timedelta | None) -> SendError:
    """What an answer that is no 2xx means. Its code decides; its status only where the code is unknown or unread."""
    kind = _unreadable(status) if error is None else _kind(status, error)
    waits = retry_after if kind in (LimitReached, ProviderUnavailable, TryLater) else None
    return kind(error.code if error else None, status=status, retry_after=waits)


def sentence_for(code: int) -> str | None:
    """What a person is told about a code, in an answer as in a receipt; None where we know nothing to say."""
    known = _known(code)
    return known[1] if known else None


def number(value: Any) -> int | None:
    """A code as Meta may write it: a number, or a number in a string."""
    if isinstance(value, str) and _CODE_TEXT.fullmatch(value):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _known(code: int) -> tuple[type[SendError], str] | None:
    if code in _CODES:
        return _CODES[code]
    return next(((kind, sentence) for codes, kind, sentence in _RANGES if code in codes), None)


def _kind(status: int, error: GraphError) -> type[SendError]:
    if error.code == INVALID_PARAMETER and error.subcode == OBJECT_GONE:
        return SenderBlocked
    known = _known(error.code)
    if known:
        return known[0]
    if error.transient:
        return TryLater
    return SendRefused if 400 <= status < 500 else AnswerLost


def _unreadable(status: int) -> type[SendError]:
    """A bare 429 is certainly not accepted; anything else may come from something between Meta and us."""
    return ProviderUnavailable if status == 429 else AnswerLost
