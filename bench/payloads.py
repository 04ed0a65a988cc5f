"""What the load sends: signed webhooks, and messages for the API. Each was never sent before."""

import hashlib
import hmac
import json
from collections.abc import Iterator, Sequence
from typing import Any

SECRET = "local-app-secret"
VERIFY_TOKEN = "local-verify-token"
SENDER = "100000000000001"
PATH = "/webhooks/whatsapp"
API_PATH = "/v1/messages"
KINDS = ("message", "receipt")

TEXT = "Hello, I would like to move my appointment of next Tuesday to Thursday afternoon. Is half past three free?"
_NUMBER = "0123456789abcdef"
"""A placeholder of 16 characters for what makes a message new."""


def requests(kind: str, tag: int, count: int) -> Iterator[bytes]:
    """`count` complete HTTP/1.1 requests. Two different tags share no message."""
    template = json.dumps(_webhook(kind, [_NUMBER]), separators=(",", ":")).encode()
    head = _head(len(template))
    keyed = hmac.new(SECRET.encode(), digestmod=hashlib.sha256)
    parts = template.split(_NUMBER.encode())
    for number in range(count):
        body = (b"%08x%08x" % (tag, number)).join(parts)
        signature = keyed.copy()
        signature.update(body)
        yield b"%b%b\r\n\r\n%b" % (head, signature.hexdigest().encode(), body)


def api_requests(tag: int, count: int, keys: Sequence[str]) -> Iterator[bytes]:
    """`count` requests that send a message, with these API keys in turn. Two different tags share no message."""
    for number in range(count):
        message = f"{tag:08x}{number:08x}"
        body = json.dumps({"from": SENDER, "to": "+15550002222", "text": f"{TEXT} {message}"}).encode()
        head = (
            f"POST {API_PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: a-program\r\nAccept: */*\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nIdempotency-Key: {message}\r\n"
            f"Authorization: Bearer {keys[number % len(keys)]}\r\n\r\n"
        )
        yield head.encode() + body


def large_request(tag: int, messages: int) -> bytes:
    """One request with many messages."""
    body = json.dumps(
        _webhook("message", [f"{tag:08x}{number:08x}" for number in range(messages)]), separators=(",", ":")
    ).encode()
    return _head(len(body)) + hmac.digest(SECRET.encode(), body, "sha256").hex().encode() + b"\r\n\r\n" + body


def _head(length: int) -> bytes:
    return (
        f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: facebookexternalua\r\nAccept: */*\r\n"
        f"Content-Type: application/json\r\nContent-Length: {length}\r\nX-Hub-Signature-256: sha256="
    ).encode()


def _webhook(kind: str, numbers: list[str]) -> dict[str, Any]:
    """As Meta sends it (https://developers.facebook.com/docs/whatsapp/cloud-api/webhooks/payload-examples, 2026-11)."""
    value: dict[str, Any] = {
        "messaging_product": "whatsapp",
        "metadata": {"display_phone_number": "15550001111", "phone_number_id": SENDER},
    }
    if kind == "message":
        # pywa 4.5 drops a message whose contact has no user_id.
        contact = {"profile": {"name": "Ana Ferreira"}, "wa_id": "15550002222", "user_id": "US.13491208655302741918"}
        value |= {"contacts": [contact], "messages": [_message(number) for number in numbers]}
    else:
        value |= {"statuses": [_receipt(number) for number in numbers]}
    entry = {"id": "300000000000003", "changes": [{"field": "messages", "value": value}]}
    return {"object": "whatsapp_business_account", "entry": [entry]}


def _message(number: str) -> dict[str, Any]:
    return {
        "from": "15550002222",
        "from_user_id": "US.13491208655302741918",
        "id": f"wamid.HBgLMTU1NTAwMDIyMjIVAgASGBQz{number}",
        "timestamp": "1772366400",
        "type": "text",
        "text": {"body": TEXT},
    }


def _receipt(number: str) -> dict[str, Any]:
    return {
        "id": f"wamid.HBgLMTU1NTAwMDIyMjIVAgARGBIy{number}",
        "status": "delivered",
        "timestamp": "1772366400",
        "recipient_id": "15550002222",
        "recipient_user_id": "US.13491208655302741918",
        "conversation": {"id": "d9f3a1c0b5e84f7296", "origin": {"type": "service"}},
        "pricing": {"billable": False, "pricing_model": "PMP", "category": "service", "type": "free_customer_service"},
        "biz_opaque_callback_data": f"pombo1.{number}{'5' * 24}.0.{number}{'a' * 16}",
    }
