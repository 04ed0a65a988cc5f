"""The process that has imported what the tests' programs import and forks them (forked.py), and what a fork becomes."""

import atexit
import ctypes
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

ROOM = "ROOM_FOR_THE_ENVIRONMENT"
"""A variable of this process. Its memory is where what is forked writes its own environment."""
ROOM_BYTES = 64 * 1024
LARGEST = 128 * 1024
"""Bytes of a request."""

IMPORTED = (
    *("cli.commands", "cli.up", "local.stack", "local.children"),
    *("local.tasks.server", "local.tasks.attempt", "local.tasks.queue_calls", "local.tasks.task_calls", "grpc._server"),
    *("local.whatsapp.control_api", "local.whatsapp.graph_api", "local.whatsapp.management_api"),
    *("local.whatsapp.send_api", "services.server", "services.async_server", "services.api.main"),
    *("services.api.worker", "services.internal.main", "services.webhook.main", "shared.bootstrap.api"),
    *("shared.bootstrap.internal", "shared.bootstrap.webhook", "shared.queues.cloud_tasks"),
    *("shared.stores.firestore.store", "shared.stores.redis.store", "shared.stores.sqlite.store"),
    *("shared.stores.firestore.intake", "shared.stores.redis.intake", "shared.stores.threaded_intake"),
    *("shared.tenants.registered", "shared.tenants.registered_intake", "gunicorn.glogging", "uvicorn.lifespan.off"),
)
"""Never a `__main__`: that runs again in each process."""

SIGNALS: Mapping[int, Any] = {
    signal.SIGINT: signal.default_int_handler,
    **dict.fromkeys((signal.SIGTERM, signal.SIGHUP), signal.SIG_DFL),
    **dict.fromkeys((signal.SIGPIPE, signal.SIGXFSZ), signal.SIG_IGN),
}
"""As an interpreter that starts sets them. subprocess sets the last two back in its children, for programs that are not
Python: a service that was forked in its child then died of its next write to an emulator that had been killed.
"""


def _serve(asking: socket.socket, names: Sequence[str]) -> None:
    for name in names:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    while True:
        asked, files, _flags, _address = socket.recv_fds(asking, LARGEST, 4)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not asked:
            return
        if os.fork() == 0:
            asking.close()
            _mind(json.loads(asked), *files)
        for file in files:
            os.close(file)


def _mind(asked: Mapping[str, Any], into: int, out: int, err: int, tells: int) -> NoReturn:
    """Fork the program, and tell how it ends."""
    _end_with_parent()
    pid = os.fork()
    if pid == 0:
        _end_with_parent()
        os.dup2(into, 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        if asked["new_session"]:
            os.setsid()
        become(asked["argv"], asked["env"])
    for file in (into, out, err):
        os.close(file)
    with socket.socket(fileno=tells) as telling:
        telling.send(str(pid).encode())
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with suppress(OSError):  # nobody waits for it any more
            telling.send(str(code).encode())
    os._exit(0)


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


# ---- in what is forked


def become(argv: Sequence[str], env: Mapping[str, str]) -> NoReturn:
    """Be `python -m` with these arguments and this environment, to the end of the process."""
    os.closerange(3, 1 << 20)
    for number, action in SIGNALS.items():
        signal.signal(number, action)
    signal.set_wakeup_fd(-1)
    _open_streams()
    os.environ.clear()
    os.environ.update(env)
    _show(env)
    sys.argv = list(argv)
    sys.path[0:1] = [os.getcwd(), *filter(None, env.get("PYTHONPATH", "").split(":"))]
    if children := sys.modules.get("local.children"):
        children.subprocess = _Forking  # type: ignore[attr-defined]
    os._exit(_code_of(argv[0]))


def _open_streams() -> None:
    """The interpreter's own streams, which know whether a file can be searched, are of the first process's files."""
    old = sys.stdout.encoding
    sys.stdin = sys.__stdin__ = open(0, encoding=old, closefd=False)  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", encoding=old, closefd=False)  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(  # noqa: SIM115
        2, "w", encoding=old, errors="backslashreplace", buffering=1, closefd=False
    )


def _code_of(module: str) -> int:
    """Run it; the exit code, as the interpreter would choose it."""
    code: Any = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return int(code or 0) & 0xFF


def _show(env: Mapping[str, str]) -> None:
    """Write the environment where /proc/PID/environ reads it. Nothing else does: os.environ has copied what it had."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begins, ends = int(fields[47]), int(fields[48])
    text = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in env.items())
    assert len(text) < ends - begins, "make ROOM_BYTES larger"
    ctypes.memmove(begins, text.ljust(ends - begins, b"\0"), ends - begins)


class _Forking:
    """What stands for subprocess in the stack itself: its Python children are forked from it, with its modules. While
    it has other threads they are started: a child would lack those, and keep their locks.
    """

    DEVNULL, TimeoutExpired = subprocess.DEVNULL, subprocess.TimeoutExpired

    @staticmethod
    def Popen(command: Sequence[str], **how: Any) -> "subprocess.Popen[bytes]":
        is_python = list(command[1:3]) == ["-m", "local.launch"] and command[3] != "--exec"
        if is_python and len(os.listdir("/proc/self/task")) == 1:
            how["preexec_fn"] = partial(become, command[2:], how["env"])
        return subprocess.Popen(command, **how)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:] or IMPORTED)
