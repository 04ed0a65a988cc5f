"""Children: the processes of the stack. Each writes its own log lines; one that dies comes back."""

import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

END_SECONDS = 12
"""Longer than a service's graceful end."""


class Child:
    """One process of the stack, by the name it has in pids.json."""

    def __init__(
        self, name: str, module: str, arguments: Sequence[str], environment: Mapping[str, str], logs: Path
    ) -> None:
        self.name = name
        self._command = [sys.executable, "-m", "local.launch", module, *arguments]
        self._environment = dict(environment)
        self._logs = logs
        self._errors = logs.with_name(f"{name}.stderr.log")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    @property
    def returncode(self) -> int | None:
        """None while it runs."""
        return self._process.poll() if self._process else None

    def start(self) -> None:
        """Start it. Its standard output is the stack's log file: no pipe of ours can hold it up."""
        with self._logs.open("ab") as out, self._errors.open("ab") as err:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,  # Ctrl-C is for us; we tell them to end
            )

    def end(self) -> None:
        """Ask it to end."""
        if self._process and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def wait(self, seconds: float) -> None:
        """Wait for its end, and end it the hard way if it takes longer."""
        if self._process is None:
            return
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def last_words(self) -> str:
        """The last line it wrote to standard error."""
        try:
            lines = self._errors.read_text(errors="replace").strip().splitlines()
        except OSError:
            lines = []
        return lines[-1] if lines else "it said nothing"


def end_all(children: Sequence[Child]) -> None:
    """End all of them, together."""
    for child in children:
        child.end()
    deadline = time.monotonic() + END_SECONDS
    for child in children:
        child.wait(max(0.1, deadline - time.monotonic()))
