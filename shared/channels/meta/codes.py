"""Meta's error codes: one table from a code to its meaning, whom it concerns, and the sentence that an operator reads.

docs/protocol.md says what follows from a class. If Meta describes a code differently from its class here, this table
applies. A code means the same in an answer and in a receipt.
"""

# https://developers.facebook.com/documentation/business-messaging/whatsapp/support/error-codes (seen November 2026)
# It includes codes of calls that Pombo does not make (registering numbers, editing templates): a receipt, a webhook or
# a proxy may bring any of them. "reported": users report the code, but that page does not have it.

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from shared.domain.send_errors import (
    AccessDenied,
    AnswerLost,
    CredentialInvalid,
    LimitReached,
    ProviderUnavailable,
    SenderBlocked,
    SendError,
    SendRefused,
    TryLater,
)
from shared.domain.verdicts import BlockScope, LimitScope

Scope = Literal["message", "contact", "sender", "tenant", "provider", "us"]

INVALID_PARAMETER = 100
OBJECT_GONE = 33
"""As a code, or as the subcode of 100: the number was deleted or disconnected from us (PARTNER_REMOVED)."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a code means: the error that carries the verdict, whom it concerns, and the sentence that an operator reads.

    `minutes` is the minimum wait before a retry, if Meta states one. `limit` is whose limit a LimitReached is about.
    """

    error: type[SendError]
    scope: Scope
    sentence: str
    minutes: int = 0
    limit: LimitScope = LimitScope.ACCOUNT

    def raised(self, code: int, status: int, retry_after: timedelta | None) -> SendError:
        """The error of an answer with this code; `retry_after` is the wait that the answer asks for."""
        if issubclass(self.error, LimitReached):
            return self.error(code, limit=self.limit, status=status, retry_after=retry_after, minutes=self.minutes)
        if issubclass(self.error, SenderBlocked):
            block = BlockScope.ACCOUNT if self.scope == "tenant" else BlockScope.SENDER
            return self.error(code, block=block, status=status, retry_after=retry_after)
        waits = retry_after if issubclass(self.error, WAITING) else None
        return self.error(code, status=status, retry_after=waits, minutes=self.minutes)


WAITING = (CredentialInvalid, LimitReached, ProviderUnavailable, SenderBlocked, TryLater)
"""After these the message is retried, no sooner than the provider asks."""


