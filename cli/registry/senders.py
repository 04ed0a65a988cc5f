"""pombo senders: the numbers of tenants."""

from collections.abc import Set
from dataclasses import dataclass, replace
from pathlib import Path

import click

from cli.dead.decision_context import deciding
from cli.registry import output
from cli.registry.context import (
    RegistryContext,
    confirm_id,
    hint,
    json_option,
    open_registry,
    providers,
    read_secret,
    registry_for,
    say,
    tell_end,
    yes_option,
)
from cli.registry.drains import drain_of, start_drains
from cli.registry.early_events import offer_early, replay_early
from cli.registry.reconnect import reconnected, what_follows
from cli.registry.sender_options import (
    burst_option,
    check_id,
    credential_option,
    display_option,
    known_provider,
    pace_of,
    per_second_option,
)
from cli.running import data_dir_option, progress
from shared.domain.drains import SENDER_CHANGED
from shared.domain.errors import SecretsUnavailable, UnknownState
from shared.domain.marks import Marks
from shared.domain.onboarding import Checked
from shared.domain.tenants import Order, Sender
from shared.operations import senders as operations
from shared.operations.connect import credential_name
from shared.operations.registry import values_of
from shared.operations.senders import Auth
from shared.pipeline.registry import EntryKind


@click.group()
def senders() -> None:
    """Connect, list, show and remove senders: the numbers of tenants.

    \b
    Examples:
      pombo senders add --tenant bakery --provider meta --id 1065403522 --account 1022901293
      pombo senders list --tenant bakery
      pombo senders reconnect 5b1c9a0e --token - < token.txt
    """


@senders.command()
@click.option("--tenant", required=True, help="The tenant that the number belongs to.")
@click.option(
    "--provider", required=True, callback=known_provider, metavar="PROVIDER", help="The provider of the number: meta."
)
@click.option("--id", "provider_id", required=True, help="The provider's id of the number (Meta: phone number ID).")
@click.option("--account", required=True, help="The provider's id of the account that holds it (Meta: WABA ID).")
@display_option
@click.option(
    "--order",
    type=click.Choice([order.value for order in Order]),
    default=Order.CONTACT.value,
    show_default=True,
    help="Send in order to each contact, or all messages of the number one after another.",
)
@per_second_option
@burst_option
@click.option(
    "--token", metavar="-", help="Read its access token from standard input, and check it with the provider first."
)
@credential_option
@click.option("--replay", is_flag=True, help="Replay what customers wrote to it before it was added.")
@json_option
@data_dir_option
def add(
    tenant: str,
    provider: str,
    provider_id: str,
    account: str,
    display: str | None,
    order: str,
    per_second: float | None,
    burst: int | None,
    token: str | None,
    credential: str | None,
    replay: bool,
    as_json: bool,
    data_dir: Path,
) -> None:
    """Give a number to a tenant. It belongs to that tenant until it is removed, and so does its account.

    Without --token and --credential the number is sent from with the environment's token. All services know it at once.
    What customers wrote before is kept for 8 days, and --replay hands it to the tenant's handler.

    \b
    Examples:
      pombo senders add --tenant bakery --provider meta --id 1065403522 --account 1022901293
      pombo senders add --tenant bakery --provider meta --id 1065403522 --account 1022901293 --token - < token.txt
      pombo senders add --tenant bakery --provider meta --id 1065403522 --account 1022901293 --replay --json
    """
    check_id("--id", provider, provider_id)
    check_id("--account", provider, account)
    if token and credential:
        raise click.UsageError("Give either --token or --credential, not both.")
    pace = pace_of(per_second, burst)
    secret = read_secret("--token", token)
    context = open_registry(data_dir)
    again = deciding(data_dir, needs_queue=True).replay(may_double=False) if replay else None
    checked: Checked | None = None
    sender = Sender(tenant, provider, provider_id, account, display or "", credential or "", Order(order), pace)
    if secret is not None:
        connected = context.claims().add(sender, secret)
        added, checked = connected.sender, connected.checked
    else:
        added = operations.add_sender(context.registry, context.store, context.clock, context.environment, sender)
    say(as_json, {"id": added.id}, f"Added sender {added.id} to tenant {tenant}.")
    tell_end(checked)
    if credential:
        context.look_for_secret(credential)
    if again:
        replay_early(context, added, again, as_json)
    else:
        offer_early(context, added, data_dir)


