"""Webhooks as Meta writes them, built from a test's few arguments."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.stack import SENDER

ACCOUNT = "100000000000001"


def text(contact: str, message_id: str, body: str, **more: Any) -> dict[str, Any]:
    """One item of messages."""
    item = {"id": message_id, "timestamp": "1790416800", "type": "text", "from": contact, "text": {"body": body}}
    return item | more


def receipt(message_id: str, status: str, **more: Any) -> dict[str, Any]:
    """One item of statuses."""
    return {"id": message_id, "status": status, "timestamp": "1790416801", "recipient_id": "15550002222"} | more


def value(
    messages: Sequence[Any] | None = None, statuses: Sequence[Any] | None = None, sender: str = SENDER, **more: Any
) -> dict[str, Any]:
    """The value of one change."""
    metadata = {"display_phone_number": "15550001111", "phone_number_id": sender}
    items = {name: list(given) for name, given in (("messages", messages), ("statuses", statuses)) if given is not None}
    return {"messaging_product": "whatsapp", "metadata": metadata} | items | more


def envelope(*values: Any, account: str = ACCOUNT, field: str = "messages") -> dict[str, Any]:
    """One entry with a change for each value."""
    changes = [{"field": field, "value": one} for one in values]
    return {"object": "whatsapp_business_account", "entry": [{"id": account, "changes": changes}]}


def wire(document: Mapping[str, Any]) -> bytes:
    """Non-ASCII escaped, as Meta sends it."""
    return json.dumps(document, separators=(",", ":")).encode()


def of_texts(*items: Any) -> bytes:
    """A POST of these messages."""
    return wire(envelope(value(items)))
