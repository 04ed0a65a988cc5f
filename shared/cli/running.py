"""The running stack: how a command finds it, by stack.json in the data directory, or by STORE in the environment."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from shared import bootstrap, config
from shared.pipeline.ports import Store

STACK_FILE = "stack.json"
LOG_FILE = "logs.jsonl"


def data_dir_option(command: Any) -> Any:
    """--data-dir, the same for every command."""
    return click.option(
        "--data-dir",
        default=config.DATA_DIRECTORY,
        type=click.Path(path_type=Path),
        show_default=True,
        help="Where Pombo keeps its data on this machine.",
    )(command)


def text_only(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Refuses an argument that is no text: a shell may pass any bytes."""
    try:
        (value or "").encode()
    except UnicodeEncodeError as error:
        raise click.BadParameter("it is no text in UTF-8.") from error
    return value


@dataclass(frozen=True, slots=True)
class Running:
    """What a command needs to know of the stack."""

    store: Store
    phone_number_id: str
    control: str | None
    logs: Path | None

    def log_lines(self, events: frozenset[str], ids: frozenset[str]) -> Iterator[Mapping[str, Any]]:
        """The log lines of these events that speak of one of these deliveries."""
        if self.logs is None or not self.logs.exists():
            return
        with self.logs.open(encoding="utf-8", errors="replace") as lines:
            for text in lines:
                if not any(event in text for event in events):
                    continue
                try:
                    line = json.loads(text)
                except ValueError:
                    continue
                about = {line.get("delivery"), line.get("inbound_event_id")}
                if line.get("event") in events and about & ids:
                    yield line


def find(data_dir: Path) -> Running:
    """The running stack. Raises ClickException when there is none."""
    described: dict[str, Any] = {}
    environ = dict(os.environ)
    logs = data_dir / LOG_FILE
    if not environ.get("STORE"):
        path = data_dir / STACK_FILE
        try:
            described = json.loads(path.read_text())
            environ = {**environ, **described["environment"]}
            logs = Path(described["data_dir"]) / LOG_FILE
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise click.ClickException(
                f"No Pombo runs with its data in {data_dir}; start one with: pombo up (or make run)."
            ) from error
    try:
        settings = config.load(environ, config.CLI)
        store = bootstrap.build_store(settings)
    except config.ConfigError as error:
        raise click.ClickException(str(error)) from error
    return Running(
        store=store,
        phone_number_id=settings["WHATSAPP_PHONE_NUMBER_ID"],
        control=described.get("control"),
        logs=logs,
    )
