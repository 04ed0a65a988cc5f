"""The Meta channel: reads what WhatsApp's Cloud API sent, and sends to it. receiver.py has its receiving half."""

# https://developers.facebook.com/documentation/business-messaging/whatsapp (seen November 2026)
# messages.py reads one message, requests.py writes a send's request, errors.py reads a refusal, and codes.py has its
# codes. The webhook service uses only the receiving half, and imports nothing of these. The first send imports
# bounded_http.py, so a command that reads what is stored does not need it.

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

from shared.channels.meta import changes, messages
from shared.channels.meta.codes import sentence_for
from shared.channels.meta.errors import error_for, error_in_success, graph_error
from shared.channels.meta.receiver import MetaReceiver
from shared.channels.meta.requests import message_id, probe_body, request_body
from shared.domain.identity import Echo, credential_fingerprint
from shared.domain.limits import PostTimes
from shared.domain.marks import is_outage
from shared.domain.messages import Message
from shared.domain.outbound.recipient import Recipient, phone_number
from shared.domain.record import Delivery
from shared.domain.send_errors import AnswerLost, CredentialInvalid, ProviderUnavailable, SendError
from shared.domain.state_changes import StateChange
from shared.net.egress_policy import PUBLIC, EgressPolicy
from shared.net.retry_after import retry_after

if TYPE_CHECKING:
    from shared.net.bounded_http import HttpResponse, Poster

_TOKEN = re.compile(r"[\x21-\x7e]+")
"""Valid characters of a header. A token that ends in a line break, for example, is not usable."""

USUAL_TIMES = PostTimes()


class MetaChannel(MetaReceiver):
    """One Meta app. A service passes only the secrets that it needs; the access token of a number comes with each call
    that sends for it.

    `reach` is where `base_url` may lead. It connects on the first send, so it may be created before a fork.
    """

    def __init__(
        self,
        *,
        app_secrets: Sequence[str] = (),
        verify_tokens: Sequence[str] = (),
        base_url: str = "",
        version: str = "",
        post: PostTimes = USUAL_TIMES,
        monotonic: Callable[[], float] = time.monotonic,
        reach: EgressPolicy = PUBLIC,
    ) -> None:
        super().__init__(app_secrets=app_secrets, verify_tokens=verify_tokens)
        self._root = f"{base_url.rstrip('/')}/{version}"
        self._times = post
        self._monotonic = monotonic
        self._reach = reach
        self._lock = threading.Lock()
        self._poster: Poster | None = None

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

    def recipient(self, to: str) -> Recipient:
        """A number's contact has no +, as in Meta's webhooks."""
        digits = phone_number(to)
        return Recipient(digits, {"to": to}) if digits else Recipient(to, {"recipient": to})

    def fingerprint(self, credential: str) -> str:
        """A hash of the access token; empty if there is none."""
        return credential_fingerprint(credential) if credential else ""

    def send(self, record: Delivery, echo: Echo, credential: str) -> str | None:
        """Post one message or call, once. Returns the wamid, or None if a 2xx has none. Raises a SendError."""
        answer = self._post(record.sender, request_body(record.payload, echo), credential)
        error = self._error(answer)
        if error is not None:
            raise error
        return message_id(answer.body)

    def probe(self, sender: str, credential: str) -> None:
        """Mark a nonexistent message as read: Meta answers 131009, on the endpoint that sends.

        Other machines than those that send would answer a GET. Raises ProviderUnavailable, AnswerLost or
        CredentialInvalid; returns on any other answer.
        """
        error = self._error(self._post(sender, probe_body(), credential))
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

    def _post(self, sender: str, body: bytes, token: str) -> "HttpResponse":
        from shared.net.bounded_http import NoAnswer, NotSent

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
