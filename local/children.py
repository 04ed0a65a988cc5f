"""Children: the processes of the stack. Each writes its own log lines, and the stack restarts one that dies."""

import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

END_SECONDS = 12
"""Seconds. Longer than a service's graceful shutdown."""

SAID_BYTES = 8192
"""Longer than a stack trace."""


class Child:
    """One process of the stack, by its name in pids.json. `launched` are the arguments of local.launch. Its standard
    output goes to `out`, its standard error to `err`.
    """

    def __init__(
        self, name: str, launched: Sequence[str], environment: Mapping[str, str], out: Path, err: Path
    ) -> None:
        self.name = name
        self._command = [sys.executable, "-m", "local.launch", *launched]
        self._environment = dict(environment)
        self._out, self._err = out, err
        self._process: subprocess.Popen[bytes] | None = None
        self._err_before = 0

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    @property
    def returncode(self) -> int | None:
        """None while it runs."""
        return self._process.poll() if self._process else None

    def start(self) -> None:
        """Start it. Its output goes to files: no pipe of ours can block it."""
        with self._out.open("ab") as out, self._err.open("ab") as err:
            self._err_before = err.tell()  # what an earlier process wrote
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,  # Ctrl-C reaches only the stack, which then ends its children
            )

    def end(self) -> None:
        """Send SIGTERM."""
        if self._process and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def wait(self, seconds: float) -> None:
        """Wait for its end; after `seconds`, kill it."""
        if self._process is None:
            return
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def said(self) -> str:
        """What it wrote to standard error since its start; only the end if it is long."""
        try:
            with self._err.open("rb") as err:
                err.seek(max(self._err_before, self._err.stat().st_size - SAID_BYTES))
                return err.read().decode(errors="replace")
        except OSError:
            return ""


def end_all(children: Sequence[Child]) -> None:
    """End all of them at the same time."""
    for child in children:
        child.end()
    deadline = time.monotonic() + END_SECONDS
    for child in children:
        child.wait(max(0.1, deadline - time.monotonic()))
