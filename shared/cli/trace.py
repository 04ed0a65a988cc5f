"""pombo trace: what became of a message."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from shared.cli.running import Running, data_dir_option, find, text_only
from shared.domain.identity import message_event_id
from shared.domain.record import Delivery
from shared.pipeline.timeline import Timeline, build

PROVIDER = "meta"
FROM_LOGS = frozenset({"inbound_duplicate", "outbound_waiting"})
_COLOURS = {"dead": "red", "refused": "red", "handler_failed": "red", "receipt_failed": "red", "accepted": "green"}


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("id", callback=text_only)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@data_dir_option
def trace(id: str, as_json: bool, data_dir: Path) -> None:
    """Show the timeline of one message.

    ID is a correlation id, an event id, an outbound key, or WhatsApp's own message id (wamid...).

    \b
    Examples:
      pombo trace 4f1c2a90b7de4f64a3c2c7bf7a0f2f5e
      pombo trace wamid.HBgL... --json
    """
    running = find(data_dir)
    records = find_records(running, id)
    if not records:
        raise click.ClickException(
            "Nothing is known by this id: give a correlation id, event id, outbound key or wamid."
        )
    timeline = timeline_of(running, records)
    click.echo(json.dumps(as_dict(timeline), ensure_ascii=False) if as_json else as_text(timeline))


def find_records(running: Running, id: str) -> Sequence[Delivery]:
    """All records of the event that this id belongs to."""
    store = running.store
    known = (
        store.get(id)
        or store.get(message_event_id(PROVIDER, running.phone_number_id, id))
        or store.by_provider_id(PROVIDER, id)
    )
    return store.by_correlation(known.correlation_id if known else id)


def timeline_of(running: Running, records: Sequence[Delivery]) -> Timeline:
    """Records and log lines together."""
    return build(records, running.log_lines(FROM_LOGS, frozenset(record.key for record in records)))


def as_dict(timeline: Timeline) -> dict[str, Any]:
    """The timeline as JSON: times are RFC 3339, UTC."""
    return {
        "correlation_id": timeline.correlation_id,
        "events": [{**asdict(moment), "at": _stamp(moment.at)} for moment in timeline.events],
        "shown": timeline.shown,
        "replies": replies_as_dicts(timeline),
    }


def replies_as_dicts(timeline: Timeline) -> list[dict[str, Any]]:
    """The replies; `why` only where one waits."""
    return [{key: value for key, value in asdict(reply).items() if key != "why" or value} for reply in timeline.replies]


def as_text(timeline: Timeline) -> str:
    """The timeline for a person."""
    names = _names(timeline)
    width = max((len(name) for name in names.values()), default=0)
    lines = [click.style(f"Message {timeline.correlation_id}: {timeline.shown}", bold=True)]
    for moment in timeline.events:
        name = names.get(moment.delivery, "")
        colour = _COLOURS.get(moment.what)
        lines.append(
            f"  {moment.at:%H:%M:%S.%f}"[:-3] + f"  {name:<{width}}  " + click.style(_plain(moment.sentence), fg=colour)
        )
    for number, reply in enumerate(timeline.replies, start=1):
        why = f" ({reply.why})" if reply.why else ""
        lines.append(
            f"  Reply {number} is {reply.shown}{why}: {_plain(reply.text if reply.text is not None else reply.type)}"
        )
    return "\n".join(lines)


def _plain(text: str) -> str:
    """A text on one line, with its control characters spelled out: a customer's must not steer a terminal, nor forge
    a line of the timeline.
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _names(timeline: Timeline) -> dict[str, str]:
    replies = {reply.key: f"reply {number}" for number, reply in enumerate(timeline.replies, start=1)}
    return {moment.delivery: replies.get(moment.delivery, "message") for moment in timeline.events}


def _stamp(at: Any) -> str:
    return str(at.isoformat(timespec="milliseconds")).replace("+00:00", "Z")
