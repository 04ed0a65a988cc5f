"""pombo dead show: the attempts of one letter, and what a replay would do."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from cli import ids
from cli.dead.filters import error_of
from cli.dead.list import letter_as_dict
from cli.running import Running, data_dir_option, find
from cli.trace import moment_lines, stamp, timeline_of
from local import terminal
from shared.bootstrap.channels import explain
from shared.domain.dead_letters import DeadLetter, Replays, dead_letter, why_never
from shared.domain.listings import UNKNOWN_SENDER
from shared.domain.record import Delivery, Kind, ReceiptKind
from shared.operations.lookup import LookupResult
from shared.operations.timeline.build import Moment, tried


@click.command()
@click.argument("id")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@data_dir_option
def show(id: str, as_json: bool, data_dir: Path) -> None:
    """Show a dead letter and its attempts.

    Shows each attempt with its result, the receipts, and what a replay would do. ID is its key (8 or more characters),
    or any other id that pombo trace takes: then all dead letters of that message are shown. A handler's exception is
    quoted as it was raised, and may be private.

    \b
    Examples:
      pombo dead show 9f3c0a9d5e2b4c1f8a7b6c5d4e3f2a1b0c9d8e7f
      pombo dead show wamid.HBgL... --json
    """
    running = find(data_dir)
    found = ids.find(running, id)
    if found is None:
        raise click.ClickException(ids.NOTHING_KNOWN)
    events = timeline_of(running, found.records).events
    shown = [(record, [one for one in events if one.delivery == record.key]) for record in meant(found)]
    if as_json:
        click.echo(terminal.as_json({"letters": [as_dict(*one) for one in shown]}))
    else:
        click.echo("\n\n".join("\n".join(as_lines(*one)) for one in shown))


def meant(found: LookupResult) -> Sequence[Delivery]:
    """The records that the id means: the record it names, if it names one other than an event that is not a dead
    letter; otherwise the message's dead letters, or all its records if none is dead.
    """
    records = found.records
    named = [record for record in records if found.id in (record.key, record.provider_id)]
    letters = [record for record in records if dead_letter(record)]
    if named and (named[0] in letters or named[0].kind is Kind.OUTBOUND):
        return named
    return letters or named or records


def find_letter(running: Running, id: str) -> Delivery:
    """The one record that an operator decides about. Raises ClickException."""
    found = ids.find(running, id)
    if found is None:
        raise click.ClickException(ids.NOTHING_KNOWN)
    records = meant(found)
    if len(records) > 1:
        keys = ", ".join(record.key for record in records)
        raise click.ClickException(f"This id matches {len(records)} records. Give the key of one: {keys}.")
    return records[0]


def as_dict(record: Delivery, events: Sequence[Moment]) -> dict[str, Any]:
    """Everything known about it, as JSON."""
    letter = dead_letter(record)
    return {
        **(letter_as_dict(letter) if letter else _of_no_letter(record)),
        "state": record.state.value,
        "attempts": [
            {
                "at": stamp(one.attempt.at),
                "round": one.round,
                "attempt": one.attempt.attempt,
                "answer": one.attempt.answer,
                "code": one.attempt.code,
                "error_type": one.attempt.error_type,
                "place": one.attempt.place,
                "function": one.attempt.function,
                "sentence": sentence,
            }
            for one, sentence in tried(record, explain)
        ],
        "receipts": list(_receipts(record)),
        "events": [{"at": stamp(one.at), "what": one.what, "sentence": one.sentence} for one in events],
        "replay_sentence": replay_sentence(record, letter),
    }


def _of_no_letter(record: Delivery) -> dict[str, Any]:
    return {
        "key": record.key,
        "kind": record.kind.value,
        "tenant": record.tenant,
        "correlation_id": record.correlation_id,
        "error": None,
        "code": None,
        "error_type": None,
        "at": stamp(record.finished_at) if record.finished_at else None,
        "tries": record.attempt,
        "round": record.round,
        "replay": None,
    }


def _receipts(record: Delivery) -> Iterator[dict[str, Any]]:
    for round_, said in sorted(record.receipts.items()):
        for kind in ReceiptKind:
            at = getattr(said, kind)
            if at is None:
                continue
            code = said.failed_code if kind is ReceiptKind.FAILED else None
            sentence = explain(record.provider, code, "failed") if code is not None else None
            yield {"at": stamp(at), "round": round_, "kind": kind.value, "code": code, "sentence": sentence}


def as_lines(record: Delivery, events: Sequence[Moment]) -> Iterator[str]:
    """The same as text."""
    letter = dead_letter(record)
    what = (
        f"Dead letter {record.key}: {error_of(letter.error, letter.code, letter.error_type)}"
        if letter
        else f"{record.key}: not a dead letter"
    )
    yield terminal.styled(what, bold=True)
    yield f"  {record.kind}, tenant {record.tenant or '-'}, correlation id {record.correlation_id}, now {record.state}"
    yield from moment_lines(events, {})
    yield f"  {replay_sentence(record, letter)}"


def replay_sentence(record: Delivery, letter: DeadLetter | None, may_double: bool = False) -> str:
    """What a replay would do, as a sentence. `may_double`: whether --may-double was given."""
    if letter is None:
        under_way = "It is already being processed; a replay only makes sure that its task exists."
        return f"Nothing to replay: its state is {record.state}." if record.final else under_way
    match letter.replays:
        case Replays.NEVER:
            return f"A replay is refused. {why_never(record)}"
        case Replays.DONE:
            return "A replay sends nothing: a receipt confirms that WhatsApp has it, and it becomes done."
        case Replays.MAY_DOUBLE if may_double:
            return f"A replay retries it in round {letter.round + 1}; it may arrive twice."
        case Replays.MAY_DOUBLE:
            return "A copy may have arrived: a replay needs --may-double, and the message may arrive twice."
        case Replays.AGAIN if letter.error == UNKNOWN_SENDER:
            return "A replay looks up the tenant of its phone number ID again."
        case Replays.AGAIN if letter.error == "unparsable":
            return "A replay parses it again."
        case Replays.AGAIN:
            return f"A replay retries it in round {letter.round + 1}."
