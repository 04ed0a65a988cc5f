"""pombo say: send a message as a customer would, through the WhatsApp simulator."""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import httpx

from shared.cli import terminal
from shared.cli.ids import PROVIDER
from shared.cli.running import Running, data_dir_option, find
from shared.cli.trace import as_text, replies_as_dicts, timeline_of
from shared.domain.identity import message_event_id
from shared.domain.record import Delivery
from shared.pipeline.timeline import Timeline

WAIT_SECONDS = 60
STORED_SECONDS = 10
LOOK_SECONDS = 0.1
CALLER = "15550002222"

_NUMBER = re.compile(r"\+?[0-9]{5,15}")
"""As in E.164, without separators. https://www.itu.int/rec/T-REC-E.164"""


def _number(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not _NUMBER.fullmatch(value):
        raise click.BadParameter("a phone number is 5 to 15 digits, with or without a + before them.")
    return value


def _user_id(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not value.strip():
        raise click.BadParameter("a user id is not empty; leave the option out for a customer with a number.")
    return value


@click.command()
@click.argument("text")
@click.option("--from", "phone", callback=_number, help=f"The customer's number.  [default: {CALLER}]")
@click.option(
    "--user-id", callback=_user_id, help="A customer with a username and no number: their business-scoped user id."
)
@click.option(
    "--wait", is_flag=True, help=f"Wait for the replies, {WAIT_SECONDS} s at most; exit 1 if they do not come."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@data_dir_option
def say(text: str, phone: str | None, user_id: str | None, wait: bool, as_json: bool, data_dir: Path) -> None:
    """Send TEXT to the business, as a customer.

    \b
    Examples:
      pombo say "hello" --wait
      pombo say "hello" --from 15550003333
      pombo say "hello" --user-id US.13491208655302741918
    """
    running = find(data_dir)
    said = send(running, text, phone, user_id)
    timeline = watch(running, said.event_id, wait)
    if timeline is None:
        raise click.ClickException(f"The message did not arrive within {STORED_SECONDS} s; see logs.jsonl.")
    described: dict[str, Any] = {
        "message_id": said.message_id,
        "inbound_event_id": said.event_id,
        "correlation_id": timeline.correlation_id,
        "replies": replies_as_dicts(timeline),
    }
    click.echo(terminal.as_json(described) if as_json else as_text(timeline))
    if wait and not timeline.answered:
        if as_json:
            click.echo(as_text(timeline), err=True)
        late = f"No final answer within {WAIT_SECONDS} s" if not timeline.settled else "The reply did not come"
        raise click.ClickException(f"{late}; the timeline is above.")


@dataclass(frozen=True, slots=True)
class Said:
    """A message that was sent to the business."""

    message_id: str
    event_id: str


def send(running: Running, text: str, phone: str | None = None, user_id: str | None = None) -> Said:
    """Send a text as a customer. Raises ClickException where there is no simulator, or it refuses."""
    if running.control is None:
        raise click.ClickException("Only the simulator of a local stack can be spoken to; start one with: pombo up.")
    person: dict[str, str] = {}
    if user_id:
        person["user_id"] = user_id
    if phone or not user_id:
        person["from"] = phone or CALLER
    body = {**person, "type": "text", "content": {"body": text}}
    try:
        response = httpx.post(f"{running.control}/control/inbound", json=body, timeout=10, trust_env=False)
    except httpx.HTTPError as error:
        raise click.ClickException("The WhatsApp simulator does not answer; is the stack still up?") from error
    if response.status_code != 200:
        raise click.ClickException(_refusal(response))
    message_id = str(response.json()["message_ids"][0])
    return Said(message_id, message_event_id(PROVIDER, running.phone_number_id, message_id))


def _refusal(response: httpx.Response) -> str:
    try:
        said = response.json()
    except ValueError:
        return f"The WhatsApp simulator answered {response.status_code}."
    return str(said.get("error", said) if isinstance(said, dict) else said)


def watch(running: Running, key: str, wait: bool) -> Timeline | None:
    """The timeline once the message is stored, or with `wait` once all is final; None if it never was stored."""
    started = time.monotonic()
    while True:
        records = _records(running, key)
        waited = time.monotonic() - started
        if records:
            finished = all(record.final for record in records)
            if not wait or finished or waited > WAIT_SECONDS:
                return timeline_of(running, records)
        elif waited > (WAIT_SECONDS if wait else STORED_SECONDS):
            return None
        time.sleep(LOOK_SECONDS)


def _records(running: Running, key: str) -> Sequence[Delivery]:
    event = running.store.get(key)
    return running.store.by_correlation(event.correlation_id) if event else ()
