"""The API as a command reaches it: that of the Pombo on this machine or of a deployed one, with its key."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click

from cli.running import data_dir_option, running_stack
from local import terminal
from local.stack_files import API_KEY_FILE
from pombo.client import REPEATED, Client, NoAnswer, NotUnderstood, Refused

KEY_VARIABLE = "POMBO_API_KEY"
PATIENCE_SECONDS = 20.0
"""How long a request is repeated. It is short, because somebody waits for the command."""


def api_options(command: Any) -> Any:
    """--url, --api-key-file and --data-dir, the same for every command that calls the API."""
    url = click.option(
        "--url", metavar="URL", help="The API of a deployed Pombo.  [default: the Pombo on this machine]"
    )
    key_file = click.option(
        "--api-key-file",
        type=terminal.FilePath(path_type=Path),
        help=f"A file that holds the API key.  [default: {KEY_VARIABLE} with --url, else {API_KEY_FILE} in the data "
        "directory]",
    )
    return url(key_file(data_dir_option(command)))


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """A client of the API. `number`: the business number of the stack on this machine, if its own key is used."""

    client: Client
    number: str | None = None
    is_local: bool = True


def find_api(url: str | None, api_key_file: Path | None, data_dir: Path) -> ApiAccess:
    """The API that the options name. Raises ClickException if there is none, or no key for it."""
    if url is not None:
        key = _key_in(api_key_file) if api_key_file else os.environ.get(KEY_VARIABLE, "").strip()
        if not key:
            raise click.UsageError(f"--url needs an API key: set {KEY_VARIABLE}, or give --api-key-file.")
        return ApiAccess(_client(url, key, "'--url'"), is_local=False)
    stack = running_stack(data_dir)
    if not stack.api:
        raise click.ClickException(f"The Pombo with its data in {data_dir} has no API: restart it.")
    client = _client(stack.api, _key_in(api_key_file or stack.logs.with_name(API_KEY_FILE)))
    return ApiAccess(client, number=None if api_key_file else stack.environ.get("WHATSAPP_PHONE_NUMBER_ID"))


def _client(url: str, key: str, hint: str | None = None) -> Client:
    try:
        return Client(url, key, patience=PATIENCE_SECONDS)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=hint) if hint else click.ClickException(str(error)) from error


def _key_in(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise click.ClickException(f"The API key cannot be read from {path}: {why}.") from error


@contextmanager
def explained(access: ApiAccess, options: Mapping[str, str] = MappingProxyType({}), more: str = "") -> Iterator[None]:
    """Say what the API refused, in a ClickException. `options` names the option of each field, whose fault is a wrong
    call. `more` is said after every other refusal.
    """
    try:
        yield
    except Refused as error:
        field = (error.field or "").partition(".")[0]
        if field in options:
            raise click.BadParameter(error.detail, param_hint=options[field]) from error
        again = _again(error.idempotency_key) if error.status in REPEATED else ""
        raise click.ClickException(error.detail + again + more) from error
    except NoAnswer as error:
        sentence = f"The API does not answer at {access.client.url}."
        raise click.ClickException(sentence + _again(error.idempotency_key) + more) from error
    except NotUnderstood as error:
        raise click.ClickException(f"{access.client.url} does not answer as Pombo's API does.{more}") from error


def _again(key: str | None) -> str:
    """How to repeat a send; a request that sends nothing has no key."""
    return f" The message may be stored: repeat the command with --key {key}, and it counts once." if key else ""
