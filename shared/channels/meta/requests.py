"""Meta's send calls: the request body of one stored reply, and the id in a successful answer."""

# https://developers.facebook.com/docs/whatsapp/cloud-api/reference/messages (seen November 2026)

import json
from collections.abc import Mapping
from typing import Any

from shared.channels.meta.fields import identifier, mapping
from shared.domain.calls import is_call
from shared.domain.identity import Echo
from shared.domain.send_errors import TryLater
from shared.net import bounded_json

PROBED = "wamid.pombo-probe"
"""Not a real id: Meta's are wamid. and base64."""


def request_body(payload: Mapping[str, Any], echo: Echo) -> bytes:
    """The JSON of one message or call. Raises TryLater if the stored reply cannot be written as one.

    Nothing was sent, and only this message is at fault. Our own backoff leaves time for a new release, which an
    outage's backoff would not, and the other messages go on.
    """
    body = _call(payload) if is_call(payload) else _message(payload, echo)
    try:
        return json.dumps({"messaging_product": "whatsapp", **body}, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise TryLater from error


def _message(payload: Mapping[str, Any], echo: Echo) -> Mapping[str, Any]:
    address = {key: payload[key] for key in ("to", "recipient") if payload.get(key)}
    kind, reply_to = payload.get("type"), payload.get("reply_to")
    if not address or not isinstance(kind, str) or "content" not in payload:
        raise TryLater
    return {
        "recipient_type": "individual",
        **address,
        "type": kind,
        kind: payload["content"],
        **({"context": {"message_id": reply_to}} if reply_to else {}),
        "biz_opaque_callback_data": str(echo),
    }


def _call(payload: Mapping[str, Any]) -> Mapping[str, Any]:
    """Typing is a read call with an indicator. It has no address and no echo: Meta writes no receipts for it."""
    message_id = identifier(mapping(payload.get("content")).get("message_id"))
    if message_id is None:
        raise TryLater
    indicator = {"typing_indicator": {"type": "text"}} if payload["type"] == "typing" else {}
    return {"status": "read", "message_id": message_id, **indicator}


def probe_body() -> bytes:
    """A read call for a message that cannot exist: no customer sees any effect."""
    return json.dumps({"messaging_product": "whatsapp", "status": "read", "message_id": PROBED}).encode()


def message_id(body: bytes | None) -> str | None:
    """The wamid in an answer; None if it cannot be read, and for a call, which has none."""
    try:
        answer = mapping(bounded_json.loads(body or b""))
    except bounded_json.NotJson:
        return None
    messages = answer.get("messages")
    return identifier(mapping(messages[0]).get("id")) if isinstance(messages, list) and messages else None
