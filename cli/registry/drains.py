"""Drains: what a command does so that waiting messages are sent at once, and not with their next hop."""

from collections.abc import Iterable
from pathlib import Path

from cli.dead.decision_context import deciding
from cli.registry.context import hint
from local.terminal import WrongSettings
from shared.bootstrap.backends import build_queue
from shared.domain.drains import RECONNECTED
from shared.domain.errors import QueueUnavailable
from shared.operations import drains
from shared.operations.connect import StartDrain
from shared.pipeline.clock import SystemClock

QUEUE_AWAY = "The queue cannot be reached, so its waiting messages go within 10 minutes."
"""A waiting message looks again by itself."""
QUEUE_MISSING = (
    "The queue of drains does not exist, so its waiting messages go within 10 minutes: pombo doctor says what to do."
)


def drain_of(data_dir: Path) -> StartDrain:
    """What starts to send the waiting messages of one sender that is connected again. Raises QueueUnavailable."""
    return lambda sender: _start([sender], data_dir, RECONNECTED)


def start_drains(senders: Iterable[str], data_dir: Path, reason: str) -> None:
    """Send what waits of these senders (`Sender.id`), which may send for this reason. They may send by now, so a queue
    that takes no task costs their messages only some minutes, and is only reported.
    """
    try:
        _start(senders, data_dir, reason)
    except QueueUnavailable as error:
        hint(why_later(error))


def why_later(error: QueueUnavailable) -> str:
    """Why waiting messages are not sent at once, and when they are."""
    is_missing = type(error.__cause__).__name__ == "NotFound"
    return QUEUE_MISSING if is_missing else QUEUE_AWAY


def _start(senders: Iterable[str], data_dir: Path, reason: str) -> None:
    """Raises QueueUnavailable, also if the settings of the queue are missing: what the command changed is in force all
    the same. Raises StoreUnavailable.
    """
    try:
        decision = deciding(data_dir, needs_queue=True)
    except WrongSettings as error:
        for fault in error.faults:
            hint(fault)
        raise QueueUnavailable from error
    if not decision.running.runs:
        hint("No Pombo is running here: waiting messages are sent when one starts.")
        return
    drains.start_drains(build_queue(decision.settings), decision.running.store, SystemClock(), senders, reason)
