"""Fault injection: each fault of the schedule is injected at its time, and counted if it hit something."""

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

from cli.chaos.backpressure import Backpressure
from cli.chaos.fault_schedule import Action, Disruption
from cli.chaos.simulator_control import SimulatorControl
from local.faults import FaultBook
from local.faulty_proxy import FaultyProxy
from local.ports import LOOPBACK
from local.whatsapp.graph_api import MET_BY_CALLS

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
    control: SimulatorControl
    faults: FaultBook
    proxy: FaultyProxy | None


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


class FaultInjector:
    """Runs in a thread of its own. An outage that it began ends by its own time. `dealt` counts by kind and target."""

    def __init__(self, parts: Parts, schedule: Iterator[Disruption], backpressure: Backpressure) -> None:
        self._parts = parts
        self._backpressure = backpressure
        self._schedule = schedule
        self._due: list[_Due] = []
        self._place = count()
        self._began = 0.0
        self._up: dict[str, _Up] = {}
        self._down_since: dict[str, float] = {}
        self._awaited: set[str] = set()  # targets of a kill that waits until they are up; a second one is dropped
        self.dealt: Counter[tuple[Action, str]] = Counter()

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
        disruption = next(self._schedule)

        def deal() -> None:
            self._next_blow()
            self._deal(disruption)

        self._later(disruption.at, deal)

    def _deal(self, disruption: Disruption) -> None:
        match disruption.kind:
            case Action.KILL:
                self._kill(disruption)
            case Action.STALL:
                self._stall(disruption)
            case Action.FAULT:
                self._fault(disruption)
            case _:
                self._strike(disruption)

    def _kill(self, disruption: Disruption) -> None:
        if not self._backpressure.is_paused and disruption.target not in self._awaited:
            self._awaited.add(disruption.target)
            self._kill_once_up(disruption.target)

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
                    self.dealt[Action.KILL, name] += 1
            self._is_down(name)

    def _stall(self, disruption: Disruption) -> None:
        if pid := self._parts.pids()[disruption.target]:
            self.dealt[Action.STALL, disruption.target] += 1
            with self._parts.faults.held():  # which the simulator writes too, and it shall go on
                _signal(pid, signal.SIGSTOP)
            self._later(self._now() + disruption.seconds, lambda: _signal(pid, signal.SIGCONT))

    def _fault(self, disruption: Disruption) -> None:
        waiting = [fault for fault in self._parts.control.get("faults") if fault["times"]]
        if len(waiting) < OPEN_FAULTS_AT_MOST or disruption.target == "provider":
            self._parts.control.post("faults", disruption.fault)

    def _strike(self, disruption: Disruption) -> None:
        """At the way to the store. One strike at a time: the end of one would end the other."""
        proxy = self._parts.proxy
        if proxy is None or not proxy.is_open:
            return
        self.dealt[disruption.kind, disruption.target] += 1
        match disruption.kind:
            case Action.SWALLOW:
                proxy.swallow_next_answer()
            case Action.CUT:
                proxy.cut()
                self._later(self._now() + disruption.seconds, proxy.restore)
            case Action.SILENCE:
                proxy.blackhole()
                self._later(self._now() + disruption.seconds, proxy.restore)

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
