"""Ports: where the processes of the stack listen, on loopback only."""

import json
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import click

LOOPBACK = "127.0.0.1"


def choose(offsets: Mapping[str, int], first: int, last_run: Path) -> dict[str, int]:
    """A port for each name: `first` plus its offset. With 0: the last run's ports that are still free, or free ones."""
    if first:
        return {name: first + offset for name, offset in offsets.items()}
    known: dict[str, int] = {}
    with suppress(OSError, ValueError, TypeError, AttributeError, click.ClickException):
        of_last_run = json.loads(last_run.read_text())
        ports = {name: int(of_last_run[name]) for name in offsets if name in of_last_run}
        check_free(ports.values())
        known = ports
    return known | _free([name for name in offsets if name not in known])


def _free(names: Sequence[str]) -> dict[str, int]:
    holders = [socket.socket() for _ in names]
    try:
        for holder in holders:
            holder.bind((LOOPBACK, 0))
        return {name: holder.getsockname()[1] for name, holder in zip(names, holders, strict=True)}
    finally:
        for holder in holders:
            holder.close()


def check_free(ports: Iterable[int]) -> None:
    """Raise ClickException if one is in use."""
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError as error:
                raise click.ClickException(
                    f"Port {port} is in use: stop the program that uses it, or choose other ports with --ports N "
                    "(0 takes free ones)."
                ) from error
