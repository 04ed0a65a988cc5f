"""The receiving half of the Meta channel: verifies and parses the webhooks of WhatsApp's Cloud API."""

# https://developers.facebook.com/documentation/business-messaging/whatsapp (seen November 2026)

import hmac
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from urllib.parse import parse_qsl

from shared.channels.meta import webhook
from shared.channels.meta.webhook import PROVIDER
from shared.domain.errors import Forbidden, SignatureInvalid
from shared.domain.events import Parsed
from shared.pipeline.intake import Acknowledgement, Incoming

PATH = "whatsapp"
"""The path that Meta calls, below /webhooks/. It was published before there were other providers."""

_SIGNATURE = re.compile(r"sha256=([0-9a-f]{64})")
"""Meta writes lower case, so another form is not from Meta."""

DURABLE = Acknowledgement(b'{"status":"ok"}\n', "application/json")


class MetaReceiver:
    """The webhooks of one Meta app. All `app_secrets` and all `verify_tokens` are accepted (rotation). Without one,
    every signature or every handshake is refused.
    """

    def __init__(self, *, app_secrets: Sequence[str] = (), verify_tokens: Sequence[str] = ()) -> None:
        self._secrets = tuple(secret.encode("utf-8", "surrogateescape") for secret in app_secrets if secret)
        self._verify_tokens = tuple(token.encode("utf-8", "surrogateescape") for token in verify_tokens if token)

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
        given = bytes.fromhex(match[1])
        digests = [hmac.digest(secret, incoming.body, "sha256") for secret in self._secrets]
        if True not in [hmac.compare_digest(digest, given) for digest in digests]:
            raise SignatureInvalid

    def parse(self, incoming: Incoming) -> Parsed:
        """The events of one POST. Raises nothing."""
        return webhook.parse(incoming.body)
