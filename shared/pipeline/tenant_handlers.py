"""Tenants' handlers: which code answers a tenant's customers, the deployment's handler or the tenant's own backend."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from shared.domain.errors import SecretsUnavailable
from shared.domain.message_kinds import includes
from shared.domain.tenants import TenantHandler
from shared.pipeline.backend_marks import BackendMarks
from shared.pipeline.ports import Handler, Tenants

MOST = 100
"""Tenants' own handlers that a process keeps, each with its connections and TLS context. Of more, those used last stay;
another one costs a new connection and a read of its mark.
"""


@dataclass(frozen=True, slots=True)
class TenantCode:
    """The code that answers a tenant's customers, and the marks of its backend. `close` ends its connections, each once
    its call has ended.
    """

    handler: Handler
    marks: BackendMarks
    close: Callable[[], None] = lambda: None


class Handlers(Protocol):
    """Which code answers whose customers. `handles` and `of` raise RegistryUnavailable and SecretsUnavailable."""

    def handles(self, tenant: str, kind: str) -> bool:
        """Whether the tenant's handler is called for this kind of message. Reads no secret."""
        ...

    def of(self, tenant: str) -> TenantCode:
        """The tenant's handler."""
        ...

    def own_backends_down(self) -> int:
        """How many tenants' own backends count as down, of those that this process called lately. Reads nothing."""
        ...


MakeHandler = Callable[[str, TenantHandler, str], TenantCode]
"""Makes a tenant's own handler from the tenant's id, its settings, and the value of its secret. Makes no call. Raises
SecretsUnavailable if the value is not one that can sign.
"""


@dataclass(frozen=True, slots=True)
class _Kept:
    settings: TenantHandler
    secret: str = field(repr=False)
    code: TenantCode


class TenantHandlers:
    """The deployment's handler, and the own handlers of the tenants that have one, made on their first event.

    A changed address or secret is in use once the registry (5 s) and `secret_of` (60 s) no longer give the old one.
    `kinds`: the kinds of message that a tenant's own handler is called for.
    """

    def __init__(
        self,
        deployment: TenantCode,
        tenants: Tenants,
        secret_of: Callable[[str], str | None],
        make: MakeHandler,
        kinds: frozenset[str],
    ) -> None:
        self._deployment = deployment
        self._tenants = tenants
        self._secret_of = secret_of
        self._make = make
        self._kinds = kinds
        self._lock = threading.Lock()
        self._kept: dict[str, _Kept] = {}  # the one used last is at the end

    def handles(self, tenant: str, kind: str) -> bool:
        if self._own(tenant):
            return includes(self._kinds, kind)
        return self._deployment.handler.handles(kind)

    def of(self, tenant: str) -> TenantCode:
        own = self._own(tenant)
        if own is None:
            self._forget(tenant)
            return self._deployment
        secret = self._secret_of(own.secret)
        if not secret:
            raise SecretsUnavailable("The secret of the tenant's handler does not exist, or has no enabled version.")
        with self._lock:
            return self._current(tenant, own, secret)

    def own_backends_down(self) -> int:
        with self._lock:
            kept = [*self._kept.values()]
        return sum(one.code.marks.counts_as_down() for one in kept)

    def _own(self, tenant: str) -> TenantHandler | None:
        """The tenant's own handler, if it has one. A removed tenant's events go to nobody: they wait until they are
        dead letters.
        """
        found = self._tenants.tenant(tenant)
        if found is None:
            raise SecretsUnavailable("The tenant of this event does not exist.")
        return found.handler

    def _current(self, tenant: str, own: TenantHandler, secret: str) -> TenantCode:
        kept = self._kept.pop(tenant, None)
        if kept is None or (kept.settings, kept.secret) != (own, secret):
            if kept:
                kept.code.close()
            kept = _Kept(own, secret, self._make(tenant, own, secret))
        self._kept[tenant] = kept
        if len(self._kept) > MOST:
            self._kept.pop(next(iter(self._kept))).code.close()
        return kept.code

    def _forget(self, tenant: str) -> None:
        """The tenant has no handler of its own any more."""
        with self._lock:
            kept = self._kept.pop(tenant, None)
        if kept:
            kept.code.close()
