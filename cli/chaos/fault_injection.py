"""Fault injection: inject each fault of the schedule at its time, and count it if it hit something."""

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
"""Faults that may wait in the simulator: with more, the first process after a standstill would meet all of them."""

LOOK_EVERY = 0.25
"""Seconds between two checks of which processes are up, and before a kill is retried whose target was down."""

UP_SECONDS = 2.0
"""A process must have been up this long before a kill, and at least as long as it was down before. Even on a slow
machine it then has work under way that the kill can interrupt."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The targets: the current pids, the ports that each process answers on, and the proxy before the store."""

    pids: Callable[[], Mapping[str, int | None]]
    ports: Mapping[str, int]
    control: SimulatorControl
    faults: FaultBook
    proxy: FaultyProxy | None


@dataclass(order=True)
class _Due:
    at: float
    place: int
    inject: Callable[[], None] = field(compare=False)


@dataclass(frozen=True, slots=True)
class _Up:
    """A process that accepts connections since `since`; it is not killed for the first `spared` seconds."""

    since: float
    spared: float


class FaultInjector:
    """Runs in a separate thread. An outage that it began ends by its own time. `injected` counts by kind and target."""

    def __init__(self, parts: Parts, schedule: Iterator[Disruption], backpressure: Backpressure) -> None:
        self._parts = parts
        self._backpressure = backpressure
        self._schedule = schedule
        self._due: list[_Due] = []
        self._place = count()
        self._began = 0.0
        self._up: dict[str, _Up] = {}
        self._down_since: dict[str, float] = {}
        self._awaited: set[str] = set()  # targets of a kill that waits until they are up; a second kill is dropped
        self.injected: Counter[tuple[Action, str]] = Counter()

    def run(self, over: threading.Event) -> None:
        """Inject faults until `over` is set; then resume every stalled process."""
        self._began = time.monotonic()
        self._next_disruption()
        self._look()
        try:
            while not over.wait(max(0.0, self._due[0].at - self._now())):
                heapq.heappop(self._due).inject()
        finally:
            self._undo_all()

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _later(self, at: float, inject: Callable[[], None]) -> None:
        heapq.heappush(self._due, _Due(at, next(self._place), inject))

    def _next_disruption(self) -> None:
        disruption = next(self._schedule)

        def inject() -> None:
            self._next_disruption()
            self._inject(disruption)

        self._later(disruption.at, inject)

    def _inject(self, disruption: Disruption) -> None:
        match disruption.kind:
            case Action.KILL:
                self._kill(disruption)
            case Action.STALL:
                self._stall(disruption)
            case Action.FAULT:
                self._fault(disruption)
            case _:
                self._break_store(disruption)

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
                    self.injected[Action.KILL, name] += 1
            self._is_down(name)

    def _stall(self, disruption: Disruption) -> None:
        if pid := self._parts.pids()[disruption.target]:
            self.injected[Action.STALL, disruption.target] += 1
            with self._parts.faults.held():  # a stopped process must not hold this lock: the simulator needs it
                _signal(pid, signal.SIGSTOP)
            self._later(self._now() + disruption.seconds, lambda: _signal(pid, signal.SIGCONT))

    def _fault(self, disruption: Disruption) -> None:
        waiting = [fault for fault in self._parts.control.get("faults") if fault["times"]]
        if len(waiting) < OPEN_FAULTS_AT_MOST or disruption.target == "provider":
            self._parts.control.post("faults", disruption.fault)

    def _break_store(self, disruption: Disruption) -> None:
        """Break the connection to the store. One fault at a time: the end of one would end the other."""
        proxy = self._parts.proxy
        if proxy is None or not proxy.is_open:
            return
        self.injected[disruption.kind, disruption.target] += 1
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
        # Each of them would meet a probe of the circuit breaker, which comes only after the breaker's longest wait.
        self._parts.faults.withdraw("provider", MET_BY_CALLS)


def _signal(pid: int, number: signal.Signals) -> None:
    """Signal the process and its children: each child of the stack leads its own process group."""
    with suppress(ProcessLookupError):
        os.killpg(pid, number)
