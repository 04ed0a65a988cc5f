"""Real servers in tests: a free port, a wait for readiness, and a way to freeze one."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def until(condition: Callable[[], Any], seconds: float = 20) -> Any:
    """The condition's first true value."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "the condition did not become true in time"
        threading.Event().wait(0.01)
    return value


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Stop the process. When it resumes it executes what it received meanwhile, even if the client has given up."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
