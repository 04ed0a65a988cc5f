"""pombo up: all of Pombo on this machine."""

from pathlib import Path

import click

from shared.cli.running import data_dir_option


@click.command()
@click.option("--store", default="sqlite", type=click.Choice(["sqlite"]), show_default=True, help="The back end.")
@data_dir_option
@click.option(
    "--ports", type=click.IntRange(0, 65532), help="Four ports from N on; 0 takes free ones.  [default: 8080]"
)
@click.option("--whatsapp-url", help="Send to this address instead of the simulator.")
@click.option("--no-sweep", is_flag=True, help="Do not sweep: what is lost stays lost.")
@click.option("--no-restart", is_flag=True, help="Leave a process that died dead.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON line once all is ready, and nothing else.")
def up(
    store: str,
    data_dir: Path,
    ports: int | None,
    whatsapp_url: str | None,
    no_sweep: bool,
    no_restart: bool,
    as_json: bool,
) -> None:
    """Start the services, the queue and WhatsApp on this machine, and serve until Ctrl-C.

    \b
    Examples:
      pombo up
      pombo up --ports 9000 --data-dir /tmp/pombo
      pombo up --json --ports 0 --no-sweep
    """
    try:
        from local.stack import Options, run
    except ModuleNotFoundError as error:
        raise click.ClickException("pombo up needs the repository: the local cloud is in no image.") from error

    run(
        Options(
            data_dir=data_dir.resolve(),
            store=store,
            first_port=8080 if ports is None else ports,
            whatsapp_url=whatsapp_url,
            sweep=not no_sweep,
            restart=not no_restart,
        ),
        as_json=as_json,
    )
