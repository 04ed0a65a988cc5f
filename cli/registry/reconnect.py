"""Reconnect: a new access token for a sender of the registry."""

from cli.registry.context import RegistryContext, hint, tell_end
from cli.registry.drains import QUEUE_AWAY
from shared.domain.errors import QueueUnavailable, UnknownState
from shared.domain.tenants import Sender
from shared.operations.connect import StartDrain
from shared.operations.registry import Refused, find_tenant


def reconnected(context: RegistryContext, sender: Sender, token: str, start_drain: StartDrain) -> Sender:
    """The sender as it is in the registry now."""

    def drain(id: str) -> None:
        try:
            start_drain(id)
        except QueueUnavailable:
            hint(QUEUE_AWAY)

    connected = context.claims().reconnect(sender, token, drain)
    tell_end(connected.checked)
    return connected.sender


def what_follows(context: RegistryContext, sender: Sender) -> str:
    """What becomes of the messages that wait for a sender which is connected again. A suspended tenant's stay."""
    if not _is_suspended(context, sender.tenant):
        return "Pombo sends its waiting messages."
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
