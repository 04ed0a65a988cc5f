"""The tour of `make run`: start all of Pombo, send a first message, show its timeline.

With --once it ends after the message: exit 0 if the reply was sent, 1 if not.
"""

import os
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import click

from cli.api_key import keep_api_key
from cli.running import data_dir_option, find
from cli.say import send, watch
from cli.tour.run_command import run_command
from cli.trace import as_text
from cli.up import ports_option, store_option
from local import invocation
from local.log_follower import LogFollower
from local.stack import Options, Stack, StopRequested
from local.terminal import step

HELLO = "Hello, Pombo!"


@click.command()
@click.option("--once", is_flag=True, help="Stop after the first message; exit 1 if its reply was not sent.")
@store_option
@data_dir_option
@ports_option
def tour(once: bool, store: str | None, data_dir: Path, ports: int | None) -> None:
    """Start Pombo, send it a first message and show the message's timeline."""
    started = time.monotonic()
    with ExitStack() as ending:
        if once:
            data_dir = Path(ending.enter_context(tempfile.TemporaryDirectory(prefix="pombo-")))
            ports = 0 if ports is None else ports
        else:
            data_dir = data_dir.resolve()
        options = Options(data_dir, store, first_port=8080 if ports is None else ports, keep_api_key=keep_api_key)
        stack = Stack(options, told_to_end=StopRequested())
        os.environ.pop("STORE", None)  # the stack has read it, and stack.json says how to reach its store
        ending.enter_context(stack.running())
        step(f"Ready after {time.monotonic() - started:.1f} s. A customer writes: {HELLO}")
        try:
            came = stack.beside(lambda: _first_message(data_dir))
        except click.Abort:
            if once:
                raise
            return  # Ctrl-C ends `make run` normally
        if once:
            if not came:
                raise click.ClickException("The reply was not sent; the timeline is above.")
            step("The reply was sent. This Pombo stops and deletes its data; make run starts one that keeps running.")
            return
        click.echo(what_next(stack))
        follower = LogFollower(stack.logs)
        follower.start()
        stack.watch()
        follower.stop()
        step("Stopping")


def _first_message(data_dir: Path) -> bool:
    """Send it, print its timeline, and return whether every reply was sent."""
    running = find(data_dir)
    timeline = watch(running, send(running, HELLO).event_id, wait=True)
    if timeline is None:
        return False
    click.echo(as_text(timeline))
    return timeline.answered and bool(timeline.replies)


def what_next(stack: Stack) -> str:
    """The commands that a developer can try next, each with the options for this stack."""
    described = stack.describe()
    pombo, here = invocation.program(), invocation.data_dir_option(Path(described["data_dir"]))
    steps = (
        (f'{pombo} say "how are you?" --wait{here}', "send a message as a customer"),
        (f'{pombo} send "how are you?" --to +15550002222 --wait{here}', "send a message to that customer first"),
        (f"{pombo} trace ID{here}", "show a message's timeline, by any of its ids"),
        (f"{pombo} ledger{here}", "list the messages that WhatsApp accepted"),
        (f"curl {described['webhook']}/readyz", "check that Pombo is ready"),
        (stack.handler, where_decided(stack.handler)),
    )
    width = max(len(command) for command, _ in steps)
    lines = "\n".join(f"  {command:<{width}}  {what}" for command, what in steps)
    return f"\nNext, in another terminal:\n{lines}\n\nCtrl-C stops Pombo. Its log follows.\n"


def where_decided(handler: str) -> str:
    """How to change the replies of the handler that `Stack.handler` names."""
    if handler.startswith(("http://", "https://")):
        return "your backend decides the replies: change it without restarting Pombo"
    return "this handler decides the replies: edit it, then restart Pombo"


def main() -> None:
    """Run, and report an error in one line."""
    run_command(tour)
