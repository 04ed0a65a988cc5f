"""The samples of `make try`: send every kind of webhook to Pombo, signed as Meta does, and show each outcome.

It uses the running Pombo (`make run`), or starts one with the menu of handlers/menu.py as its handler.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import click

from cli.api_key import keep_api_key
from cli.running import Running, find
from cli.say import watch
from cli.tour.run_command import run_command
from cli.up import ports_option, store_option
from local import terminal
from local.stack import Options, Stack, StopRequested
from local.stack_files import STACK_FILE, is_running
from local.terminal import step
from shared.config import DATA_DIRECTORY
from shared.operations.timeline.build import Timeline

SEND = Path(__file__).parents[2] / "examples" / "requests" / "send.py"


@click.command()
@store_option
@ports_option
def try_samples(store: str | None, ports: int | None) -> None:
    """Send every sample of examples/requests and show its outcome; exit 1 if one fails.

    With --ports the command starts its own Pombo, even if one is running.
    """
    webhook = _running_webhook() if ports is None else None
    if webhook:
        step("Using the running Pombo, with its handler")
        _try_all(Path(DATA_DIRECTORY), webhook)
        return
    with tempfile.TemporaryDirectory(prefix="pombo-") as directory:
        os.environ.setdefault("HANDLER", "handlers.menu:handle")
        stack = Stack(
            Options(Path(directory), store, first_port=ports or 0, keep_api_key=keep_api_key),
            told_to_end=StopRequested(),
        )
        os.environ.pop("STORE", None)  # the stack has read it, and stack.json says how to reach its store
        with stack.running():
            stack.beside(lambda: _try_all(Path(directory), stack.describe()["webhook"]))


@dataclass(frozen=True, slots=True)
class Sent:
    """One line of send.py: a sample, its HTTP status, and the ids of its events."""

    name: str
    status: str
    events: Sequence[str]


@dataclass(frozen=True, slots=True)
class SampleResult:
    """The outcome of a sample, and whether it is correct."""

    sentence: str
    well: bool


def _try_all(data_dir: Path, webhook: str) -> None:
    """Send, wait, report. Raises ClickException if a sample failed."""
    running = find(data_dir)
    step("Sending every sample of examples/requests, signed like Meta's webhooks")
    sent = _send(f"{webhook}/webhooks/whatsapp")
    outcomes = [_outcome(running, one) for one in sent]
    width = max(len(one.name) for one in sent)
    for one, outcome in zip(sent, outcomes, strict=True):
        colour = None if outcome.well else "red"
        click.echo(f"  {one.name:<{width}}  {one.status}  " + terminal.styled(outcome.sentence, fg=colour))
    bad = sum(not outcome.well for outcome in outcomes)
    if bad:
        raise click.ClickException(f"{bad} of {len(sent)} samples failed; they are red above.")
    step(f"All {len(sent)} samples passed. Next: docs/try-it.md, from step 2 on.")


def _running_webhook() -> str | None:
    with suppress(OSError, ValueError, LookupError):
        if not is_running(Path(DATA_DIRECTORY)):
            return None
        return str(json.loads((Path(DATA_DIRECTORY) / STACK_FILE).read_text())["webhook"])
    return None


def _send(url: str) -> list[Sent]:
    """Run send.py over all samples. Raises ClickException if it fails."""
    command = [sys.executable, str(SEND), "--all", "--new", "--url", url]
    ended = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)
    if ended.returncode not in (0, 1) or not ended.stdout:
        raise click.ClickException(ended.stderr.strip() or "Cannot send the samples.")
    lines = [line.split() for line in ended.stdout.splitlines()]
    return [Sent(name, status, [event for event in events if event != "-"]) for name, status, *events in lines]


def _outcome(running: Running, sent: Sent) -> SampleResult:
    if sent.status != "200":
        return SampleResult(f"Pombo answered with status {sent.status}.", well=False)
    if not sent.events:
        return SampleResult("Accepted: a receipt, or nothing for Pombo to handle.", well=True)
    timelines = [watch(running, event, wait=True) for event in sent.events]
    settled = all(timeline is not None and timeline.settled for timeline in timelines)
    return SampleResult("; ".join(dict.fromkeys(map(_summary, timelines))), well=settled)


def _summary(timeline: Timeline | None) -> str:
    if timeline is None:
        return "not stored"
    replies = ", ".join(f"{reply.type} {reply.shown}" for reply in timeline.replies)
    return f"{timeline.shown}: {replies}" if replies else f"{timeline.shown}, no reply"


def main() -> None:
    """Run, and report an error in one line."""
    run_command(try_samples)
