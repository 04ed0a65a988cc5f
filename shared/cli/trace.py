"""pombo trace: what became of a message."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import click

from shared import bootstrap
from shared.cli import terminal
from shared.cli.cloud_logs import CloudLogs
from shared.cli.running import Running, data_dir_option, find, progress
from shared.domain.identity import message_event_id
from shared.domain.record import Delivery
from shared.logs import EVENTS
from shared.pipeline.timeline import GONE, Moment, Timeline, build, told_by_logs
from shared.pipeline.timeline_logs import READ

PROVIDER = "meta"
_COLOURS = {"dead": "red", "refused": "red", "handler_failed": "red", "receipt_failed": "red", "accepted": "green"}

LogLines = Callable[[Collection[str], Collection[str]], Iterable[Mapping[str, Any]]]
"""Where log lines come from: events and ids in, the lines of these events about these ids out."""


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("id")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--cloud",
    metavar="PROJECT",
    help="Read the log lines from Cloud Logging; the records come from the STORE of the environment.",
)
@data_dir_option
def trace(id: str, as_json: bool, cloud: str | None, data_dir: Path) -> None:
    """Show the timeline of one message.

    ID is a correlation id, an event id, an outbound key, or WhatsApp's own message id (wamid...).

    \b
    Examples:
      pombo trace 4f1c2a90b7de4f64a3c2c7bf7a0f2f5e
      pombo trace wamid.HBgL... --json
      STORE=firestore GOOGLE_CLOUD_PROJECT=my-project FIRESTORE_DATABASE=pombo pombo trace ID --cloud my-project
    """
    running = find(data_dir)
    records = find_records(running, id)
    timeline: Timeline | None
    if records:
        timeline = timeline_of(running, records, _cloud_lines(cloud, records[0].received_at) if cloud else None)
    else:
        timeline = from_logs(running, id, _cloud_lines(cloud) if cloud else None)
    if timeline is None:
        raise click.ClickException(
            "Nothing is known by this id: give a correlation id, event id, outbound key or wamid."
        )
    click.echo(terminal.as_json(as_dict(timeline)) if as_json else as_text(timeline))


def _cloud_lines(project: str, since: datetime | None = None) -> LogLines:
    progress(f"Reading the logs of {project}")
    return partial(CloudLogs(project).log_lines, since=since)


def find_records(running: Running, id: str) -> Sequence[Delivery]:
    """All records of the event that this id belongs to."""
    store = running.store
    known = (
        store.get(id)
        or store.get(message_event_id(PROVIDER, running.phone_number_id, id))
        or store.by_provider_id(PROVIDER, id)
    )
    return store.by_correlation(known.correlation_id if known else id)


def timeline_of(running: Running, records: Sequence[Delivery], log_lines: LogLines | None = None) -> Timeline:
    """Records and log lines together; the lines are this machine's unless told otherwise."""
    ids = {record.key for record in records} | {records[0].correlation_id}
    return build(records, (log_lines or running.log_lines)(READ, ids), bootstrap.explain, bootstrap.remark)


def from_logs(running: Running, id: str, log_lines: LogLines | None = None) -> Timeline | None:
    """What is left of a message whose record has expired."""
    ids = {id, message_event_id(PROVIDER, running.phone_number_id, id)}
    return told_by_logs((log_lines or running.log_lines)(EVENTS.keys(), ids), bootstrap.explain)


def as_dict(timeline: Timeline) -> dict[str, Any]:
    """The timeline as JSON: times are RFC 3339, UTC."""
    return {
        "correlation_id": timeline.correlation_id,
        "events": [{**asdict(moment), "at": stamp(moment.at)} for moment in timeline.events],
        "shown": timeline.shown,
        "replies": replies_as_dicts(timeline),
    }


def replies_as_dicts(timeline: Timeline) -> list[dict[str, Any]]:
    """The replies; `why` only where one waits."""
    return [{key: value for key, value in asdict(reply).items() if key != "why" or value} for reply in timeline.replies]


def as_text(timeline: Timeline) -> str:
    """The timeline for a person."""
    heading = f"Message {timeline.correlation_id or '(no correlation id)'}: {timeline.shown}"
    lines = [terminal.styled(heading, bold=True)]
    if timeline.shown == GONE:
        lines.append("  Its record is no more; this is what the logs still say.")
    lines += moment_lines(timeline.events, _names(timeline))
    for number, reply in enumerate(timeline.replies, start=1):
        why = f" ({reply.why})" if reply.why else ""
        lines.append(
            f"  Reply {number} is {reply.shown}{why}: {_plain(reply.text if reply.text is not None else reply.type)}"
        )
    return "\n".join(lines)


def moment_lines(moments: Sequence[Moment], names: Mapping[str, str]) -> Iterator[str]:
    """A line for each moment, under its day. `names`: what each delivery is called."""
    width = max((len(name) for name in names.values()), default=0)
    day = None
    for moment in moments:
        if moment.at.date() != day:
            day = moment.at.date()
            yield f"  {day} (times are UTC)"
        name = f"{names[moment.delivery]:<{width}}  " if moment.delivery in names else ""
        said = terminal.styled(_plain(moment.sentence), fg=_COLOURS.get(moment.what))
        yield f"  {moment.at:%H:%M:%S.%f}"[:-3] + f"  {name}{said}"


def _plain(text: str) -> str:
    """A text on one line, with its control characters spelled out: a customer's must not steer a terminal, nor forge
    a line of the timeline.
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _names(timeline: Timeline) -> dict[str, str]:
    replies = {reply.key: f"reply {number}" for number, reply in enumerate(timeline.replies, start=1)}
    return {moment.delivery: replies.get(moment.delivery, "message") for moment in timeline.events}


def stamp(at: Any) -> str:
    return str(at.isoformat(timespec="milliseconds")).replace("+00:00", "Z")
