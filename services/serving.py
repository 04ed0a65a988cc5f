"""Serving: what all servers share, from the bounds of a connection to the report of an invalid configuration."""

import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any, NoReturn, Protocol, TypeVar

from shared import logs
from shared.config import Config, ConfigError

ARRIVAL_SECONDS = 10.0
"""From the first byte of a request to its last. Meta sends 3 MB at most, and waits about as long for the response."""

ANSWER_SECONDS = 5.0
"""For the client to read a response. Every response fits into the socket's buffer, unless the client reads none."""

HANG_UP_SECONDS = 2.0
"""For the client to close, after the last response. With unread input, closing at once resets the connection and the
client could lose the response.
"""

GRACEFUL_SECONDS = 8
"""To end. Cloud Run gives 10."""

KEEPALIVE_SECONDS = 75
"""Longer than the front end's idle time, so that the service never closes a connection in use."""


PORT_SECONDS = 4.0
"""For a port that is in use: a process that ends, or a connection of another program, may hold it for a moment."""


class Parts(Protocol):
    """What every server needs of its service."""

    @property
    def config(self) -> Config: ...


P = TypeVar("P", bound=Parts)


def built(build: Callable[[], P]) -> P:
    """The parts of this process. With an invalid configuration, report every fault and exit 1."""
    logs.take_standard_output()
    try:
        return build()
    except ConfigError as error:
        logs.configure("INFO")
        _refuse_to_start(error.faults)


def address(parts: Parts, default_port: int) -> tuple[str, int]:
    """Where to listen: on every interface on Cloud Run, elsewhere on this machine only. Exits 1 if it is taken."""
    host = "0.0.0.0" if os.environ.get("K_SERVICE") else "127.0.0.1"
    port = parts.config.get("PORT") or default_port
    ends = time.monotonic() + PORT_SECONDS
    while reason := _why_closed(host, port):
        if time.monotonic() > ends:
            fault = f"PORT {port} cannot be opened ({reason}): stop the program that uses it, or set another PORT."
            _refuse_to_start([fault])
        time.sleep(0.1)
    return host, port


def _why_closed(host: str, port: int) -> str | None:
    """Why the port cannot be opened now; None if it can."""
    try:
        socket.create_server((host, port)).close()
    except OSError as error:
        return os.strerror(error.errno or 0)
    return None


def _refuse_to_start(faults: Iterable[str]) -> NoReturn:
    for fault in faults:
        logs.event("config_error", severity="CRITICAL", reason=fault)
        print(f"pombo: {fault}", file=sys.stderr)  # noqa: T201 - a developer may have started it by hand
    sys.exit(1)


def code_of(status: HTTPStatus) -> str:
    """The `error` of a response that has only its status to tell."""
    return status.phrase.lower().replace(" ", "_").replace("-", "_")


def refusal(
    status: HTTPStatus, document: Mapping[str, Any] | None = None, content_type: str = "application/json"
) -> bytes:
    """The response to a request that never reached the app. It quotes nothing, and closes the connection."""
    body = json.dumps(document or {"error": code_of(status)})
    head = f"HTTP/1.1 {status} {status.phrase}\r\nConnection: close\r\nContent-Type: {content_type}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()
