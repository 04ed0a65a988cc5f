"""Pytest sessions in forks: what was imported once, every fork has, and what a mutant spoils ends with its fork."""

import ctypes
import gc
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

MEMORY = 6 * 2**30
"""A mutant that never ends takes no more than this."""
KILLED, SURVIVED, TIMEOUT, BROKEN = "killed", "survived", "timeout", "broken"
NOT_SWAPPED = "not swapped"
PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)
_EXITS = {0: SURVIVED, 1: KILLED, 4: BROKEN, 5: NOT_SWAPPED}


@dataclass(eq=False)
class Session:
    """A pytest plugin that has `work` done in the place of the tests, once all of them are collected."""

    work: Callable[["Session"], None]
    failed: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    items: dict[str, pytest.Item] = field(default_factory=dict)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        self.work(self)
        return True

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0) + report.duration

    def run(self, names: Sequence[str], stop_early: bool = True, before: Callable[[str], None] = len) -> None:
        """Run these tests in this order, to the first failure."""
        items = [self.items[name] for name in names if name in self.items]
        for item, following in zip(items, [*items[1:], None], strict=True):
            if stop_early and self.failed:
                return
            before(item.nodeid)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)

    def verdict(self) -> int:
        return 1 if self.failed else 0


def pytest_session(tests: Iterable[str], scratch: Path, work: Callable[[Session], None]) -> Session:
    """One session over these files. Nothing is cached, and tmp_path lies in `scratch`."""
    plugin = Session(work)
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:schemathesis", "-o", "addopts="]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    ended = pytest.main([*options, f"--basetemp={scratch}", *tests], plugins=[plugin])
    if ended == pytest.ExitCode.USAGE_ERROR:  # a conftest that cannot be imported
        plugin.failed.append("conftest")
    elif not plugin.items and not plugin.failed:
        raise RuntimeError(f"pytest collected nothing of {' '.join(tests)}: exit code {ended}")
    return plugin


def in_fork(do: Callable[[], int], seconds: float, says: int | None = None) -> tuple[str, str]:
    """What became of `do` in a fork of its own, and the last line it wrote to its standard output's stand-in.

    Its exit code is its verdict. After `seconds` it is killed, with all that it started.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _become_a_fork(do, writing, says)
    os.close(writing)
    outcome = _await(pid, seconds)
    with os.fdopen(reading, "rb") as pipe:
        os.set_blocking(reading, False)
        said = (pipe.read() or b"").decode(errors="replace")
    return outcome, said


def _become_a_fork(do: Callable[[], int], writing: int, says: int | None) -> None:
    code = 4
    try:
        os.setsid()
        _die_with_its_parent()
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        quiet = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(quiet, descriptor)
        _Note.pipe = writing
        code = do()
    except BaseException:
        os.write(says if says is not None else writing, traceback.format_exc().encode()[-4000:])
    finally:
        os._exit(code)


def _die_with_its_parent() -> None:
    """Where the system can do that (Linux): who ends a run ends all of it."""
    if hasattr(_LIBC, "prctl"):
        _LIBC.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))


class _Note:
    pipe = -1


def note(sentence: str) -> None:
    """Say something to who started this fork."""
    os.write(_Note.pipe, sentence.encode()[:4000])


def _await(pid: int, seconds: float) -> str:
    deadline = time.monotonic() + seconds
    pause = 0.002
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            _end_group(pid)
            return KILLED if os.WIFSIGNALED(status) else _EXITS.get(os.WEXITSTATUS(status), KILLED)
        time.sleep(pause)
        pause = min(pause * 1.3, 0.1)
    _end_group(pid)
    os.waitpid(pid, 0)
    return TIMEOUT


def _end_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


# ---- a mutant in functions that are there already


class Functions:
    """Every function of this process by the file and the place of its code."""

    def __init__(self) -> None:
        gc.unfreeze()  # tests/conftest.py froze what was collected, and the functions are among it
        gc.collect()
        self._found: dict[tuple[str, str, int], list[FunctionType]] = {}
        for thing in gc.get_objects():
            if isinstance(thing, FunctionType):
                code = thing.__code__
                key = (code.co_filename, code.co_qualname, code.co_firstlineno)
                self._found.setdefault(key, []).append(thing)
        gc.freeze()

    def swap(self, path: Path, changed: bytes, function: tuple[str, int]) -> bool:
        """Give the functions of `function`, it and those inside it, the code of the changed text."""
        name, line = function
        swapped = False
        for code in _codes(compile(changed, str(path), "exec", dont_inherit=True)):
            is_it = code.co_qualname == name and code.co_firstlineno == line
            if not is_it and not code.co_qualname.startswith(f"{name}.<locals>."):
                continue
            for live in self._found.get((str(path), code.co_qualname, code.co_firstlineno), ()):
                if live.__code__.co_freevars == code.co_freevars:
                    live.__code__ = code
                    swapped = swapped or is_it
        return swapped


def _codes(code: CodeType) -> Iterable[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


# ---- which test runs which line


def covering(tests: Sequence[str], modules: Collection[Path], scratch: Path) -> Mapping[str, Any]:
    """Run the tests once, each line of `modules` watched: {"lines": {path: {line: [test]}}, "seconds": {test: s}}."""
    from coverage import Coverage

    watch = Coverage(data_file=None, include=[str(path) for path in modules], config_file=False, messages=False)
    watch.start()
    session = pytest_session(tests, scratch, lambda self: self.run(list(self.items), False, watch.switch_context))
    watch.stop()
    data = watch.get_data()
    failed = set(session.failed)
    lines: dict[str, dict[int, list[str]]] = {}
    for path in modules:
        by_line = data.contexts_by_lineno(str(path))
        lines[str(path)] = {
            line: [name for name in names if name and name not in failed] for line, names in by_line.items()
        }
    return {"lines": lines, "seconds": session.seconds, "failed": sorted(failed)}


def preload(modules: Iterable[str]) -> None:
    """Import what every fork would import."""
    for module in modules:
        try:
            __import__(module)
        except ImportError:
            print(f"{module} is not there", file=sys.stderr)
