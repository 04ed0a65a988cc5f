"""A program that serves a store on this machine: how the stack starts it, finds it and checks that it is ready."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ANSWER_SECONDS = 2


@dataclass(frozen=True, slots=True)
class Program:
    """One kind of server. If the user's environment has `setting`, the server is the user's and the stack leaves it
    alone.
    """

    what: str
    """Its name in the middle of a sentence."""
    setting: str
    """The variable that tells the services where it is."""
    address: Callable[[int], str]
    """That variable's value for a local port."""
    command: Callable[[int, Path], list[str]]
    """The command that serves this port with data in this directory. Raises ClickException, saying what is missing."""
    answers: Callable[[str], bool]
    """Whether the server at this address can be used now."""
    explain: Callable[[str], str]
    """Why it ended, from its output; the text ends a sentence."""
    forgets: bool
    """Whether its data is lost when its process ends."""


def last_line(said: str) -> str:
    """The last line that it wrote."""
    lines = said.strip().splitlines()
    return lines[-1].strip() if lines else "it printed nothing"
