"""Reconnect: a new access token for a sender of the registry."""

from cli.registry.context import RegistryContext, hint, tell_end
from cli.registry.drains import QUEUE_AWAY
from shared.domain.errors import QueueUnavailable
from shared.domain.tenants import Sender
from shared.operations.connect import StartDrain


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
