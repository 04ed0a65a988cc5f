"""Callers of the API: who presents a key, what the key is for, and what a route needs of it."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from flask import Request, g

from services.api.problems import FORBIDDEN, INVALID_REQUEST, NOT_FOUND, RATE_LIMITED, UNAUTHORIZED, Problem
from services.api.rate_limits import RateLimits
from shared.domain.tenants import ApiKey, Scope
from shared.operations.keys import is_right, parse_key
from shared.tenants.api_keys import ApiKeys

IN_QUERY = frozenset({"key", "api_key", "apikey", "access_token", "token", "authorization"})
"""Parameters in which a caller might send a key. URLs are logged, so a key in one is refused, not used."""

NOBODY = ApiKey("", None, hashlib.sha256(b"").hexdigest(), frozenset(), datetime.min)  # noqa: DTZ901 - of no key
"""Compared with when there is no such key, so that the answer takes as long."""


View = TypeVar("View", bound=Callable[..., Any])
_NEEDS = "needs"


@dataclass(frozen=True, slots=True)
class Needs:
    """What a route needs of a key. `operator`: it takes no tenant's key."""

    scope: Scope
    operator: bool = False


def needs(scope: Scope, *, operator: bool = False) -> Callable[[View], View]:
    """Mark the view of a route with what it needs of a key: that is checked before anything of the request is read."""

    def mark(view: View) -> View:
        setattr(view, _NEEDS, Needs(scope, operator))
        return view

    return mark


def needs_of(view: Callable[..., Any]) -> Needs | None:
    """What a view was marked with."""
    found: Needs | None = getattr(view, _NEEDS, None)
    return found


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever made a request. `tenant` None: an operator, who may name any tenant."""

    key: str
    tenant: str | None
    scopes: frozenset[Scope]

    def check(self, needs: Needs, tenant: str | None) -> None:
        """`tenant`: whom the path of an operator's route names; another's tenant does not exist for the caller. Raises
        Problem unless the key is enough.
        """
        if needs.scope not in self.scopes:
            raise Problem(FORBIDDEN, f"The API key lacks the scope {needs.scope}.")
        if needs.operator and self.tenant is not None:
            if tenant is not None and not self.may_see(tenant):
                raise Problem(NOT_FOUND)
            raise Problem(FORBIDDEN, "Only an operator's key may do this.")

    def may_see(self, tenant: str | None) -> bool:
        """Whether what belongs to this tenant exists for the caller; None: to an operator."""
        return self.tenant is None or self.tenant == tenant

    def chosen(self, tenant: str | None) -> str | None:
        """The tenant whose things are listed: the caller's own, or for an operator the one that is asked for."""
        if self.tenant is not None and tenant not in (None, self.tenant):
            raise Problem(NOT_FOUND)
        return self.tenant or tenant


@dataclass(frozen=True, slots=True)
class Callers:
    """Authenticates requests, before any body is read."""

    keys: ApiKeys
    limits: RateLimits

    def caller(self, request: Request) -> Caller:
        """Raises Problem, TooManyLooks and RegistryUnavailable. Missing, malformed, unknown, wrong and revoked keys are
        answered alike.
        """
        if in_query := IN_QUERY & {name.lower() for name in request.args}:
            sentence = "An API key belongs in the header Authorization, never in a URL."
            raise Problem(INVALID_REQUEST, sentence, min(in_query))
        scheme, _, text = request.headers.get("Authorization", "").partition(" ")
        presented = parse_key(text.strip()) if scheme.lower() == "bearer" else None
        if presented is None:
            raise Problem(UNAUTHORIZED)
        found = self.keys.find(presented.id)
        if not is_right(found or NOBODY, presented) or found is None:
            raise Problem(UNAUTHORIZED)
        self.keys.was_right(presented.id)
        return Caller(found.id, found.tenant, found.scopes)

    def check_rate(self, caller: Caller) -> None:
        """Count a request of this caller. Raises Problem if its key makes too many."""
        if wait := self.limits.take(caller.key):
            raise Problem(RATE_LIMITED, retry_after=wait)


def the_caller() -> Caller:
    """Who made this request. The key is enough for the route."""
    caller: Caller = g.caller
    return caller
