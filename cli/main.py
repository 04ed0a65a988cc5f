"""pombo: where the command line begins. It imports next to nothing, so that Ctrl-C is clean from the first moment."""

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

INTERRUPTED = 130
"""What a shell says of a command that Ctrl-C ended: 128 and the signal's number."""

OF_THE_LOCAL_CLOUD = ("up", "chaos")
"""Commands that import more before they begin, and then mind the signals themselves."""


def main() -> None:
    """Run the command line and exit. `up` is ended by a signal, so for it that is no failure."""
    command = next(iter(sys.argv[1:]), "")
    code = 0 if command == "up" else INTERRUPTED
    end_at_once(code)
    from cli.commands import run

    if command not in OF_THE_LOCAL_CLOUD:
        end_quietly(code)
    run()


def end_at_once(code: int) -> None:
    """While modules are imported: a signal ends the process with this exit code, and nothing has to be undone. An
    exception would be lost where it comes in a callback of the import's own locks, and the signal with it.
    """
    _on_signals(os._exit, code)


def end_quietly(code: int) -> None:
    """Until somebody else minds the signals, end with this exit code and without a word, undoing what was begun."""
    _on_signals(sys.exit, code)


def _on_signals(end: Callable[[int], object], code: int) -> None:
    def ended(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a signal handler
        end(code)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ended)


if __name__ == "__main__":
    main()
