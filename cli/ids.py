"""Ids as an operator types them, resolved for every command that takes one."""

from collections.abc import Sequence
from datetime import UTC, datetime

import click

from cli.running import Running
from local import terminal
from shared.bootstrap.channels import reading
from shared.domain.identity import LEAST_PREFIX, is_id_prefix
from shared.operations import lookup
from shared.operations.lookup import Ambiguous, LookupResult, Match

NOTHING_KNOWN = (
    f"No record has this id: give {LEAST_PREFIX} or more characters of a correlation id, event id or key, or a whole "
    "WhatsApp message id."
)

IN_LOG = "in the log"


def find(running: Running, id: str, tenant: str | None = None) -> LookupResult | None:
    """All records of the event that this id or prefix belongs to. If several ids start with it, shows them and raises
    ClickException. A WhatsApp message id is searched for at the senders of `tenant`, or of all tenants.
    """
    try:
        return lookup.find(running.store, _typed(id), sorted(reading()), running.senders_of(tenant))
    except Ambiguous as error:
        raise _ambiguous(error.matches, error.more) from error


def in_log(running: Running, id: str) -> str:
    """The full id in the log for this prefix; the prefix itself if there is none. Raises ClickException, as `find`."""
    id = _typed(id)
    if not is_id_prefix(id):
        return id
    found = running.ids_in_log(id)
    if id in found or not found:
        return id
    if len(found) == 1:
        return next(iter(found))
    matches = [Match(one, IN_LOG, _moment(at)) for one, at in sorted(found.items())]
    raise _ambiguous(matches[: lookup.MATCHES], more=len(matches) > lookup.MATCHES)


def _typed(id: str) -> str:
    """The id without the ellipsis that a table put behind it."""
    return id.removesuffix("…").removesuffix("...")


def _ambiguous(matches: Sequence[Match], more: bool) -> click.ClickException:
    columns = [terminal.Column("ID"), terminal.Column("KIND"), terminal.Column("SINCE (UTC)")]
    rows = [(match.id, match.kind, f"{match.at:%Y-%m-%d %H:%M:%S}" if match.at else "-") for match in matches]
    click.echo("\n".join(terminal.table(columns, rows)), err=True)
    many = f"More than {len(matches)}" if more else f"{len(matches)}"
    return click.ClickException(f"{many} ids start with this; give more characters.")


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        return None
