"""pombo dead replay and pombo dead discard: decide about one letter, or all that match, after a preview."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

from cli.dead.decision_context import Deciding, deciding
from cli.dead.filters import Search, filter_options, with_whole_sender
from cli.dead.preview import Preview
from cli.dead.run import Tally, in_parallel
from cli.dead.show import find_letter, replay_sentence
from cli.progress import Counting
from cli.running import data_dir_option
from local import terminal
from shared.domain.dead_letters import DeadLetterFilter, dead_letter
from shared.domain.delivery.answers import NOT_DEAD
from shared.domain.record import Delivery, State
from shared.operations.dead_letters import Decision, Done, Replay, untried

LONGEST_REASON = 500
"""Characters. The reason is stored in the record's metadata, which hold 4 KB at most."""


Act = Callable[[str], Decision]


def decision_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the ID, the filters and the shared options, as one argument `asked`."""

    @wraps(command)
    def decided(id: str | None, wanted: DeadLetterFilter, **given: Any) -> None:
        mine = {name: given.pop(name) for name in ("all_of_them", "limit", "dry_run", "yes", "as_json")}
        asked = Selection(id, wanted, **mine)
        asked.check()
        command(asked=asked, **given)

    filtered = filter_options(decided)
    for option in reversed(_OPTIONS):
        filtered = option(filtered)
    return filtered


_OPTIONS = (
    click.argument("id", required=False),
    click.option("--all", "all_of_them", is_flag=True, help="Select all dead letters, without a filter."),
    click.option("--limit", type=click.IntRange(1), help="Stop after this many."),
    click.option("--dry-run", is_flag=True, help="Show what the command would do, and change nothing."),
    click.option("--yes", is_flag=True, help="Do not ask for confirmation."),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
)


@dataclass(frozen=True, slots=True)
class Selection:
    """The letters that an operator selected."""

    id: str | None
    wanted: DeadLetterFilter
    all_of_them: bool
    limit: int | None
    dry_run: bool
    yes: bool
    as_json: bool

    def check(self) -> None:
        """Raises UsageError unless the selection is unambiguous and the command may ask, or need not."""
        if self.id is not None and (self.wanted.restricts or self.all_of_them or self.limit):
            raise click.UsageError("Give either an ID or filters, not both.")
        if self.wanted.restricts and self.all_of_them:
            raise click.UsageError("Give either filters or --all, not both.")
        if self.id is None and not (self.wanted.restricts or self.all_of_them):
            raise click.UsageError("Give an ID, filters or --all.")
        if self.id is None and not (self.yes or self.dry_run or sys.stdin.isatty()):
            raise click.UsageError(
                "Standard input is not a terminal, so the command cannot ask: give --yes, or --dry-run for a preview."
            )


@click.command()
@decision_options
@click.option(
    "--may-double",
    is_flag=True,
    help="Also replay messages that may have arrived already: the customer may get them twice.",
)
@data_dir_option
def replay(asked: Selection, may_double: bool, data_dir: Path) -> None:
    """Retry one dead letter, or all that match.

    ID is a key (8 or more of its characters), or any other id that pombo trace takes if it leads to one letter. A
    letter that a receipt has confirmed meanwhile is not resent: it becomes done. If a replay is interrupted, run it
    again: it retries each letter once. A letter that fails again becomes a dead letter again, and the next replay
    includes it.

    \b
    Examples:
      pombo dead replay 9f3c0a9d5e2b4c1f8a7b6c5d4e3f2a1b0c9d8e7f
      pombo dead replay --error 131042 --since 2h --dry-run
      pombo dead replay --all --yes
    """
    parts = deciding(data_dir, needs_queue=True)
    again = None if asked.dry_run else parts.replay(may_double)
    if asked.id is not None:
        record = find_letter(parts.running, asked.id)
        letter = dead_letter(record)
        preview = Preview.of_replay([letter] if letter else [], may_double)
        _decide_one(record, asked, again, preview, replay_sentence(record, letter, may_double))
        return
    preview = Preview.of_replay(_search(parts, asked), may_double, sum(1 for _ in untried(parts.running.store)))
    if again is None:
        preview.say(asked.as_json)
        return
    if preview.total:
        _agree(preview, asked)
    with Tally(Done.REPLAYED).said(asked.as_json) as tally:
        _ensure(parts, again, preview.untried, tally)
        _decide_all(parts, asked, again, preview, tally)


@click.command()
@decision_options
@click.option("--reason", required=True, help="Why you discard it: stored with the letter and shown in its timeline.")
@data_dir_option
def discard(asked: Selection, reason: str, data_dir: Path) -> None:
    """Discard one dead letter, or all that match.

    Pombo deletes a discarded letter after the usual retention. ID is as for pombo dead replay.

    \b
    Examples:
      pombo dead discard 9f3c0a9d5e2b4c1f8a7b6c5d4e3f2a1b0c9d8e7f --reason "a wrong number"
      pombo dead discard --until 90d --reason "too old" --dry-run
    """
    if not reason.strip() or len(reason) > LONGEST_REASON:
        raise click.UsageError(f"--reason takes 1 to {LONGEST_REASON} characters.")
    parts = deciding(data_dir, needs_queue=False)
    give_up = None if asked.dry_run else parts.discard(reason.strip())
    if asked.id is not None:
        record = find_letter(parts.running, asked.id)
        letter = dead_letter(record)
        would = "It would be discarded." if record.state is State.DEAD else f"{NOT_DEAD} It is {record.state}."
        _decide_one(record, asked, give_up, Preview.of_discard([letter] if letter else []), would)
        return
    preview = Preview.of_discard(_search(parts, asked))
    if give_up is None:
        preview.say(asked.as_json)
        return
    if preview.total:
        _agree(preview, asked)
    with Tally(Done.DISCARDED).said(asked.as_json) as tally:
        _decide_all(parts, asked, give_up, preview, tally)


def _search(parts: Deciding, asked: Selection) -> Search:
    return Search(parts.running.store, with_whole_sender(parts.running, asked.wanted), asked.limit)


def _agree(preview: Preview, asked: Selection) -> None:
    """Show the preview, and ask if it changes anything. Raises ClickException if the operator declines."""
    if not asked.as_json or sys.stderr.isatty():
        preview.say(as_json=False, is_error=asked.as_json)
    if not asked.yes and not preview.does_nothing and not click.confirm("Continue?", err=True):
        raise click.ClickException("Nothing was changed.")


def _decide_one(record: Delivery, asked: Selection, act: Act | None, preview: Preview, would: str) -> None:
    if act is None:
        click.echo(terminal.as_json(preview.as_dict()) if asked.as_json else would)
        return
    outcome = act(record.key)
    if outcome.done is Done.SKIPPED:
        raise click.ClickException(f"{outcome.why} It is {record.state}.")
    if asked.as_json:
        tally = Tally(Done.DISCARDED if outcome.done is Done.DISCARDED else Done.REPLAYED)
        tally.add(outcome)
        click.echo(terminal.as_json(tally.as_dict(is_whole=True)))
    elif outcome.done is Done.REPLAYED and not record.final:
        click.echo("It is already being retried; its task exists.")
    else:
        click.echo(_SAID[outcome.done])


_SAID = {
    Done.REPLAYED: "Replayed. `pombo trace` shows its progress.",
    Done.DONE: "Nothing was sent: a receipt confirms that WhatsApp has it. Its state is now done.",
    Done.DISCARDED: "Discarded.",
}


def _ensure(parts: Deciding, again: Replay, untried_before: int, tally: Tally) -> None:
    """Create the tasks of letters that an earlier run replayed: it may have been killed before it created them."""

    def take(_: None) -> None:
        tally.ensured += 1
        counting.one_more()

    with Counting("Creating missing tasks", untried_before) as counting:
        in_parallel(again.ensure, untried(parts.running.store), take)


def _decide_all(parts: Deciding, asked: Selection, act: Act, preview: Preview, tally: Tally) -> None:
    def take(outcome: Decision) -> None:
        tally.add(outcome)
        counting.one_more()

    with Counting(preview.verb.capitalize(), preview.total) as counting:
        in_parallel(lambda letter: act(letter.key), _search(parts, asked), take)
