"""Reconnect: a new access token for a sender of the registry."""

from dataclasses import replace

from cli.registry.context import RegistryContext, hint, tell_end
from cli.registry.drains import QUEUE_AWAY
from shared.domain.errors import QueueUnavailable
from shared.domain.tenants import Sender
from shared.operations.connect import StartDrain
from shared.operations.senders import set_sender


def reconnected(context: RegistryContext, sender: Sender, token: str, start_drain: StartDrain) -> Sender:
    """The sender as it is in the registry now."""

    def drain(id: str) -> None:
        try:
            start_drain(id)
        except QueueUnavailable:
            hint(QUEUE_AWAY)

    if sender.credential or sender in context.environment:
        connected = context.connect().reconnect(sender, token, drain)
        now = connected.sender
    else:
        connected = context.connect().connect(sender, token)
        now = _with_a_token(context, connected.sender)
        drain(now.id)
    tell_end(connected.checked)
    return now


def _with_a_token(context: RegistryContext, connected: Sender) -> Sender:
    """The sender, which was sent from with the environment's token and now names a secret with its own."""

    def change(before: Sender) -> Sender:
        return replace(before, credential=connected.credential, display=connected.display)

    return set_sender(context.registry, context.clock, connected.id, change)
