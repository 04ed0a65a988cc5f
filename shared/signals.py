"""Signals: those that end a process, and how a process that is ending ignores the ones that follow."""

import signal
from collections.abc import Iterable

ENDING = (signal.SIGTERM, signal.SIGINT)
"""What a supervisor and Ctrl-C send: Ctrl-C to every process of a terminal, and each parent again to its children."""


def ignore_further(numbers: Iterable[signal.Signals] = ENDING) -> None:
    """Ignore every further one of these signals: the process is ending, and a signal that comes while the interpreter
    ends would be its exit code.
    """
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)
