"""A payload: one webhook's body as Meta writes it, and its signature.

Sources: developers.facebook.com/documentation/business-messaging/whatsapp/webhooks/reference/messages (May to August
2026; each kind has its page) and Meta's page on business-scoped user ids (5 November 2026).
"""

import hashlib
import hmac
import json
import secrets
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from local.whatsapp.errors import title_of

DISPLAY_PHONE_NUMBER = "15550001111"
ACCOUNT_ID = "300000000000001"
PROFILE_NAMES = tuple(f"{name} Exemplo" for name in ("Bruno", "Carla", "Davi", "Elisa", "Fábio", "Ana", "Inês", "João"))
"""Customers' names: the same customer always has the same, and most others a different one."""
USERNAME = "ana.exemplo"

Document = dict[str, Any]

NAMED_BY_PORTFOLIO = "PARTNER_"
"""Such account updates name the business portfolio in entry.id, and the account in the value."""

PORTFOLIO_ID = "400000000000004"
"""The business portfolio that owns every account: what people confuse with an account's id."""

ESCAPES: Mapping[str, str] = {"/": "\\/", "<": "\\u003C", "@": "\\u0040", "%": "\\u0025"}
"""What Meta escapes besides non-ASCII (reports by users, 2023 to 2026): code that signs its own re-encoding fails here.
"""

UNSUPPORTED_ERROR: Document = {
    "code": 131051,
    "title": "Message type unknown",
    "message": "Message type unknown",
    "error_data": {"details": "Message type is currently not supported."},
}


@dataclass(frozen=True, slots=True)
class SimulatedContact:
    """A customer, known by number, by business-scoped user id, or by both."""

    wa_id: str | None
    user_id: str | None

    @classmethod
    def of(cls, wa_id: str | None, user_id: str | None) -> "SimulatedContact":
        """Since April 2026 a customer who shows a number also shows a user id; the reverse is not true."""
        return cls(wa_id, user_id or (user_id_of(wa_id) if wa_id else None))

    def fields(self, number: str, user_id: str) -> Document:
        """Both ids under these names; an unknown one is omitted."""
        return {name: value for name, value in ((number, self.wa_id), (user_id, self.user_id)) if value}


@dataclass(frozen=True, slots=True)
class BusinessNumber:
    """A number of a business: its phone_number_id, its account (WABA), and the number itself."""

    id: str
    account: str = ACCOUNT_ID
    display: str = DISPLAY_PHONE_NUMBER


def user_id_of(wa_id: str) -> str:
    """A business-scoped user id, always the same for the same number."""
    return f"US.{int(hashlib.sha256(wa_id.encode()).hexdigest()[:16], 16):020d}"


def new_wamid(contact: str, outbound: bool) -> str:
    """A message id built like Meta's: opaque, but it contains the contact's number, so it is private."""
    who = contact.encode()[:200]
    unique = secrets.token_hex(9).upper().encode()
    direction = b"\x11" if outbound else b"\x12"
    return "wamid." + b64encode(
        b"\x1c\x18" + bytes([len(who)]) + who + b"\x15\x02\x00" + direction + b"\x18\x12" + unique + b"\x00"
    ).decode("ascii")


def message(contact: SimulatedContact, kind: str, content: object, wamid: str, now: float, extra: Document) -> Document:
    """One item of `messages`; `extra` is added to the type's own object (context, referral, errors, …).

    What Meta cannot deliver comes as `unsupported`, with the error that says so.
    """
    item = {**contact.fields("from", "from_user_id"), "id": wamid, "timestamp": str(int(now)), "type": kind}
    if kind == "unsupported":
        item["errors"] = [UNSUPPORTED_ERROR]
    return item | ({} if content is None else {kind: content}) | extra


def messages_value(sender: BusinessNumber, contact: SimulatedContact, messages: list[Document]) -> Document:
    """The messages of one contact. A contact without a number has a username.

    Only `system` messages come without contacts (Meta's page on them, 11 August 2026).
    """
    profile = {"name": name_of(contact)} | ({} if contact.wa_id else {"username": USERNAME})
    contacts = [{"profile": profile, **contact.fields("wa_id", "user_id")}]
    known = {} if messages[0]["type"] == "system" else {"contacts": contacts}
    return {**_value(sender), **known, "messages": messages}


