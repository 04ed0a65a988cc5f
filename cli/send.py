"""pombo send: write to a customer first, through the API."""

import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from cli.api_access import ApiAccess, api_options, explained, find_api
from cli.running import progress
from cli.send_content import FIELDS, SendContent, message_options
from cli.trace import moment_lines, stamp
from local import invocation, terminal
from pombo.client import Accepted, Client, Message, Refused
from shared.domain.record import OPEN_STATES
from shared.operations.timeline.build import Moment
from shared.operations.timeline.sentences import RETRIED

WAIT_SECONDS = 60
UNSENT = frozenset({"failed", "cancelled"})
NOT_AGAIN = "A message was accepted with this --key before, and will not be sent: use another key to send it again."
LOOK_SECONDS, LONGEST_LOOK_SECONDS = 0.25, 60.0


@click.command()
@message_options
@click.option(
    "--wait",
    is_flag=True,
    help=f"Wait until {WAIT_SECONDS} s after its time, report each failed attempt, and show its timeline; exit 1 if it "
    "was not sent.",
)
@click.option(
    "--key", metavar="KEY", help="An Idempotency-Key of your own: with the same key and message it counts once."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@api_options
def send(
    wait: bool, key: str | None, as_json: bool, url: str | None, api_key_file: Path | None, data_dir: Path, **given: Any
) -> None:
    """Send a message to a customer, through the API.

    Without --wait the command ends once Pombo has stored the message: exit 0 then means that it will be sent. After 24
    hours without a message from the customer, WhatsApp takes only a template. A time that is past means now.

    \b
    Examples:
      pombo send "Your appointment is at nine." --to +15550002222 --wait
      pombo send "Your appointment is at nine." --to +15550002222 --at 2h
      pombo send "Your table is free." --to +15550002222 --at 2026-12-01T09:00:00+01:00
      pombo send --to +15550002222 --template reminder --language en --parameter Ana --parameter nine
      pombo send "Hello" --to +15550002222 --key order-17      repeat it: the customer gets one message
      pombo send "Hello" --to +15550002222 --from 100000000000001
      POMBO_API_KEY=... pombo send "Hello" --to +15550002222 --url https://api.example.com
    """
    content = SendContent(**given)
    content.check()
    access = find_api(url, api_key_file, data_dir)
    accepted = _send(access, content, key)
    if not wait:
        accepted = _as_of_now(access, accepted) if key else accepted
        shown = terminal.as_json(asdict(accepted)) if as_json else accepted_as_text(accepted, access, data_dir)
        click.echo(shown)
        if accepted.shown in UNSENT:
            raise click.ClickException(NOT_AGAIN)
        return
    with explained(access, more=f" Message {accepted.id} is stored, and will be sent."):
        message = watch(access.client, accepted.id)
    click.echo(terminal.as_json(as_dict(message)) if as_json else as_text(message))
    if message.shown != "sent":
        if as_json:
            click.echo(as_text(message), err=True)
        late = f"No final answer within {WAIT_SECONDS} s" if message.state in OPEN_STATES else "It was not sent"
        raise click.ClickException(f"{late}; the timeline is above.")


def _send(access: ApiAccess, content: SendContent, key: str | None) -> Accepted:
    with explained(access, FIELDS):
        message = content.message(access)
        try:
            return access.client.send(message, idempotency_key=key)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint=FIELDS["Idempotency-Key"]) from error


def _as_of_now(access: ApiAccess, accepted: Accepted) -> Accepted:
    """The same with its state: with a key of the caller's own it may have been accepted long ago. A key that may only
    send does not see it.
    """
    with explained(access, more=f" Message {accepted.id} is stored."):
        try:
            message = access.client.message(accepted.id)
        except Refused as error:
            if error.code == "FORBIDDEN":
                return accepted
            raise
    return replace(accepted, state=message.state, shown=message.shown)


def watch(client: Client, id: str) -> Message:
    """The message once it is final, or WAIT_SECONDS after its time. Raises ApiError."""
    message = client.message(id)
    due = _seconds_until(message.send_at)
    until = time.monotonic() + due + WAIT_SECONDS
    if due:
        progress(f"Waiting for message {id} until {message.send_at:%Y-%m-%d %H:%M:%S} UTC")
    reported: set[datetime] = set()
    while True:
        _report(message, reported)
        if message.state not in OPEN_STATES or time.monotonic() > until:
            return message
        time.sleep(min(LONGEST_LOOK_SECONDS, max(LOOK_SECONDS, _seconds_until(message.send_at))))
        message = client.message(id)


def _seconds_until(at: datetime | None) -> float:
    return max(0.0, (at - datetime.now(UTC)).total_seconds()) if at else 0.0


def _report(message: Message, reported: set[datetime]) -> None:
    """Report each failed attempt once, on standard error."""
    for moment in message.timeline:
        if moment.what in RETRIED and moment.at not in reported:
            reported.add(moment.at)
            words = f"{moment.at:%H:%M:%S}  {terminal.plain(moment.sentence)}"
            click.echo(terminal.styled(words, fg="yellow"), err=True)


def accepted_as_text(accepted: Accepted, access: ApiAccess, data_dir: Path) -> str:
    """A stored message, and how to see where it is."""
    trace = f"{invocation.program()} trace {accepted.id}{invocation.data_dir_option(data_dir)}"
    more = f" Its timeline: {trace}" if access.is_local else ""
    said = "Accepted for sending." if accepted.shown == "pending" else "It was accepted before with this --key."
    return f"{_heading(accepted)}\n  {said}{more}"


def as_text(message: Message) -> str:
    """A message with its timeline."""
    return "\n".join([_heading(message), *_lines(message)])


def _heading(message: Accepted | Message) -> str:
    return terminal.styled(f"Message {message.id}: {message.shown}", bold=True)


def _lines(message: Message) -> Iterator[str]:
    yield from moment_lines([Moment(each.at, each.what, each.sentence, "") for each in message.timeline], {})
    body = message.content.get("body") if isinstance(message.content, dict) else None
    why = f" ({message.why})" if message.why else ""
    words = body if isinstance(body, str) else message.type
    yield f"  Message is {message.shown}{why}: {terminal.plain(words)}"


def as_dict(message: Message) -> dict[str, Any]:
    """The message as JSON, as the API has it."""
    return {name: _as_json(value) for name, value in asdict(message).items() if value is not None}


def _as_json(value: Any) -> Any:
    match value:
        case datetime():
            return stamp(value)
        case dict():
            return {name: _as_json(each) for name, each in value.items()}
        case list() | tuple():
            return [_as_json(each) for each in value]
    return value
