"""Python programs that are forked from a process which has already imported what they import.

A start of the stack imports the same modules in six processes, which takes four seconds of processor time; a fork takes
some milliseconds. What is forked differs from `python -m MODULE` in nothing that a test sees: it has its own arguments,
environment (/proc shows it too), directory, session, output and signals, and starts without a thread. forking.py is the
process that forks it.
"""

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from tests.support.forking import ROOM, ROOM_BYTES

ROOT = Path(__file__).parents[2]


class Process:
    """A forked program, with the methods of subprocess.Popen that the tests use."""

    def __init__(self, argv: Sequence[str], told: socket.socket, stdout: IO[str] | None) -> None:
        self.args = argv
        self.stdout = stdout
        self.returncode: int | None = None
        self._told = told
        self.pid = int(told.recv(64))

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, or minus the signal that ended it."""
        if self.returncode is None:
            if not select.select([self._told], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = int(self._told.recv(64) or -signal.SIGKILL)
            self._told.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run(
    argv: Sequence[str],
    env: Mapping[str, str],
    given: str | None = None,
    seconds: float = 90,
    imported: tuple[str, ...] = (),
) -> subprocess.CompletedProcess[str]:
    """Run `python -m` with these arguments to its end, with this on its standard input. `imported`: what was imported
    before, if it is not what the stack's programs import.
    """
    with TemporaryFile("w+") as stdin, TemporaryFile("w+") as out, TemporaryFile("w+") as err:
        stdin.write(given or "")
        stdin.seek(0)
        process = start(argv, env, err, out, stdin=stdin, imported=imported)
        try:
            code = process.wait(seconds)
        finally:
            process.kill()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(argv, code, out.read(), err.read())


def start(
    argv: Sequence[str],
    env: Mapping[str, str],
    stderr: IO[Any],
    stdout: IO[Any] | None = None,
    *,
    stdin: IO[Any] | None = None,
    new_session: bool = False,
    imported: tuple[str, ...] = (),
) -> Process:
    """Run `python -m` with these arguments. Without `stdout`, the process has a pipe to read its output from."""
    told, tells = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    reads, writes = (None, stdout.fileno()) if stdout else os.pipe()
    asked = {"argv": list(argv), "env": dict(env), "new_session": new_session}
    with tells, open(os.devnull) as nothing:
        files = [(stdin or nothing).fileno(), writes, stderr.fileno(), tells.fileno()]
        socket.send_fds(_first(imported), [json.dumps(asked).encode()], files)
    if reads is not None:
        os.close(writes)
    return Process(argv, told, None if reads is None else os.fdopen(reads, encoding="utf-8"))


@cache
def _first(imported: tuple[str, ...]) -> socket.socket:
    """The socket of a process that imports this, or everything. It ends when the socket is closed, so with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.forking", str(theirs.fileno()), *imported],
            cwd=ROOT,
            env={**os.environ, ROOM: " " * ROOM_BYTES},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
    atexit.register(_ended, ours, process)
    return ours


def _ended(ours: socket.socket, process: "subprocess.Popen[bytes]") -> None:
    ours.close()
    process.wait()
