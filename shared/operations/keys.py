"""API keys: `pombo_<id>_<secret>`. The secret has 256 random bits; the registry keeps only its SHA-256."""

import hashlib
import hmac
import re
import secrets
from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from shared.domain.tenants import DEFAULT_TENANT, ApiKey, Scope
from shared.operations.registry import Decided, Invalid, NotFound, beginning_with, commit, tenant_entry
from shared.pipeline.clock import Clock
from shared.pipeline.registry import EntryKind, Registry
from shared.tenants.entries import key_name, read_key, unchanged, write_key

ID_BYTES, SECRET_BYTES = 8, 32

_ID = re.compile(r"[0-9a-f]{16}")
_KEY = re.compile(r"pombo_([0-9a-f]{16})_([0-9a-f]{64})")


class PresentedKey(NamedTuple):
    """A key as a caller presents it: its id, and the SHA-256 of its secret."""

    id: str
    digest: str


def parse_key(text: str) -> PresentedKey | None:
    """None if it has not the form of a key."""
    match = _KEY.fullmatch(text)
    return PresentedKey(match[1], _digest(match[2])) if match else None


def is_right(key: ApiKey, presented: PresentedKey) -> bool:
    """Whether the secret is this key's, in constant time, and the key is in force."""
    is_same = hmac.compare_digest(key.digest, presented.digest)
    return is_same and key.revoked_at is None


def add_key(registry: Registry, clock: Clock, tenant: str | None, scopes: Collection[Scope]) -> tuple[ApiKey, str]:
    """Make a key of a tenant, or with None an operator's. Returns it and its text, which is shown once and cannot be
    had again. Raises Refused, UnknownState and StoreUnavailable.
    """
    if not scopes:
        raise Invalid("scopes", f"A key needs at least one scope: {', '.join(Scope)}.")
    id, secret = secrets.token_hex(ID_BYTES), secrets.token_hex(SECRET_BYTES)
    key = ApiKey(id, tenant, _digest(secret), frozenset(scopes), clock.now())

    def decide() -> Decided[ApiKey]:
        if tenant is None or tenant == DEFAULT_TENANT:
            return [write_key(key, None)], key
        # The tenant's entry too: its removal must not come between.
        return [unchanged(tenant_entry(registry, tenant)), write_key(key, None)], key

    return commit(registry, clock, decide), f"pombo_{id}_{secret}"


def put_back(registry: Registry, clock: Clock, presented: PresentedKey) -> bool:
    """Put an operator's key of every scope into a registry that does not have its id. Returns whether this very key is
    in force there now: False if it was revoked, or if the id is another key's. Raises UnknownState and
    StoreUnavailable.
    """
    fresh = ApiKey(presented.id, None, presented.digest, frozenset(Scope), clock.now())

    def decide() -> Decided[bool]:
        found = registry.entries([key_name(presented.id)])[0]
        return ([], is_right(read_key(found), presented)) if found else ([write_key(fresh, None)], True)

    return commit(registry, clock, decide)


def revoke_key(registry: Registry, clock: Clock, id: str) -> ApiKey:
    """End a key, given by its id or 8 or more characters of it; it stays in the list. Idempotent. Raises NotFound,
    UnknownState and StoreUnavailable.
    """

    def decide() -> Decided[ApiKey]:
        exact = registry.entries([key_name(id)])[0] if _ID.fullmatch(id) else None
        found = exact or beginning_with(registry, EntryKind.KEY, id)
        if found is None:
            raise NotFound("There is no such key: pombo keys list shows their ids.")
        key = read_key(found)
        if key.revoked_at is not None:
            return [], key
        revoked = replace(key, revoked_at=clock.now())
        return [write_key(revoked, found)], revoked

    return commit(registry, clock, decide)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
