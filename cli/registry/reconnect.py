"""Reconnect: a new access token for a sender of the registry."""

from cli.registry.context import RegistryContext, hint, tell_end
from cli.registry.drains import why_later
from shared.domain.errors import QueueUnavailable, UnknownState
from shared.domain.tenants import Sender
from shared.operations.connect import StartDrain
from shared.operations.registry import Refused, find_tenant


def reconnected(context: RegistryContext, sender: Sender, token: str, start_drain: StartDrain) -> tuple[Sender, bool]:
    """The sender as it is in the registry now, and whether its waiting messages are sent at once. If not, says why."""
    is_sending = True

    def drain(id: str) -> None:
        nonlocal is_sending
        try:
            start_drain(id)
        except QueueUnavailable as error:
            is_sending = False
            hint(why_later(error))

    connected = context.claims().reconnect(sender, token, drain)
    tell_end(connected.checked)
    return connected.sender, is_sending


def what_follows(context: RegistryContext, sender: Sender, is_sending: bool) -> str:
    """What becomes of the messages that wait for a sender which is connected again; "" if that was said already. A
    suspended tenant's stay.
    """
    if not _is_suspended(context, sender.tenant):
        return "Pombo sends its waiting messages." if is_sending else ""
    return (
        f"Its messages wait: tenant {sender.tenant} is suspended. pombo tenants resume {sender.tenant} begins to send "
        "them."
    )


def _is_suspended(context: RegistryContext, tenant: str) -> bool:
    """False also for tenant `default`, which has no entry and is never suspended, and for one that only a newer version
    can read: the sender is connected in any case.
    """
    try:
        return find_tenant(context.registry, tenant).suspended
    except (Refused, UnknownState):
        return False
