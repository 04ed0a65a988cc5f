"""`python -m local.tasks --port P --data-dir D [--time-scale F]` runs the emulator until SIGTERM or SIGINT.

It prints {"event":"started","address":"127.0.0.1:PORT"} once it answers, then a line for each notable event.
"""

import argparse
import os
import signal
import sys
import threading
import time
from pathlib import Path

from local.faults import FaultBook
from local.tasks.attempt import Attempts
from local.tasks.database import CannotOpen, Database
from local.tasks.dispatcher import Dispatcher
from local.tasks.front import CannotListen
from local.tasks.http_target import HttpTarget
from local.tasks.log import Log
from local.tasks.oidc import TokenMinter
from local.tasks.queue_calls import QueueCalls
from local.tasks.queue_table import QueueTable
from local.tasks.server import Server
from local.tasks.task_calls import TaskCalls
from local.tasks.task_table import TaskTable

PATIENCE = 1.0
"""Seconds that calls and attempts in flight may still take when the emulator is stopped."""


def main(arguments: list[str] | None = None) -> None:
    options = _options(arguments)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    log = Log(sys.stdout)
    try:
        server, dispatcher = start(options.data_dir, options.port, options.time_scale, log)
    except (CannotOpen, CannotListen) as error:
        sys.exit(str(error))
    stop.wait()
    log.write("stopping")
    wait_for_calls = server.stop(PATIENCE)
    dispatcher.stop(PATIENCE)
    wait_for_calls()
    # Attempts still under way may take half an hour. Their tasks are in the file and are delivered after a restart.
    os._exit(0)


def start(data_dir: Path, port: int, scale: float, log: Log) -> tuple[Server, Dispatcher]:
    """Build the emulator on the files of a data directory, and start it."""
    data_dir.mkdir(parents=True, exist_ok=True)
    database = Database(data_dir / "tasks.sqlite")
    queues, tasks = QueueTable(database), TaskTable(database)
    interrupted = tasks.recover()
    faults = FaultBook(data_dir / "faults.sqlite")
    minter = TokenMinter(data_dir, time.time)
    attempts = Attempts(tasks, HttpTarget(), minter, faults, log, time.time, scale, threading.Event())
    dispatcher = Dispatcher(queues, tasks, attempts, time.time)
    queue_calls = QueueCalls(queues, tasks, dispatcher, log, time.time)
    task_calls = TaskCalls(queues, tasks, dispatcher, faults, time.time)
    server = Server({**queue_calls.methods(), **task_calls.methods()}, port)
    log.write("started", address=server.address, interrupted=interrupted)
    dispatcher.start()
    return server, dispatcher


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m local.tasks", description=__doc__)
    parser.add_argument("--port", type=int, required=True, help="on 127.0.0.1; 0 takes a free one")
    parser.add_argument("--data-dir", type=Path, required=True, help="keeps tasks, keys and faults")
    parser.add_argument(
        "--time-scale", type=_scale, default=1.0, help="1 to 20: divides queues' waits, multiplies their rates"
    )
    return parser.parse_args(arguments)


def _scale(text: str) -> float:
    value = float(text)
    if not 1 <= value <= 20:
        raise argparse.ArgumentTypeError("must be from 1 to 20")
    return value


if __name__ == "__main__":
    main()
