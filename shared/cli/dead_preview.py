"""A preview: what a replay or a discard would do to the letters that are meant, before it is done."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import click

from shared.cli.dead_filters import Counts, counts_as_dicts, counts_as_text
from shared.domain.dead_letters import REFUSED, UNKNOWN_SENDER, DeadLetter, Replays

CONFIRMED = "would become done: a receipt shows that WhatsApp has them"
LEFT_IN_DOUBT = "would be left as they are: a copy may have arrived, and --may-double was not given"
DOUBLED = "may arrive twice"
SENT_ALREADY = "would be left as they are: they are not dead, and are deleted by themselves"


@dataclass(slots=True)
class Preview:
    """How many there are by error, and what would become of some of them."""

    verb: str
    counts: Counts = field(default_factory=Counts)
    notes: "Counter[str]" = field(default_factory=Counter)
    untried: int = 0
    """Replayed by an earlier run, and not tried since."""

    @property
    def total(self) -> int:
        return self.counts.total()

    @classmethod
    def of_replay(cls, letters: Iterable[DeadLetter], may_double: bool, untried: int = 0) -> Self:
        preview = cls("replayed", untried=untried)
        for letter in letters:
            preview.counts[letter.error, letter.code] += 1
            if letter.replays is Replays.DONE:
                preview.notes[CONFIRMED] += 1
            elif letter.replays is Replays.MAY_DOUBLE:
                preview.notes[DOUBLED if may_double else LEFT_IN_DOUBT] += 1
        return preview

    @classmethod
    def of_discard(cls, letters: Iterable[DeadLetter]) -> Self:
        preview = cls("discarded")
        for letter in letters:
            preview.counts[letter.error, letter.code] += 1
            if letter.error in (REFUSED, UNKNOWN_SENDER):
                preview.notes[SENT_ALREADY] += 1
        return preview

    def say(self, as_json: bool, is_error: bool = False) -> None:
        text = json.dumps(self.as_dict()) if as_json else "\n".join(self.as_lines())
        click.echo(text, err=is_error)

    def as_dict(self) -> dict[str, Any]:
        notes = [{"what": what, "count": count} for what, count in self.notes.most_common()]
        untried = {"untried": self.untried} if self.verb == "replayed" else {}
        return {"dry_run": True, "total": self.total, "counts": counts_as_dicts(self.counts), "notes": notes, **untried}

    def as_lines(self) -> Iterator[str]:
        if self.total:
            yield f"{self.total:,} would be {self.verb}: {counts_as_text(self.counts)}."
        else:
            yield "No dead letter is like that."
        for what, count in self.notes.most_common():
            yield f"{count:,} of them {what}."
        if self.untried:
            yield f"{self.untried:,} were replayed before and not tried since: their tasks would be made sure of."
