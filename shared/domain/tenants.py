"""Tenants: the businesses of one deployment, their senders, and the keys of its API."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from shared.domain.identity import sender_id
from shared.domain.limits import DoubtPolicy

DEFAULT_TENANT = "default"
"""The tenant of the sender that the environment names. It needs no entry in the registry."""


def apart(tenant: str) -> tuple[str, ...]:
    """What keeps the ids that belong to a tenant's number apart from those of another tenant, which may have the number
    later. Nothing for tenant `default`: its ids are older than tenants.
    """
    return () if tenant == DEFAULT_TENANT else (tenant,)


CREDENTIAL_PREFIX, HANDLER_PREFIX = "pombo-credential-", "pombo-handler-"
"""How the names of secrets with access tokens, and with the signing keys of tenants' handlers, begin. IAM lets the
services read no other secrets of tenants.
"""


class TenantState(StrEnum):
    """Whether a tenant's messages are sent."""

    ACTIVE = "active"
    SUSPENDED = "suspended"  # sends wait; what customers write is handled


class Order(StrEnum):
    """Which messages of a sender are sent in order."""

    CONTACT = "contact"  # those to one contact
    SENDER = "sender"  # all of them: for gateways that send one at a time


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a sender may send, below its queue's rate: messages a second, and how many at once after a pause."""

    per_second: float
    burst: int = 1


@dataclass(frozen=True, slots=True)
class TenantHandler:
    """A tenant's own handler. `secret` names the secret that holds its list of signing keys, which all sign."""

    url: str
    secret: str


@dataclass(frozen=True, slots=True)
class Tenant:
    """A business. `queue` is the number of its pair of queues; None: the shared queues. A handler or an in-doubt policy
    of None is the deployment's.
    """

    id: str
    name: str = ""
    state: TenantState = TenantState.ACTIVE
    queue: int | None = None
    in_doubt: DoubtPolicy | None = None
    handler: TenantHandler | None = None
    created_at: datetime | None = None

    @property
    def suspended(self) -> bool:
        return self.state is TenantState.SUSPENDED


@dataclass(frozen=True, slots=True)
class Sender:
    """A number of ours: the provider's id of it, and its tenant. `account` is the provider's id of the account that
    holds it, "" if unknown. `credential` names the secret that holds its access token; "" is the environment's token.
    """

    tenant: str
    provider: str
    provider_id: str
    account: str = ""
    display: str = ""
    credential: str = ""
    order: Order = Order.CONTACT
    pace: Pace | None = None
    created_at: datetime | None = None

    @property
    def id(self) -> str:
        """Its id, and that of its marks: a hash, because the provider's id may be a phone number."""
        return sender_id(self.provider, self.provider_id)


class Scope(StrEnum):
    """What an API key may do."""

    SEND = "send"
    READ = "read"
    READ_DEAD = "dead:read"
    MANAGE = "manage"


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key of the API, without its secret: `digest` is the SHA-256 of that, in hex. A `tenant` of None is an
    operator's key, for all tenants.
    """

    id: str
    tenant: str | None
    digest: str = field(repr=False)
    scopes: frozenset[Scope]
    created_at: datetime
    revoked_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class QueueUse:
    """How many tenants each numbered pair of queues serves, and how many tenants are active."""

    tenants: Mapping[int, int] = field(default_factory=dict)
    active: int = 0
