"""pombo up: run all of Pombo on this machine."""

from pathlib import Path
from typing import Any

import click

from cli.api_key import keep_api_key
from cli.running import data_dir_option
from shared import config

LAST_PORT = 65535


def store_option(command: Any) -> Any:
    """--store, the same for every command that starts a stack."""
    return click.option(
        "--store",
        type=click.Choice(config.STORES),
        help="The store. redis and firestore start a server of their own (redis-server; gcloud's emulator, which "
        "keeps its data in memory) unless REDIS_URL or FIRESTORE_EMULATOR_HOST is set.  [default: STORE, or sqlite]",
    )(command)


def ports_option(command: Any) -> Any:
    """--ports, likewise."""
    return click.option(
        "--ports",
        type=click.IntRange(0, LAST_PORT - 7),
        help="Ports from N on: webhook, internal, WhatsApp, Cloud Tasks, API; N+6 for a store's own server, N+7 for "
        "the simulator's control address; 0 takes free ones.  [default: 8080]",
    )(command)


@click.command()
@store_option
@data_dir_option
@ports_option
@click.option("--whatsapp-url", help="Send to this address instead of the simulator.")
@click.option("--no-sweep", is_flag=True, help="Do not run the sweep: nothing re-creates lost tasks.")
@click.option("--no-restart", is_flag=True, help="Do not restart a process that dies.")
@click.option("--json", "as_json", is_flag=True, help="Print only one JSON line, once everything is ready.")
def up(
    store: str | None,
    data_dir: Path,
    ports: int | None,
    whatsapp_url: str | None,
    no_sweep: bool,
    no_restart: bool,
    as_json: bool,
) -> None:
    """Start all of Pombo on this machine.

    Starts the services, the queue and the WhatsApp simulator, and runs until Ctrl-C. The file api-key in the data
    directory has a key of the API.

    \b
    Examples:
      pombo up
      pombo up --store redis
      pombo up --ports 9000 --data-dir /tmp/pombo
      pombo up --json --ports 0 --no-sweep
    """
    try:
        from local.stack import Options, run
    except ModuleNotFoundError as error:
        raise click.ClickException(
            "pombo up works only in a clone of the repository: no image contains the local cloud."
        ) from error

    run(
        Options(
            data_dir=data_dir.resolve(),
            store=store,
            first_port=8080 if ports is None else ports,
            whatsapp_url=whatsapp_url,
            sweep=not no_sweep,
            restart=not no_restart,
            keep_api_key=keep_api_key,
        ),
        as_json=as_json,
    )
