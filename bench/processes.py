"""A server under test: its process tree, its processor time and its memory, read from /proc."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from bench.errors import BenchError

END_SECONDS = 10
TICKS = os.sysconf("SC_CLK_TCK")


def cores() -> tuple[int | None, int | None]:
    """The core of the server, and that of everything else; None if this process cannot be bound to a core."""
    if not hasattr(os, "sched_setaffinity"):
        return None, None
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        return None, None
    try:
        os.sched_setaffinity(0, allowed)
    except OSError:
        return None, None
    return allowed[0], allowed[1]


@contextmanager
def started(
    command: Sequence[str],
    environment: Mapping[str, str],
    directory: Path,
    core: int | None,
    errors: Path | None = None,
    pipes: bool = False,
) -> Iterator[subprocess.Popen[str]]:
    """A process in its own group, on its core. However this ends, even by `kill -9`, the whole group ends too."""
    streams: int | IO[str] = errors.open("w") if errors else subprocess.DEVNULL
    pipe = subprocess.PIPE if pipes else subprocess.DEVNULL
    process = subprocess.Popen(
        list(command),
        env=dict(environment),
        cwd=directory,
        stdin=pipe,
        stdout=pipe,
        stderr=streams,
        text=True,
        start_new_session=True,
        preexec_fn=None if core is None else lambda: os.sched_setaffinity(0, {core}),
    )
    watcher = subprocess.Popen(
        ["/bin/sh", "-c", 'read -r _; kill -KILL "-$0"', str(process.pid)],
        stdin=subprocess.PIPE,  # it is closed when this program ends
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        _end(process)
        watcher.kill()
        watcher.communicate()
        for stream in (process.stdin, process.stdout, streams if errors else None):
            if stream is not None and not isinstance(stream, int):
                with suppress(OSError):
                    stream.close()


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def tree(pid: int) -> list[int]:
    """A process and all its descendants."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            children.setdefault(int(_stat(path)[1]), []).append(int(path.parent.name))
    found, waiting = [], [pid]
    while waiting:
        one = waiting.pop()
        found.append(one)
        waiting += children.get(one, [])
    return found


def cpu_seconds(pid: int) -> float:
    """The processor time of a process tree, with its threads and children that have ended."""
    return sum(_cpu_seconds(one) for one in tree(pid))


def _cpu_seconds(pid: int) -> float:
    """A process's clock counts nanoseconds. For children that have ended, the kernel counts ticks of 10 ms."""
    with suppress(OSError):
        fields = _stat(Path(f"/proc/{pid}/stat"))
        ended = (int(fields[13]) + int(fields[14])) / TICKS
        try:
            return time.clock_gettime(~pid << 3 | 2) + ended  # clock_getcpuclockid(3): CPUCLOCK_SCHED
        except OSError:
            return (int(fields[11]) + int(fields[12])) / TICKS + ended
    return 0.0


def _stat(path: Path) -> list[str]:
    """The fields of /proc/PID/stat after the name, which may hold blanks: proc_pid_stat(5)."""
    return path.read_text().rpartition(")")[2].split()


def memory_bytes(pid: int) -> int:
    """PSS of a process tree: pages that processes share are divided among them."""
    total = 0
    for one in tree(pid):
        with suppress(OSError):
            lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    if not total:
        raise BenchError("This system does not show a process's memory in /proc/PID/smaps_rollup.")
    return total
