"""The command around a chaos run: its directory, its output, its exit code."""

import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import click

from cli.chaos.enough_faults import LEAST
from cli.chaos.handler import HANDLER
from cli.chaos.plan import PlanSettings, slower
from cli.chaos.report import as_dict, as_text
from cli.chaos.run import run as run_chaos
from cli.chaos.run_settings import RunSettings
from local import invocation, terminal
from local.stack import EndedAtStart, StopRequested
from local.stores import PROGRAMS
from local.terminal import step
from shared.domain.limits import DoubtPolicy

SECONDS_LEAST = 30
MESSAGES_A_SECOND = 10
"""Messages per second that a machine of two cores sustains while its processes are killed."""

MESSAGES_A_CONTACT = 5


def run(
    messages: int,
    seconds: float | None,
    seed: int | None,
    contacts: int | None,
    tenants: int,
    api_share: float,
    store: str,
    no_sweep: bool,
    withhold_receipts: bool,
    policy: str,
    time_scale: float,
    handler: str | None,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """Run, print the result, and exit."""
    seconds = seconds or max(SECONDS_LEAST, messages / MESSAGES_A_SECOND)
    order = PlanSettings(
        messages=messages,
        seconds=seconds,
        contacts=max(contacts or max(20, messages // MESSAGES_A_CONTACT), tenants),
        tenants=tenants,
        seed=random.randrange(2**32) if seed is None else seed,
        slower=slower(messages, seconds, time_scale),
        api_share=api_share,
    )
    run_settings = RunSettings(
        order,
        store,
        not no_sweep,
        DoubtPolicy(policy),
        withhold_receipts,
        time_scale,
        _directory(store, data_dir),
        handler or HANDLER,
    )
    say: Callable[[str], None] = (lambda sentence: click.echo(sentence, err=True)) if as_json else step
    say(f"Seed {order.seed}: {messages} messages in {order.seconds:.0f} s on {store}, data in {run_settings.data_dir}")
    if messages < LEAST:
        say(f"Note: a run of fewer than {LEAST} messages rarely proves anything")
    try:
        result = run_chaos(run_settings, StopRequested(), say)
    except EndedAtStart:
        sys.exit(130)
    click.echo(terminal.as_json(as_dict(result)) if as_json else as_text(result))
    if result.exit_code in (0, 2) and data_dir is None:
        shutil.rmtree(run_settings.data_dir.parent)
    else:
        say(f"The data is kept in {run_settings.data_dir}")
    say(f"Seed {order.seed}. Repeat the run with: {again(run_settings)}")
    sys.exit(result.exit_code)


def _directory(store: str, data_dir: Path | None) -> Path:
    program = PROGRAMS.get(store)
    if program and os.environ.get(program.setting):
        raise click.ClickException(
            f"The run starts its own store server, to inject faults into it: unset {program.setting}."
        )
    if data_dir is None:
        return Path(tempfile.mkdtemp(prefix="pombo-chaos-")) / "data"
    if data_dir.exists():
        raise click.ClickException(f"{data_dir} already exists. Name a new directory for the run's data.")
    try:
        data_dir.mkdir(mode=0o700, parents=True)
    except OSError as error:
        raise click.ClickException(f"Cannot write to {data_dir}: {error.strerror}.") from error
    return data_dir.resolve()


def again(run_settings: RunSettings) -> str:
    """The command line that reproduces this run."""
    order = run_settings.order
    words = (
        f"{invocation.program()} chaos",
        f"--messages {order.messages} --seconds {order.seconds:g} --contacts {order.contacts} --seed {order.seed}",
        f"--store {run_settings.store} --policy {run_settings.policy} --time-scale {run_settings.time_scale:g}",
        f"--api-share {order.api_share:g}",
        *([f"--tenants {order.tenants}"] if order.tenants > 1 else []),
        *(["--no-sweep"] if not run_settings.sweep else []),
        *(["--withhold-receipts"] if run_settings.withhold_receipts else []),
        *([f"--handler {run_settings.handler}"] if run_settings.handler != HANDLER else []),
    )
    return " ".join(words)
