"""The running stack: how a command finds it, or what the last one left, or the store that the environment names."""

import json
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from local import invocation, terminal
from local.stack_files import LAST_FILE, LOG_FILE, SQLITE_FILE, STACK_FILE, is_running
from local.terminal import WrongSettings
from shared import config
from shared.bootstrap.adapters import senders_of
from shared.bootstrap.backends import RegistryStore, build_store
from shared.domain.limits import Limits
from shared.domain.tenants import Sender
from shared.operations.registry import values_of
from shared.pipeline.registry import EntryKind, Registry

START = "make run"
MOST_SENDERS = 1000
"""A message's id at WhatsApp leads to its record by the sender: one read for each of them."""
_ADDRESSES = {
    "sqlite": ("SQLITE_PATH",),
    "redis": ("REDIS_URL",),
    "firestore": ("FIRESTORE_EMULATOR_HOST", "GOOGLE_CLOUD_PROJECT"),
}
"""Variables that say where a store is; one is enough."""

_ID_FIELDS = ("delivery", "inbound_event_id", "correlation_id")


def data_dir_option(command: Any) -> Any:
    """--data-dir, the same for every command."""
    return click.option(
        "--data-dir",
        default=config.DATA_DIRECTORY,
        type=terminal.FilePath(path_type=Path),
        show_default=True,
        help="Pombo's data directory on this machine.",
    )(command)


@dataclass(frozen=True, slots=True)
class Running:
    """What a command needs to know of a stack, running or stopped."""

    store: RegistryStore
    phone_number_id: str
    control: str | None
    logs: Path | None
    runs: bool = True
    """False: no stack runs here, and the store is what the last one left."""
    start: str = START
    """The command that starts a stack on this store."""
    limits: Limits = field(default_factory=Limits)
    """Those that its settings make."""

    @property
    def registry(self) -> Registry:
        """The registry in the same database."""
        return self.store

    def senders_of(self, tenant: str | None = None) -> Iterator[Sender]:
        """The senders of a tenant, or of all: those of the environment first. Skips one that only a newer version can
        read. Raises ClickException beyond MOST_SENDERS, before it returns one more.
        """
        yield from (sender for sender in self.senders if tenant in (None, sender.tenant))
        for count, sender in enumerate(values_of(self.registry, EntryKind.SENDER, tenant)):
            if count >= MOST_SENDERS:
                raise click.ClickException(
                    f"There are more than {MOST_SENDERS:,} senders, which is too many to look through: give --tenant."
                )
            if sender is not None:
                yield sender

    @property
    def senders(self) -> Sequence[Sender]:
        """The senders that the environment names."""
        return senders_of(self.phone_number_id)

    def log_lines(self, events: Collection[str], ids: Collection[str]) -> Iterator[Mapping[str, Any]]:
        """The log lines of these events about one of these ids: of deliveries, or of all of an event's."""
        for line in self._lines_with(ids):
            if line.get("event") in events and speaks_of(line, ids):
                yield line

    def ids_in_log(self, prefix: str) -> Mapping[str, str]:
        """The ids in the log that start with this, each with the time of its first line."""
        found: dict[str, str] = {}
        for line in self._lines_with((prefix,)):
            for id in (line.get(name) for name in _ID_FIELDS):
                if isinstance(id, str) and id.startswith(prefix):
                    found.setdefault(id, str(line.get("time", "")))
        return found

    def _lines_with(self, texts: Collection[str]) -> Iterator[Mapping[str, Any]]:
        """The log lines that contain one of these texts anywhere."""
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
    """The settings, and for a stack on this machine what stack.json adds."""

    environ: Mapping[str, str]
    logs: Path
    control: str | None = None
    is_local: bool = False
    runs: bool = True
    """False: no stack runs here, and the store is what the last one left."""
    start: str = START
    """The command that starts a stack on this store."""
    api: str | None = None
    """The address of the running stack's API."""
    secrets: frozenset[str] = frozenset()
    """The names of the secrets that the stack was started with: their values are not written down."""


def describe(data_dir: Path) -> Described:
    """Find the store: by STORE in the environment, else from the running stack, else from what the last one left. STORE
    without a store's address means the stack's store. Raises ClickException if there is none.
    """
    environ = dict(os.environ)
    wanted = environ.get("STORE", "").strip()
    if wanted and _names_a_store(environ, wanted):
        is_stacks = is_running(data_dir) and _is_store_of_stack(environ, data_dir, wanted)
        return _of_stack(environ, data_dir, wanted) if is_stacks else Described(environ, data_dir / LOG_FILE)
    return _of_stack(environ, data_dir, wanted) if is_running(data_dir) else _left(environ, data_dir, wanted)


