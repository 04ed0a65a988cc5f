"""From a caller's request to the message that is stored: the number it is sent from, its recipient, its time."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from services.api.callers import Caller
from services.api.message_types import NewMessage, Retry
from services.api.problems import INVALID_REQUEST, NOT_FOUND, Problem
from shared.domain.identity import canonical_json
from shared.domain.outbound.messages import Content, OutboundMessage
from shared.domain.record import Retries
from shared.domain.tenants import Sender
from shared.domain.waits import SPREAD
from shared.pipeline.accept_message import MessageRequest
from shared.pipeline.channels import Channels
from shared.pipeline.clock import Clock
from shared.pipeline.ports import Channel, Tenants

LONGEST_DELAY = timedelta(days=30)
METADATA_BYTES = 4096
_OUR_ID = re.compile(r"[0-9a-f]{40}")
"""The form of a sender's id in Pombo. A provider's may have it too."""

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@dataclass(frozen=True, slots=True)
class NewMessages:
    """Makes the pipeline's request of a caller's. `time_scale` divides durations, as it does all of the protocol's."""

    tenants: Tenants
    channels: Channels[Channel]
    clock: Clock
    time_scale: float = 1.0
    max_age: timedelta = timedelta(hours=24)
    """How long after it is due a message is given up."""

    def request(
        self, caller: Caller, body: NewMessage, raw: Any, idempotency_key: str | None, correlation_id: str | None
    ) -> MessageRequest:
        """`raw` is the body as JSON. Raises Problem and RegistryUnavailable."""
        message, send_at = _message(body), self._send_at(body)
        retry = self._retry(body.retry) if body.retry else None
        metadata = _metadata(body.metadata)
        sender = self._sender(caller, body.from_)
        try:
            recipient = self.channels[sender.provider].recipient(body.to)
        except ValueError as error:
            raise Problem(INVALID_REQUEST, str(error), "to") from error
        return MessageRequest(
            sender=sender,
            recipient=recipient,
            message=message,
            body_hash=body_hash(raw),
            idempotency_key=idempotency_key,
            correlation_id=correlation_id,
            send_at=send_at,
            retry=retry,
            metadata=metadata,
        )

    def _sender(self, caller: Caller, named: str | None) -> Sender:
        if named is None:
            return self._only_sender(caller)
        # What is not there is read again each time, so a provider's id is never looked up as one of ours.
        found = next(iter(self.tenants.senders_with([named])), None) if _OUR_ID.fullmatch(named) else None
        for provider in self.channels:
            found = found or self.tenants.sender(provider, named)
        if found is None or not caller.may_see(found.tenant):
            raise Problem(NOT_FOUND, "There is no such number, or the API key is not for it.", "from")
        return found

    def _only_sender(self, caller: Caller) -> Sender:
        only = self.tenants.only_sender_of(caller.tenant) if caller.tenant else None
        if only is None:
            raise Problem(INVALID_REQUEST, "from is missing: say which number sends the message.", "from")
        return only

    def _send_at(self, body: NewMessage) -> datetime | None:
        now = self.clock.now()
        if body.delay is not None and body.send_at is not None:
            raise Problem(INVALID_REQUEST, "Give send_at or delay, not both.", "delay")
        if body.delay is not None:
            return now + self._wait(body.delay, "delay")
        if body.send_at is None or body.send_at <= now:
            return None
        if body.send_at > now + LONGEST_DELAY:
            raise Problem(INVALID_REQUEST, "send_at is more than 30 days ahead, which is the most.", "send_at")
        return body.send_at

    def _retry(self, retry: Retry) -> Retries:
        wait = self._wait(retry.wait, "retry.wait")
        if (retry.attempts - 1) * wait * (1 + SPREAD) > self.max_age:
            sentence = "retry takes too long: the message would be given up before its last attempt (MESSAGE_MAX_AGE)."
            raise Problem(INVALID_REQUEST, sentence, "retry.wait")
        return Retries(retry.attempts, wait)

    def _wait(self, text: str, field: str) -> timedelta:
        wait = timedelta(**{_UNITS[text[-1]]: int(text[:-1])})
        if not timedelta() < wait <= LONGEST_DELAY:
            raise Problem(INVALID_REQUEST, f"{field} must be more than 0 and at most 30 days.", field)
        return wait / self.time_scale


def body_hash(raw: Any) -> str:
    """What tells a repeated request from another one: a hash of its body."""
    return hashlib.sha256(canonical_json(raw).encode()).hexdigest()[:40]


def _message(body: NewMessage) -> OutboundMessage:
    type, content = _type_and_content(body)
    try:
        message = OutboundMessage(type, content)
    except (TypeError, ValueError) as error:
        is_about_type = str(error).startswith("The type of the message")
        field = "text" if body.text is not None else "type" if is_about_type else "content"
        raise Problem(INVALID_REQUEST, str(error), field) from error
    try:
        return replace(message, reply_to=body.reply_to)
    except (TypeError, ValueError) as error:
        raise Problem(INVALID_REQUEST, str(error), "reply_to") from error


def _type_and_content(body: NewMessage) -> tuple[str, Content]:
    if body.text is not None:
        if body.type is not None or body.content is not None:
            raise Problem(INVALID_REQUEST, "Give text, or type and content, not both.", "text")
        return "text", {"body": body.text}
    if body.type is None:
        raise Problem(INVALID_REQUEST, "Give text, or type and content.", "text" if body.content is None else "type")
    if body.content is None:
        raise Problem(INVALID_REQUEST, "Give the content of this type.", "content")
    return body.type, body.content


def _metadata(given: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if not given:
        return {}
    try:
        size = len(json.dumps(given, ensure_ascii=False, allow_nan=False).encode())
    except (ValueError, RecursionError) as error:
        raise Problem(INVALID_REQUEST, "metadata holds a value that JSON or UTF-8 cannot hold.", "metadata") from error
    if size > METADATA_BYTES:
        raise Problem(INVALID_REQUEST, f"metadata has {size} bytes as JSON; {METADATA_BYTES} are taken.", "metadata")
    return given
