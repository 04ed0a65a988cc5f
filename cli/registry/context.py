"""The context of a command about the registry: the registry itself, and what a command does beside it."""

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from cli.running import Running, describe, find
from local import terminal
from shared import config
from shared.bootstrap.channels import reading
from shared.bootstrap.connect import build_connect
from shared.bootstrap.secrets import build_secrets
from shared.config import Config
from shared.config.parsers import BadValue, endpoint, header
from shared.domain.errors import SecretsUnavailable
from shared.domain.onboarding import Checked
from shared.domain.tenants import DEFAULT_TENANT, Sender
from shared.operations.claims import Claims
from shared.operations.registry import tenant_entry
from shared.pipeline.clock import Clock, SystemClock
from shared.pipeline.ports import Secrets, Store
from shared.pipeline.registry import Registry

STANDARD_INPUT = "-"
LONGEST_SECRET = 8192
"""Characters. Meta's tokens have a few hundred."""
LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class RegistryContext:
    """The stack, its registry, and what a command needs beside them. `secrets` and `claims` are made on first use:
    most commands need neither.
    """

    running: Running
    clock: Clock
    settings: Config

    @property
    def registry(self) -> Registry:
        return self.running.registry

    @property
    def store(self) -> Store:
        return self.running.store

    @property
    def environment(self) -> Sequence[Sender]:
        """The senders that the environment names."""
        return self.running.senders

    @property
    def pairs(self) -> int:
        """How many pairs of queues there are."""
        return int(self.settings["TENANT_QUEUES"])

    def secrets(self) -> Secrets:
        """Where this stack keeps the secrets of tenants."""
        return build_secrets(self.settings)

    def forget_secret(self, name: str, whose: str) -> None:
        """Remove the secret of what was just removed. Raises SecretsUnavailable, and then says that the secret is left:
        to repeat the command would not find what it belonged to.
        """
        try:
            self.secrets().remove(name)
        except SecretsUnavailable:
            hint(f"{whose} was removed, but its secret {name} is still there: remove it by hand.")
            raise

    def look_for_secret(self, name: str) -> None:
        """Say if there is no such secret; nothing if the operator may not read it, or if it cannot be read now."""
        with suppress(SecretsUnavailable):
            if self.secrets().newest(name) is None:
                hint(f"There is no secret {name} yet, and the number cannot send without it.")

    def claims(self) -> Claims:
        """What checks a token with the provider, keeps it, and has webhooks sent here. Raises ClickException if no
        stack runs: on one machine the provider may be the simulator, which ended with it.
        """
        if not self.running.runs:
            raise click.ClickException(
                f"The token cannot be checked: no Pombo is running here. Start one with {self.running.start}."
            )
        return Claims(self.registry, self.clock, self.environment, build_connect(self.settings, self.store))


def open_registry(data_dir: Path) -> RegistryContext:
    """The registry of the running stack, or of what the last one left, or of the STORE in the environment. Raises
    ClickException.
    """
    running = find(data_dir)  # first: it reports wrong settings
    return RegistryContext(running, SystemClock(), config.load(describe(data_dir).environ, config.CLI))


def registry_for(data_dir: Path, tenant: str | None) -> RegistryContext:
    """The same, to list what a tenant has, or all tenants. Also raises NotFound, so that a mistyped id is not a tenant
    that has nothing.
    """
    context = open_registry(data_dir)
    if tenant not in (None, DEFAULT_TENANT):
        tenant_entry(context.registry, tenant)
    return context


# ---- options and questions that several commands share


def json_option(command: Any) -> Any:
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(command)


def yes_option(command: Any) -> Any:
    return click.option("--yes", is_flag=True, help="Do not ask for the id again.")(command)


def providers() -> tuple[str, ...]:
    """The providers that this Pombo has a channel for."""
    return tuple(reading())


def say(as_json: bool, value: Any, sentence: str) -> None:
    click.echo(terminal.as_json(value) if as_json else sentence)


def hint(sentence: str) -> None:
    """Beside the result: on standard error, so that the output stays what a program expects."""
    click.echo(sentence, err=True)


def tell_end(checked: Checked | None) -> None:
    """Say when a token ends, if the provider says so."""
    if checked and checked.expires_at:
        hint(f"This token ends on {checked.expires_at:%Y-%m-%d}: reconnect the number with a new one before that day.")


def read_secret(option: str, given: str | None) -> str | None:
    """The secret on standard input, if the option says `-`. Raises ClickException unless it is one line of printable
    characters, and UsageError if the secret is the argument: other users of the machine can read those.
    """
    if given is None:
        return None
    if given != STANDARD_INPUT:
        raise click.UsageError(
            f"{option} takes only -, and reads the secret from standard input: arguments are public."
        )
    if sys.stdin.isatty():
        text = click.prompt(f"{option.removeprefix('--')}", hide_input=True, err=True)
    else:
        text = sys.stdin.read(LONGEST_SECRET + 1)
    text = ",".join(part.strip(" ") for part in text.strip().split(","))  # a list may have spaces after its commas
    try:
        return header(text) if 0 < len(text) <= LONGEST_SECRET else _unusable(option)
    except BadValue:
        return _unusable(option)


def _unusable(option: str) -> str:
    raise click.ClickException(
        f"{option}: standard input must hold the secret alone: one line of up to {LONGEST_SECRET:,} visible ASCII "
        "characters."
    )


def handler_url(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Parse the address of a tenant's handler. An operator's may be private."""
    if value is None:
        return None
    try:
        return endpoint(value)
    except BadValue as error:
        raise click.BadParameter(f"{error}.") from None


def name(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Parse a name for people."""
    if value is not None and (len(value) > LONGEST_NAME or value != terminal.plain(value)):
        raise click.BadParameter(f"must be up to {LONGEST_NAME} printable characters.")
    return value


def confirm_id(what: str, id: str, yes: bool) -> None:
    """Ask for the id again, and say what it is the id of. Raises ClickException if another text comes, and UsageError
    if the command cannot ask.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(
            "Standard input is not a terminal, so the command cannot ask for the id again: give --yes."
        )
    if click.prompt(f"Type {id} again to remove {what}", err=True, default="", show_default=False) != id:
        raise click.ClickException("Nothing was changed: the ids differ.")
