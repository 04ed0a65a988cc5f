"""A refusal: Meta's error document. Its code says what it is; its HTTP status says little.

Codes and titles: developers.facebook.com/documentation/business-messaging/whatsapp/support/error-codes (edition of June
2026). The statuses are in an older edition of that page; the newest has hardly any. Throttles are HTTP 400 there, and
so is every code that the table here does not name.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass

PROVIDER_DOWN = 2
INVALID_REQUEST = 100
OBJECT_GONE = 33  # the subcode of 100 for an unknown phone number id
TOKEN = 190
APP_PERMISSION = 10
PERMISSION = 200
UNKNOWN_PATH = 2500
MISSING = 131008
INVALID = 131009
UNSUPPORTED_TYPE = 131051
NO_TEMPLATE = 132001
TEMPLATE_PARAMETER = 132018

STATUSES: Mapping[int, int] = {
    0: 401, 2: 503, 3: 500, 10: 403, 102: 401, 190: 401, 467: 401,
    130497: 403, 131000: 500, 131005: 403, 131016: 500, 131031: 403, 131045: 500, 131057: 500,
    132001: 404, 133000: 500, 133004: 503, 134101: 500,
}  # fmt: skip

TITLES: Mapping[int, str] = {
    0: "AuthException",
    1: "API Unknown",
    2: "API Service",
    3: "API Method",
    4: "API Too Many Calls",
    10: "Permission Denied",
    100: "Invalid parameter",
    190: "Invalid OAuth access token",
    368: "Temporarily blocked for policies violations",
    80007: "Rate limit issues",
    130429: "Rate limit hit",
    130472: "User's number is part of an experiment",
    131000: "Something went wrong",
    131005: "Access denied",
    131008: "Required parameter is missing",
    131009: "Parameter value is not valid",
    131016: "Service unavailable",
    131021: "Recipient cannot be sender",
    131026: "Message undeliverable",
    131031: "Account has been locked",
    131042: "Business eligibility payment issue",
    131045: "Incorrect certificate",
    131047: "Re-engagement message",
    131048: "Spam rate limit hit",
    131049: "Meta chose not to deliver",
    131051: "Unsupported message type",
    131053: "Media upload error",
    131056: "(Business Account, Consumer Account) pair rate limit hit",
    131057: "Account in maintenance mode",
    132000: "Template param count mismatch",
    132001: "Template does not exist",
    132018: "Template validation error",
    133004: "Server temporarily unavailable",
    133010: "Phone number not registered",
}


def status_of(code: int) -> int:
    """The usual HTTP status of a code."""
    return STATUSES.get(code, 403 if 200 <= code <= 299 else 400)


def title_of(code: int) -> str:
    return TITLES.get(code, "Error")


@dataclass(eq=False)
class GraphError(Exception):
    """Meta refused the request; `details` names a field or a rule and never repeats a value. `message` replaces the
    code's usual one.
    """

    code: int
    details: str
    status: int | None = None
    subcode: int | None = None
    transient: bool = False
    message: str | None = None

    @property
    def http_status(self) -> int:
        return self.status or status_of(self.code)

    def document(self) -> dict[str, object]:
        error: dict[str, object] = {
            "message": self.message or f"(#{self.code}) {title_of(self.code)}",
            "type": "OAuthException",
            "code": self.code,
            **({"error_data": {"messaging_product": "whatsapp", "details": self.details}} if self.details else {}),
            "fbtrace_id": "A" + secrets.token_urlsafe(16),
        }
        if self.subcode is not None:
            error["error_subcode"] = self.subcode
        if self.transient:
            error["is_transient"] = True
        return {"error": error}
