"""How we were called: by make, whose options are variables like PORTS=9000, or by pombo's own options."""

import os
import re

CALLED_BY = "POMBO_CALLED_BY"
"""The Makefile sets it to "make" for what it starts."""

OPTIONS = ("messages", "ports", "seconds", "seed", "store")
"""pombo's options that make has too, as variables."""

_OPTION = re.compile(rf"(?P<quote>'?)--(?P<name>{'|'.join(OPTIONS)})\b(?P=quote)(?P<value> (?=[A-Z]\b))?")


def by_make() -> bool:
    """Whether the person typed make, not pombo."""
    return os.environ.get(CALLED_BY) == "make"


def as_typed(sentence: str) -> str:
    """The sentence with the options that the person can type: under make `--ports N` becomes `PORTS=N`."""
    if not by_make():
        return sentence
    return _OPTION.sub(lambda found: found["name"].upper() + ("=" if found["value"] else ""), sentence)
