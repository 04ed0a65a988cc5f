"""pombo tenants: the businesses of this deployment."""

from dataclasses import replace
from pathlib import Path

import click

from cli.registry import output
from cli.registry.context import (
    confirm_id,
    handler_url,
    hint,
    json_option,
    name,
    open_registry,
    say,
    yes_option,
)
from cli.registry.drains import start_drains
from cli.registry.handler_of_tenant import check_address, set_handler, show_made, signing_secret
from cli.running import data_dir_option
from local.invocation import program
from shared.domain.drains import RESUMED
from shared.domain.errors import PomboError
from shared.domain.limits import DoubtPolicy
from shared.domain.tenants import Tenant
from shared.operations import registry
from shared.operations.registry import entries_of, values_of
from shared.pipeline.registry import EntryKind

DEPLOYMENT = "deployment"
"""The value of --in-doubt that takes the deployment's policy."""


@click.group()
def tenants() -> None:
    """Add, list, change, suspend and remove tenants: the businesses of this deployment.

    The number of the environment belongs to tenant default, which needs no entry here.

    \b
    Examples:
      pombo tenants add bakery --name "Ana's bakery"
      pombo tenants list
      pombo tenants suspend bakery
    """


_name_option = click.option("--name", callback=name, help="A name for people.")
_url_option = click.option(
    "--handler-url", callback=handler_url, metavar="URL", help="Its own backend, called like HANDLER_URL."
)
_secret_option = click.option(
    "--handler-secret",
    metavar="-",
    help="Read the whsec_... that signs the calls of its backend from standard input; without it one is made.",
)


@tenants.command()
@click.argument("id")
@_name_option
@_url_option
@_secret_option
@json_option
@data_dir_option
def add(
    id: str, name: str | None, handler_url: str | None, handler_secret: str | None, as_json: bool, data_dir: Path
) -> None:
    """Add a tenant, with the pair of queues that serves the fewest tenants.

    ID has 1 to 63 characters of a-z, 0-9 and -, and is in log lines and lists. Prints the number of the pair of queues.

    \b
    Examples:
      pombo tenants add bakery --name "Ana's bakery"
      pombo tenants add bakery --json
      pombo tenants add bakery --handler-url https://bakery.example/pombo
      pombo tenants add bakery --handler-url https://bakery.example/pombo --handler-secret - < secret.txt
    """
    if handler_secret and not handler_url:
        raise click.UsageError("--handler-secret needs --handler-url.")
    secret = signing_secret(handler_secret)
    context = open_registry(data_dir)
    check_address(context, handler_url)
    added = registry.add_tenant(context.registry, context.clock, Tenant(id, name or ""), context.pairs)
    made = None
    if handler_url:
        try:
            made = set_handler(context, added, handler_url, secret)
        except PomboError as error:
            hint(f"Tenant {id} was added without its handler: pombo tenants set {id} --handler-url sets it.")
            raise error from None
    told = {"id": added.id, "queue": added.queue}
    where = "the shared queues" if added.queue is None else f"pair {added.queue} of the queues"
    say(as_json, told | ({"handler_secret": made} if made else {}), f"Added tenant {added.id}, with {where}.")
    if not as_json:
        show_made(made)
        hint(f"Next, connect its number: {program()} senders add --tenant {added.id} ... (its --help has examples)")


@tenants.command("list")
@json_option
@data_dir_option
def list_tenants(as_json: bool, data_dir: Path) -> None:
    """List all tenants of the registry.

    \b
    Examples:
      pombo tenants list
      pombo tenants list --json
    """
    found = list(values_of(open_registry(data_dir).registry, EntryKind.TENANT, None))
    known = [tenant for tenant in found if tenant is not None]
    unread = len(found) - len(known)
    as_dict = {"tenants": [output.tenant_as_dict(tenant) for tenant in known], "unread": unread}
    nothing = "There are no tenants but default: pombo tenants add ID adds one."
    say(as_json, as_dict, output.table(output.TENANTS, [output.tenant_row(it) for it in known], unread, nothing))


@tenants.command()
@click.argument("id")
@json_option
@data_dir_option
def show(id: str, as_json: bool, data_dir: Path) -> None:
    """Show a tenant, and how many senders and keys it has.

    \b
    Examples:
      pombo tenants show bakery
    """
    context = open_registry(data_dir)
    tenant = registry.find_tenant(context.registry, id)
    senders = sum(1 for _ in values_of(context.registry, EntryKind.SENDER, id))
    keys = sum(key is None or key.revoked_at is None for key in values_of(context.registry, EntryKind.KEY, id))
    as_dict = {**output.tenant_as_dict(tenant), "senders": senders, "keys": keys}
    say(as_json, as_dict, "\n".join(output.tenant_lines(tenant, senders, keys)))


