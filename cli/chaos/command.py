"""pombo chaos: send many messages while faults are injected, and account for each."""

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
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


@click.command()
@click.option(
    "--messages", type=click.IntRange(1, 100_000), default=1000, show_default=True, help="Number of messages."
)
@click.option(
    "--seconds",
    type=_Number(5, 86_400),
    help="How long to send messages and inject faults.  [default: 1 s for every 10 messages, at least 30]",
)
@click.option(
    "--seed", type=click.IntRange(0, 2**32), help="Repeat the plan and the faults of this seed.  [default: random]"
)
@click.option("--store", type=click.Choice(config.STORES), default="sqlite", show_default=True, help="The store.")
@click.option(
    "--tenants",
    type=click.IntRange(1, 20),
    default=1,
    show_default=True,
    help="Number of businesses, each with one number.",
)
@click.option(
    "--api-share",
    type=_Number(0, 1),
    default=0.2,
    show_default=True,
    help="Messages sent through the API, as a share of --messages; they come in addition.",
)
@click.option("--contacts", type=click.IntRange(2, 100_000), help="Number of customers.  [default: one for 5 messages]")
@click.option("--no-sweep", is_flag=True, help="Do not run the sweep. The queue then loses no tasks, like a real one.")
@click.option("--withhold-receipts", is_flag=True, help="Deliver no receipts: messages in doubt stay in doubt.")
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
    help="A handler (module:function) in place of the run's own. The run detects one that disobeys the messages.",
)
@click.option("--json", "as_json", is_flag=True, help="Print only the result, as one JSON object.")
@click.option(
    "--data-dir",
    type=terminal.FilePath(path_type=Path),
    help="A new directory for the run's data; it is kept.  [default: a temporary one, kept if the run fails]",
)
def chaos(**wanted: Any) -> None:
    """Inject faults and account for every message.

    Starts its own Pombo on free ports and sends it messages. Meanwhile it kills, freezes and cuts off the processes,
    and makes WhatsApp and the queue fail. Then it waits until all work is done, and compares the messages that WhatsApp
    accepted with those that the handler planned. Some more messages it sends through the API: at once, for later, and
    some it cancels. It repeats each request with its Idempotency-Key until it is answered.

    Exit 0: every message is accounted for; none lost, none doubled, none out of order. Exit 1: at least one is not.
    Exit 2: the run met too few faults to prove anything. A run of 3,000 messages or more must reach 20 kills of each
    process, 200 interrupted attempts, 50 messages in doubt and 100 tasks delivered twice; a smaller run its share. A
    run needs at least 30 messages to prove something; it takes two or three minutes, mostly for an outage of WhatsApp.

    \b
    Examples:
      pombo chaos
      pombo chaos --messages 300 --seconds 40 --seed 7 --no-sweep
      pombo chaos --messages 10000 --store redis
      pombo chaos --messages 2000 --tenants 4
      pombo chaos --messages 500 --withhold-receipts --policy hold
    """
    try:
        from cli.chaos.main import run
    except ModuleNotFoundError as error:
        raise click.ClickException(
            "pombo chaos works only in a clone of the repository: no image contains the local cloud."
        ) from error

    handler = wanted.pop("handler")
    run(handler=terminal.native(handler) if handler else None, **wanted)
