"""The handler check of doctor: whether its backend accepts connections, and the result of its last call.

Doctor calls no handler: it cannot know what a call would cause (docs/decisions/0069-doctor-and-the-handler.md).
"""

import json
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cli.doctor.checks import Wrong
from shared.domain.tenants import DEFAULT_TENANT
from shared.operations.timeline.records import FAILURES

CONNECT_SECONDS = 3.0
"""A call's own connect timeout (docs/handler-url.md)."""

NO_FAILURE = "No call has failed since Pombo started."


def backend(url: str, logs: Path) -> str:
    """Whether HANDLER_URL accepts a connection, and the result of its last call. Raises Wrong."""
    _connect(url)
    return f"The backend accepts connections. {last_call(logs)}"


def last_call(logs: Path) -> str:
    """The result of the last call since the internal service started. Raises Wrong if it failed."""
    line = _last(logs)
    if line is None:
        return NO_FAILURE
    at = f"{str(line.get('time', ''))[11:19]} UTC"
    if not _has_failed(line):
        return f"The last call, at {at}, was answered."
    tenant = line.get("tenant", DEFAULT_TENANT)
    whose = "" if tenant == DEFAULT_TENANT else f", for tenant {tenant}"  # perhaps of a backend of its own
    raise Wrong(f"The last call failed at {at}{whose}: {_why(line)}")


def _connect(url: str) -> None:
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    try:
        with closing(socket.create_connection((host, port), CONNECT_SECONDS)) as connection:
            if parts.scheme == "https":
                ssl.create_default_context().wrap_socket(connection, server_hostname=host).close()
    except ConnectionRefusedError as error:
        raise Wrong(
            f"The backend of HANDLER_URL refuses the connection at {host}:{port}: check that it is running."
        ) from error
    except socket.gaierror as error:
        raise Wrong(f"The host name {host} of HANDLER_URL does not resolve.") from error
    except ssl.SSLError as error:
        raise Wrong(f"The TLS handshake with the backend failed at {host}:{port}: check its certificate.") from error
    except TimeoutError as error:
        raise Wrong(f"The backend accepted no connection at {host}:{port} within {CONNECT_SECONDS:g} s.") from error
    except OSError as error:
        raise Wrong(f"The backend cannot be reached at {host}:{port} ({error.strerror}).") from error


def _last(logs: Path) -> Mapping[str, Any] | None:
    """The line about the last call. An event without replies may not have reached the handler: its line counts only if
    the same event failed before.
    """
    last: Mapping[str, Any] | None = None
    for line in _lines(logs):
        if line.get("event") == "started" and line.get("stage") == "internal":
            last = None  # the restart may have fixed what was wrong before
        elif _has_failed(line):
            last = line
        elif line.get("event") == "inbound_processing_finished":
            is_the_failed = last is not None and last.get("inbound_event_id") == line.get("inbound_event_id")
            if line.get("outbound_planned") or is_the_failed:
                last = line
    return last


def _has_failed(line: Mapping[str, Any]) -> bool:
    return line.get("event") in ("inbound_rescheduled", "inbound_failed") and line.get("verdict") in FAILURES


def _lines(logs: Path) -> Iterator[Mapping[str, Any]]:
    try:
        with logs.open(encoding="utf-8", errors="replace") as lines:
            for written in lines:
                if not any(event in written for event in ("inbound_", "started")):
                    continue
                try:
                    line = json.loads(written)
                except ValueError:
                    continue
                if isinstance(line, dict):
                    yield line
    except OSError:
        return


def _why(line: Mapping[str, Any]) -> str:
    """The cause, from the line: an exception by its type and place (its text may be private), else Pombo's sentence."""
    if not line.get("error_type"):
        return str(line.get("cause") or "The handler did not answer.")
    where = f" at {line['place']}" if line.get("place") else ""
    within = f", in {line['function']}" if line.get("function") else ""
    return f"{line['error_type']}{where}{within}."
