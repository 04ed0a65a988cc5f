"""The Meta channel: WhatsApp's Cloud API, verified, parsed, read and sent to."""

# https://developers.facebook.com/documentation/business-messaging/whatsapp (seen November 2026)
# Its webhooks are split in webhook.py, one message is read in messages.py; a send's request is written in
# requests.py, a refusal is read in errors.py, its codes are in codes.py. bounded_http.py is imported by
# the first send: the webhook service never sends and need not have it.

import hashlib
import hmac
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote

from shared.channels.meta import changes, messages, webhook
from shared.channels.meta.codes import sentence_for
from shared.channels.meta.errors import error_for, error_in_success, graph_error
from shared.channels.meta.requests import message_id, probe_body, request_body
from shared.channels.meta.webhook import PROVIDER
from shared.domain.errors import (
    AnswerLost,
    CredentialInvalid,
    Forbidden,
    ProviderUnavailable,
    SendError,
    SignatureInvalid,
)
from shared.domain.events import Parsed, StateChange
from shared.domain.identity import Echo, stable_hash
from shared.domain.limits import PostTimes
from shared.domain.marks import is_outage
from shared.domain.messages import Message
from shared.domain.record import Delivery
from shared.net.egress_policy import PUBLIC, EgressPolicy
from shared.net.retry_after import retry_after
from shared.pipeline.ports import Acknowledgement, Incoming

if TYPE_CHECKING:
    from shared.net.bounded_http import HttpResponse, Poster

PATH = "whatsapp"
"""Where Meta calls, below /webhooks/. It was given out before there were other providers."""

_SIGNATURE = re.compile(r"sha256=([0-9a-f]{64})")
"""Meta writes lower case; what is written otherwise was not written by Meta."""

_TOKEN = re.compile(r"[\x21-\x7e]+")
"""What can stand in a header. A token with a line break at its end, say, opens no door."""


NO_CREDENTIALS: Mapping[str, str] = MappingProxyType({})
USUAL_TIMES = PostTimes()
DURABLE = Acknowledgement(b'{"status":"ok"}\n', "application/json")


