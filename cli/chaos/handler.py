"""The handler of a chaos run does what the message's script says: it waits, raises, and gives its replies."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

from cli.chaos.message_script import Script
from pombo import Message, OutboundMessage

TRIES = "CHAOS_TRIES"
"""The variable that names a directory for the tries of what raises: they outlive a killed process."""


HANDLER = f"{__name__}:handle"
"""As the variable of that name wants it."""


class AsPlanned(Exception):
    """What the script asked for."""


def handle(message: Message) -> Iterator[OutboundMessage]:
    """A generator: it may break after its first reply, and then nothing of it may be sent."""
    script = Script.of(message.text or "")
    time.sleep(script.milliseconds / 1000)
    fails = script.raises is None or (script.raises > 0 and _tries(script.number) <= script.raises)
    for reply in script.replies:
        yield OutboundMessage(reply.type, dict(reply.body))
        if fails:
            raise AsPlanned


def _tries(number: int) -> int:
    """How often this message has been tried, this time included. Of tries that a kill cut short, all that began."""
    tries = os.open(Path(os.environ[TRIES]) / str(number), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(tries, b".")
        return os.fstat(tries).st_size
    finally:
        os.close(tries)
