"""Tenants, senders and keys as the commands show them: as JSON, and on lines."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from cli.dead.filters import unread_as_text
from cli.trace import stamp
from local import terminal
from local.terminal import LEAST_ID, Column
from shared.domain.tenants import ApiKey, Sender, Tenant
from shared.operations.senders import Auth

TENANTS = (Column("ID"), Column("STATE"), Column("QUEUE"), Column("NAME", 8), Column("HANDLER", 12))
SENDERS = (
    Column("ID", LEAST_ID),
    Column("TENANT"),
    Column("PROVIDER'S ID"),
    Column("ACCOUNT", 9),
    Column("DISPLAY", 8),
    Column("AUTH"),
)
KEYS = (Column("ID"), Column("TENANT"), Column("SCOPES"), Column("CREATED (UTC)"), Column("REVOKED (UTC)"))

DEPLOYMENTS = "the deployment's"


def tenant_as_dict(tenant: Tenant) -> dict[str, Any]:
    handler = tenant.handler
    return {
        "id": tenant.id,
        "name": tenant.name,
        "state": tenant.state.value,
        "queue": tenant.queue,
        "in_doubt": tenant.in_doubt.value if tenant.in_doubt else None,
        "handler": {"url": handler.url, "secret": handler.secret} if handler else None,
        "created_at": _stamp(tenant.created_at),
    }


def sender_as_dict(sender: Sender, auth: Auth | None) -> dict[str, Any]:
    """`auth` None: only a newer version can read its marks."""
    pace = sender.pace
    return {
        "id": sender.id,
        "tenant": sender.tenant,
        "provider": sender.provider,
        "provider_id": sender.provider_id,
        "account": sender.account,
        "display": sender.display,
        "credential": sender.credential,
        "order": sender.order.value,
        "pace": {"per_second": pace.per_second, "burst": pace.burst} if pace else None,
        "auth": {"state": auth.state, "code": auth.code, "since": _stamp(auth.since)} if auth else None,
        "created_at": _stamp(sender.created_at),
    }


def key_as_dict(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "tenant": key.tenant,
        "scopes": sorted(key.scopes),
        "created_at": _stamp(key.created_at),
        "revoked_at": _stamp(key.revoked_at),
    }


def tenant_row(tenant: Tenant) -> Sequence[str]:
    handler = terminal.plain(tenant.handler.url) if tenant.handler else DEPLOYMENTS
    return tenant.id, tenant.state, _queue(tenant), terminal.plain(tenant.name) or "-", handler


def sender_row(sender: Sender, auth: Auth | None) -> Sequence[str]:
    shown = (sender.provider_id, sender.account, sender.display)
    return sender.id, sender.tenant, *(terminal.plain(text) or "-" for text in shown), auth_as_text(auth)


def key_row(key: ApiKey) -> Sequence[str]:
    revoked = _minute(key.revoked_at)
    return key.id, key.tenant or "(operator)", ",".join(sorted(key.scopes)), _minute(key.created_at), revoked


def tenant_lines(tenant: Tenant, senders: int, keys: int) -> Iterator[str]:
    name = f" ({terminal.plain(tenant.name)})" if tenant.name else ""
    yield terminal.styled(f"Tenant {tenant.id}{name}: {tenant.state}", bold=True)
    shown = {
        "queue": _queue(tenant) if tenant.queue is not None else "the shared queues",
        "handler": tenant.handler.url if tenant.handler else DEPLOYMENTS,
        "in doubt": tenant.in_doubt or DEPLOYMENTS,
        "senders": f"{senders:,}",
        "keys": f"{keys:,} in force",
        "created": _minute(tenant.created_at),
    }
    yield from _fields(shown)


def sender_lines(sender: Sender, auth: Auth | None) -> Iterator[str]:
    yield terminal.styled(f"Sender {sender.id} of tenant {sender.tenant}: {auth_as_text(auth)}", bold=True)
    pace = f"{sender.pace.per_second:g} a second, {sender.pace.burst} at once" if sender.pace else "its queue's"
    shown = {
        "provider": f"{sender.provider} {sender.provider_id}",
        "account": sender.account or "-",
        "display": sender.display or "-",
        "credential": f"the secret {sender.credential}" if sender.credential else "the environment's token",
        "order": sender.order,
        "pace": pace,
        "created": _minute(sender.created_at),
    }
    yield from _fields(shown)


def auth_as_text(auth: Auth | None) -> str:
    """For example `needs_reauth (code 190) since 2026-03-01 12:00`."""
    if auth is None:
        return "unknown"
    return terminal.plain(str(auth)) + (f" since {_minute(auth.since)}" if auth.since else "")


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], unread: int, nothing: str) -> str:
    lines = list(terminal.table(columns, rows)) if rows else [nothing]
    return "\n".join([*lines, unread_as_text(unread)] if unread else lines)


def _fields(shown: Mapping[str, str]) -> Iterator[str]:
    width = max(map(len, shown))
    yield from (f"  {name:<{width}}  {terminal.plain(value)}" for name, value in shown.items())


def _queue(tenant: Tenant) -> str:
    return "-" if tenant.queue is None else str(tenant.queue)


def _stamp(at: datetime | None) -> str | None:
    return stamp(at) if at else None


def _minute(at: datetime | None) -> str:
    return f"{at:%Y-%m-%d %H:%M}" if at else "-"
