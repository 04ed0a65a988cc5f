"""What the health routes take and answer, as types: they validate each request, and are the OpenAPI document."""

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, Field

from services.api.lists import Query
from shared.operations.health import Status

MOST_LETTERS = 100


class TenantQuery(Query):
    """Whose health an operator asks for; a tenant's key is for its own."""

    tenant: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        None, description="With an operator's key: one tenant instead of the whole deployment."
    )


class LettersQuery(TenantQuery):
    """How many dead letters to show, the newest first."""

    limit: int = Field(20, ge=1, le=MOST_LETTERS)


class HealthDetails(BaseModel):
    """What the status is judged by."""

    instance: str = Field(description="The id in Pombo of the number that it is about; of several, the first.")
    queue_high_water_mark: int = Field(description="With more in the queue it is degraded.")
    queue_critical_mark: int = Field(description="With more in the queue it is unhealthy.")


class WhatsappHealth(BaseModel):
    """Whether messages flow. If the store cannot be reached, nothing but the status is known."""

    status: Status = Field(
        description="degraded: a long queue, or disconnected; unhealthy: a very long queue, no store."
    )
    queue_depth: int | None = Field(description="Events and messages in work, without messages for later.")
    dlq_depth: int | None = Field(description="Dead letters: records that wait for an operator.")
    connected: bool | None = Field(description="Whether the numbers can send, as far as past answers tell.")
    details: HealthDetails
    error: str | None = Field(None, description="What is wrong, if the store cannot be reached.")


class SenderState(BaseModel):
    """One of the business's numbers."""

    sender: str = Field(description="Its id in Pombo.")
    tenant: str
    provider: str
    connected: bool
    reason: str | None = Field(description="disconnected, needs_reauth, blocked or provider_down; null if it can send.")


class DetailedHealth(WhatsappHealth):
    """The same with its parts."""

    webhook_events_pending_count: int | None = None
    outbox_pending_count: int | None = None
    scheduled_count: int | None = Field(None, description="Those of the outbox that are wanted later.")
    oldest_pending_seconds: float | None = Field(None, description="How long the oldest waits that could go.")
    senders: list[SenderState] = Field(
        default_factory=list, description="A tenant's numbers; of a deployment, the environment's and those in trouble."
    )


class LetterState(BaseModel):
    """One dead letter. `preview` and `last_error` are there with the scope dead:read only."""

    id: str
    tenant: str
    direction: str = Field(description="inbound or outbound.")
    correlation_id: str
    error: str = Field(description="Why it is dead: attempts, permanent, in_doubt, …")
    code: int | None = Field(description="WhatsApp's error code, if there is one.")
    attempts: int
    dead_at: datetime
    replay: str = Field(description="What a replay would do: again, done, may_double or never.")
    preview: str | None = Field(None, description="How its text begins.")
    last_error: str | None = Field(None, description="The last error in words.")


class LettersState(BaseModel):
    """The dead letters, the newest first."""

    dlq_depth: int
    items: list[LetterState]


class HourFigures(BaseModel):
    """What the processes have counted within the last 60 to 70 minutes. A count is a minute old at most, or as old as
    the last request of an idle process.
    """

    sent_last_1h: int = Field(description="Messages that WhatsApp has accepted.")
    failed_last_1h: int = Field(description="Messages that became dead letters.")
    send_success_rate_last_1h: float | None = Field(description="From 0 to 1; null if none was sent and none failed.")
    send_p95_ms: float | None = Field(
        description="WhatsApp accepted 95 % of the messages within this time from when they were stored, or due if "
        "that was later. At most 9 % off; at most 70 minutes. null if none was sent."
    )
    webhook_p95_ms: float | None = Field(description="95 % of the webhooks were answered within this time; as above.")


class TenantFigures(HourFigures):
    """The same of one tenant. A process counts 200 tenants apart; further ones are in the whole only."""

    tenant: str


class AdminHealth(HourFigures):
    """The counts of now, and the figures of the last hour: of one tenant, or of the whole deployment."""

    webhook_events_pending_count: int = Field(description="Events that have not been handled.")
    outbox_pending_count: int = Field(description="Messages whose outcome is open, also those for later.")
    outbox_failed_count: int = Field(description="Messages that are dead letters.")
    webhook_events_failed_count: int = Field(description="Events that are dead letters.")
    scheduled_count: int = Field(description="Those of the outbox that are wanted later.")
    oldest_pending_seconds: float = Field(description="How long the oldest waits that could go.")
    tenants: list[TenantFigures] = Field(description="The last hour of each tenant that was counted.")