_CODES: Mapping[int, Meaning] = {
    # the provider as a whole
    1: Meaning(AnswerLost, "provider", "Meta reported an error without a cause: Meta may or may not have the message."),
    2: Meaning(ProviderUnavailable, "provider", "Meta is overloaded or down."),
    131000: Meaning(AnswerLost, "provider", "Meta reported an internal error: Meta may or may not have the message."),
    131016: Meaning(ProviderUnavailable, "provider", "Meta's message service is temporarily down."),
    133004: Meaning(ProviderUnavailable, "provider", "Meta's server is temporarily unavailable."),
    # our access
    0: Meaning(CredentialInvalid, "tenant", "Meta rejected the access token: reconnect the number."),
    3: Meaning(AccessDenied, "tenant", "The access token lacks a permission: reconnect the number."),
    10: Meaning(
        AccessDenied,
        "tenant",
        "The access token lacks a permission, or the permission was revoked: reconnect the number.",
    ),
    102: Meaning(CredentialInvalid, "tenant", "The access token's session has ended: reconnect the number."),
    190: Meaning(CredentialInvalid, "tenant", "The access token has expired or was revoked: reconnect the number."),
    467: Meaning(CredentialInvalid, "tenant", "The access token is invalid: reconnect the number."),
    131005: Meaning(AccessDenied, "tenant", "The access token has no access to this number: reconnect the number."),
    # limits: `limit` says whose, which decides the wait (shared/domain/waits.py)
    4: Meaning(LimitReached, "provider", "The Meta app reached its call limit: all its numbers wait."),
    17: Meaning(LimitReached, "tenant", "The access token reached Meta's call limit."),
    613: Meaning(LimitReached, "tenant", "Calls of this kind reached Meta's limit."),
    80007: Meaning(LimitReached, "tenant", "The WhatsApp account reached Meta's call limit."),
    80008: Meaning(LimitReached, "tenant", "The WhatsApp account reached the call limit of Meta's management API."),
    130429: Meaning(
        LimitReached, "sender", "The number reached Meta's limit for messages per second.", limit=LimitScope.RATE
    ),
    131056: Meaning(
        LimitReached,
        "contact",
        "Meta's limit for messages to one customer in a short time is reached.",
        limit=LimitScope.CONTACT,
    ),
    131057: Meaning(
        LimitReached,
        "sender",
        "Meta is upgrading the number, which takes about a minute.",
        limit=LimitScope.MAINTENANCE,
    ),
    131208: Meaning(
        LimitReached, "sender", "Meta's limit for group operations in a short time is reached."
    ),  # reported
    132069: Meaning(
        LimitReached,
        "message",
        "The flow is unhealthy: Meta limits it to ten messages an hour until it is fixed.",
        minutes=60,
    ),
    # the business number or its account
    33: Meaning(SenderBlocked, "sender", "The number no longer exists at Meta, or was disconnected: reconnect it."),
    368: Meaning(SenderBlocked, "tenant", "Meta has blocked the WhatsApp account for a policy violation."),
    131031: Meaning(SenderBlocked, "tenant", "Meta has locked the WhatsApp account."),
    131037: Meaning(SenderBlocked, "sender", "The number needs an approved display name before it may send."),
    131042: Meaning(SenderBlocked, "tenant", "The WhatsApp account has a payment problem."),
    131044: Meaning(SenderBlocked, "tenant", "The WhatsApp account has a payment problem for calls."),  # reported
    131045: Meaning(SenderBlocked, "sender", "The number is not properly registered: register it again."),
    131048: Meaning(
        SenderBlocked, "sender", "Meta restricts the number because too many people blocked or reported it."
    ),
    131064: Meaning(
        SenderBlocked, "tenant", "Meta restricts templates of this account because some have a wrong category."
    ),
    133000: Meaning(SenderBlocked, "sender", "An earlier deregistration of the number failed: deregister it again."),
    133010: Meaning(SenderBlocked, "sender", "The number is not registered with the Cloud API: register it."),
    134011: Meaning(SenderBlocked, "tenant", "The business has not accepted the terms of WhatsApp payments."),
    # not this time
    133015: Meaning(TryLater, "sender", "The number was just deleted, and Meta needs some minutes.", minutes=5),
    134101: Meaning(
        TryLater, "message", "Meta is still synchronising the template, which takes up to ten minutes.", minutes=10
    ),
    2494100: Meaning(TryLater, "sender", "The number is under maintenance."),
    # this customer, permanently
    130403: Meaning(SendRefused, "contact", "Meta refused it: the business has blocked this customer."),
    130472: Meaning(
        SendRefused,
        "contact",
        "Meta did not deliver it: the customer is in an experiment group that receives no marketing.",
    ),
    130497: Meaning(SendRefused, "contact", "Meta refused it: the account may not message customers in this country."),
    131021: Meaning(SendRefused, "contact", "Meta refused it: the recipient is the business number itself."),
    131026: Meaning(
        SendRefused, "contact", "Meta could not deliver it: the customer is not on WhatsApp, or cannot receive it."
    ),
    131030: Meaning(SendRefused, "contact", "Meta refused it: a test number sends only to the recipients on its list."),
    131036: Meaning(SendRefused, "contact", "Meta could not deliver it before the message expired."),
    131047: Meaning(SendRefused, "contact", "Meta refused it: the customer's last message is more than 24 hours old."),
    131049: Meaning(
        SendRefused, "contact", "Meta did not deliver it: the customer has reached Meta's limit for marketing messages."
    ),
    131050: Meaning(
        SendRefused,
        "contact",
        "Meta did not deliver it: the customer has stopped marketing messages from this business.",
    ),
    131062: Meaning(
        SendRefused,
        "contact",
        "Meta refused it: the message needs the customer's phone number, and only a user id is known.",
    ),
    137000: Meaning(SendRefused, "contact", "Meta refused it: the customer's identity key has changed."),
    # this message, permanently
    100: Meaning(SendRefused, "message", "Meta refused it: a field of the message is unknown or invalid."),
    130501: Meaning(SendRefused, "message", "Meta refused it: this type of message cannot be sent there."),  # reported
    131008: Meaning(SendRefused, "message", "Meta refused it: a required field is missing."),
    131009: Meaning(SendRefused, "message", "Meta refused it: a field has an invalid value."),
    131020: Meaning(
        SendRefused, "message", "Meta refused it: the group does not exist, or cannot receive it."
    ),  # reported
    131041: Meaning(SendRefused, "message", "Meta refused it: the group cannot receive it at the moment."),  # reported
    131051: Meaning(SendRefused, "message", "Meta refused it: this type of message is not supported."),
    131052: Meaning(SendRefused, "message", "Meta could not fetch the file that the customer sent."),
    131053: Meaning(SendRefused, "message", "Meta could not process the file of this message."),
    131055: Meaning(SendRefused, "message", "Meta refused it: only marketing templates may be sent this way."),
    131059: Meaning(
        SendRefused, "message", "Meta refused it: the position in a list of results is invalid."
    ),  # reported
    131060: Meaning(SendRefused, "message", "The message is not available."),
    131063: Meaning(SendRefused, "tenant", "Meta refused it: the account may not send marketing messages this way."),
    132000: Meaning(SendRefused, "message", "Meta refused it: the template expects a different number of values."),
    132001: Meaning(SendRefused, "message", "Meta refused it: there is no such approved template in this language."),
    132005: Meaning(SendRefused, "message", "Meta refused it: the template's text is too long once filled in."),
    132007: Meaning(SendRefused, "message", "Meta refused it: the template violates a content policy."),
    132008: Meaning(SendRefused, "message", "Meta refused it: a value for the template is invalid."),  # reported
    132012: Meaning(SendRefused, "message", "Meta refused it: a value for the template has the wrong format."),
    132015: Meaning(SendRefused, "message", "Meta refused it: the template is paused because of its quality."),
    132016: Meaning(SendRefused, "message", "Meta refused it: the template is disabled because of its quality."),
    132018: Meaning(SendRefused, "message", "Meta refused it: the values do not match the template."),
    132068: Meaning(SendRefused, "message", "Meta refused it: the flow is blocked."),
    134100: Meaning(SendRefused, "message", "Meta refused it: the template is not a marketing template."),
    134102: Meaning(SendRefused, "message", "Meta refused it: the template is not available for this."),
    135000: Meaning(SendRefused, "message", "Meta refused it: the message is invalid, and Meta does not say why."),
    # calls that operators make for a number or an account: never retried automatically
    133005: Meaning(SendRefused, "sender", "The number's PIN is wrong."),
    133006: Meaning(SendRefused, "sender", "The number must be verified before it can be registered."),
    133008: Meaning(
        SendRefused, "sender", "A wrong PIN was entered too often for the number: wait as long as Meta says."
    ),
    133009: Meaning(SendRefused, "sender", "PINs for the number were entered too fast: wait as long as Meta says."),
    133016: Meaning(SendRefused, "sender", "The number was registered too often: wait 72 hours."),
    136024: Meaning(SendRefused, "sender", "The number is already verified."),  # reported
    136025: Meaning(
        SendRefused, "sender", "The number's verification code is wrong, or could not be sent."
    ),  # reported
    139100: Meaning(SendRefused, "tenant", "Some users could not be blocked or unblocked."),  # reported
    139101: Meaning(SendRefused, "tenant", "The list of blocked users is full."),  # reported
    1752041: Meaning(SendRefused, "tenant", "This business is already being connected."),  # reported
    2593107: Meaning(SendRefused, "sender", "The chat history was requested too often."),  # reported
    2593108: Meaning(
        SendRefused, "sender", "The chat history can no longer be fetched: the time allowed for it is over."
    ),  # reported
}

