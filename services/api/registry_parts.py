"""What the routes of the registry share: their parts, and their lists."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from flask import Response, jsonify

from services.api.lists import encoded, only_id
from services.api.registry_types import RegistryQuery
from shared import logs
from shared.bootstrap.api import ApiParts
from shared.domain.drains import RECONNECTED
from shared.domain.errors import QueueUnavailable, UnknownState
from shared.domain.tenants import DEFAULT_TENANT, Sender, Tenant
from shared.operations.claims import Claims
from shared.operations.drains import start_drains
from shared.operations.registry import tenant_entry
from shared.pipeline.clock import Clock
from shared.pipeline.ports import Queue, Store
from shared.pipeline.registry import EntryKind, Registry
from shared.tenants.entries import READERS, is_gone, read_tenant, tenant_name


@dataclass(frozen=True, slots=True)
class RegistryParts:
    """What these routes need. `pairs`: how many pairs of queues there are."""

    registry: Registry
    store: Store
    clock: Clock
    queue: Queue
    claims: Claims
    pairs: int

    @classmethod
    def of(cls, parts: ApiParts) -> Self:
        """The parts of this process's service."""
        claims = Claims(parts.registry, parts.clock, parts.tenants.senders_of_environment(), parts.connect)
        return cls(parts.registry, parts.store, parts.clock, parts.queue, claims, int(parts.config["TENANT_QUEUES"]))

    @property
    def environment(self) -> Sequence[Sender]:
        return self.claims.environment

    def start_drain(self, *senders: str, reason: str = RECONNECTED) -> None:
        """Send what waits of these senders (`Sender.id`), which may send for this reason. They may send by now, so a
        queue that takes no task costs their messages only some minutes, and is only logged. Raises StoreUnavailable.
        """
        try:
            start_drains(self.queue, self.store, self.clock, senders, reason)
        except QueueUnavailable as error:
            logs.event("unexpected_error", severity="WARNING", reason=error.code, stage="drain")

    def registry_tenant(self, id: str) -> Tenant | None:
        """None if there is none, or for tenant `default`, which has no entry. Raises UnknownState, StoreUnavailable."""
        (entry,) = self.registry.entries([tenant_name(id)])
        return read_tenant(entry) if entry else None


def page(
    parts: RegistryParts, kind: EntryKind, tenant: str | None, query: RegistryQuery, show: Callable[[Any], Any]
) -> Response:
    """A page of entries of a kind, of one tenant or of all. Those that only a newer version can read, and senders that
    are being removed, are left out.
    Raises Problem, NotFound and StoreUnavailable.
    """
    if tenant not in (None, DEFAULT_TENANT):
        tenant_entry(parts.registry, tenant or "")
    entries = parts.registry.entry_page(kind, tenant, only_id(query.cursor), query.limit)
    items = []
    for entry in entries:
        if is_gone(entry):
            continue
        try:
            items.append(show(READERS[kind](entry)))
        except UnknownState:
            continue
    next_ = encoded((entries[-1].name.id,)) if len(entries) == query.limit else None
    return jsonify({"items": items, "next": next_})
