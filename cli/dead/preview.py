"""A preview: what a replay or a discard would do to the selected letters."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import click

from cli.dead.filters import Counts, counts_as_dicts, counts_as_text
from local import terminal
from shared.domain.dead_letters import REFUSED, DeadLetter, Replays
from shared.domain.listings import UNKNOWN_SENDER

CONFIRMED = "would become done: a receipt confirms that WhatsApp has them"
LEFT_IN_DOUBT = "would be skipped: a copy may have arrived, and --may-double was not given"
DOUBLED = "may arrive twice"
LEFT_INVALID = "would be skipped: the messages are invalid and cannot be sent"
SENT_ALREADY = "would be skipped: they are not dead, and Pombo deletes them by itself"


@dataclass(slots=True)
class Preview:
    """The selected letters by error, and what would happen to them."""

    verb: str
    matching: Counts = field(default_factory=Counts)
    meant: Counts = field(default_factory=Counts)
    """The matching letters that would be replayed or discarded."""
    notes: "Counter[str]" = field(default_factory=Counter)
    untried: int = 0
    """Replayed by an earlier run, with no attempt since."""

    @property
    def total(self) -> int:
        return self.matching.total()

    @property
    def does_nothing(self) -> bool:
        """Whether the command needs no confirmation."""
        return not self.meant and not self.notes[CONFIRMED]

    @classmethod
    def of_replay(cls, letters: Iterable[DeadLetter], may_double: bool, untried: int = 0) -> Self:
        preview = cls("replayed", untried=untried)
        notes = {
            Replays.DONE: CONFIRMED,
            Replays.MAY_DOUBLE: DOUBLED if may_double else LEFT_IN_DOUBT,
            Replays.NEVER: LEFT_INVALID,
        }
        for letter in letters:
            preview._add(letter, notes.get(letter.replays))
        return preview

    @classmethod
    def of_discard(cls, letters: Iterable[DeadLetter]) -> Self:
        preview = cls("discarded")
        for letter in letters:
            preview._add(letter, SENT_ALREADY if letter.error in (REFUSED, UNKNOWN_SENDER) else None)
        return preview

    def _add(self, letter: DeadLetter, note: str | None) -> None:
        self.matching[letter.error, letter.code] += 1
        if note in (None, DOUBLED):
            self.meant[letter.error, letter.code] += 1
        if note is not None:
            self.notes[note] += 1

    def say(self, as_json: bool, is_error: bool = False) -> None:
        text = terminal.as_json(self.as_dict()) if as_json else "\n".join(self.as_lines())
        click.echo(text, err=is_error)

    def as_dict(self) -> dict[str, Any]:
        notes = [{"what": what, "count": count} for what, count in self.notes.most_common()]
        untried = {"untried": self.untried} if self.verb == "replayed" else {}
        return {
            "dry_run": True,
            "total": self.total,
            self.verb: self.meant.total(),
            "counts": counts_as_dicts(self.matching),
            "notes": notes,
            **untried,
        }

    def as_lines(self) -> Iterator[str]:
        if self.meant:
            yield f"{self.meant.total():,} would be {self.verb}: {counts_as_text(self.meant)}."
        elif not self.matching:
            yield "No dead letter matches."
        for what, count in self.notes.most_common():
            yield f"{count:,} {what}."
        if self.untried:
            yield f"{self.untried:,} were replayed earlier and have no attempt since: missing tasks would be created."
