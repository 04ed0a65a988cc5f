"""pombo: where the command line begins. It imports next to nothing, so that Ctrl-C is clean from the first moment."""

import signal
import sys
from types import FrameType

INTERRUPTED = 130
"""What a shell says of a command that Ctrl-C ended: 128 and the signal's number."""


def main() -> None:
    """Run the command line and exit. `up` is ended by a signal, so for it that is no failure."""
    end_quietly(0 if sys.argv[1:2] == ["up"] else INTERRUPTED)
    from shared.cli.commands import run

    run()


def end_quietly(code: int) -> None:
    """Until somebody else minds the signals, end with this exit code and without a word."""

    def end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a signal handler
        sys.exit(code)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)


if __name__ == "__main__":
    main()
