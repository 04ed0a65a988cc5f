"""pombo trace: the timeline of one message."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import click

from cli import ids
from cli.cloud_logs import CloudLogs
from cli.running import Running, data_dir_option, find, progress
from local import terminal
from shared.bootstrap.channels import explain, read_message, remark
from shared.domain.identity import LEAST_PREFIX, is_id_prefix, message_event_id
from shared.domain.record import Delivery
from shared.domain.tenants import DEFAULT_TENANT
from shared.logs import EVENTS
from shared.operations.timeline.ahead import ahead_of
from shared.operations.timeline.build import (
    GONE,
    Moment,
    ReceivedContent,
    Timeline,
    Waiting,
    build,
    from_log_lines,
)
from shared.operations.timeline.logs import READ

_COLOURS = {"dead": "red", "refused": "red", "handler_failed": "red", "receipt_failed": "red", "accepted": "green"}

LogLines = Callable[[Collection[str], Collection[str]], Iterable[Mapping[str, Any]]]
"""A source of log lines: given events and ids, the lines of these events about these ids."""


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("id")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--cloud",
    metavar="PROJECT",
    help="Read the log lines from Cloud Logging; the records come from the STORE of the environment.",
)
@click.option("--tenant", help="Search for a WhatsApp message id only at this tenant's numbers.")
@data_dir_option
def trace(id: str, as_json: bool, cloud: str | None, tenant: str | None, data_dir: Path) -> None:
    """Show the timeline of one message.

    ID is 8 or more characters of a correlation id, an event id or a reply's key, or a whole WhatsApp message id
    (wamid...). If no Pombo is running, the command reads the records that the last one left, or the STORE of the
    environment.

    \b
    Examples:
      pombo trace 4f1c2a90
      pombo trace 4f1c2a90b7de4f64a3c2c7bf7a0f2f5e
      pombo trace wamid.HBgL... --json
      STORE=firestore GOOGLE_CLOUD_PROJECT=my-project FIRESTORE_DATABASE=pombo pombo trace ID --cloud my-project
    """
    running = find(data_dir)
    found = ids.find(running, id, tenant)
    timeline: Timeline | None
    if found:
        lines = _cloud_lines(cloud, found.records[0].received_at) if cloud else None
        timeline = timeline_of(running, found.records, lines)
    elif cloud:
        timeline = from_logs(running, id, _cloud_lines(cloud), tenant)
    else:
        timeline = from_logs(running, ids.in_log(running, id), tenant=tenant)
    if timeline is None:
        raise click.ClickException(ids.NOTHING_KNOWN)
    click.echo(terminal.as_json(as_dict(timeline)) if as_json else as_text(timeline))


def _cloud_lines(project: str, since: datetime | None = None) -> LogLines:
    progress(f"Reading the logs of {project}")
    return partial(CloudLogs(project).log_lines, since=since)


def timeline_of(running: Running, records: Sequence[Delivery], log_lines: LogLines | None = None) -> Timeline:
    """Combine records and log lines; the lines are this machine's unless given."""
    known = {record.key for record in records} | {records[0].correlation_id}
    now = datetime.now(UTC)
    ahead = {record.key: found for record in records if (found := ahead_of(running.store, record, now))}
    return build(
        records,
        (log_lines or running.log_lines)(READ, known),
        explain,
        remark,
        read_message,
        Waiting(ahead, running.limits.order_patience, now),
    )


def from_logs(
    running: Running, id: str, log_lines: LogLines | None = None, tenant: str | None = None
) -> Timeline | None:
    """The timeline of a message whose record has expired."""
    ours = running.senders if is_id_prefix(id) else running.senders_of(tenant)
    either = {id, *(message_event_id(sender.provider, sender.provider_id, id) for sender in ours)}
    return from_log_lines((log_lines or running.log_lines)(EVENTS.keys(), either), explain)


def as_dict(timeline: Timeline) -> dict[str, Any]:
    """The timeline as JSON: times are RFC 3339, UTC."""
    return {
        "correlation_id": timeline.correlation_id,
        "tenant": timeline.tenant,
        "sender": timeline.sender,
        "events": [{**asdict(moment), "at": stamp(moment.at)} for moment in timeline.events],
        "shown": timeline.shown,
        "message": asdict(timeline.came) if timeline.came else None,
        "replies": replies_as_dicts(timeline),
    }


def replies_as_dicts(timeline: Timeline) -> list[dict[str, Any]]:
    """The replies as JSON; `why` and `waits_for` only for one that waits."""
    of_waits = ("why", "waits_for")
    return [
        {key: value for key, value in asdict(reply).items() if key not in of_waits or value}
        for reply in timeline.replies
    ]


def as_text(timeline: Timeline) -> str:
    """The timeline as text."""
    of = f" of tenant {timeline.tenant}" if timeline.tenant not in (None, "", DEFAULT_TENANT) else ""
    heading = f"Message {timeline.correlation_id or '(no correlation id)'}{of}: {timeline.shown}"
    lines = [terminal.styled(heading, bold=True)]
    if timeline.shown == GONE:
        lines.append("  Its record was deleted; this is from the logs.")
    lines += moment_lines(timeline.events, _names(timeline))
    if timeline.came:
        lines.append(f"  {_received(timeline.came)}")
    names = _reply_names(timeline)
    for reply in timeline.replies:
        behind = f" for {reply.waits_for[:LEAST_PREFIX]}" if reply.waits_for else ""
        why = f" ({reply.why}{behind})" if reply.why else ""
        words = reply.text if reply.text is not None else reply.type
        lines.append(f"  {names[reply.key].capitalize()} is {reply.shown}{why}: {terminal.plain(words)}")
    return "\n".join(lines)


def _received(came: ReceivedContent) -> str:
    """The received event, in the same form as the replies."""
    what = came.type if came.kind == "media" and came.type else came.kind
    of = f" of type {came.type}" if came.type and came.kind != "media" else ""
    taken_back = " (removed)" if came.kind == "reaction" and came.text is None else ""
    said = f": {came.text}" if came.text is not None else taken_back
    return terminal.plain(f"Received {what}{of}{said}")


def moment_lines(moments: Sequence[Moment], names: Mapping[str, str]) -> Iterator[str]:
    """A line for each moment, under its day. `names`: what each delivery is called."""
    width = max((len(name) for name in names.values()), default=0)
    day = None
    for moment in moments:
        if moment.at.date() != day:
            day = moment.at.date()
            yield f"  {day} (times are UTC)"
        name = f"{names[moment.delivery]:<{width}}  " if moment.delivery in names else ""
        said = terminal.styled(terminal.plain(moment.sentence), fg=_COLOURS.get(moment.what))
        yield f"  {moment.at:%H:%M:%S.%f}"[:-3] + f"  {name}{said}"


def _reply_names(timeline: Timeline) -> dict[str, str]:
    """A name for each reply; a message that answers no event is not a reply."""
    if not timeline.has_event and len(timeline.replies) == 1:
        return {timeline.replies[0].key: "message"}
    what = "reply" if timeline.has_event else "message"
    return {reply.key: f"{what} {number}" for number, reply in enumerate(timeline.replies, start=1)}


def _names(timeline: Timeline) -> dict[str, str]:
    replies = _reply_names(timeline)
    return {moment.delivery: replies.get(moment.delivery, "message") for moment in timeline.events}


def stamp(at: Any) -> str:
    return str(at.isoformat(timespec="milliseconds")).replace("+00:00", "Z")
