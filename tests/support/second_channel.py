"""A second provider, as different from the first as possible: form bodies, a signature over the address and the fields,
two paths, senders that are phone numbers, an answer in XML, and no echo in its receipts.
"""

# ruff: noqa: ARG002 - the arguments are those of the port

import hashlib
import hmac
import re
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlencode

from shared.domain.calls import is_call
from shared.domain.errors import Forbidden, ItemUnparsable, SignatureInvalid
from shared.domain.events import MessageReceived, Parsed, ReceiptReceived, Unparsable
from shared.domain.identity import Echo, stable_hash
from shared.domain.limits import PostTimes
from shared.domain.marks import is_outage
from shared.domain.messages import Contact, Message
from shared.domain.outbound.recipient import Recipient, phone_number
from shared.domain.record import Delivery, ReceiptKind
from shared.domain.retention import RAW_PAYLOAD_BYTES
from shared.domain.send_errors import AnswerLost, LimitReached, ProviderUnavailable, SenderBlocked, SendRefused
from shared.domain.state_changes import StateChange
from shared.domain.verdicts import LimitScope
from shared.net import bounded_json
from shared.net.bounded_http import NoAnswer, NotSent, Poster
from shared.net.egress_policy import ANYWHERE
from shared.pipeline.intake import Acknowledgement, Incoming

RECEIPTS: Mapping[str, ReceiptKind] = {
    "sent": ReceiptKind.SENT,
    "delivered": ReceiptKind.DELIVERED,
    "read": ReceiptKind.READ,
    "failed": ReceiptKind.FAILED,
}
"""Acme's names for a message's status."""

CODES: Mapping[int, tuple[type[Any], dict[str, Any], str]] = {
    20429: (LimitReached, {"limit": LimitScope.RATE}, "Acme takes no more messages a second."),
    20503: (ProviderUnavailable, {}, "Acme is down."),
    63018: (SenderBlocked, {}, "Acme has suspended the number."),
    63024: (SendRefused, {}, "Acme refused it: the recipient is invalid."),
}
NOT_EXPRESSIBLE = 1
"""A code of our own, which no provider uses."""

TIME_UNKNOWN = datetime.fromtimestamp(0, UTC)
"""The time of a receipt whose own is unreadable: the receipt still counts, and a repeat writes the same."""

_LONGEST_ID = 64
_CODE, _SECONDS = re.compile(r"[0-9]{1,6}"), re.compile(r"[0-9]{1,10}")


def signature(secret: str, url: str, fields: Mapping[str, str]) -> str:
    """Over the whole address and the fields sorted by name."""
    text = url + "".join(f"{name}{fields[name]}" for name in sorted(fields))
    return hmac.new(secret.encode(), text.encode(), hashlib.sha1).hexdigest()


class AcmeReceiver:
    """Takes webhooks from Acme's API, which calls this service at `public_url`."""

    provider = "acme"
    webhooks: Mapping[str, Sequence[str]] = {"acme": ("POST",), "acme/status": ("POST",)}
    has_public_sender_ids = False

    def __init__(self, secret: str, public_url: str) -> None:
        self._secret, self._public_url = secret, public_url

    def handshake(self, incoming: Incoming) -> Acknowledgement:
        raise Forbidden("no_handshake")

    def verify(self, incoming: Incoming) -> None:
        expected = signature(self._secret, self._public_url + incoming.url, _fields(incoming))
        if not hmac.compare_digest(incoming.headers.get("x-acme-signature", "").encode(), expected.encode()):
            raise SignatureInvalid

    def parse(self, incoming: Incoming) -> Parsed:
        is_receipt = incoming.url.partition("?")[0].endswith("/status")
        form = {_storable(name): _storable(value) for name, value in _fields(incoming).items()}
        field, whose = ("status", "From") if is_receipt else ("messages", "To")
        sid, ours = _id(form.get("Sid")), _id(form.get(whose))
        if len(incoming.body) > RAW_PAYLOAD_BYTES:
            return Parsed((Unparsable(self.provider, ours, field, _beginning(incoming.body)),))
        if is_receipt and sid and ours and "Status" in form:
            return self._receipt(sid, ours, form)
        if not is_receipt and sid and ours and (person := _id(form.get("From"))):
            return Parsed((MessageReceived(self.provider, ours, sid, person, {"item": form}, _time(form)),))
        return Parsed((Unparsable(self.provider, ours, field, form),))

    def _receipt(self, sid: str, ours: str, form: Mapping[str, str]) -> Parsed:
        kind = RECEIPTS.get(form["Status"])
        if kind is None:
            return Parsed((), {"unknown_receipt": 1})  # the status itself would be logged, and may be any text
        code = form.get("Code", "")
        number = int(code) if _CODE.fullmatch(code) else None
        return Parsed((ReceiptReceived(self.provider, ours, sid, kind, _time(form) or TIME_UNKNOWN, number),))

    def acknowledge(self, incoming: Incoming) -> Acknowledgement:
        return Acknowledgement(b"<Response/>", "text/xml")


