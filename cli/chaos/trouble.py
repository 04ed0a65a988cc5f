"""Trouble is made: each blow of the schedule is dealt at its time, and counted if it hit."""

import heapq
import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count

from cli.chaos.backpressure import Breath
from cli.chaos.control import Control
from cli.chaos.schedule import Blow, Kind
from local.cut_proxy import CutProxy
from local.faults import FaultBook
from local.ports import LOOPBACK
from local.whatsapp.provider import MET_BY_CALLS

OPEN_FAULTS_AT_MOST = 30
"""Faults that wait for somebody to meet them: were there more, whoever comes after a standstill would meet them all."""

LOOK_EVERY = 0.25
"""Seconds between two looks at who is up, and until a kill is tried again whose target was not."""

UP_SECONDS = 2.0
"""How long a process has to have been up for a kill, and as long as it was down before: on a slow machine too something
shall get done in between, or nothing could be interrupted."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What can be hit: the current pids, the ports that each process answers on, and the proxy before the store."""

    pids: Callable[[], Mapping[str, int | None]]
    ports: Mapping[str, int]
    control: Control
    faults: FaultBook
    proxy: CutProxy | None


@dataclass(order=True)
class _Due:
    at: float
    place: int
    deal: Callable[[], None] = field(compare=False)


@dataclass(frozen=True, slots=True)
class _Up:
    """A process takes connections, since then; for so long it is spared."""

    since: float
    spared: float


class Trouble:
    """Runs in a thread of its own. An outage that it began ends by its own time. `dealt` counts by kind and target."""

    def __init__(self, parts: Parts, schedule: Iterator[Blow], breath: Breath) -> None:
        self._parts = parts
        self._breath = breath
        self._schedule = schedule
        self._due: list[_Due] = []
        self._place = count()
        self._began = 0.0
        self._up: dict[str, _Up] = {}
        self._down_since: dict[str, float] = {}
        self._awaited: set[str] = set()  # targets of a kill that waits until they are up; a second one is dropped
        self.dealt: Counter[tuple[Kind, str]] = Counter()

    def run(self, over: threading.Event) -> None:
        """Deal blows until it is over; then whatever stands still goes on."""
        self._began = time.monotonic()
        self._next_blow()
        self._look()
        try:
            while not over.wait(max(0.0, self._due[0].at - self._now())):
                heapq.heappop(self._due).deal()
        finally:
            self._undo_all()

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _later(self, at: float, deal: Callable[[], None]) -> None:
        heapq.heappush(self._due, _Due(at, next(self._place), deal))

    def _next_blow(self) -> None:
        blow = next(self._schedule)

        def deal() -> None:
            self._next_blow()
            self._deal(blow)

        self._later(blow.at, deal)

    def _deal(self, blow: Blow) -> None:
        match blow.kind:
            case Kind.KILL:
                self._kill(blow)
            case Kind.STALL:
                self._stall(blow)
            case Kind.FAULT:
                self._fault(blow)
            case _:
                self._strike(blow)

    def _kill(self, blow: Blow) -> None:
        if not self._breath.is_taken and blow.target not in self._awaited:
            self._awaited.add(blow.target)
            self._kill_once_up(blow.target)

    def _kill_once_up(self, target: str) -> None:
        names = target.split("+")
        if not all(self._is_up(name) for name in names):
            self._later(self._now() + LOOK_EVERY, lambda: self._kill_once_up(target))
            return
        self._awaited.discard(target)
        pids = self._parts.pids()
        for name in names:
            if pid := pids[name]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    self.dealt[Kind.KILL, name] += 1
            self._is_down(name)

    def _stall(self, blow: Blow) -> None:
        if pid := self._parts.pids()[blow.target]:
            self.dealt[Kind.STALL, blow.target] += 1
            with self._parts.faults.held():  # which the simulator writes too, and it shall go on
                _signal(pid, signal.SIGSTOP)
            self._later(self._now() + blow.seconds, lambda: _signal(pid, signal.SIGCONT))

    def _fault(self, blow: Blow) -> None:
        waiting = [fault for fault in self._parts.control.get("faults") if fault["times"]]
        if len(waiting) < OPEN_FAULTS_AT_MOST or blow.target == "provider":
            self._parts.control.post("faults", blow.fault)

    def _strike(self, blow: Blow) -> None:
        """At the way to the store. One strike at a time: the end of one would end the other."""
        proxy = self._parts.proxy
        if proxy is None or not proxy.is_open:
            return
        self.dealt[blow.kind, blow.target] += 1
        match blow.kind:
            case Kind.SWALLOW:
                proxy.swallow_next_answer()
            case Kind.CUT:
                proxy.cut()
                self._later(self._now() + blow.seconds, proxy.restore)
            case Kind.SILENCE:
                proxy.blackhole()
                self._later(self._now() + blow.seconds, proxy.restore)

    def _look(self) -> None:
        now = self._now()
        for name in self._parts.ports:
            if not self._answers(name):
                self._is_down(name)
            elif name not in self._up:
                was_down = now - self._down_since.pop(name, now)
                self._up[name] = _Up(now, max(UP_SECONDS, was_down))
        self._later(now + LOOK_EVERY, self._look)

    def _is_down(self, name: str) -> None:
        self._up.pop(name, None)
        self._down_since.setdefault(name, self._now())

    def _is_up(self, name: str) -> bool:
        return name in self._up and self._now() - self._up[name].since >= self._up[name].spared

    def _answers(self, name: str) -> bool:
        with socket.socket() as probe:
            probe.settimeout(0.2)
            return probe.connect_ex((LOOPBACK, self._parts.ports[name])) == 0

    def _undo_all(self) -> None:
        for name, pid in self._parts.pids().items():
            if pid and name != "whatsapp":
                _signal(pid, signal.SIGCONT)
        if self._parts.proxy:
            self._parts.proxy.swallow_no_more()
            self._parts.proxy.restore()
        # Each of them would meet a probe of the circuit breaker, which follows the last one after its longest wait.
        self._parts.faults.withdraw("provider", MET_BY_CALLS)


def _signal(pid: int, number: signal.Signals) -> None:
    """To the process and those it started: each child of the stack leads a group of its own."""
    with suppress(ProcessLookupError):
        os.killpg(pid, number)