@dataclass(frozen=True, slots=True)
class Listed:
    """A sender and what its marks say; `auth` None: only a newer version can read them."""

    sender: Sender
    auth: Auth | None


def with_auth(context: RegistryContext, sender: Sender) -> Listed:
    try:
        return Listed(sender, operations.auth_of(context.store.marks(sender.id)))
    except UnknownState:
        return Listed(sender, None)


def _listed(context: RegistryContext, sender: Sender, troubled: Set[str] | None) -> Listed:
    """`troubled`: the ids of all senders whose marks say more than connected, if they are known."""
    if troubled is not None and sender.id not in troubled:
        return Listed(sender, operations.auth_of(Marks()))
    return with_auth(context, sender)


@senders.command("list")
@click.option("--tenant", help="Only this tenant's.")
@json_option
@data_dir_option
def list_senders(tenant: str | None, as_json: bool, data_dir: Path) -> None:
    """List senders, and whether each can send: connected, needs_reauth, blocked or disconnected.

    The provider's past answers tell; the command does not call it. The environment's number is listed first.

    \b
    Examples:
      pombo senders list
      pombo senders list --tenant bakery --json
    """
    context = registry_for(data_dir, tenant)
    ours = [sender for sender in context.environment if tenant in (None, sender.tenant)]
    found = [*ours, *values_of(context.registry, EntryKind.SENDER, tenant)]
    troubled = {*operations.troubled(context.store)} if tenant is None else None  # one query, and not a read for each
    known = [_listed(context, sender, troubled) for sender in found if sender is not None]
    unread = len(found) - len(known)
    as_dict = {"senders": [output.sender_as_dict(one.sender, one.auth) for one in known], "unread": unread}
    rows = [output.sender_row(one.sender, one.auth) for one in known]
    say(as_json, as_dict, output.table(output.SENDERS, rows, unread, "There are no senders."))


@senders.command()
@click.argument("id")
@json_option
@data_dir_option
def show(id: str, as_json: bool, data_dir: Path) -> None:
    """Show a sender. ID is 8 or more characters of its id, or the provider's id in full.

    \b
    Examples:
      pombo senders show 5b1c9a0e
      pombo senders show 1065403522 --json
    """
    context = open_registry(data_dir)
    one = with_auth(context, _find(context, id))
    as_dict = output.sender_as_dict(one.sender, one.auth)
    say(as_json, as_dict, "\n".join(output.sender_lines(one.sender, one.auth)))


@senders.command("set")
@click.argument("id")
@display_option
@click.option("--order", type=click.Choice([order.value for order in Order]), help="As for pombo senders add.")
@per_second_option
@burst_option
@click.option("--no-pace", is_flag=True, help="Send as fast as its queue allows.")
@credential_option
@json_option
@data_dir_option
def set_sender(
    id: str,
    display: str | None,
    order: str | None,
    per_second: float | None,
    burst: int | None,
    no_pace: bool,
    credential: str | None,
    as_json: bool,
    data_dir: Path,
) -> None:
    """Change how a number sends. All services use the change within 5 seconds. ID is as for pombo senders show.

    \b
    Examples:
      pombo senders set 5b1c9a0e --per-second 1 --burst 5
      pombo senders set 5b1c9a0e --no-pace --order contact
      pombo senders set 5b1c9a0e --credential pombo-credential-bakery
    """
    pace = pace_of(per_second, burst)
    if pace and no_pace:
        raise click.UsageError("Give either --per-second or --no-pace, not both.")
    if pace is None and not no_pace and display is None and not order and not credential:
        raise click.UsageError("Give what to change: --display, --order, --per-second, --no-pace, --credential.")

    def change(before: Sender) -> Sender:
        return replace(
            before,
            display=before.display if display is None else display,
            order=Order(order) if order else before.order,
            pace=None if no_pace else pace or before.pace,
            credential=credential or before.credential,
        )

    context = open_registry(data_dir)
    sender = _find(context, id)
    if sender in context.environment:
        raise click.ClickException("This number is the environment's: its settings are variables.")
    after = with_auth(context, operations.set_sender(context.registry, context.clock, sender.id, change))
    if (after.sender.pace, after.sender.credential) != (sender.pace, sender.credential):
        start_drains([sender.id], data_dir, SENDER_CHANGED)  # what waits has its place by the former pace
    say(as_json, output.sender_as_dict(after.sender, after.auth), f"Changed sender {sender.id}.")
    if credential:
        context.look_for_secret(credential)


