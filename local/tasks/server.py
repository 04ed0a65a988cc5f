"""The server: takes the calls of google.cloud.tasks.v2.CloudTasks over gRPC and REST, on one port of loopback only."""

import secrets
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from local.grpc_methods import Methods, serve
from local.tasks.front import Front
from local.tasks.rest import RestApi

SERVICE = "google.cloud.tasks.v2.CloudTasks"
_grpc: Any = grpc  # has no types

CALLS_AT_ONCE = 16
"""Threads that answer calls. A call is a millisecond of work; more threads would only wait for the interpreter."""


class Server:
    """Both protocols on a port; port 0 takes a free one. Raises CannotListen."""

    def __init__(self, methods: Methods, port: int) -> None:
        self._front = Front(port)
        self.address = self._front.address
        self._grpc = _grpc.server(ThreadPoolExecutor(CALLS_AT_ONCE))
        serve(self._grpc, SERVICE, methods)
        address, path = _private_address()
        self._grpc.add_insecure_port(address)
        self._grpc.start()
        self._front.open(path, RestApi(methods).answer)

    def stop(self, patience: float) -> Callable[[], None]:
        """Refuse calls; returns what waits for those under way, for `patience` seconds from now at most."""
        until = time.monotonic() + patience
        self._front.stop()
        ended = self._grpc.stop(patience)

        def wait() -> None:
            ended.wait(max(0.0, until - time.monotonic()))
            self._front.wait(until)

        return wait


def _private_address() -> tuple[str, str]:
    """Where gRPC's server listens, in its words and in the socket's.

    On Linux it is an abstract name: no file stays after a kill, and no path is too long. A TCP port would be one that
    another process of the stack may have chosen.
    """
    if sys.platform == "linux":
        name = f"pombo-tasks-{secrets.token_hex(8)}"
        address, path = f"unix-abstract:{name}", f"\0{name}"
    else:
        path = str(Path(tempfile.mkdtemp(prefix="pombo-tasks-")) / "grpc")
        address = f"unix:{path}"
    return address, path