class MetaChannel:
    """One Meta app and the numbers it sends for. A service gives what it needs; without the rest nothing is let in.

    `app_secrets` and `verify_tokens` are all accepted (rotation); without one every signature, every handshake is
    refused. `credentials` maps a phone_number_id to its access token. `reach` is where `base_url` may lead. Connects to
    nothing before the first send, so it may be made before a fork.
    """

    def __init__(
        self,
        *,
        app_secrets: Sequence[str] = (),
        verify_tokens: Sequence[str] = (),
        credentials: Mapping[str, str] = NO_CREDENTIALS,
        base_url: str = "",
        version: str = "",
        post: PostTimes = USUAL_TIMES,
        monotonic: Callable[[], float] = time.monotonic,
        reach: EgressPolicy = PUBLIC,
    ) -> None:
        self._secrets = tuple(secret.encode("utf-8", "surrogateescape") for secret in app_secrets if secret)
        self._verify_tokens = tuple(token.encode("utf-8", "surrogateescape") for token in verify_tokens if token)
        self._credentials = credentials
        self._root = f"{base_url.rstrip('/')}/{version}"
        self._times = post
        self._monotonic = monotonic
        self._reach = reach
        self._lock = threading.Lock()
        self._poster: Poster | None = None

    provider = PROVIDER
    webhooks: Mapping[str, Sequence[str]] = MappingProxyType({PATH: ("GET", "POST")})
    has_public_sender_ids = True  # a phone_number_id is Meta's own number for a number

    def handshake(self, incoming: Incoming) -> Acknowledgement:
        """Echo the challenge as it came, to whoever knows the word. Raises Forbidden.

        https://developers.facebook.com/docs/graph-api/webhooks/getting-started
        """
        query = dict(parse_qsl(incoming.url.partition("?")[2], keep_blank_values=True))
        given = query.get("hub.verify_token", "").encode()
        known = [hmac.compare_digest(given, token) for token in self._verify_tokens]
        if query.get("hub.mode") != "subscribe" or not any(known):
            raise Forbidden("verify_token")
        return Acknowledgement(query.get("hub.challenge", "").encode(), "text/plain; charset=utf-8")

    def acknowledge(self, incoming: Incoming) -> Acknowledgement:  # noqa: ARG002 - Meta reads the status alone
        return DURABLE

    def verify(self, incoming: Incoming) -> None:
        """HMAC-SHA256 over the bytes as they came, in constant time. Raises SignatureInvalid.

        Meta signs the escaped form that it sends (\\u00e9, \\/); JSON that was parsed and written again never verifies.
        Source: create-webhook-endpoint, seen November 2026.
        """
        match = _SIGNATURE.fullmatch(incoming.headers.get("x-hub-signature-256", ""))
        if match is None:
            raise SignatureInvalid
        given = match[1].encode()
        digests = [hmac.new(secret, incoming.body, hashlib.sha256).hexdigest().encode() for secret in self._secrets]
        if not any(hmac.compare_digest(digest, given) for digest in digests):
            raise SignatureInvalid

    def parse(self, incoming: Incoming) -> Parsed:
        """The events of one POST. Raises nothing."""
        return webhook.parse(incoming.body)

    def read(self, record: Delivery) -> Message | None:
        """The message in a stored event, or None where it is no message. Raises ItemUnparsable."""
        return messages.read(record)

    def changes(self, record: Delivery) -> Sequence[StateChange]:
        """What a stored change says about our own state."""
        return changes.changes_in(record)

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
        """Post one message or call, once. The wamid, or None where a 2xx holds none to read. Raises a SendError."""
        answer = self._post(record.sender, request_body(record.payload, echo))
        error = self._error(answer)
        if error is not None:
            raise error
        return message_id(answer.body)

    def probe(self, sender: str) -> None:
        """Mark a message as read that does not exist: Meta answers 131009, on the endpoint that sends.

        A GET would be answered by other machines than those that send. Raises ProviderUnavailable, AnswerLost or
        CredentialInvalid; returns at any other word of Meta's.
        """
        error = self._error(self._post(sender, probe_body()))
        if error is not None and is_outage(error.verdict):
            raise error

    def explain(self, code: int, answer: str) -> str | None:
        """What a code means to a person."""
        return sentence_for(code, answer)

    def remark(self, record: Delivery) -> str | None:
        """Why no handler may have been called for a stored event."""
        return messages.remark(record)

    def _error(self, answer: "HttpResponse") -> SendError | None:
        """What went wrong by this answer; None for a 2xx that reports no error."""
        error, wait = graph_error(answer.body), retry_after(answer.headers)
        if not 200 <= answer.status < 300:
            return error_for(answer.status, error, wait)
        return error_in_success(answer.status, error, wait) if error else None

    def _post(self, sender: str, body: bytes) -> "HttpResponse":
        from shared.net.bounded_http import NoAnswer, NotSent

        token = self._credentials.get(sender, "")
        if not _TOKEN.fullmatch(token):
            raise CredentialInvalid
        url = f"{self._root}/{quote(sender, safe='')}/messages"
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        try:
            return self._connections().post(url, headers, body)
        except NotSent as error:
            raise ProviderUnavailable from error
        except NoAnswer as error:
            raise AnswerLost from error

    def close(self) -> None:
        """Close the connections; a later send opens new ones."""
        with self._lock:
            poster, self._poster = self._poster, None
        if poster:
            poster.close()

    def _connections(self) -> "Poster":
        from shared.net.bounded_http import Poster

        with self._lock:
            if self._poster is None:
                self._poster = Poster(self._times, self._monotonic, reach=self._reach)
            return self._poster
