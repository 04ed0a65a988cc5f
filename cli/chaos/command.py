"""pombo chaos: many messages through all of Pombo while it is being broken, and an account of each."""

import math
from pathlib import Path
from typing import Any

import click

from local import terminal
from shared import config


class _Number(click.FloatRange):
    """NaN is within every range, as it is neither below nor above anything."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is no number.", param, ctx)
        return number


@click.command()
@click.option("--messages", type=click.IntRange(1, 100_000), default=1000, show_default=True, help="How many.")
@click.option(
    "--seconds",
    type=_Number(5, 86_400),
    help="Over how long they are sent and trouble is made.  [default: 1 s for every 10 messages, 30 at least]",
)
@click.option("--seed", type=click.IntRange(0, 2**32), help="The same plan and trouble again.  [default: a new one]")
@click.option("--store", type=click.Choice(config.STORES), default="sqlite", show_default=True, help="The back end.")
@click.option(
    "--contacts", type=click.IntRange(2, 100_000), help="From how many people.  [default: one for 5 messages]"
)
@click.option("--no-sweep", is_flag=True, help="Do not sweep; then the queue loses no task, as a real one does not.")
@click.option("--withhold-receipts", is_flag=True, help="No receipt comes: what is in doubt stays so.")
@click.option(
    "--policy", type=click.Choice(["resend", "hold"]), default="resend", show_default=True, help="IN_DOUBT_POLICY."
)
@click.option(
    "--time-scale",
    type=_Number(1, 20),
    default=10,
    show_default=True,
    help="Divides the protocol's durations.",
)
@click.option(
    "--handler",
    help="module:function instead of the run's own; one that does not do what the messages say is found out.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object, and nothing else.")
@click.option(
    "--data-dir",
    type=terminal.FilePath(path_type=Path),
    help="A new directory for the run's data, which is kept.  [default: a temporary one, kept if the run fails]",
)
def chaos(**wanted: Any) -> None:
    """Break everything, and account for every message.

    Starts a Pombo of its own, on free ports. Sends it messages while its processes are killed, frozen and cut off,
    and WhatsApp and the queue misbehave; waits until it is quiet; and holds what WhatsApp was given to what the handler
    planned.

    Exit 0: every message is accounted for, none lost, none doubled, none out of order. Exit 1: not so. Exit 2: nothing
    is proven, for the run was too quiet. A run of 3,000 messages or more has to show 20 kills of each process, 200
    attempts interrupted, 50 messages in doubt and 100 tasks delivered twice; a smaller one its share of that. 30
    messages are the least that prove something; they take two or three minutes, most of it an outage of WhatsApp.

    \b
    Examples:
      pombo chaos
      pombo chaos --messages 300 --seconds 40 --seed 7 --no-sweep
      pombo chaos --messages 10000 --store redis
      pombo chaos --messages 500 --withhold-receipts --policy hold
    """
    try:
        from cli.chaos.main import run
    except ModuleNotFoundError as error:
        raise click.ClickException("pombo chaos needs the repository: the local cloud is in no image.") from error

    handler = wanted.pop("handler")
    run(handler=terminal.native(handler) if handler else None, **wanted)
