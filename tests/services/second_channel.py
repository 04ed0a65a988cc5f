"""A second provider, as unlike the first as they come: form bodies, a signature over the address and the fields, two
paths, senders that are phone numbers, an answer in XML, and no echo in its receipts.
"""

# ruff: noqa: ARG002 - the arguments are those of the port

import hashlib
import hmac
import json
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlencode

from shared.domain.calls import is_call
from shared.domain.errors import (
    AnswerLost,
    Forbidden,
    LimitReached,
    ProviderUnavailable,
    SenderBlocked,
    SendRefused,
    SignatureInvalid,
)
from shared.domain.events import MessageReceived, Parsed, ReceiptReceived, StateChange, Unparsable
from shared.domain.identity import Echo, stable_hash
from shared.domain.limits import PostTimes
from shared.domain.marks import is_outage
from shared.domain.messages import Contact, Message
from shared.domain.record import Delivery, ReceiptKind
from shared.domain.verdicts import LimitScope
from shared.pipeline.ports import Acknowledgement, Incoming
from shared.wire.bounded_http import NoAnswer, NotSent, Poster
from shared.wire.reach import ANYWHERE

CODES: Mapping[int, tuple[type[Any], dict[str, Any], str]] = {
    20429: (LimitReached, {"limit": LimitScope.RATE}, "Acme takes no more messages a second."),
    20503: (ProviderUnavailable, {}, "Acme is down."),
    63018: (SenderBlocked, {}, "Acme has suspended the number."),
    63024: (SendRefused, {}, "Acme refused it: the recipient is invalid."),
}
NOT_EXPRESSIBLE = 1
"""A code of our own, which no provider gives."""


def signature(secret: str, url: str, fields: Mapping[str, str]) -> str:
    """Over the whole address and the fields in order of their names."""
    text = url + "".join(f"{name}{fields[name]}" for name in sorted(fields))
    return hmac.new(secret.encode(), text.encode(), hashlib.sha1).hexdigest()


class AcmeChannel:
    """Texts by Acme's API, which calls this service at `public_url`."""

    provider = "acme"
    webhooks: Mapping[str, Sequence[str]] = {"acme": ("POST",), "acme/status": ("POST",)}
    has_public_sender_ids = False

    def __init__(self, secret: str, public_url: str, api_url: str) -> None:
        self._secret, self._public_url, self._api_url = secret, public_url, api_url
        self._poster: Poster | None = None

    def handshake(self, incoming: Incoming) -> Acknowledgement:
        raise Forbidden("no_handshake")

    def verify(self, incoming: Incoming) -> None:
        expected = signature(self._secret, self._public_url + incoming.url, _fields(incoming))
        if not hmac.compare_digest(incoming.headers.get("x-acme-signature", "").encode(), expected.encode()):
            raise SignatureInvalid

    def parse(self, incoming: Incoming) -> Parsed:
        form = _fields(incoming)
        sid, ours = form.get("Sid", ""), form.get("From" if incoming.url.endswith("/status") else "To", "")
        if not sid or not ours:
            return Parsed((Unparsable(self.provider, ours, "messages", form),))
        if incoming.url.endswith("/status"):
            kind, code = ReceiptKind(form["Status"]), int(form["Code"]) if "Code" in form else None
            return Parsed((ReceiptReceived(self.provider, ours, sid, kind, datetime.now(UTC), code),))
        return Parsed((MessageReceived(self.provider, ours, sid, form["From"], {"item": form}),))

    def acknowledge(self, incoming: Incoming) -> Acknowledgement:
        return Acknowledgement(b"<Response/>", "text/xml")

    def read(self, record: Delivery) -> Message | None:
        form = record.payload["item"]
        who = Contact(form["From"], phone=form["From"])
        return Message(
            "text", form["Body"], form["Sid"], who, record.sender, record.tenant, record.received_at, raw=form
        )

    def changes(self, record: Delivery) -> Sequence[StateChange]:
        return ()

    def address(self, message: Message) -> Mapping[str, str]:
        return {"to": f"acme:{message.contact.id}"}

    def fingerprint(self, sender: str) -> str:
        return stable_hash("credential", self._secret)

    def send(self, record: Delivery, echo: Echo) -> str | None:
        if is_call(record.payload):
            return None  # Acme has no such thing, and nobody waits for it
        if record.payload["type"] != "text":
            raise SendRefused(NOT_EXPRESSIBLE)
        answer = self._post(From=record.sender, To=record.payload["to"], Body=record.payload["content"]["body"])
        return str(answer["sid"])

    def probe(self, sender: str) -> None:
        try:
            self._post(From=sender)
        except (AnswerLost, LimitReached, ProviderUnavailable, SenderBlocked, SendRefused) as error:
            if is_outage(error.verdict):
                raise

    def explain(self, code: int, answer: str) -> str | None:
        return "Acme sends texts alone." if code == NOT_EXPRESSIBLE else CODES[code][2] if code in CODES else None

    def remark(self, record: Delivery) -> str | None:
        return None

    def _post(self, **form: str) -> Mapping[str, Any]:
        self._poster = self._poster or Poster(PostTimes(), time.monotonic, reach=ANYWHERE)
        try:
            answer = self._poster.post(self._api_url, {"Authorization": self._secret}, urlencode(form).encode())
        except NotSent as error:
            raise ProviderUnavailable from error
        except NoAnswer as error:
            raise AnswerLost from error
        document: Mapping[str, Any] = json.loads(answer.body or b"{}")
        if answer.status < 300:
            return document
        error, more, _ = CODES.get(document.get("code", 0), (AnswerLost, {}, ""))
        raise error(document.get("code"), status=answer.status, **more)


def _fields(incoming: Incoming) -> dict[str, str]:
    return dict(parse_qsl(incoming.body.decode(errors="replace"), keep_blank_values=True))
