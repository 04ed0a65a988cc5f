"""The Meta channel: verifies, parses and reads the webhooks of WhatsApp's Cloud API, and sends to it."""

# https://developers.facebook.com/documentation/business-messaging/whatsapp (seen November 2026)
# webhook.py splits webhooks, messages.py reads one message, requests.py writes a send's request, errors.py reads a
# refusal, and codes.py has its codes. The first send imports bounded_http.py, so the webhook service, which never
# sends, does not need it.

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
"""The path that Meta calls, below /webhooks/. It was published before there were other providers."""

_SIGNATURE = re.compile(r"sha256=([0-9a-f]{64})")
"""Meta writes lower case, so another form is not from Meta."""

_TOKEN = re.compile(r"[\x21-\x7e]+")
"""Valid characters of a header. A token that ends in a line break, for example, is not usable."""


NO_CREDENTIALS: Mapping[str, str] = MappingProxyType({})
USUAL_TIMES = PostTimes()
DURABLE = Acknowledgement(b'{"status":"ok"}\n', "application/json")


class MetaChannel:
    """One Meta app and the numbers that it sends for. A service passes only the secrets that it needs.

    All `app_secrets` and all `verify_tokens` are accepted (rotation). Without one, every signature or every handshake
    is refused. `credentials` maps a phone_number_id to its access token. `reach` is where `base_url` may lead. It
    connects on the first send, so it may be created before a fork.
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
    has_public_sender_ids = True  # a phone_number_id is Meta's id, not the phone number

    def handshake(self, incoming: Incoming) -> Acknowledgement:
        """Echo the challenge unchanged to a caller with the verify token. Raises Forbidden.

        https://developers.facebook.com/docs/graph-api/webhooks/getting-started
        """
        query = dict(parse_qsl(incoming.url.partition("?")[2], keep_blank_values=True))
        given = query.get("hub.verify_token", "").encode()
        known = [hmac.compare_digest(given, token) for token in self._verify_tokens]
        if query.get("hub.mode") != "subscribe" or not any(known):
            raise Forbidden("verify_token")
        return Acknowledgement(query.get("hub.challenge", "").encode(), "text/plain; charset=utf-8")

    def acknowledge(self, incoming: Incoming) -> Acknowledgement:  # noqa: ARG002 - Meta reads only the status
        return DURABLE

    def verify(self, incoming: Incoming) -> None:
        """HMAC-SHA256 over the bytes as received, in constant time. Raises SignatureInvalid.

        Meta signs the escaped form that it sends (\\u00e9, \\/), so JSON that was parsed and rewritten never verifies.
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
        """The message in a stored event, or None if it is not a message. Raises ItemUnparsable."""
        return messages.read(record)

    def changes(self, record: Delivery) -> Sequence[StateChange]:
        """What a stored change says about our own state."""
        return changes.changes_in(record)

    def address(self, message: Message) -> Mapping[str, str]:
        """The phone number if there is one: not every message may go to a user id (131062).

        Without the leading + Meta treats the number as a local one of the business's country.
        """
        digits = re.sub(r"[^0-9]", "", message.contact.phone or "")
        return {"to": f"+{digits}"} if digits else {"recipient": message.contact.user_id or message.contact.id}

    def fingerprint(self, sender: str) -> str:
        """A hash of the access token in use; empty if there is none."""
        token = self._credentials.get(sender)
        return stable_hash("credential", token) if token else ""

    def send(self, record: Delivery, echo: Echo) -> str | None:
        """Post one message or call, once. Returns the wamid, or None if a 2xx has none. Raises a SendError."""
        answer = self._post(record.sender, request_body(record.payload, echo))
        error = self._error(answer)
        if error is not None:
            raise error
        return message_id(answer.body)

    def probe(self, sender: str) -> None:
        """Mark a nonexistent message as read: Meta answers 131009, on the endpoint that sends.

        Other machines than those that send would answer a GET. Raises ProviderUnavailable, AnswerLost or
        CredentialInvalid; returns on any other answer.
        """
        error = self._error(self._post(sender, probe_body()))
        if error is not None and is_outage(error.verdict):
            raise error

    def explain(self, code: int, answer: str) -> str | None:
        """What a code means to an operator."""
        return sentence_for(code, answer)

    def remark(self, record: Delivery) -> str | None:
        """Why no handler may have been called for a stored event."""
        return messages.remark(record)

    def _error(self, answer: "HttpResponse") -> SendError | None:
        """The error in this answer; None for a 2xx that reports no error."""
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
