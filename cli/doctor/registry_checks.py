"""The registry checks of doctor: whether the counts of the pairs of queues are right, which senders cannot send, and
which tenants' handlers cannot be called.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from cli.doctor.checks import StoreFailed, Wrong
from shared.domain.errors import SecretsUnavailable, StoreUnavailable, UnknownState
from shared.domain.tenants import Sender, Tenant
from shared.operations.registry import being_removed, queue_use, unreadable, values_of
from shared.operations.senders import auth_of, troubled
from shared.pipeline.ports import Secrets, Store
from shared.pipeline.registry import EntryKind, Registry

SHOWN = 5
"""Senders and tenants in trouble that are named, and entries that cannot be read."""

T = TypeVar("T")


def registry(registry: Registry, pairs: int, secrets: Secrets | None = None) -> str:
    """Count the tenants of each pair of queues again, and look in `secrets` for the signing secrets of their own
    handlers, unless that is None.
    """
    _check_entries(registry)
    tenants = _of_registry(lambda: [*filter(None, values_of(registry, EntryKind.TENANT, None))])
    senders = _of_registry(lambda: sum(1 for _ in values_of(registry, EntryKind.SENDER, None)))
    use = _of_registry(lambda: queue_use(registry))
    counted = Counter(tenant.queue for tenant in tenants if tenant.queue is not None)
    active = sum(not tenant.suspended for tenant in tenants)
    if (counted, active) != (use.tenants, use.active):
        raise Wrong(
            "The counts of the pairs of queues differ from their tenants. If nobody changed a tenant just now, new "
            "tenants may share a pair that is not the emptiest."
        )
    beyond = sum(count for pair, count in counted.items() if pair >= pairs)
    if beyond:
        raise Wrong(
            f"{_many(beyond, 'tenant')} of {len(tenants):,} have a pair of queues beyond TENANT_QUEUES ({pairs}), so "
            "they use the shared queues: raise it, here as in the services."
        )
    if secrets:
        _check_handlers(tenants, secrets)
    busiest = f", at most {max(counted.values()):,} on one of {pairs} pairs of queues" if counted else ""
    return f"{_many(len(tenants), 'tenant')} beside default ({active:,} active), {_many(senders, 'sender')}{busiest}."


def _check_entries(registry: Registry) -> None:
    damaged = _of_registry(lambda: ["/".join(name) for name in unreadable(registry)])
    if damaged:
        raise Wrong(
            "The registry has entries that cannot be read, because a newer version of Pombo wrote them or they were "
            f"damaged: {_some(damaged)}. Messages of their tenants wait."
        )
    removed = _of_registry(lambda: [id[:8] for id in being_removed(registry)])
    if removed:
        raise Wrong(
            f"The removal of {_many(len(removed), 'sender')} has not ended: {_some(removed)}. Until it ends, no tenant "
            "has or can add their numbers. Unless it is running now, run pombo senders remove again."
        )


def _check_handlers(tenants: Iterable[Tenant], secrets: Secrets) -> None:
    without = [
        f"{tenant.id} has no secret {tenant.handler.secret}"
        for tenant in tenants
        if tenant.handler and _of_registry(partial(secrets.newest, tenant.handler.secret)) is None
    ]
    if without:
        raise Wrong(
            f"The handlers of {_many(len(without), 'tenant')} cannot be called: {_some(without)}. What their customers "
            "write waits until pombo tenants set ID --handler-secret - stores the secret again."
        )


def senders(store: Store, registry: Registry, environment: Sequence[Sender], secrets: Secrets | None) -> str:
    """Name the senders that cannot send, as far as past answers tell, and those whose secret is missing in `secrets`,
    unless that is None.
    """
    known = {sender.id: sender for sender in environment}
    known |= {
        sender.id: sender
        for sender in _of_registry(lambda: list(values_of(registry, EntryKind.SENDER, None)))
        if sender is not None
    }
    found = [known[id] for id in _of_registry(lambda: list(troubled(store))) if id in known]
    troubles = {sender.id: trouble for sender in found if (trouble := _trouble(store, sender))}
    if secrets:
        troubles |= _without_secret(known.values(), secrets)
    if troubles:
        said = [*troubles.values()]
        raise Wrong(
            f"{_many(len(said), 'sender')} cannot send: {_some(said)}. See pombo senders list, and docs/tenants.md for "
            "what to do about each."
        )
    return f"Nothing is known against {_many(len(known), 'sender')}."


def _trouble(store: Store, sender: Sender) -> str | None:
    """None if its marks hold nothing that counts, as the refusal of a credential that was replaced."""
    auth = auth_of(_of_registry(lambda: store.marks(sender.id)))
    return f"{sender.id[:8]} of {sender.tenant} is {auth}" if auth.state != "connected" else None


def _without_secret(senders: Iterable[Sender], secrets: Secrets) -> dict[str, str]:
    return {
        sender.id: f"{sender.id[:8]} of {sender.tenant} has no secret {sender.credential}"
        for sender in senders
        if sender.credential and _of_registry(partial(secrets.newest, sender.credential)) is None
    }


def _of_registry(call: Callable[[], T]) -> T:
    try:
        return call()
    except StoreUnavailable as error:
        raise StoreFailed(f"Cannot be checked without the store: {error.sentence}") from error
    except (UnknownState, SecretsUnavailable) as error:
        raise Wrong(error.sentence) from error


def _some(named: Sequence[str]) -> str:
    more = f" and {len(named) - SHOWN:,} more" if len(named) > SHOWN else ""
    return f"{'; '.join(named[:SHOWN])}{more}"


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
