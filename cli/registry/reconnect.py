"""Reconnect: a new access token for a sender of the registry."""

from dataclasses import replace

from cli.registry.context import RegistryContext, hint
from cli.registry.drains import QUEUE_AWAY
from shared.domain.errors import QueueUnavailable
from shared.domain.tenants import Sender
from shared.operations.connect import StartDrain
from shared.operations.senders import set_sender


def reconnected(context: RegistryContext, sender: Sender, token: str, start_drain: StartDrain) -> Sender:
    """The sender as it is in the registry now."""
    now = sender
    try:
        if sender.credential or sender in context.environment:
            now = context.connect().reconnect(sender, token, start_drain).sender
        else:
            now = _with_a_token(context, context.connect().connect(sender, token).sender)
            start_drain(now.id)
    except QueueUnavailable:
        hint(QUEUE_AWAY)
    return now


def _with_a_token(context: RegistryContext, connected: Sender) -> Sender:
    """The sender, which was sent from with the environment's token and now names a secret with its own."""

    def change(before: Sender) -> Sender:
        return replace(before, credential=connected.credential, display=connected.display)

    return set_sender(context.registry, context.clock, connected.id, change)
