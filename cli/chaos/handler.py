"""The handler of a chaos run: it does what the message's script says. It waits, raises, and returns replies."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

from cli.chaos.message_script import Script
from pombo import Message, OutboundMessage

TRIES = "CHAOS_TRIES"
"""The variable that names a directory with files of attempts for each message: they survive a kill of the process."""

CALLS = ".calls"
"""The end of the name of a file that says when the calls for a message began and ended."""


HANDLER = f"{__name__}:handle"
"""The value for the variable HANDLER."""


class AsPlanned(Exception):
    """The exception that a script asks for."""


def handle(message: Message) -> Iterator[OutboundMessage]:
    """A generator, so it may raise after its first reply; then Pombo must send none of its replies."""
    script, began = Script.of(message.text or ""), time.time()
    try:
        time.sleep(script.milliseconds / 1000)
        fails = script.raises is None or (script.raises > 0 and _tries(script.number) <= script.raises)
        for reply in script.replies:
            yield OutboundMessage(reply.type, dict(reply.body))
            if fails:
                raise AsPlanned
    finally:
        _append(f"{script.number}{CALLS}", f"{began} {time.time()}\n")


def _tries(number: int) -> int:
    """How often this message was attempted, this attempt included. Counts attempts that a kill cut short."""
    return _append(str(number), ".")


def _append(name: str, text: str) -> int:
    """Write at the end of a file of the run. Returns its size then."""
    file = os.open(Path(os.environ[TRIES]) / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(file, text.encode())
        return os.fstat(file).st_size
    finally:
        os.close(file)


def tries_in(data_dir: Path) -> Path:
    """Where the files of a run are."""
    return data_dir / "tries"


def calls_in(directory: Path) -> dict[int, list[tuple[float, float]]]:
    """When the calls for each message began and ended, by its number; without those that a kill cut short."""
    return {
        int(path.name.removesuffix(CALLS)): [
            (float(began), float(ended)) for began, ended in map(str.split, path.read_text().splitlines())
        ]
        for path in directory.glob(f"*{CALLS}")
    }
