"""pombo dead list: the dead letters and their errors."""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from cli.dead.filters import (
    Counts,
    Search,
    counts_as_dicts,
    counts_as_text,
    error_of,
    filter_options,
    unread_as_text,
    with_whole_sender,
)
from cli.progress import Counting
from cli.running import data_dir_option, find
from cli.trace import stamp
from local import terminal
from local.terminal import LEAST_ID, Column
from shared.domain.dead_letters import DeadLetter, DeadLetterFilter, Replays

SHOWN = 50


@click.command("list")
@filter_options
@click.option("--limit", type=click.IntRange(1), default=SHOWN, show_default=True, help="Show this many, newest first.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@data_dir_option
def list_letters(wanted: DeadLetterFilter, limit: int, as_json: bool, data_dir: Path) -> None:
    """List dead letters and count them by error.

    The newest come first; nothing private is shown. ERROR is the reason: unparsable, attempts, error, permanent,
    in_doubt, waited, window, invalid; refused (WhatsApp accepted the message and a receipt refused it later);
    unknown_sender (shown only if you ask for it); or a provider's error code. REPLAY is what a replay would do: yes,
    retry it; may double, retry it only with --may-double, for a copy may have arrived; arrived, send nothing, for a
    receipt confirms it; no, nothing, for the message is invalid.

    \b
    Examples:
      pombo dead list
      pombo dead list --since 2h --error 131026
      pombo dead list --tenant default --kind inbound --json
    """
    counts: Counts = Counts()
    running = find(data_dir)
    search = Search(running.store, with_whole_sender(running, wanted))
    with Counting("Reading dead letters") as counting:
        letters = heapq.nlargest(
            limit, counting.each(_counted(search, counts)), key=lambda letter: (letter.at, letter.key)
        )
    if as_json:
        click.echo(terminal.as_json(as_dict(letters, counts, search.unread)))
    else:
        click.echo("\n".join(as_lines(letters, counts, search.unread, wanted.restricts)))


def _counted(letters: Iterable[DeadLetter], counts: Counts) -> Iterator[DeadLetter]:
    for letter in letters:
        counts[letter.error, letter.code] += 1
        yield letter


def as_dict(letters: Sequence[DeadLetter], counts: Counts, unread: int) -> dict[str, Any]:
    return {
        "letters": [letter_as_dict(letter) for letter in letters],
        "counts": counts_as_dicts(counts),
        "total": counts.total(),
        "unread": unread,
    }


def letter_as_dict(letter: DeadLetter) -> dict[str, Any]:
    """A letter as JSON."""
    return {
        "key": letter.key,
        "kind": letter.kind.value,
        "tenant": letter.tenant,
        "correlation_id": letter.correlation_id,
        "error": letter.error,
        "code": letter.code,
        "error_type": letter.error_type,
        "at": stamp(letter.at),
        "tries": letter.tries,
        "round": letter.round,
        "replay": letter.replays.value,
    }


_REPLAYS = {
    Replays.AGAIN: "yes",
    Replays.DONE: "arrived",
    Replays.MAY_DOUBLE: "may double",
    Replays.NEVER: "no",
}


_COLUMNS = (
    Column("KEY", LEAST_ID),
    Column("DIED (UTC)"),
    Column("KIND"),
    Column("TENANT", 6),
    Column("ERROR", 9),
    Column("CORRELATION ID", LEAST_ID),
    Column("REPLAY", 7),
)


def as_lines(letters: Sequence[DeadLetter], counts: Counts, unread: int, is_filtered: bool) -> Iterator[str]:
    """A line for each letter, then the counts."""
    if letters:
        yield from terminal.table(_COLUMNS, [_row(letter) for letter in letters])
        more = f" Showing the newest {len(letters):,}." if len(letters) < counts.total() else ""
        yield f"{counts.total():,} dead: {counts_as_text(counts)}.{more}"
    else:
        yield "No dead letter matches." if is_filtered else "There are no dead letters."
    if unread:
        yield unread_as_text(unread)


def _row(letter: DeadLetter) -> tuple[str, ...]:
    return (
        letter.key,
        f"{letter.at:%Y-%m-%d %H:%M:%S}",
        letter.kind,
        letter.tenant or "-",
        error_of(letter.error, letter.code, letter.error_type),
        letter.correlation_id,
        _REPLAYS[letter.replays],
    )
