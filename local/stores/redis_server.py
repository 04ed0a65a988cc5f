"""redis-server, which syncs every write to disk before it confirms it, as far as Redis can."""

import re
import shutil
import subprocess
from pathlib import Path

import click

from local.ports import LOOPBACK
from local.stores.program import ANSWER_SECONDS, Program, last_line

LEAST_MAJOR = 7
"""The first with a separate directory for its append-only file (appenddirname), and the tested one."""

VERSION_SECONDS = 5
"""Seconds. It takes milliseconds."""

_INSTALL = "apt-get install redis-server (macOS: brew install redis), or set REDIS_URL"


def _command(port: int, data_dir: Path) -> list[str]:
    """Only arguments: no configuration file of this machine is read.
    https://redis.io/docs/latest/operate/oss_and_stack/management/config/ (2026-11-28): "noeviction" refuses a write
    when memory is full; any other policy would lose a record.
    """
    program = shutil.which("redis-server")
    if program is None:
        raise click.ClickException(f"--store redis needs redis-server, which is not installed: {_INSTALL}.")
    _check_version(program)
    settings = {
        "--bind": LOOPBACK,
        "--port": str(port),
        "--protected-mode": "yes",
        "--daemonize": "no",
        "--dir": str(data_dir),
        "--appenddirname": "redis",
        "--appendonly": "yes",
        "--appendfsync": "always",
        "--save": "",
        "--maxmemory-policy": "noeviction",
        "--set-proc-title": "no",  # a title would overwrite the environment, which identifies a stack's processes
    }
    return [program, *(word for setting in settings.items() for word in setting)]


def _check_version(program: str) -> None:
    try:
        told = subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=VERSION_SECONDS,
            check=False,
        ).stdout
    except subprocess.TimeoutExpired as error:
        raise click.ClickException(
            f"redis-server --version does not answer within {VERSION_SECONDS} s; run it by hand, or install another: "
            f"{_INSTALL}."
        ) from error
    except OSError as error:
        raise click.ClickException(f"Cannot run redis-server ({error.strerror}): {_INSTALL}.") from error
    version = re.search(r"\bv=(\d+)\.(\d+)", told)
    if version and int(version[1]) < LEAST_MAJOR:
        raise click.ClickException(
            f"--store redis needs redis-server {LEAST_MAJOR} or newer, and this one is {version[1]}.{version[2]}: "
            f"{_INSTALL}."
        )


def _answers(address: str) -> bool:
    """Whether it answers a PING: it refuses while it loads its file."""
    import redis

    try:
        with redis.Redis.from_url(
            address, socket_timeout=ANSWER_SECONDS, socket_connect_timeout=ANSWER_SECONDS
        ) as client:
            return bool(client.ping())
    except redis.RedisError:
        return False


REDIS_SERVER = Program(
    what="redis-server",
    setting="REDIS_URL",
    address=lambda port: f"redis://{LOOPBACK}:{port}/0",
    command=_command,
    answers=_answers,
    explain=last_line,
    forgets=False,
)
