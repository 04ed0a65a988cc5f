"""The tour: start all of Pombo, send a first message through, show it. What `make run` does.

With --once it ends after the message: exit 0 if the reply came, 1 if not.
"""

import os
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import click

from local.screen import LogFollower, run_command, step
from local.stack import Options, Stack, Told
from shared.cli.running import find
from shared.cli.say import send, watch
from shared.cli.trace import as_text
from shared.cli.up import ports_option, store_option
from shared.config import DATA_DIRECTORY

HELLO = "Hello, Pombo!"


@click.command()
@click.option("--once", is_flag=True, help="End after the first message; exit 1 if its reply did not come.")
@store_option
@ports_option
def tour(once: bool, store: str | None, ports: int | None) -> None:
    """Start Pombo, send it a first message, show what became of it."""
    started = time.monotonic()
    with ExitStack() as ending:
        if once:
            data_dir = Path(ending.enter_context(tempfile.TemporaryDirectory(prefix="pombo-")))
            ports = 0 if ports is None else ports
        else:
            data_dir = Path(DATA_DIRECTORY).resolve()
        options = Options(data_dir, store, first_port=8080 if ports is None else ports)
        stack = Stack(options, told_to_end=Told())
        os.environ.pop("STORE", None)  # the stack has it now, and stack.json says how its store is reached
        ending.enter_context(stack.running())
        step(f"Ready after {time.monotonic() - started:.1f} s. A customer writes: {HELLO}")
        try:
            came = stack.beside(lambda: _first_message(data_dir))
        except click.Abort:
            if once:
                raise
            return  # Ctrl-C ends `make run` as it should
        if once:
            if not came:
                raise click.ClickException("The reply did not come; the timeline is above.")
            step("The reply came. make run keeps it running.")
            return
        _what_next(stack)
        follower = LogFollower(stack.logs)
        follower.start()
        stack.watch()
        follower.stop()
        step("Ending")


def _first_message(data_dir: Path) -> bool:
    """Send it, print its timeline, and say whether every reply was sent."""
    running = find(data_dir)
    timeline = watch(running, send(running, HELLO).event_id, wait=True)
    if timeline is None:
        return False
    click.echo(as_text(timeline))
    return timeline.answered and bool(timeline.replies)


def _what_next(stack: Stack) -> None:
    described = stack.describe()
    click.echo(f"""
Next, in another terminal:
  .venv/bin/pombo say "how are you?" --wait        write to it as a customer
  .venv/bin/pombo trace ID                         what became of a message, by any of its ids
  curl {described["webhook"]}/readyz               is it ready?
  curl {described["control"]}/control/ledger       what WhatsApp was given
  {stack.handler:<48} {where_decided(stack.handler)}

Ctrl-C ends it. What happens now is shown below.
""")


def where_decided(handler: str) -> str:
    """What to do with the handler that `Stack.handler` tells of, to change the answers."""
    if handler.startswith(("http://", "https://")):
        return "the answers are decided there: change it, nothing has to restart"
    return "the answer is decided here: edit it, then restart"


def main() -> None:
    """Run, and say in one line what went wrong."""
    run_command(tour)
