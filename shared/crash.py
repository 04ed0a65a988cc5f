"""Crash points: a process kills itself before or after a chosen call of a port, to test that nothing is lost.

The points are the methods of the ports, so every new effect is a new point. The pipeline does not know them: a port is
wrapped when a service is built, and only if CRASH_AT names one of its methods.
"""

import itertools
import os
import re
import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from inspect import isawaitable
from pathlib import Path
from types import ModuleType
from typing import Any, Self, TypeVar, cast

from shared.config import ConfigError
from shared.pipeline import clock, intake, ports, registry

P = TypeVar("P")

MOMENTS = ("after", "before")
_CRASH_AT = re.compile(r"(before|after):([a-z_]+)\.([a-z_]+)(?::([1-9][0-9]*))?")


def methods() -> Mapping[str, tuple[str, ...]]:
    """The methods of each port, by the port's name. `call` is the method of a callable port. The intake's ports are
    parts of the others.
    """
    found: dict[str, dict[str, None]] = {}
    for module in (ports, intake, registry, clock):
        for protocol in vars(module).values():
            if _is_port(protocol, module):
                calls = (_word(name) for name, value in vars(protocol).items() if _is_call(name, value))
                found.setdefault(protocol.__name__.lower().removeprefix("intake"), {}).update(dict.fromkeys(calls))
    return {port: tuple(calls) for port, calls in found.items()}


def points() -> tuple[str, ...]:
    """Every point that CRASH_AT may name, like before:store.change, in order."""
    found = (f"{moment}:{port}.{name}" for moment in MOMENTS for port, names in methods().items() for name in names)
    return tuple(sorted(found))


def mark_of(directory: Path, crash_at: str) -> Path:
    """The file that records that the crash of this CRASH_AT has happened. While it is there, no process with this
    CRASH_AT crashes, and no passing counts. Remove it to crash again.
    """
    return directory / f"crashed-{crash_at}"


def wrap(name: str, port: P, crash_at: str, mark: Path) -> P:
    """The port of this name, with the crash if `crash_at` (`point[:n]`) names one of its methods. Raises ConfigError
    for a point that does not exist.

    The process dies the n-th time that it reaches the point. "After" means that the call has returned or raised.
    """
    at = _CrashAt.parse(crash_at)
    if at.port != name:
        return port
    return cast(P, _Wrapped(port, at, _Crash(at.nth, mark)))


@dataclass(frozen=True, slots=True)
class _CrashAt:
    """CRASH_AT in its parts."""

    moment: str
    port: str
    method: str
    nth: int

    @classmethod
    def parse(cls, text: str) -> Self:
        match = _CRASH_AT.fullmatch(text)
        if match is None or match[3] not in methods().get(match[2], ()):
            raise ConfigError([f"CRASH_AT names no crash point: {text}. pombo doctor --points lists them."])
        return cls(match[1], match[2], match[3], int(match[4] or 1))


class _Crash:
    """Ends the service once: the process that creates the mark dies, and the mark outlives it."""

    def __init__(self, nth: int, mark: Path) -> None:
        self._nth = nth
        self._mark = mark
        self._passings = itertools.count(1)  # threads share it: next() is atomic
        self._service = os.getpid()  # gunicorn's master, which builds the service before it forks

    def passed(self) -> None:
        """Count one more passing of the point, and crash if it is the chosen one."""
        if not self._mark.exists() and next(self._passings) == self._nth and self._is_first():
            self._die()

    def _is_first(self) -> bool:
        self._mark.parent.mkdir(parents=True, exist_ok=True)
        try:
            mark = os.open(self._mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except FileExistsError:
            return False  # the other service, with the same CRASH_AT, crashed before
        os.fsync(mark)
        os.close(mark)
        return True

    def _die(self) -> None:
        """Kill the master first: it would fork a new worker at once, a gentler crash than a lost instance. Do not kill
        the process group: a script that started the service shares it.
        """
        for pid in (self._service, os.getpid()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class _Wrapped:
    """Passes all calls to the port, with the crash before or after one of its methods."""

    def __init__(self, port: object, at: _CrashAt, crash: _Crash) -> None:
        self._port = port
        self._at = at
        self._crash = crash

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        return self._crashing(found) if _word(name) == self._at.method else found

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self.__getattr__("__call__")(*args, **named)

    def _crashing(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def crashing(*args: Any, **named: Any) -> Any:
            if self._at.moment == "before":
                self._crash.passed()
                return call(*args, **named)
            return self._crashing_after(call, *args, **named)

        return crashing

    def _crashing_after(self, call: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """A call of the webhook's ports has returned once it was awaited."""
        pending = False
        try:
            result = call(*args, **named)
            pending = isawaitable(result)
            return self._awaited(result) if pending else result
        finally:
            if not pending:
                self._crash.passed()

    async def _awaited(self, result: Awaitable[Any]) -> Any:
        try:
            return await result
        finally:
            self._crash.passed()


def _is_port(thing: object, module: ModuleType) -> bool:
    return getattr(thing, "_is_protocol", False) and getattr(thing, "__module__", "") == module.__name__


def _is_call(name: str, value: object) -> bool:
    """A process closes its ports when its work is over: a crash then loses nothing."""
    return callable(value) and name != "close" and (name == "__call__" or not name.startswith("_"))


def _word(method: str) -> str:
    return method.strip("_")