@tenants.command("set")
@click.argument("id")
@_name_option
@_url_option
@click.option("--no-handler", is_flag=True, help="Use the deployment's handler again.")
@_secret_option
@click.option(
    "--in-doubt",
    type=click.Choice([*(policy.value for policy in DoubtPolicy), DEPLOYMENT]),
    help="What to do with a message whose answer was lost and whose receipt never came.",
)
@json_option
@data_dir_option
def set_tenant(
    id: str,
    name: str | None,
    handler_url: str | None,
    no_handler: bool,
    handler_secret: str | None,
    in_doubt: str | None,
    as_json: bool,
    data_dir: Path,
) -> None:
    """Change a tenant's name, handler or in-doubt policy. All services use the change within 5 seconds.

    A new signing secret is in use within 60 seconds: let the backend accept both meanwhile.

    \b
    Examples:
      pombo tenants set bakery --name "Ana's bakeries" --in-doubt hold
      pombo tenants set bakery --handler-url https://bakery.example/pombo
      pombo tenants set bakery --handler-secret - < secret.txt
      pombo tenants set bakery --no-handler
    """
    if no_handler and (handler_url or handler_secret):
        raise click.UsageError("Give either --no-handler or the handler's options, not both.")
    if name is None and not (handler_url or no_handler or handler_secret or in_doubt):
        raise click.UsageError(
            "Give what to change: --name, --handler-url, --no-handler, --handler-secret, --in-doubt."
        )
    secret = signing_secret(handler_secret)
    context = open_registry(data_dir)
    check_address(context, handler_url)
    before, made = registry.find_tenant(context.registry, id), None
    if handler_url or secret:
        made = set_handler(context, before, handler_url, secret)

    def change(tenant: Tenant) -> Tenant:
        policy = tenant.in_doubt if in_doubt is None else None if in_doubt == DEPLOYMENT else DoubtPolicy(in_doubt)
        handler = None if no_handler else tenant.handler
        return replace(tenant, name=tenant.name if name is None else name, in_doubt=policy, handler=handler)

    after = registry.set_tenant(context.registry, context.clock, id, change)
    if no_handler and before.handler:
        context.forget_secret(before.handler.secret, f"The handler of tenant {id}")
    say(as_json, output.tenant_as_dict(after) | ({"handler_secret": made} if made else {}), f"Changed tenant {id}.")
    if not as_json:
        show_made(made)


@tenants.command()
@click.argument("id")
@json_option
@data_dir_option
def suspend(id: str, as_json: bool, data_dir: Path) -> None:
    """Let a tenant's messages wait. What its customers write is still received and handled.

    Takes effect within 5 seconds. Waiting messages keep their age: MESSAGE_MAX_AGE ends them.

    \b
    Examples:
      pombo tenants suspend bakery
    """
    context = open_registry(data_dir)
    tenant = registry.suspend(context.registry, context.clock, id)
    say(as_json, output.tenant_as_dict(tenant), f"Tenant {id} is suspended: its messages wait until you resume it.")


@tenants.command()
@click.argument("id")
@json_option
@data_dir_option
def resume(id: str, as_json: bool, data_dir: Path) -> None:
    """End a suspension, and send what waits.

    \b
    Examples:
      pombo tenants resume bakery
    """
    context = open_registry(data_dir)
    tenant = registry.resume(context.registry, context.clock, id)
    senders = (entry.name.id for entry in entries_of(context.registry, EntryKind.SENDER, id))
    start_drains(senders, data_dir, RESUMED)
    sent = " Its waiting messages are sent." if context.running.runs else ""
    say(as_json, output.tenant_as_dict(tenant), f"Tenant {id} is active.{sent}")


@tenants.command()
@click.argument("id")
@yes_option
@json_option
@data_dir_option
def remove(id: str, yes: bool, as_json: bool, data_dir: Path) -> None:
    """Remove a tenant that has no senders, no keys in force, no open records and no dead letters.

    So remove its senders and revoke its keys first. Open records end by themselves, those of a removed number after
    MESSAGE_MAX_AGE; replay or discard its dead letters. Finished records stay until they expire. Its pair of queues is
    free for another tenant.

    \b
    Examples:
      pombo tenants remove bakery
      pombo tenants remove bakery --yes
    """
    context = open_registry(data_dir)
    registry.find_tenant(context.registry, id)
    confirm_id(f"tenant {id}", id, yes)
    gone = registry.remove_tenant(context.registry, context.store, context.clock, id)
    if gone.handler:
        context.forget_secret(gone.handler.secret, f"Tenant {id}")
    say(as_json, {"id": id}, f"Removed tenant {id}.")
