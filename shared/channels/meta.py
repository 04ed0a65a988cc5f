"""The Meta channel: WhatsApp's Cloud API, verified, parsed, read and sent to."""

# https://developers.facebook.com/documentation/business-messaging/whatsapp (seen November 2026)
# Its webhooks are split in meta_webhook.py, one message is read in meta_messages.py, its error codes are in
# meta_codes.py. bounded_http.py is imported by the first send: the webhook service never sends and need not have it.

import hashlib
import hmac
import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from shared.channels import bounded_json, meta_messages, meta_webhook
from shared.channels.meta_codes import error_for, graph_error, sentence_for
from shared.channels.meta_messages import identifier, mapping
from shared.domain.errors import (
    AnswerLost,
    CredentialInvalid,
    ProviderUnavailable,
    SignatureInvalid,
    TryLater,
)
from shared.domain.events import Parsed
from shared.domain.identity import Echo, stable_hash
from shared.domain.limits import PostTimes
from shared.domain.messages import Message
from shared.domain.record import Delivery

if TYPE_CHECKING:
    from shared.channels.bounded_http import Answer, Poster

__all__ = ["MetaChannel", "sentence_for"]

LONGEST_RETRY_AFTER = timedelta(hours=24)
"""No limit of Meta's lasts longer, and a queue schedules at most 30 days ahead."""

_SIGNATURE = re.compile(r"sha256=([0-9a-f]{64})")
"""Meta writes lower case; what is written otherwise was not written by Meta."""

_TOKEN = re.compile(r"[\x21-\x7e]+")
"""What can stand in a header. A token with a line break at its end, say, opens no door."""

_SECONDS = re.compile(r"[0-9]{1,9}")


class MetaChannel:
    """One Meta app and the numbers it sends for.

    `app_secrets` are all accepted (rotation); without one every signature is refused. `credentials` maps a
    phone_number_id to its access token. Connects to nothing before the first send, so it may be made before a fork.
    """

    def __init__(
        self,
        *,
        app_secrets: tuple[str, ...],
        credentials: Mapping[str, str],
        base_url: str,
        version: str,
        post: PostTimes,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._secrets = tuple(secret.encode("utf-8", "surrogateescape") for secret in app_secrets if secret)
        self._credentials = credentials
        self._root = f"{base_url.rstrip('/')}/{version}"
        self._times = post
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._poster: Poster | None = None

    def verify(self, body: bytes, signature: str | None) -> None:
        """HMAC-SHA256 over the bytes as they came, in constant time. Raises SignatureInvalid.

        Meta signs the escaped form that it sends (\\u00e9, \\/); JSON that was parsed and written again never verifies.
        Source: create-webhook-endpoint, seen November 2026.
        """
        match = _SIGNATURE.fullmatch(signature or "")
        if match is None:
            raise SignatureInvalid
        given = match[1].encode()
        digests = [hmac.new(secret, body, hashlib.sha256).hexdigest().encode() for secret in self._secrets]
        if not any(hmac.compare_digest(digest, given) for digest in digests):
            raise SignatureInvalid

    def parse(self, body: bytes) -> Parsed:
        """The events of one POST. Raises nothing."""
        return meta_webhook.parse(body)

    def read(self, record: Delivery) -> Message | None:
        """The message in a stored event, or None where it is no message. Raises ItemUnparsable."""
        return meta_messages.read(record)

    def address(self, message: Message) -> Mapping[str, str]:
        """By phone where there is one: not every message may go to a user id (131062).

        Without the leading + Meta takes the number for a local one of the business's country.
        """
        digits = re.sub(r"[^0-9]", "", message.contact.phone or "")
        return {"to": f"+{digits}"} if digits else {"recipient": message.contact.user_id or message.contact.id}

    def fingerprint(self, sender: str) -> str:
        """A hash of the access token in use; empty where there is none."""
        token = self._credentials.get(sender)
        return stable_hash("credential", token) if token else ""

    def send(self, record: Delivery, echo: Echo) -> str | None:
        """Post one message, once. The wamid, or None where a 2xx could not be read. Raises a SendError."""
        from shared.channels.bounded_http import NoAnswer, NotSent

        token = self._credentials.get(record.sender, "")
        if not _TOKEN.fullmatch(token):
            raise CredentialInvalid
        body = _request_body(record.payload, echo)
        url = f"{self._root}/{quote(record.sender, safe='')}/messages"
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        try:
            answer = self._connections().post(url, headers, body)
        except NotSent as error:
            raise ProviderUnavailable from error
        except NoAnswer as error:
            raise AnswerLost from error
        if 200 <= answer.status < 300:
            return _message_id(answer.body)
        raise error_for(answer.status, graph_error(answer.body), _retry_after(answer))

    def close(self) -> None:
        """Close the connections; a later send opens new ones."""
        with self._lock:
            poster, self._poster = self._poster, None
        if poster:
            poster.close()

    def _connections(self) -> "Poster":
        from shared.channels.bounded_http import Poster

        with self._lock:
            if self._poster is None:
                self._poster = Poster(self._times, self._monotonic)
            return self._poster


def _request_body(payload: Mapping[str, Any], echo: Echo) -> bytes:
    """The JSON of one message. Raises TryLater where the stored reply makes none.

    Nothing has left, and it is this message's fault alone: our own backoff leaves time for a new release, which the
    pace of a provider that is down would not, and the other messages go on.
    """
    address = {key: payload[key] for key in ("to", "recipient") if payload.get(key)}
    kind, reply_to = payload.get("type"), payload.get("reply_to")
    if not address or not isinstance(kind, str) or "content" not in payload:
        raise TryLater
    body = {
        "messaging_product": "whatsapp",
        "recipient_type": "individual",
        **address,
        "type": kind,
        kind: payload["content"],
        **({"context": {"message_id": reply_to}} if reply_to else {}),
        "biz_opaque_callback_data": str(echo),
    }
    try:
        return json.dumps(body, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise TryLater from error


def _message_id(body: bytes | None) -> str | None:
    try:
        answer = mapping(bounded_json.loads(body or b""))
    except bounded_json.NotJson:
        return None
    messages = answer.get("messages")
    return identifier(mapping(messages[0]).get("id")) if isinstance(messages, list) and messages else None


def _retry_after(answer: "Answer") -> timedelta | None:
    """The wait that the answer asks for, in seconds or as a date, which is read by the clock of the answer.

    Meta promises no such header for messages; it is honoured where it comes.
    """
    value = answer.headers.get("retry-after", "").strip()
    if _SECONDS.fullmatch(value):
        return min(timedelta(seconds=int(value)), LONGEST_RETRY_AFTER)
    until = _date(value)
    if until is None:
        return None
    now = _date(answer.headers.get("date", "")) or datetime.now(UTC)
    return max(timedelta(), min(until - now, LONGEST_RETRY_AFTER))


def _date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    return date.replace(tzinfo=UTC) if date.tzinfo is None else date
