"""pombo say: act as a customer, through the WhatsApp simulator."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from cli import simulator
from cli.running import Running, data_dir_option, find
from cli.say_content import SayContent, content_options
from cli.trace import as_text, replies_as_dicts, timeline_of
from local import terminal
from shared.bootstrap.channels import explain
from shared.domain.identity import message_event_id
from shared.domain.record import Delivery, Kind
from shared.operations.timeline.build import Timeline, tried
from shared.operations.timeline.sentences import RETRIED

WAIT_SECONDS = 60
STORED_SECONDS = 10
LOOK_SECONDS = 0.1


@click.command()
@content_options
@click.option(
    "--wait",
    is_flag=True,
    help=f"Wait up to {WAIT_SECONDS} s for the replies and report each failed attempt; exit 1 if one was not sent.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@data_dir_option
def say(wait: bool, as_json: bool, data_dir: Path, **given: Any) -> None:
    """Send a message as a customer.

    The message is TEXT, a tap on a button, a reaction, an image or a location. Without --wait the command ends once
    Pombo has stored the message. It prints the timeline so far, with the id for pombo trace. Exit 0 then means that
    Pombo stored the message, not that it answered.

    \b
    Examples:
      pombo say "hello" --wait
      pombo say "hello" --from 15550003333
      pombo say "hello" --user-id US.13491208655302741918
      pombo say --tap drinks --wait                 a button or a row, by its id
      pombo say --reaction 👍                       to the business's last message
      pombo say --image photo.jpg "our table"
      pombo say --location 38.7139,-9.1334 "at the square"
      pombo say "yes" --reply-to 4f1c2a90           answers that message
      pombo say "hello" --to 123456123              to another business number
    """
    content = SayContent(**given)
    content.check()
    running = find(data_dir)
    said = carry_out(running, content)
    timeline = watch(running, said.event_id, wait, FailedTries() if wait else None)
    if timeline is None:
        raise click.ClickException(f"Pombo did not store the message within {STORED_SECONDS} s; see logs.jsonl.")
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
        late = f"No final answer within {WAIT_SECONDS} s" if not timeline.settled else "A reply was not sent"
        raise click.ClickException(f"{late}; the timeline is above.")


@dataclass(frozen=True, slots=True)
class Said:
    """A message that was sent to the business."""

    message_id: str
    event_id: str


def send(running: Running, text: str) -> Said:
    """Send a text as a customer. Raises ClickException if there is no simulator, or if it refuses."""
    return carry_out(running, SayContent(text=text))


def carry_out(running: Running, content: SayContent) -> Said:
    """Carry out what a customer does. Raises ClickException, as `send`."""
    message_id = str(simulator.order(running, content.order(running))[0])
    ours = running.senders[0]
    return Said(message_id, message_event_id(ours.provider, content.sender or ours.provider_id, message_id))


class FailedTries:
    """Reports each failed attempt on standard error as soon as it is seen, with the time of the next attempt."""

    def __init__(self) -> None:
        self._said: set[tuple[str, datetime]] = set()

    def tell(self, records: Sequence[Delivery]) -> None:
        for record in records:
            for one, sentence in tried(record, explain):
                name = (record.key, one.attempt.at)
                if one.attempt.answer in RETRIED and name not in self._said:
                    self._said.add(name)
                    what = "message" if record.kind is Kind.INBOUND else "reply"
                    words = f"{one.attempt.at:%H:%M:%S}  {what}  {terminal.plain(sentence)}"
                    click.echo(terminal.styled(words, fg="yellow"), err=True)


def watch(running: Running, key: str, wait: bool, failed: FailedTries | None = None) -> Timeline | None:
    """The timeline once the message is stored, or with `wait` once all is final; None if it was never stored. `failed`
    receives the records meanwhile.
    """
    started = time.monotonic()
    while True:
        records = _records(running, key)
        if failed:
            failed.tell(records)
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
