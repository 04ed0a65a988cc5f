"""pombo ledger: the messages that the WhatsApp simulator accepted."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from cli import simulator
from cli.running import data_dir_option, find
from cli.simulator import Entry
from local import terminal
from local.terminal import LEAST_ID, Column

SHOWN = 20
_COLUMNS = (Column("ACCEPTED (UTC)"), Column("TO", 12), Column("TYPE", 8), Column("KEY", LEAST_ID), Column("TEXT", 20))


@click.command()
@click.option("--limit", type=click.IntRange(1), default=SHOWN, show_default=True, help="Show this many, newest first.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list, with the whole body of each.")
@data_dir_option
def ledger(limit: int, as_json: bool, data_dir: Path) -> None:
    """List the messages that WhatsApp accepted.

    Shows the simulator's messages, newest first, with the ids of the buttons that a customer can tap.

    \b
    Examples:
      pombo ledger
      pombo ledger --limit 3 --json
      pombo say --tap ID            tap the button shown as [ID]
    """
    entries = simulator.ledger(find(data_dir))
    shown = entries[:limit]
    click.echo(terminal.as_json(shown) if as_json else "\n".join(as_lines(shown, len(entries))))


def as_lines(shown: Sequence[Entry], total: int) -> Iterator[str]:
    """A line for each message, then the total if not all are shown."""
    if not shown:
        yield "WhatsApp has accepted no messages."
        return
    yield from terminal.table(_COLUMNS, [_row(entry) for entry in shown])
    if len(shown) < total:
        yield f"{total:,} messages. Showing the newest {len(shown):,}."


def _row(entry: Entry) -> tuple[str, ...]:
    taps = [f"[{choice.id}]" for choice in simulator.choices(entry)]
    lost = [] if entry["answered"] else ["(response lost)"]
    text = " ".join([*lost, simulator.text_of(entry), *taps]).strip()
    at = str(entry["accepted_at"])[:19].replace("T", " ")
    to = str(entry["to"] or entry["recipient"])
    return at, terminal.plain(to), terminal.plain(str(entry["type"])), str(entry["key"] or "-"), terminal.plain(text)
