"""The invocation: by make, whose options are variables like PORTS=9000, or by pombo with its own options."""

import os
import re
import shlex
import shutil
import sys
from pathlib import Path

from shared.config import DATA_DIRECTORY

CALLED_BY = "POMBO_CALLED_BY"
"""The Makefile sets this variable to "make" for the programs that it starts."""

OPTIONS = {
    "data-dir": "DATA",
    "messages": "MESSAGES",
    "ports": "PORTS",
    "seconds": "SECONDS",
    "seed": "SEED",
    "store": "STORE",
}
"""pombo's options that make also has, and their variables."""

_OPTION = re.compile(rf"(?P<quote>'?)--(?P<name>{'|'.join(OPTIONS)})\b(?P=quote)(?P<value> (?=[A-Z]+\b))?")


def by_make() -> bool:
    """Whether the user typed make and not pombo."""
    return os.environ.get(CALLED_BY) == "make"


def as_typed(sentence: str) -> str:
    """The sentence with the options that the user can type: under make, `--ports N` becomes `PORTS=N`."""
    if not by_make():
        return sentence
    return _OPTION.sub(lambda found: OPTIONS[found["name"]] + ("=" if found["value"] else ""), sentence)


def program() -> str:
    """pombo as the user types it here: its name if a shell finds it, else its path."""
    script = Path(sys.executable).with_name("pombo")
    found = shutil.which("pombo")
    if not script.exists() or (found and Path(found).resolve() == script.resolve()):
        return "pombo"
    here = Path.cwd()
    return shlex.quote(str(script.relative_to(here) if script.is_relative_to(here) else script))


def data_dir_option(data_dir: Path) -> str:
    """The option that selects this directory, with a space before it; empty for the default one."""
    if data_dir.resolve() == Path(DATA_DIRECTORY).resolve():
        return ""
    return f" --data-dir {shlex.quote(str(data_dir))}"


def start(data_dir: Path, store: str | None = None) -> str:
    """The command that starts a Pombo on this data directory and store."""
    store = None if store == "sqlite" else store
    if elsewhere := data_dir_option(data_dir):
        return f"{program()} up{elsewhere}{f' --store {store}' if store else ''}"
    return f"make run{f' STORE={store}' if store else ''}"
