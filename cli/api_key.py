"""The API key of the Pombo on this machine: an operator's key, kept in a file in the data directory."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import click

from local.terminal import WrongSettings
from shared import config
from shared.bootstrap.backends import build_store
from shared.domain.errors import PomboError
from shared.domain.tenants import Scope
from shared.operations.keys import add_key, parse_key, put_back
from shared.pipeline.clock import SystemClock


def keep_api_key(environ: Mapping[str, str], path: Path) -> None:
    """Make sure that the file has an operator's key of every scope, and that the registry of this environment knows it.
    A key that is there stays, also if the store lost it; one that was revoked is replaced. Raises ClickException.
    """
    try:
        store = build_store(config.load(environ, config.CLI))
    except config.ConfigError as error:
        raise WrongSettings(error.faults) from error
    try:
        presented = parse_key(_text_in(path))
        if presented is None or not put_back(store, SystemClock(), presented):
            _write(path, add_key(store, SystemClock(), None, frozenset(Scope))[1])
    except PomboError as error:
        raise click.ClickException(f"The API key of {path} cannot be kept: {error.sentence}") from error
    finally:
        store.close()


def _text_in(path: Path) -> str:
    """The text of the file; "" if there is none."""
    with suppress(OSError, ValueError):
        return path.read_text().strip()
    return ""


def _write(path: Path, text: str) -> None:
    """Replace the file whole, for this user alone from its first byte."""
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text + "\n")
    part.replace(path)
