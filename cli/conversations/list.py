"""pombo conversations list: a tenant's conversations, that with the newest message first."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from cli.dead.filters import unread_as_text
from cli.running import data_dir_option, find
from cli.trace import stamp
from local import terminal
from local.terminal import LEAST_ID, Column
from shared.domain.conversations import Conversation
from shared.domain.tenants import DEFAULT_TENANT
from shared.operations.conversations import newest

SHOWN = 50

_COLUMNS = (
    Column("CONVERSATION", LEAST_ID),
    Column("LAST MESSAGE (UTC)"),
    Column("NUMBER", 8),
    Column("STATE"),
    Column("UNREAD"),
    Column("ASSIGNEE", 8),
)


@click.command("list")
@click.option("--tenant", default=DEFAULT_TENANT, show_default=True, help="List those of this tenant.")
@click.option("--limit", type=click.IntRange(1), default=SHOWN, show_default=True, help="List this many.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@data_dir_option
def list_conversations(tenant: str, limit: int, as_json: bool, data_dir: Path) -> None:
    """List conversations, that with the newest message first.

    NUMBER is your own number, by the provider's id. UNREAD counts the customer's messages that nobody has marked as
    read. Nothing of the customer is shown.

    \b
    Examples:
      pombo conversations list
      pombo conversations list --tenant bakery --limit 10 --json
    """
    page = newest(find(data_dir).store, tenant, limit + 1)
    shown, is_all = page.conversations[:limit], len(page.conversations) <= limit
    if as_json:
        listed = {"conversations": [as_dict(one) for one in shown], "is_all": is_all, "unreadable": page.unread}
        click.echo(terminal.as_json(listed))
    else:
        click.echo("\n".join(as_lines(shown, is_all, page.unread, tenant)))


def as_dict(of: Conversation) -> dict[str, Any]:
    """A conversation as JSON, without anything of the customer."""
    return {
        "id": of.id,
        "tenant": of.tenant,
        "provider": of.provider,
        "sender": of.sender,
        "state": of.state.value,
        "unread": of.unread,
        "assignee": of.assignee,
        "last_inbound_at": _stamp(of.last_inbound_at),
        "last_message_at": _stamp(of.last_message_at),
    }


def as_lines(shown: Sequence[Conversation], is_all: bool, unreadable: int, tenant: str) -> Iterator[str]:
    """A line for each, and how many more this version cannot read."""
    if not shown and not unreadable:
        yield f"The tenant {tenant} has no conversation: one begins with the first message in either direction."
    if shown:
        yield from terminal.table(_COLUMNS, [_row(one) for one in shown])
    if unreadable:
        yield unread_as_text(unreadable)
    if not is_all:
        yield f"These are the newest {len(shown):,}; --limit shows more."


def _row(of: Conversation) -> tuple[str, ...]:
    at = f"{of.last_message_at:%Y-%m-%d %H:%M:%S}" if of.last_message_at else "-"
    return of.id, at, of.sender, of.state, f"{of.unread:,}", of.assignee or "-"


def _stamp(at: datetime | None) -> str | None:
    return stamp(at) if at else None
