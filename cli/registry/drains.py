"""Drains: what a command does so that waiting messages are sent at once, and not with their next hop."""

from collections.abc import Iterable
from datetime import timedelta
from functools import cache
from pathlib import Path

from cli.dead.decision_context import deciding
from cli.registry.context import hint
from shared.bootstrap.backends import build_queue
from shared.domain.drains import DrainTask
from shared.domain.errors import QueueUnavailable
from shared.operations.connect import StartDrain
from shared.pipeline.clock import SystemClock
from shared.pipeline.ports import Queue
from shared.pipeline.registry import Entry

QUEUE_AWAY = "The queue cannot be reached, so its waiting messages go within 10 minutes."
"""A waiting message looks again by itself."""

KNOWN_EVERYWHERE = timedelta(seconds=6)
"""Every service uses a change of the registry within 5 s: a message that is woken sooner would wait again."""


def drain_of(data_dir: Path) -> StartDrain:
    """What starts to send the waiting messages of one sender, once every service knows that it may send. It raises
    QueueUnavailable. Raises ClickException now if the settings of the queue are wrong: before anything is changed.
    """
    decision = deciding(data_dir, needs_queue=True)
    clock = SystemClock()

    @cache
    def queue() -> Queue | None:
        if decision.running.runs:
            return build_queue(decision.settings)
        hint("No Pombo is running here: waiting messages are sent when one starts.")
        return None

    def start(sender: str) -> None:
        if there := queue():
            there.ensure_drain(DrainTask(sender, clock.now() + KNOWN_EVERYWHERE, clock.token()))

    return start


def start_drains(senders: Iterable[Entry], start_drain: StartDrain) -> None:
    """Send what waits of these senders. They may send by now, so a queue that takes no task costs their messages only
    some minutes, and is only reported.
    """
    try:
        for sender in senders:
            start_drain(sender.name.id)
    except QueueUnavailable:
        hint(QUEUE_AWAY)
