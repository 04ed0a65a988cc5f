"""pombo: the entry point of the command line. It imports almost nothing, so that Ctrl-C is clean from the start."""

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

INTERRUPTED = 130
"""A shell's exit code for a command that Ctrl-C ended: 128 plus the signal's number."""

OF_THE_LOCAL_CLOUD = ("up", "chaos")
"""Commands that import more before they begin, and then handle the signals themselves."""


def main() -> None:
    """Run the command line and exit. A signal is the normal end of `up`, so it is not a failure there."""
    command = next(iter(sys.argv[1:]), "")
    code = 0 if command == "up" else INTERRUPTED
    end_at_once(code)
    from cli.commands import pombo, run

    pombo.commands.get(command)  # imports it
    if command not in OF_THE_LOCAL_CLOUD:
        end_quietly(code)
    run()


def end_at_once(code: int) -> None:
    """End the process on a signal with this exit code, at once: while modules are imported there is nothing to undo. An
    exception could be raised in a callback of the import's own locks, and would be lost with the signal.
    """
    _on_signals(os._exit, code)


def end_quietly(code: int) -> None:
    """Until a command handles the signals itself, end on a signal with this exit code: print nothing, undo what was
    begun.
    """
    _on_signals(sys.exit, code)


def _on_signals(end: Callable[[int], object], code: int) -> None:
    def ended(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a signal handler
        end(code)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ended)


if __name__ == "__main__":
    main()