class AcmeChannel(AcmeReceiver):
    """Sends texts by Acme's API."""

    def __init__(self, secret: str, public_url: str, api_url: str) -> None:
        super().__init__(secret, public_url)
        self._api_url = api_url
        self._poster: Poster | None = None

    def read(self, record: Delivery) -> Message | None:
        form = record.payload.get("item")
        if not isinstance(form, Mapping) or not (form.get("From") and form.get("Sid")):
            raise ItemUnparsable
        who, text = Contact(form["From"], phone=form["From"]), form.get("Body")
        kind = "unsupported" if text is None else "text"
        return Message(kind, text, form["Sid"], who, record.sender, record.tenant, record.received_at, raw=form)

    def changes(self, record: Delivery) -> Sequence[StateChange]:
        return ()

    def address(self, message: Message) -> Mapping[str, str]:
        return {"to": f"acme:{message.contact.id}"}

    def recipient(self, to: str) -> Recipient:
        digits = phone_number(to)
        if digits is None:
            raise ValueError("to is a phone number with + and its country code: Acme has no user ids.")
        return Recipient(to, {"to": f"acme:{to}"})

    def fingerprint(self, credential: str) -> str:
        return stable_hash("credential", credential) if credential else ""

    def send(self, record: Delivery, echo: Echo, credential: str) -> str | None:
        if is_call(record.payload):
            return None  # Acme has no such call, and nothing waits for it
        if record.payload["type"] != "text":
            raise SendRefused(NOT_EXPRESSIBLE)
        form = {"From": record.sender, "To": record.payload["to"], "Body": record.payload["content"]["body"]}
        answer = self._post(credential, form)
        return _id(answer.get("sid")) or None

    def probe(self, sender: str, credential: str) -> None:
        try:
            self._post(credential, {"From": sender})
        except (AnswerLost, LimitReached, ProviderUnavailable, SenderBlocked, SendRefused) as error:
            if is_outage(error.verdict):
                raise

    def explain(self, code: int, answer: str) -> str | None:
        return "Acme sends texts alone." if code == NOT_EXPRESSIBLE else CODES[code][2] if code in CODES else None

    def remark(self, record: Delivery) -> str | None:
        return None

    def _post(self, credential: str, form: Mapping[str, str]) -> Mapping[str, Any]:
        self._poster = self._poster or Poster(PostTimes(), time.monotonic, reach=ANYWHERE)
        try:
            answer = self._poster.post(self._api_url, {"Authorization": credential}, urlencode(form).encode())
        except NotSent as error:
            raise ProviderUnavailable from error
        except NoAnswer as error:
            raise AnswerLost from error
        document = _document(answer.body or b"")
        if answer.status < 300:
            return document
        code = document.get("code")
        if not isinstance(code, int) or code not in CODES:
            raise AnswerLost(status=answer.status)
        error, more, _ = CODES[code]
        raise error(code, status=answer.status, **more)


def _document(body: bytes) -> Mapping[str, Any]:
    """The object in an answer; empty if it holds none."""
    try:
        document = bounded_json.loads(body)
    except bounded_json.NotJson:
        return {}
    return document if isinstance(document, dict) else {}


def _id(value: Any) -> str:
    """An id or a number; empty if it cannot be stored."""
    return value if isinstance(value, str) and len(value) <= _LONGEST_ID and value.strip() else ""


def _time(form: Mapping[str, str]) -> datetime | None:
    at = form.get("At", "")
    return datetime.fromtimestamp(int(at), UTC) if _SECONDS.fullmatch(at) else None


def _storable(text: str) -> str:
    return text.replace("\0", "\ufffd")  # not every store accepts a NUL


def _beginning(body: bytes) -> str:
    """The part that is kept of a body that is too large."""
    return _storable(body[: RAW_PAYLOAD_BYTES // 4].decode(errors="replace"))


def _fields(incoming: Incoming) -> dict[str, str]:
    return dict(parse_qsl(incoming.body.decode(errors="replace"), keep_blank_values=True))
