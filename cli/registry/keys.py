"""pombo keys: the keys of the API."""

from pathlib import Path

import click

from cli.registry import output
from cli.registry.context import json_option, open_registry, registry_for, say
from cli.running import data_dir_option
from shared.domain.tenants import Scope
from shared.operations.keys import add_key, revoke_key
from shared.operations.registry import values_of
from shared.pipeline.registry import EntryKind


@click.group()
def keys() -> None:
    """Add, list and revoke keys of the API.

    \b
    Examples:
      pombo keys add --tenant bakery --scopes send,read
      pombo keys list
      pombo keys revoke 8d0f3a1c5e7b9624
    """


def _scopes(_context: click.Context, _parameter: click.Parameter, value: str) -> frozenset[Scope]:
    try:
        return frozenset(Scope(name.strip()) for name in value.split(","))
    except ValueError:
        raise click.BadParameter(f"give one or more of {', '.join(Scope)}, separated by commas.") from None


@keys.command()
@click.option("--tenant", help="Whose key it is; without it, an operator's, for all tenants.")
@click.option(
    "--scopes",
    required=True,
    callback=_scopes,
    metavar="SCOPES",
    help="What it may do: send, read, dead:read, manage, separated by commas.",
)
@json_option
@data_dir_option
def add(tenant: str | None, scopes: frozenset[Scope], as_json: bool, data_dir: Path) -> None:
    """Make a key, and show it once. Pombo keeps only a hash of it.

    \b
    Examples:
      pombo keys add --tenant bakery --scopes send,read
      pombo keys add --scopes read,dead:read,manage --json
    """
    context = open_registry(data_dir)
    key, text = add_key(context.registry, context.clock, tenant, scopes)
    whose = f"of tenant {tenant}" if tenant else "of an operator, for all tenants"
    say(as_json, {"id": key.id, "key": text}, f"Key {key.id} {whose}. It is shown only now:\n{text}")


@keys.command("list")
@click.option("--tenant", help="Only this tenant's.")
@json_option
@data_dir_option
def list_keys(tenant: str | None, as_json: bool, data_dir: Path) -> None:
    """List keys, without their secrets; also those that were revoked.

    \b
    Examples:
      pombo keys list
      pombo keys list --tenant bakery --json
    """
    found = list(values_of(registry_for(data_dir, tenant).registry, EntryKind.KEY, tenant))
    known = sorted((key for key in found if key is not None), key=lambda key: key.created_at, reverse=True)
    unread = len(found) - len(known)
    as_dict = {"keys": [output.key_as_dict(key) for key in known], "unread": unread}
    say(
        as_json,
        as_dict,
        output.table(output.KEYS, [output.key_row(key) for key in known], unread, "There are no keys."),
    )


@keys.command()
@click.argument("id")
@json_option
@data_dir_option
def revoke(id: str, as_json: bool, data_dir: Path) -> None:
    """End a key: the API refuses it within 5 seconds.

    ID is the part of the key between its two underscores, or 8 or more of its characters.

    \b
    Examples:
      pombo keys revoke 8d0f3a1c5e7b9624
      pombo keys revoke 8d0f3a1c --json
    """
    context = open_registry(data_dir)
    key = revoke_key(context.registry, context.clock, id)
    say(as_json, output.key_as_dict(key), f"Key {key.id} is revoked.")
