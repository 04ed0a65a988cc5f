"""The running stack: how a command finds it, by stack.json in the data directory, or by STORE in the environment."""

import json
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from shared import bootstrap, config
from shared.cli import terminal
from shared.cli.wrong_settings import WrongSettings
from shared.pipeline.ports import Sender, Store

STACK_FILE = "stack.json"
LOG_FILE = "logs.jsonl"
SQLITE_FILE = "pombo.sqlite"
_ID_FIELDS = ("delivery", "inbound_event_id", "correlation_id")


def data_dir_option(command: Any) -> Any:
    """--data-dir, the same for every command."""
    return click.option(
        "--data-dir",
        default=config.DATA_DIRECTORY,
        type=terminal.FilePath(path_type=Path),
        show_default=True,
        help="Where Pombo keeps its data on this machine.",
    )(command)


@dataclass(frozen=True, slots=True)
class Running:
    """What a command needs to know of the stack, or of what one has left."""

    store: Store
    phone_number_id: str
    control: str | None
    logs: Path | None
    runs: bool = True
    """False: no stack runs here, and the store is the file that one has left."""

    @property
    def senders(self) -> Sequence[Sender]:
        """The senders that the environment names."""
        return bootstrap.senders_of(self.phone_number_id)

    def log_lines(self, events: Collection[str], ids: Collection[str]) -> Iterator[Mapping[str, Any]]:
        """The log lines of these events that speak of one of these ids: of deliveries, or of all of an event's."""
        for line in self._lines_with(ids):
            if line.get("event") in events and speaks_of(line, ids):
                yield line

    def ids_in_log(self, prefix: str) -> Mapping[str, str]:
        """The ids that begin so and that the log tells of, each with the time of its first line."""
        found: dict[str, str] = {}
        for line in self._lines_with((prefix,)):
            for id in (line.get(name) for name in _ID_FIELDS):
                if isinstance(id, str) and id.startswith(prefix):
                    found.setdefault(id, str(line.get("time", "")))
        return found

    def _lines_with(self, texts: Collection[str]) -> Iterator[Mapping[str, Any]]:
        """The log lines that hold one of these texts, wherever."""
        if self.logs is None or not self.logs.exists():
            return
        with self.logs.open(encoding="utf-8", errors="replace") as lines:
            for written in lines:
                if not any(text in written for text in texts):
                    continue
                try:
                    line = json.loads(written)
                except ValueError:
                    continue
                if isinstance(line, dict):
                    yield line


def speaks_of(line: Mapping[str, Any], ids: Collection[str]) -> bool:
    """Whether a log line is about one of these."""
    return any(line.get(name) in ids for name in _ID_FIELDS)


@dataclass(frozen=True, slots=True)
class Described:
    """Where everything is: the settings, and of a stack on this machine what stack.json adds."""

    environ: Mapping[str, str]
    logs: Path
    control: str | None = None
    is_local: bool = False
    runs: bool = True
    """False: no stack runs here, and the store is the file that one has left."""


def describe(data_dir: Path) -> Described:
    """By STORE in the environment, or else by stack.json, or else by the SQLite file of a stack that runs no more.
    Raises ClickException where there is none of them.
    """
    environ = dict(os.environ)
    if environ.get("STORE"):
        return Described(environ, data_dir / LOG_FILE)
    try:
        described = json.loads((data_dir / STACK_FILE).read_text())
        environ |= described["environment"]
        return Described(environ, Path(described["data_dir"]) / LOG_FILE, described.get("control"), is_local=True)
    except (OSError, ValueError, LookupError, TypeError) as error:
        file = Path(environ.get("SQLITE_PATH") or data_dir / SQLITE_FILE)
        if file.is_file():
            environ |= {"STORE": "sqlite", "SQLITE_PATH": str(file)}
            return Described(environ, data_dir / LOG_FILE, is_local=True, runs=False)
        raise click.ClickException(
            f"No Pombo runs with its data in {data_dir}; start one with: pombo up (or make run)."
        ) from error


def find(data_dir: Path) -> Running:
    """The stack, or the store that one has left. Raises ClickException when there is neither."""
    described = describe(data_dir)
    if not described.runs and sys.stderr.isatty():
        click.echo(f"No Pombo runs with its data in {data_dir}; this is what its SQLite file holds.", err=True)
    try:
        settings = config.load(described.environ, config.CLI)
        store = bootstrap.build_store(settings)
    except config.ConfigError as error:
        raise WrongSettings(error.faults) from error
    return Running(
        store=store,
        phone_number_id=settings["WHATSAPP_PHONE_NUMBER_ID"],
        control=described.control,
        logs=described.logs,
        runs=described.runs,
    )


def progress(sentence: str) -> None:
    """Say what takes a while, to a person who watches; nobody else has to read it."""
    if sys.stderr.isatty():
        click.echo(f"{sentence} ...", err=True)