@senders.command()
@click.argument("id")
@click.option("--token", required=True, metavar="-", help="Read its new access token from standard input.")
@json_option
@data_dir_option
def reconnect(id: str, token: str, as_json: bool, data_dir: Path) -> None:
    """Give a sender a new access token, checked with the provider, and send its waiting messages in order.

    ID is as for pombo senders show.

    \b
    Examples:
      pombo senders reconnect 5b1c9a0e --token - < token.txt
    """
    secret = read_secret("--token", token) or ""
    context = open_registry(data_dir)
    sender, is_sending = reconnected(context, _find(context, id), secret, drain_of(data_dir))
    one = with_auth(context, sender)
    sentence = f"Reconnected sender {sender.id}. {what_follows(context, sender, is_sending)}".rstrip()
    say(as_json, output.sender_as_dict(one.sender, one.auth), sentence)


@senders.command()
@click.argument("id")
@yes_option
@json_option
@data_dir_option
def remove(id: str, yes: bool, as_json: bool, data_dir: Path) -> None:
    """Take a number from its tenant. What waits to be sent from it is a dead letter after MESSAGE_MAX_AGE.

    The command takes 6 seconds: only when no process remembers its tenant can another one add the number.
    What its customers write from then on is dropped as unknown_sender, and can be replayed for 8 days. ID is as for
    pombo senders show. A secret that pombo senders add or reconnect stored for it is deleted too, unless another
    sender uses it.

    \b
    Examples:
      pombo senders remove 5b1c9a0e
      pombo senders remove 1065403522 --yes
    """
    context = open_registry(data_dir)
    sender = _find(context, id, even_being_removed=True)
    if sender.id in (ours.id for ours in context.environment):
        raise click.ClickException("This number is the environment's: WHATSAPP_PHONE_NUMBER_ID names it.")
    confirm_id(f"sender {sender.id[:8]} of tenant {sender.tenant}", id, yes)
    progress("Waiting for 6 s until every process knows of it")
    gone = operations.remove_sender(context.registry, context.store, context.clock, sender.id)
    _forget_made_secret(context, gone)
    say(as_json, {"id": gone.id}, f"Removed sender {gone.id} of tenant {gone.tenant}.")


def _forget_made_secret(context: RegistryContext, gone: Sender) -> None:
    """Delete the secret that Pombo made for a removed sender, unless another one is sent from with it. One that the
    operator made stays. Raises SecretsUnavailable and StoreUnavailable.
    """
    made = credential_name(gone)
    if gone.credential != made and not (gone.credential and _is_left(context, made)):
        return
    user = next(operations.users_of_secret(context.registry, made), None)
    if user:
        hint(f"Its secret {made} is kept, because {user} uses it too: remove it by hand when that one no longer does.")
    else:
        context.forget_secret(made, f"Sender {gone.id}")


def _is_left(context: RegistryContext, made: str) -> bool:
    """Whether there is the secret that Pombo made for a sender before an operator named another one for it. If this
    operator may not read it, the command only names it: it may never have been made.
    """
    try:
        return context.secrets().newest(made) is not None
    except SecretsUnavailable:
        hint(f"If Pombo made the secret {made} for it before, that is still there: remove it by hand.")
        return False


def _find(context: RegistryContext, id: str, *, even_being_removed: bool = False) -> Sender:
    ours = (sender for sender in context.environment if id in (sender.id, sender.provider_id))
    return next(ours, None) or operations.find_sender(
        context.registry, id.rstrip("…."), providers(), even_being_removed=even_being_removed
    )
