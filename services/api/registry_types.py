"""What the routes of the registry take and answer: tenants, senders and keys."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field, SecretStr, StringConstraints

from services.api.dead_letter_types import SenderId
from services.api.lists import Listed, Query, TenantId
from services.api.types import Strict
from shared.domain.tenants import Order, Scope, TenantState

LONGEST_NAME = 200
Name = Annotated[str, StringConstraints(max_length=LONGEST_NAME, pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$")]
ProviderId = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,32}$")]
"""Of Meta's numbers and accounts."""
KeyId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]
Token = Annotated[SecretStr, Field(min_length=1, max_length=4096)]


class TenantPath(BaseModel):
    """The tenant of a route."""

    id: TenantId


class SenderPath(BaseModel):
    """The sender of a route."""

    id: SenderId


class KeyPath(BaseModel):
    """The key of a route."""

    id: KeyId


class RegistryQuery(Query):
    """What the lists of the registry take. They are in the order of their ids."""

    tenant: TenantId | None = Field(None, description="Whose: for an operator's key, which may name any tenant.")
    cursor: str | None = Field(None, max_length=400, description="next of the page before.")
    limit: int = Field(50, ge=1, le=100, description="Items on a page.")


class NoQuery(Query):
    """No parameters."""


# ---- tenants


class NewTenant(Strict):
    """A tenant to add."""

    id: TenantId = Field(description="In log lines and lists, so choose a short one.")
    name: Name = Field("", description="For people.")


class ChangedTenant(Strict):
    """What to change; a field that is not given stays."""

    name: Name | None = None
    in_doubt: Literal["resend", "hold", "deployment"] | None = Field(
        None, description="What to do with a message whose answer was lost and whose receipt never came."
    )


class TenantShown(BaseModel):
    """A tenant."""

    id: str
    name: str
    state: TenantState
    queue: int | None = Field(description="The number of its pair of queues; null: the shared queues.")
    in_doubt: str | None = Field(description="null: the deployment's.")
    handler_url: str | None = Field(description="null: the deployment's handler.")
    created_at: datetime | None


class TenantsShown(Listed):
    """A page of tenants."""

    items: list[TenantShown]


class Removed(BaseModel):
    """It is gone."""

    id: str
    handler_secret: str | None = Field(
        description="The name of the secret that signed the calls of its backend, which an operator deletes by hand; "
        "null: it had no backend of its own."
    )


# ---- senders


class NewSender(Strict):
    """A number to connect. Its token is checked with the provider, kept as a secret, and never shown again."""

    tenant: TenantId | None = Field(None, description="Whose it will be: for an operator's key.")
    provider: Literal["meta"]
    id: ProviderId = Field(description="The provider's id of the number (Meta: phone number ID).")
    account: ProviderId = Field(description="The provider's id of the account that holds it (Meta: WABA ID).")
    token: Token = Field(description="Its access token.")
    display: Name = ""
    order: Literal["contact", "sender"] = Field(
        "contact", description="Send in order to each contact, or all messages of the number in order."
    )


class NewToken(Strict):
    """Another access token."""

    token: Token


class PaceShown(BaseModel):
    """How fast a number may send."""

    per_second: float
    burst: int


class AuthShown(BaseModel):
    """Whether a number can send, as the provider's past answers tell."""

    state: str = Field(description="connected, needs_reauth, blocked or disconnected.")
    code: int | str | None = None
    since: datetime | None = None


class SenderShown(BaseModel):
    """A number."""

    id: str
    tenant: str
    provider: str
    provider_id: str
    account: str
    display: str
    order: Order
    pace: PaceShown | None
    auth: AuthShown | None = Field(description="null: only a newer version can read it.")
    created_at: datetime | None


class SendersShown(Listed):
    """A page of numbers."""

    items: list[SenderShown]


class SenderConnected(SenderShown):
    """A number whose token the provider accepted."""

    token_expires_at: datetime | None = Field(description="When the token ends, if the provider says so.")


# ---- keys


class NewKey(Strict):
    """A key to make."""

    tenant: TenantId | None = Field(None, description="Whose; an operator's key makes another one without it.")
    scopes: list[Literal["send", "read", "dead:read", "manage"]] = Field(
        min_length=1, description="What it may do: only what the key that makes it may do too."
    )


class KeyShown(BaseModel):
    """A key, without its secret."""

    id: KeyId
    tenant: str | None = Field(description="null: an operator's, for all tenants.")
    scopes: list[Scope]
    created_at: datetime
    revoked_at: datetime | None


class KeyMade(KeyShown):
    """A new key. It is shown only now."""

    key: str


class KeysShown(Listed):
    """A page of keys."""

    items: list[KeyShown]