_RANGES: tuple[tuple[range, Meaning], ...] = (
    # Limits of business use cases: https://developers.facebook.com/docs/graph-api/overview/rate-limiting
    (range(80000, 80015), Meaning(LimitReached, "tenant", "The business reached Meta's call limit.")),
    (range(200, 300), Meaning(AccessDenied, "tenant", "A permission is missing or was revoked: reconnect the number.")),
    (range(131200, 131300), Meaning(SendRefused, "message", "Meta refused it because of its group.")),  # reported
    (range(138000, 139000), Meaning(SendRefused, "message", "Meta refused it: a rule for calls forbids it.")),
    (range(139000, 140000), Meaning(SendRefused, "tenant", "Meta refused to change the list of blocked users.")),
    (range(147000, 148000), Meaning(SendRefused, "tenant", "Meta refused it because of a username.")),  # reported
    (range(2388000, 2389000), Meaning(SendRefused, "tenant", "Meta refused to create or change the template.")),
    (range(2494000, 2495000), Meaning(SendRefused, "sender", "Meta refused to set up or change the number.")),
)
"""Families of codes; the table above takes precedence."""

UNKNOWN: Mapping[type[SendError], Meaning] = {
    TryLater: Meaning(TryLater, "message", "Meta did not accept it this time, for a reason that Pombo does not know."),
    SendRefused: Meaning(SendRefused, "message", "Meta refused it, for a reason that Pombo does not know."),
    AnswerLost: Meaning(
        AnswerLost, "provider", "Meta reported an error that Pombo does not know: Meta may or may not have the message."
    ),
}
"""Codes that are in no table, by the rule: is_transient is retried, 4xx is refused, 5xx is lost."""

_UNKNOWN_ANSWERS = {"retry": UNKNOWN[TryLater], "refused": UNKNOWN[SendRefused], "lost": UNKNOWN[AnswerLost]}


def meaning_of(code: int, subcode: int | None = None) -> Meaning | None:
    """What a code means; None for one that is in no table."""
    if code == INVALID_PARAMETER and subcode == OBJECT_GONE:
        return _CODES[OBJECT_GONE]
    return _CODES.get(code) or next((meaning for codes, meaning in _RANGES if code in codes), None)


def sentence_for(code: int, answer: str = "") -> str | None:
    """What an operator reads about a code, in an answer or in a receipt.

    For an unknown code it depends on `answer`, the verdict's name, which also tells which 100 it was. None if nothing
    is known.
    """
    known = meaning_of(code, OBJECT_GONE if answer == "blocked" else None) or _UNKNOWN_ANSWERS.get(answer)
    return known.sentence if known else None


def table() -> tuple[tuple[str, Meaning], ...]:
    """The complete table, codes and families in order, for the documentation."""
    families = [(codes[0], f"{codes[0]}-{codes[-1]}", meaning) for codes, meaning in _RANGES]
    single = [(code, str(code), meaning) for code, meaning in _CODES.items()]
    return tuple((name, meaning) for _, name, meaning in sorted([*families, *single], key=lambda row: row[0]))
