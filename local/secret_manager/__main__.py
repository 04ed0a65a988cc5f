"""`python -m local.secret_manager --port P --data-dir D [--only PREFIX]` runs it until SIGTERM or SIGINT.

It prints {"event":"started","address":"127.0.0.1:PORT"} once it answers. The services use it if
SECRET_MANAGER_EMULATOR_HOST names that address.
"""

import argparse
import json
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from local.grpc_methods import serve
from local.secret_manager.calls import Calls
from local.secret_manager.secret_table import SecretTable

SERVICE = "google.cloud.secretmanager.v1.SecretManagerService"
FILE = "secret-manager.sqlite"
LOOPBACK = "127.0.0.1"
CALLS_AT_ONCE = 16
"""Threads that answer calls. A call is a millisecond of work."""

PATIENCE = 1.0
"""Seconds that calls in flight may still take when it is stopped."""

_grpc: Any = grpc  # has no types


def main(arguments: list[str] | None = None) -> None:
    options = _options(arguments)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    options.data_dir.mkdir(parents=True, exist_ok=True)
    table = SecretTable(options.data_dir / FILE)
    server = _grpc.server(ThreadPoolExecutor(CALLS_AT_ONCE), options=[("grpc.so_reuseport", 0)])
    serve(server, SERVICE, Calls(table, tuple(options.only)).methods())
    try:
        port = server.add_insecure_port(f"{LOOPBACK}:{options.port}")
    except RuntimeError:
        sys.exit(f"Secret Manager cannot listen on port {options.port}: another program does.")
    server.start()
    print(json.dumps({"event": "started", "address": f"{LOOPBACK}:{port}"}), flush=True)  # noqa: T201 — its interface
    stop.wait()
    server.stop(PATIENCE).wait()
    table.close()


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m local.secret_manager", description="Secret Manager locally.")
    parser.add_argument("--port", type=int, required=True, help="on 127.0.0.1; 0 takes a free one")
    parser.add_argument("--data-dir", type=Path, required=True, help="keeps the secrets")
    parser.add_argument(
        "--only", action="append", default=[], metavar="PREFIX", help="refuse secrets with other beginnings"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
