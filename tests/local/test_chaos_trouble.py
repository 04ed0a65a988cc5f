"""Trouble on real processes: who is killed, how often, and what is undone at the end."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.chaos.backpressure import Backpressure
from cli.chaos.fault_injection import FaultInjector, Parts
from cli.chaos.fault_schedule import Action, Disruption
from local.faults import Fault, FaultBook
from local.faulty_proxy import FaultyProxy

LISTEN = """
import socket, sys, time
with socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=64):
    time.sleep(600)
"""


class Process:
    """Something that listens on a port of its own, and leads a group as each child of the stack does."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.start()

    def start(self) -> None:
        self.popen = subprocess.Popen([sys.executable, "-c", LISTEN, str(self.port)], start_new_session=True)

    def end(self) -> None:
        self.popen.kill()
        self.popen.wait()

    @property
    def state(self) -> str:
        """R, S, T (stopped)… https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html"""
        return Path(f"/proc/{self.popen.pid}/stat").read_text().rpartition(")")[2].split()[0]


class Posted:
    """A control address that takes faults and keeps them."""

    def __init__(self, waiting: int = 0) -> None:
        self.faults: list[Any] = [{"times": 1}] * waiting

    def get(self, _: str) -> Any:
        return self.faults

    def post(self, _: str, fault: Any) -> None:
        self.faults = [*self.faults, {"times": 1, **fault}]


@pytest.fixture
def process() -> Iterator[Process]:
    process = Process()
    yield process
    process.end()


def trouble(
    tmp_path: Path,
    process: Process,
    *schedule: Disruption,
    control: Any = None,
    backpressure: Backpressure | None = None,
    proxy: Any = None,
) -> FaultInjector:
    parts = Parts(
        pids=lambda: {"internal": process.popen.pid},
        ports={"internal": process.port},
        control=control or Posted(),
        faults=FaultBook(tmp_path / "faults.sqlite"),
        proxy=proxy,
    )
    never = Disruption(10_000, Action.FAULT)
    return FaultInjector(parts, iter([*schedule, never]), backpressure or Backpressure())


def during(trouble: FaultInjector, condition: Any, seconds: float = 30) -> Any:
    """Run it until the condition is true, and then end it; what the condition gave."""
    over = threading.Event()
    thread = threading.Thread(target=trouble.run, args=(over,))
    thread.start()
    deadline = time.monotonic() + seconds
    try:
        while not (value := condition()):
            assert time.monotonic() < deadline, "the condition did not become true in time"
            time.sleep(0.01)
        return value
    finally:
        over.set()
        thread.join()


def test_process_is_killed_only_after_being_up_and_kills_do_not_pile_up(tmp_path: Path, process: Process) -> None:
    kills = [
        Disruption(0.1, Action.KILL, "internal"),
        Disruption(0.2, Action.KILL, "internal"),
        Disruption(0.3, Action.KILL, "internal"),
    ]
    made = trouble(tmp_path, process, *kills)
    began = time.monotonic()

    during(made, lambda: process.popen.poll() is not None)

    assert time.monotonic() - began >= 2
    assert process.popen.returncode == -signal.SIGKILL
    assert made.injected == {(Action.KILL, "internal"): 1}


def test_no_process_is_killed_during_backpressure(tmp_path: Path, process: Process) -> None:
    backpressure = Backpressure()
    backpressure.look(5000, now=0)
    control = Posted()
    disruptions = (
        Disruption(0, Action.KILL, "internal"),
        Disruption(2.5, Action.KILL, "internal"),
        Disruption(2.6, Action.FAULT, fault={"on": "task"}),
    )

    during(
        made := trouble(tmp_path, process, *disruptions, control=control, backpressure=backpressure),
        lambda: control.faults,
    )

    assert (process.popen.poll(), made.injected) == (None, {})


def test_stalled_process_continues_after_its_time(tmp_path: Path, process: Process) -> None:
    seen: set[str] = set()

    def has_stopped_and_gone_on() -> bool:
        seen.add(process.state)
        return "T" in seen and process.state != "T"

    during(
        trouble(tmp_path, process, Disruption(0, Action.STALL, "internal", seconds=0.3)),
        has_stopped_and_gone_on,
    )


def test_stalled_process_continues_when_the_faults_end(tmp_path: Path, process: Process) -> None:
    during(
        trouble(tmp_path, process, Disruption(0, Action.STALL, "internal", seconds=600)),
        lambda: process.state == "T",
    )

    deadline = time.monotonic() + 10
    while process.state == "T":
        assert time.monotonic() < deadline
    os.kill(process.popen.pid, 0)


def test_faults_are_posted_only_up_to_the_limit_of_waiting_ones(tmp_path: Path, process: Process) -> None:
    control = Posted(waiting=29)
    faults = [Disruption(0, Action.FAULT, fault={"on": "send", "number": number}) for number in range(5)]
    at_last = Disruption(0.2, Action.STALL, "internal", seconds=0)

    during(made := trouble(tmp_path, process, *faults, at_last, control=control), lambda: made.injected)

    assert [fault.get("number") for fault in control.faults[29:]] == [0]


def test_faults_that_never_end_leave_room_for_others(tmp_path: Path, process: Process) -> None:
    control = Posted()
    control.faults = [{"times": 0}] * 50

    during(
        trouble(tmp_path, process, Disruption(0, Action.FAULT, fault={"on": "send"}), control=control),
        lambda: len(control.faults) == 51,
    )


def test_store_proxy_is_open_again_at_the_end(tmp_path: Path, process: Process) -> None:
    with FaultyProxy("127.0.0.1", process.port) as proxy:
        disruptions = (
            Disruption(0, Action.SWALLOW, "store"),
            Disruption(0, Action.CUT, "store", seconds=600),
            Disruption(0, Action.SILENCE, "store"),
        )

        during(
            made := trouble(tmp_path, process, *disruptions, proxy=proxy),
            lambda: (Action.CUT, "store") in made.injected,
        )

        assert proxy.is_open
        assert made.injected == {(Action.SWALLOW, "store"): 1, (Action.CUT, "store"): 1}, "one strike at a time"


def test_total_refusals_end_with_the_faults_and_an_outage_by_its_own_time(tmp_path: Path, process: Process) -> None:
    book = FaultBook(tmp_path / "faults.sqlite")
    for fault in (
        Fault("provider", "refuse", times=4),
        Fault("provider", "hang", seconds=1),
        Fault("provider", "unreachable", seconds=60),
        Fault("send", "accept_then_drop"),
        Fault("send", "error", code=131026, times=0),
    ):
        book.add(fault)

    during(trouble(tmp_path, process), lambda: True)

    assert [(fault.on, fault.kind) for fault in book.active()] == [
        ("provider", "unreachable"),
        ("send", "accept_then_drop"),
        ("send", "error"),
    ]
