"""Standard Webhooks: signs calls to HANDLER_URL, so that a backend can verify origin, integrity and time."""

# https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md (seen November 2026)

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Sequence
from datetime import datetime

PREFIX = "whsec_"
"""The prefix of a secret; the base64 of the key follows."""


def signed_headers(secrets: Sequence[str], message_id: str, at: datetime, body: bytes) -> dict[str, str]:
    """The three headers of one call, for exactly these bytes.

    There is one signature for each secret, in their order. A call is valid if any signature is, so a secret can be
    rotated without a moment in which the two sides share none.
    """
    timestamp = str(int(at.timestamp()))
    content = f"{message_id}.{timestamp}.".encode() + body
    return {
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(_signature(secret, content) for secret in secrets),
    }


def _signature(secret: str, content: bytes) -> str:
    key = b64decode(secret.removeprefix(PREFIX), validate=True)
    return "v1," + b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
