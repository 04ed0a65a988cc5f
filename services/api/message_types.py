"""What the message routes take and answer, as types: they validate each request, and are the OpenAPI document."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, WithJsonSchema

from services.api.lists import Listed, ListQuery
from services.api.types import Duration, Rfc3339, Strict
from shared.domain.record import ATTEMPTS_KEPT, State

MessageId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
MessageType = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
MessageContent = Annotated[
    Any,
    WithJsonSchema({"anyOf": [{"type": "object"}, {"type": "array", "items": {"type": "object"}}, {"type": "null"}]}),
]
MOST_IN_BATCH = 100


class Retry(Strict):
    """How often the message is tried if WhatsApp refuses it for the moment. An outage spends no attempt."""

    attempts: int = Field(ge=1, le=ATTEMPTS_KEPT, description="How often it is tried at most.")
    wait: Duration = Field(description="The wait before each further attempt, ± 20 %.", examples=["15s"])


class NewMessage(Strict):
    """A message to send: a text, or a type and its content."""

    from_: str | None = Field(
        None,
        alias="from",
        max_length=64,
        description="The business number: its id in Pombo or at WhatsApp. A tenant with one number may leave it out.",
    )
    to: str = Field(max_length=160, description="A phone number with +, or a user id.", examples=["+15550002222"])
    text: str | None = Field(None, description="The text, instead of type and content.")
    type: MessageType | None = Field(None, description="Meta's type of message, like text or template.")
    content: MessageContent = Field(None, description="Meta's object for this type.")
    reply_to: str | None = Field(None, max_length=512, description="The id of the message that it quotes.")
    send_at: Rfc3339 | None = Field(None, description="When to send it, RFC 3339, at most 30 days ahead.")
    delay: Duration | None = Field(None, description="Send it so much later, at most 30 days.", examples=["15s", "2h"])
    retry: Retry | None = None
    metadata: dict[str, Any] | None = Field(None, description="Kept with the message, never sent or logged; 4 KB.")


class NewMessages(Strict):
    """Several messages; each succeeds or fails by itself."""

    messages: list[Any] = Field(min_length=1, max_length=MOST_IN_BATCH, description="Each as for POST /v1/messages.")


class AcceptedMessage(BaseModel):
    """The message is stored and will be sent."""

    id: MessageId
    state: Literal["pending"] = "pending"
    shown: Literal["pending"] = "pending"
    correlation_id: str = Field(description="The same in every log line about the message.")


class BatchResult(BaseModel):
    """What became of one message of a batch: accepted, or a problem."""

    model_config = ConfigDict(extra="allow")

    status: int = Field(description="202, or the status that the message alone would have been answered with.")


class BatchResults(BaseModel):
    """One result for each message, in order."""

    results: list[BatchResult]


class MessagePath(BaseModel):
    """The message of a route."""

    id: MessageId


class IdempotencyHeaders(BaseModel):
    """Headers of a request that stores messages."""

    idempotency_key: Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]{1,255}$")] | None = Field(
        None,
        alias="Idempotency-Key",
        description="The same request with the same key stores one message, however often it is repeated.",
    )
    correlation_id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{8,64}$")] | None = Field(
        None, alias="X-Correlation-Id", description="The correlation id of the message; one is made without it."
    )


class Moment(BaseModel):
    """One line of a message's timeline."""

    at: datetime
    what: str = Field(description="What happened, for programs.")
    sentence: str = Field(description="What happened, and what happens next, for people.")


class ListedMessage(BaseModel):
    """One message, in either direction."""

    model_config = ConfigDict(populate_by_name=True)

    id: MessageId
    direction: Literal["inbound", "outbound"]
    state: str = Field(description="Pombo's state: pending, leased, in_doubt, done, dropped or dead.")
    shown: str = Field(description="sent, failed, pending or cancelled; inbound: received, processing, processed, …")
    why: str | None = Field(None, description="Why a pending message waits.")
    reason: str | None = Field(None, description="Why a message was dropped or is dead.")
    tenant: str
    sender: str = Field(description="The business number's id in Pombo.")
    contact: str = Field(description="The customer's number or user id.")
    type: str
    content: Any = None
    correlation_id: str
    created_at: datetime
    send_at: datetime | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)


class Message(ListedMessage):
    """One message with its timeline."""

    timeline: list[Moment]


class ListedMessages(Listed):
    """A page of messages, the newest first. With a filter it may be short, even empty, and not the last."""

    items: list[ListedMessage]


class MessagesQuery(ListQuery):
    """Which messages to list."""

    since: Rfc3339 | None = Field(None, description="Only those stored at or after this time.")
    until: Rfc3339 | None = Field(None, description="Only those stored at or before this time.")
    state: State | None = Field(None, description="Only those in this state of Pombo's.")
    direction: Literal["inbound", "outbound"] | None = None
