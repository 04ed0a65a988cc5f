"""pombo doctor: check every part. Each check reports what it found; none depends on another's success."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path

import click

from cli.doctor import api_check, checks, handler_check, registry_checks, settings
from cli.doctor.settings import CannotCheck, Check
from cli.running import Described, data_dir_option, describe, progress
from local import terminal
from local.stack_files import API_KEY_FILE
from shared import config
from shared.bootstrap.adapters import crash_points, senders_of
from shared.bootstrap.backends import RegistryStore, build_queue, build_store, ping_drain
from shared.bootstrap.secrets import build_secrets
from shared.config import QUEUE_SETTINGS, STORE_SETTINGS
from shared.pipeline.clock import SystemClock
from shared.pipeline.ports import Secrets

NUMBER = "WHATSAPP_PHONE_NUMBER_ID"
SECRETS_SETTINGS = STORE_SETTINGS | {"SECRET_MANAGER_EMULATOR_HOST"}
"""What a look at the secrets needs. In the cloud doctor does not look: its user may not be allowed to read them."""
NO_STACK = "Cannot be checked: no Pombo is running here. Start one with pombo up (or make run)."


@click.command()
@click.option("--points", is_flag=True, help="List the crash points for CRASH_AT, and check nothing.")
@click.option("--settings", "all_settings", is_flag=True, help="Show every setting, not only the wrong ones.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list, with each setting.")
@data_dir_option
def doctor(points: bool, all_settings: bool, as_json: bool, data_dir: Path) -> None:
    """Check that a Pombo is set up correctly.

    Checks the store, a task's round trip, the token, the queue of drains, the clock, the registry of tenants, the
    senders, the handler, the API and the settings. Exit 1 if a check fails. If no Pombo is running, the command checks
    the store that the last one left; it cannot check the task, the token and the queue.

    \b
    Examples:
      pombo doctor
      pombo doctor --settings
      pombo doctor --json
      pombo doctor --points
    """
    if points:
        names = crash_points()
        click.echo(terminal.as_json(names) if as_json else "\n".join(names))
        return
    found = list(examine(describe(data_dir)))
    click.echo(terminal.as_json([asdict(check) for check in found]) if as_json else as_text(found, all_settings))
    wrong = sum(not check.ok for check in found)
    if wrong:
        raise click.ClickException(f"{wrong} of {len(found)} checks failed.")


def as_text(found: Sequence[Check], all_settings: bool) -> str:
    """A line for each check, with a mark. Correct settings share one line unless `all_settings`."""
    right = [] if all_settings else [check for check in found if check.check in settings.NAMES and check.ok]
    shown = [check for check in found if check not in right]
    if right:
        what = "settings" if len(right) > 1 else "setting"
        shown.append(Check(what, True, f"{len(right)} are correct; pombo doctor --settings shows each."))
    width = max(len(check.check) for check in shown)
    marks = {True: terminal.styled("ok", fg="green"), False: terminal.styled("NO", fg="red", bold=True)}
    return "\n".join(f"{marks[check.ok]}  {check.check:<{width}}  {check.sentence}" for check in shown)


def examine(described: Described, patience: float = checks.TASK_SECONDS) -> Iterator[Check]:
    """Run every check: the parts, then the settings. `patience`: how many seconds a task may take."""
    wrong = settings.faults(described.environ)
    for name in described.secrets:
        if not described.environ.get(name):
            wrong.pop(name, None)  # the stack started with it
    yield from _parts(described, wrong, patience)
    yield from settings.check_all(described.environ, wrong, described.is_local, described.secrets)


def _parts(described: Described, wrong: Mapping[str, list[str]], patience: float) -> Iterator[Check]:
    environ, clock = described.environ, SystemClock()

    def stored() -> config.Config:
        return settings.usable(environ, wrong, STORE_SETTINGS)

    def queued() -> config.Config:
        return settings.usable(environ, wrong, QUEUE_SETTINGS)

    @cache
    def store() -> RegistryStore:
        return build_store(stored())

    def task_check() -> str:
        return checks.task(store(), build_queue(queued()), stored().limits, clock, patience)

    def drain_check() -> str:
        of_queue = queued()
        return checks.drain(lambda: ping_drain(of_queue), of_queue["DRAIN_TASK_QUEUE_NAME"])

    def beside() -> Iterator[Check]:
        yield _look("clock", lambda: checks.clock(store(), clock))
        yield from _registry(described, wrong, store)

    yield _look("store", lambda: checks.store(store(), stored().limits, clock))
    if not described.runs:
        yield Check("task", False, NO_STACK)
        yield Check("token", False, NO_STACK)
        yield Check("drain", False, NO_STACK)
        yield from beside()
        return
    progress(f"Waiting up to {patience:g} s for a task to complete")
    task = _look("task", task_check)
    yield task
    yield _look("token", lambda: checks.token(queued(), task.ok))
    yield _look("drain", drain_check)
    yield from beside()
    if described.is_local:
        yield _handler(described)
    if url := described.api:
        yield _look("api", lambda: api_check.api(url, described.logs.with_name(API_KEY_FILE)))


def _registry(
    described: Described, wrong: Mapping[str, list[str]], store: Callable[[], RegistryStore]
) -> Iterator[Check]:
    environ = described.environ

    def secrets() -> Secrets | None:
        return build_secrets(settings.usable(environ, wrong, SECRETS_SETTINGS)) if described.is_local else None

    def tenants() -> str:
        pairs = settings.usable(environ, wrong, {"APP_ENV", "TENANT_QUEUES"})["TENANT_QUEUES"]
        return registry_checks.registry(store(), pairs, secrets())

    def senders() -> str:
        number = settings.usable(environ, wrong, {"APP_ENV", NUMBER})[NUMBER]
        return registry_checks.senders(store(), store(), senders_of(number), secrets())

    yield _look("registry", tenants)
    yield _look("senders", senders)


def _handler(described: Described) -> Check:
    url = described.environ.get("HANDLER_URL", "").strip()
    if url:
        return _look("backend", lambda: handler_check.backend(url, described.logs))
    return _look("handler", lambda: handler_check.last_call(described.logs))


def _look(name: str, check: Callable[[], str]) -> Check:
    try:
        return Check(name, True, check())
    except (checks.Wrong, CannotCheck, config.ConfigError) as error:  # the last: for example a damaged store file
        return Check(name, False, str(error))