def running_stack(data_dir: Path) -> Described:
    """The stack that runs on this directory, whatever the environment names. Raises ClickException if none runs."""
    if not is_running(data_dir):
        start = invocation.start(data_dir)
        raise click.ClickException(f"No Pombo is running with its data in {data_dir}. Start one with: {start}.")
    return _of_stack(dict(os.environ), data_dir, wanted="")


def _names_a_store(environ: Mapping[str, str], wanted: str) -> bool:
    addresses = _ADDRESSES.get(wanted)
    is_deployed = environ.get("APP_ENV", "").strip() in config.DEPLOYED
    return addresses is None or is_deployed or any(environ.get(name, "").strip() for name in addresses)


def _is_store_of_stack(environ: Mapping[str, str], data_dir: Path, wanted: str) -> bool:
    """Whether it is the store of the stack here, and no exported variable contradicts that stack: variables exported
    for make run are there for every other command too.
    """
    if environ.get("APP_ENV", "").strip() in config.DEPLOYED:
        return False
    try:
        described = json.loads((data_dir / STACK_FILE).read_text())
        theirs = described["environment"]
        agree = all(environ.get(name, "").strip() in ("", value) for name, value in theirs.items())
        given = {name: environ[name].strip() for name in _ADDRESSES.get(wanted, ()) if environ.get(name, "").strip()}
        return bool(described["store"] == wanted and agree and given.items() <= theirs.items())
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return False


def _of_stack(environ: dict[str, str], data_dir: Path, wanted: str) -> Described:
    try:
        described = json.loads((data_dir / STACK_FILE).read_text())
        environ |= described["environment"]
        store, directory, control = described["store"], Path(described["data_dir"]), described.get("control")
        api, secrets = described.get("api"), frozenset(described.get("secrets", ()))
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise click.ClickException(
            f"Pombo is starting or stopping with its data in {data_dir}. Try again when it is up."
        ) from error
    if wanted and wanted != store:
        raise click.ClickException(
            f"The running Pombo keeps its records in {store}, but STORE is {wanted}: unset STORE."
        )
    start = invocation.start(data_dir, store)
    return Described(environ, directory / LOG_FILE, control, is_local=True, start=start, api=api, secrets=secrets)


def _left(environ: dict[str, str], data_dir: Path, wanted: str) -> Described:
    """What the last stack left. A store's server that the stack started ended with it."""
    last = _last(data_dir)
    store = wanted or str(last.get("store") or "sqlite")
    is_known = last.get("store") == store
    kept: Mapping[str, str] = (last.get("environment") or {}) if is_known else {}
    start = invocation.start(data_dir, store)
    if store == "sqlite":
        file = Path(environ.get("SQLITE_PATH") or kept.get("SQLITE_PATH") or data_dir / SQLITE_FILE)
        if not file.is_file():
            raise click.ClickException(f"No Pombo is running with its data in {data_dir}. Start one with: {start}.")
        environ |= {**kept, "STORE": store, "SQLITE_PATH": str(file)}
    elif kept:
        environ |= kept
    elif is_known:
        raise click.ClickException(
            f"No Pombo is running with its data in {data_dir}. The last one kept its records in {store}, whose server "
            f"stopped with it. Start it again with: {start}."
        )
    else:
        raise click.ClickException(f"No Pombo here keeps its records in {store}. Start one with: {start}.")
    return Described(environ, data_dir / LOG_FILE, is_local=True, runs=False, start=start)


def _last(data_dir: Path) -> Mapping[str, Any]:
    try:
        last = json.loads((data_dir / LAST_FILE).read_text())
    except (OSError, ValueError):
        return {}
    return last if isinstance(last, dict) else {}


def find(data_dir: Path) -> Running:
    """The stack, or the store that one left. Raises ClickException if there is neither."""
    described = describe(data_dir)
    if not described.runs and sys.stderr.isatty():
        what = "its SQLite file" if described.environ["STORE"] == "sqlite" else "the store of the last one"
        click.echo(f"No Pombo is running with its data in {data_dir}. Reading {what}.", err=True)
    try:
        settings = config.load(described.environ, config.CLI)
        store = build_store(settings)
    except config.ConfigError as error:
        raise WrongSettings(error.faults) from error
    return Running(
        store=store,
        phone_number_id=settings["WHATSAPP_PHONE_NUMBER_ID"],
        control=described.control,
        logs=described.logs,
        runs=described.runs,
        start=described.start,
        limits=settings.limits,
    )


def progress(sentence: str) -> None:
    """Report a slow step, if standard error is a terminal."""
    if sys.stderr.isatty():
        click.echo(f"{sentence} ...", err=True)
