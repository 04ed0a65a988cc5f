"""The context of a decision about dead letters: the store, the queue, the limits, and where its log lines go."""

import os
import socket
from dataclasses import dataclass
from pathlib import Path

import click

from cli.doctor.checks import token_is_refused
from cli.running import Described, Running, describe, find
from local.terminal import WrongSettings
from shared import config, logs
from shared.bootstrap.adapters import build_tenants
from shared.bootstrap.backends import build_queue
from shared.bootstrap.secrets import is_deployment
from shared.config import QUEUE_SETTINGS, STORE_SETTINGS, Config
from shared.domain.limits import Limits
from shared.operations.dead_letters import Discard, Replay
from shared.pipeline.clock import SystemClock

_OF_LIMITS = frozenset({"MAX_ATTEMPTS", "HANDLER_TIMEOUT", "IN_DOUBT_SECONDS", "IN_DOUBT_POLICY", "MESSAGE_MAX_AGE"})
CONNECT_SECONDS = 3
"""To an emulator on this machine."""

NEEDED = STORE_SETTINGS | QUEUE_SETTINGS | _OF_LIMITS | {"WHATSAPP_PHONE_NUMBER_ID"}
"""The settings of the internal service that a replay uses; they must equal that service's."""


@dataclass(frozen=True, slots=True)
class Deciding:
    """The stack, and everything that a decision needs."""

    running: Running
    settings: Config
    is_local: bool = True
    """Whether the store and the queue are those of a stack on this machine, and not what the environment names."""

    @property
    def limits(self) -> Limits:
        return self.settings.limits

    def replay(self, may_double: bool) -> Replay:
        """Raises ClickException if no stack runs, or if its tasks would certainly reach no service."""
        if not self.running.runs:
            raise click.ClickException(
                f"Nothing was replayed: no Pombo is running here to retry it. Start one with {self.running.start}."
            )
        _check_tasks(self.settings, self.is_local)
        queue, tenants = build_queue(self.settings), build_tenants(self.settings, self.running.registry)
        return Replay(self.running.store, queue, tenants, self.limits, SystemClock(), may_double)

    def discard(self, because: str) -> Discard:
        return Discard(self.running.store, self.limits, SystemClock(), because)


def deciding(data_dir: Path, needs_queue: bool) -> Deciding:
    """The running stack, or the one that the environment names. Raises ClickException."""
    described = describe(data_dir)
    running = find(data_dir)
    try:
        needed = NEEDED if needs_queue else STORE_SETTINGS | _OF_LIMITS
        settings = config.load(described.environ, config.INTERNAL, only=needed)
    except config.ConfigError as error:
        raise WrongSettings(error.faults) from error
    _log_beside(described)
    return Deciding(running, settings, described.is_local)


def _check_tasks(settings: Config, is_local: bool) -> None:
    """Check before a replay that tasks can reach the service: otherwise a replayed letter waits for the sweep."""
    if not is_local and is_deployment(settings) and settings.get("CLOUD_TASKS_EMULATOR_HOST"):
        raise click.ClickException(
            "The records are in a project, but the tasks would go to a queue on this machine: set APP_ENV and "
            "CLOUD_TASKS_... as the internal service has them."
        )
    emulator = settings.get("CLOUD_TASKS_EMULATOR_HOST")
    if emulator and not _is_listened_at(emulator):
        raise click.ClickException(
            f"Nothing was replayed: the task queue does not answer at {emulator}. Check that its Pombo is running."
        )
    if token_is_refused(settings):
        raise click.ClickException(
            "Nothing was replayed: the internal service rejects INTERNAL_TASK_TOKEN. Set it here as the service has it."
        )


def _is_listened_at(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS):
            return True
    except (OSError, ValueError):
        return False


def _log_beside(described: Described) -> None:
    """Log next to the stack's own lines; without a stack here to standard error, unless that is a terminal."""
    if described.is_local:
        try:
            logs.write_to(os.open(described.logs, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))
        except OSError as error:
            raise click.ClickException(f"Cannot write the log {described.logs}: {error.strerror}.") from error
    elif not os.isatty(2):
        logs.write_to(2)
