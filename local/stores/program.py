"""A program that serves a store on this machine: how the stack starts it, finds it and knows that it is ready."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ANSWER_SECONDS = 2


@dataclass(frozen=True, slots=True)
class Program:
    """One kind of server. It is somebody else's where `setting` is in the user's environment, and then left alone."""

    what: str
    """In the middle of a sentence."""
    setting: str
    """The variable by which the services find it."""
    address: Callable[[int], str]
    """That variable's value, for a port of this machine."""
    command: Callable[[int, Path], list[str]]
    """What serves this port and keeps its data in this directory. Raises ClickException, saying what is missing."""
    answers: Callable[[str], bool]
    """Whether the server at this address can be used now."""
    explain: Callable[[str], str]
    """Why it ended, out of what it wrote; the words end a sentence."""
    forgets: bool
    """Whether its data ends with its process."""


def last_line(said: str) -> str:
    """The last thing that was said."""
    lines = said.strip().splitlines()
    return lines[-1].strip() if lines else "it said nothing"
