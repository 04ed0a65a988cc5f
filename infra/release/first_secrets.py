"""First secrets: each secret that has no version yet gets one: made here, read from the environment, or typed.

A value is never printed, never an argument of a program and never in a file of ours: gcloud reads it from its standard
input.
"""

import base64
import getpass
import os
import re
import secrets
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from infra.release import variables
from infra.release.place import Place
from infra.release.tools import Refused, gcloud

ASKED: Mapping[str, str] = {
    "META_APP_SECRET": "the app secret (App settings, Basic)",
    "WHATSAPP_ACCESS_TOKEN": "the system user's token (Business settings, System users)",
}
MADE: Mapping[str, Callable[[], str]] = {
    "META_VERIFY_TOKEN": lambda: secrets.token_hex(16),
    "ID_KEY": lambda: secrets.token_hex(32),
    "INTERNAL_TASK_TOKEN": lambda: secrets.token_hex(32),
}
LISTS = {"META_APP_SECRET", "META_VERIFY_TOKEN", "INTERNAL_TASK_TOKEN", "HANDLER_URL_SECRET"}
"""Where a comma separates two values."""


def needed(place: Place) -> list[str]:
    """The secrets that the services of this environment read and that the operator must give."""
    text = place.variables.read_text(encoding="utf-8")
    backend = ["HANDLER_URL_SECRET"] if re.search(r"^handler_url\s*=", text, re.M) else []
    return [*ASKED, *MADE, *backend, *variables.handler_secrets(text)]


def missing(place: Place) -> list[str]:
    """Those of them that have no version."""
    there = set(gcloud("secrets", "list", f"--project={place.project}", "--format=value(name)").split())
    there = {name.rpartition("/")[2] for name in there}
    return [name for name in needed(place) if name not in there or not _has_a_version(name, place)]


def _has_a_version(name: str, place: Place) -> bool:
    return bool(
        gcloud("secrets", "versions", "list", name, f"--project={place.project}", "--limit=1", "--format=value(name)")
    )


def values_of(names: list[str], file: Path | None) -> dict[str, str]:
    """A value for each. Raises Refused where one cannot be had or is none."""
    # Out of the environment, so that no program that is called from here on is given them.
    exported = {name: os.environ.pop(name, "") for name in names}
    given = {**(_read(file) if file else {}), **{name: value for name, value in exported.items() if value}}
    found = {}
    for name in names:
        if name in given:
            value = given[name]
        elif name in MADE:
            value = MADE[name]()
        elif name == "HANDLER_URL_SECRET":
            value = f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}"
        else:
            value = _typed(name)
        if fault := fault_of(name, value):
            raise Refused(f"{name} {fault}.")
        found[name] = value
    return found


def fault_of(name: str, value: str) -> str | None:
    """What is wrong with a value, without the value."""
    if not value:
        return "is empty"
    if value != value.strip():
        return "begins or ends with a blank"
    if not (value.isascii() and value.isprintable()):
        return "has a sign that no secret has: perhaps something else was pasted"
    if name in LISTS and "," in value:
        return "has a comma, which would separate two values"
    return None


def _typed(name: str) -> str:
    if not sys.stdin.isatty():
        raise Refused(
            f"{name} has no value yet. Run this in a terminal, which asks for it, or give it by the variable {name} "
            "or by --secrets-from."
        )
    return getpass.getpass(f"{name}, {ASKED.get(name, 'a secret of your handler')}, hidden: ").strip()


def _read(file: Path) -> dict[str, str]:
    """Lines of NAME=value. Raises Refused."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{file} cannot be read ({type(error).__name__}).") from None
    found = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals or not re.fullmatch(r"[A-Z][A-Z0-9_]*", name):
            raise Refused(f"Line {number} of {file} is not NAME=value.")
        found[name] = value
    return found


def add(name: str, value: str, place: Place) -> None:
    """The first version of a secret."""
    gcloud("secrets", "versions", "add", name, "--data-file=-", f"--project={place.project}", given=value)
