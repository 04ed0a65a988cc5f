"""The handler of a chaos run: it does what the message's script says. It waits, raises, and returns replies."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

from cli.chaos.message_script import Script
from pombo import Message, OutboundMessage

TRIES = "CHAOS_TRIES"
"""The variable that names a directory with one file of attempts per message: they survive a kill of the process."""


HANDLER = f"{__name__}:handle"
"""The value for the variable HANDLER."""


class AsPlanned(Exception):
    """The exception that a script asks for."""


def handle(message: Message) -> Iterator[OutboundMessage]:
    """A generator, so it may raise after its first reply; then Pombo must send none of its replies."""
    script = Script.of(message.text or "")
    time.sleep(script.milliseconds / 1000)
    fails = script.raises is None or (script.raises > 0 and _tries(script.number) <= script.raises)
    for reply in script.replies:
        yield OutboundMessage(reply.type, dict(reply.body))
        if fails:
            raise AsPlanned


def _tries(number: int) -> int:
    """How often this message was attempted, this attempt included. Counts attempts that a kill cut short."""
    tries = os.open(Path(os.environ[TRIES]) / str(number), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(tries, b".")
        return os.fstat(tries).st_size
    finally:
        os.close(tries)
