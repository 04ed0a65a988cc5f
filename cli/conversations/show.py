"""pombo conversations show: one conversation, and its messages in both directions."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from cli.conversations.list import as_dict
from cli.dead.filters import unread_as_text
from cli.running import data_dir_option, find
from cli.trace import stamp
from local import terminal
from local.terminal import LEAST_ID, Column
from shared.domain.conversations import Conversation
from shared.domain.identity import is_id_prefix
from shared.domain.record import Delivery, Kind
from shared.domain.tenants import DEFAULT_TENANT
from shared.operations.conversations import NEWEST, PAGE, beginning_with, conversation, messages
from shared.pipeline.ports import Page, Store

SHOWN = 50

_COLUMNS = (
    Column("RECEIVED (UTC)"),
    Column("DIRECTION"),
    Column("STATE"),
    Column("KEY", LEAST_ID),
    Column("AFTER", LEAST_ID),
)


@click.command()
@click.argument("id")
@click.option("--tenant", default=DEFAULT_TENANT, show_default=True, help="Search for a part of an id at this tenant.")
@click.option("--limit", type=click.IntRange(1), default=SHOWN, show_default=True, help="Show this many messages.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@data_dir_option
def show(id: str, tenant: str, limit: int, as_json: bool, data_dir: Path) -> None:
    """Show a conversation and its messages, the newest first.

    ID is 8 or more characters of its id, as pombo conversations list shows it. AFTER is the message that was sent, or
    must be sent, before this one; pombo trace KEY shows more of each. The customer's number or user id is shown, a
    number of Mexico, Argentina or Brazil in the shorter of its two forms.

    \b
    Examples:
      pombo conversations show 4f1c2a90
      pombo conversations show 4f1c2a90 --tenant bakery --json
    """
    store = find(data_dir).store
    of = _found(store, id.removesuffix("…").removesuffix("..."), tenant)
    page = _messages(store, of, limit + 1)
    shown, is_all = page.records[:limit], len(page.records) <= limit
    if as_json:
        listed = {**as_dict(of), **_customer(of), "messages": [_as_dict(one) for one in shown]}
        click.echo(terminal.as_json({**listed, "is_all": is_all, "unreadable": page.unread}))
    else:
        click.echo("\n".join(_as_lines(of, shown, is_all, page.unread)))


def _found(store: Store, id: str, tenant: str) -> Conversation:
    """The one conversation that is meant. Raises ClickException."""
    if not is_id_prefix(id):
        raise click.ClickException(
            "Give 8 or more characters of the id of a conversation; list them with: pombo conversations list."
        )
    whole = conversation(store, id)
    if whole is not None:
        return whole
    page = beginning_with(store, tenant, id)
    found = page.conversations
    if len(found) == 1:
        return found[0]
    if found:
        raise click.ClickException(f"{len(found)} ids start with this; give more characters.")
    if page.unread:
        raise click.ClickException(
            f"None of the newest {NEWEST:,} conversations of the tenant {tenant} that can be read begins with this id. "
            + unread_as_text(page.unread)
        )
    raise click.ClickException(
        f"No conversation has this id, and none of the newest {NEWEST:,} of the tenant {tenant} begins with it; "
        "list them with: pombo conversations list."
    )


def _messages(store: Store, of: Conversation, limit: int) -> Page:
    """The newest messages, at least `limit` if there are so many, and how many beside them cannot be read."""
    found, unread, after = list[Delivery](), 0, None
    while len(found) < limit:
        page = messages(store, of, after, PAGE)
        found += page.records
        unread, after = unread + page.unread, page.ends_at
        if after is None:
            break
    return Page(found, unread, after)


def _customer(of: Conversation) -> dict[str, Any]:
    return {"contact": of.contact, "aliases": sorted(of.aliases), "lost": sorted(of.lost)}


def _as_dict(record: Delivery) -> dict[str, Any]:
    return {
        "key": record.key,
        "direction": record.kind.value,
        "correlation_id": record.correlation_id,
        "state": record.state.value,
        "received_at": stamp(record.received_at),
        "after": record.after,
    }


def _as_lines(of: Conversation, shown: Sequence[Delivery], is_all: bool, unreadable: int) -> Iterator[str]:
    names = (of.contact, *sorted(of.aliases - {of.contact}))
    named = ", ".join(f"{name} (no longer)" if name in of.lost else name for name in names)
    yield terminal.styled(f"Conversation {of.id}", bold=True)
    yield f"  tenant {of.tenant}, number {of.sender}, customer {named}"
    yield f"  {of.state}, {of.unread:,} unread, {f'assigned to {of.assignee}' if of.assignee else 'assigned to nobody'}"
    if not shown and not unreadable:
        yield "  Its messages are kept no longer."
    if shown:
        yield ""
        yield from terminal.table(_COLUMNS, [_row(one) for one in shown])
    if unreadable:
        yield unread_as_text(unreadable)
    if not is_all:
        yield f"These are the newest {len(shown):,}; --limit shows more."


def _row(record: Delivery) -> tuple[str, ...]:
    direction = "in" if record.kind is Kind.INBOUND else "out"
    return f"{record.received_at:%Y-%m-%d %H:%M:%S}", direction, record.state, record.key, record.after or "-"