def name_of(contact: SimulatedContact) -> str:
    """A customer's name."""
    digest = hashlib.sha256((contact.wa_id or contact.user_id or "").encode()).digest()
    return PROFILE_NAMES[digest[0] % len(PROFILE_NAMES)]


def receipt_value(
    sender: BusinessNumber,
    contact: SimulatedContact,
    wamid: str,
    kind: str,
    at: float,
    echo: str | None,
    code: int | None,
) -> Document:
    """One receipt. A failed one to a number names neither contacts nor a user id; a `sent` one contains the price."""
    failed = kind == "failed"
    shown = SimulatedContact(contact.wa_id, None) if failed and contact.wa_id else contact
    item: Document = {"id": wamid, "status": kind, "timestamp": str(int(at))}
    item |= shown.fields("recipient_id", "recipient_user_id")
    if echo is not None:
        item["biz_opaque_callback_data"] = echo
    if kind == "sent":
        item["pricing"] = {"billable": True, "pricing_model": "PMP", "type": "regular", "category": "service"}
    if failed:
        item["errors"] = [_receipt_error(code or 131026)]
    contacts = {} if failed else {"contacts": [contact.fields("wa_id", "user_id")]}
    return _value(sender) | contacts | {"statuses": [item]}


def webhook_body(value: Document, account: str) -> bytes:
    """The bytes on the wire, which are signed unchanged."""
    change = {"field": "messages", "value": value}
    return to_wire({"object": "whatsapp_business_account", "entry": [{"id": account, "changes": [change]}]})


def account_update_body(account: str, event: str, extra: Document, now: float) -> bytes:
    """The webhook about an account. `extra` is added to its value."""
    is_by_portfolio = event.startswith(NAMED_BY_PORTFOLIO)
    of_account = {"waba_info": {"waba_id": account, "owner_business_id": PORTFOLIO_ID}} if is_by_portfolio else {}
    change = {"field": "account_update", "value": {"event": event, **of_account, **extra}}
    entry = {"id": PORTFOLIO_ID if is_by_portfolio else account, "time": int(now), "changes": [change]}
    return to_wire({"object": "whatsapp_business_account", "entry": [entry]})


def to_wire(document: Document) -> bytes:
    text = json.dumps(document, separators=(",", ":"))
    for plain, escaped in ESCAPES.items():
        text = text.replace(plain, escaped)
    return text.encode("ascii")


def cut(body: bytes, place: int) -> list[bytes]:
    """The same messages in two other POSTs, the later messages first."""
    entry = json.loads(body)["entry"][0]
    value = entry["changes"][0]["value"]
    messages = value["messages"]
    return [
        webhook_body(value | {"messages": some}, entry["id"]) for some in (messages[place:], messages[:place]) if some
    ]


def count_messages(body: bytes) -> int:
    return len(json.loads(body)["entry"][0]["changes"][0]["value"]["messages"])


def message_ids(body: bytes) -> list[str]:
    """The ids of the messages in a webhook; none if the body is not a webhook."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return []
    changes = [change for entry in _objects(document, "entry") for change in _objects(entry, "changes")]
    messages = [message for change in changes for message in _objects(change.get("value"), "messages")]
    return [id for message in messages if isinstance(id := message.get("id"), str)]


def signature_headers(secret: str, body: bytes) -> dict[str, str]:
    """HMAC-SHA256 over the exact bytes, with the app's secret."""
    return {"X-Hub-Signature-256": "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}


def rfc3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _objects(holder: object, name: str) -> list[Document]:
    items = holder.get(name) if isinstance(holder, dict) else None
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _value(sender: BusinessNumber) -> Document:
    metadata = {"display_phone_number": sender.display, "phone_number_id": sender.id}
    return {"messaging_product": "whatsapp", "metadata": metadata}


def _receipt_error(code: int) -> Document:
    return {
        "code": code,
        "title": title_of(code),
        "message": title_of(code),
        "error_data": {"details": f"{title_of(code)}."},
        "href": "https://developers.facebook.com/documentation/business-messaging/whatsapp/support/error-codes/",
    }
