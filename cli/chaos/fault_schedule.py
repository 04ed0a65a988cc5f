"""The schedule of faults: an endless sequence, the same for the same seed. Times are in seconds."""

import heapq
import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum, auto
from typing import Any

from local.services import SERVICES

KILLED = (*SERVICES, "tasks")
"""The processes that every run kills. If a store's own server keeps its data, the run kills it too."""

STORE = "store"
TOGETHER = "+".join(KILLED)


LOST_ANSWER: Mapping[str, Any] = {"on": "send", "kind": "accept_then_drop"}
TASK_TWICE: Mapping[str, Any] = {"on": "task", "kind": "duplicate", "times": 3}


class Action(StrEnum):
    """What a disruption does to its target."""

    KILL = auto()  # SIGKILL; the stack restarts it at once
    STALL = auto()  # SIGSTOP for a while, sometimes longer than a lease
    CUT = auto()  # every connection to the store is closed, and each new one at once
    SILENCE = auto()  # connections to the store stay open, but nothing arrives
    SWALLOW = auto()  # the store does what it was asked, but its answer is lost
    FAULT = auto()  # the simulator or the queue misbehaves


@dataclass(frozen=True, slots=True)
class Disruption:
    """One fault to inject, `at` seconds after the start; one that lasts does so for `seconds`."""

    at: float
    kind: Action
    target: str = ""
    seconds: float = 0.0
    fault: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FaultRates:
    """How often faults are injected. `kill_every`: the mean time between two kills of one process; `fault_every`
    likewise. `lease`: the lease of an outbound message. `doubt`: how long a doubt lasts. `server`: the store runs as
    a server; `keeps`: it keeps its data through a kill. `owed_every`: in a short run, chance may leave out a fault that
    the run needs, so such faults are forced at this interval; 0: no forced faults. `loses_tasks`: the queue loses
    tasks, which only a sweep repairs. `outage`: how long an outage of WhatsApp lasts; the first begins in the first
    half of `length`, the length of the run; 0: no outage.
    """

    kill_every: float
    fault_every: float
    lease: float
    doubt: float
    owed_every: float = 0.0
    server: bool = False
    keeps: bool = False
    loses_tasks: bool = False
    receipts: bool = True
    outage: float = 0.0
    length: float = 0.0


def disruptions(seed: int, rates: FaultRates) -> Iterator[Disruption]:
    """An endless sequence, in the order of their times."""
    killed = [*KILLED, *([STORE] if rates.server and rates.keeps else [])]
    rows = [_row(f"{seed} kill {name}", rates.kill_every, _kill(name)) for name in killed]
    rows.append(_row(f"{seed} kill all", rates.kill_every * 6, _kill(TOGETHER)))
    rows += [_row(f"{seed} stall {name}", rates.kill_every * 3, _stall(name, rates.lease)) for name in KILLED]
    rows.append(_row(f"{seed} fault", rates.fault_every, _fault(rates)))
    if rates.owed_every:
        rows.append(_owed(rates.owed_every))
    if rates.outage:
        rows.append(_outages(f"{seed} outage", rates))
    if rates.server:
        rows.append(_row(f"{seed} stall store", rates.kill_every * 2, _stall(STORE, rates.lease)))
        rows.append(_row(f"{seed} cut", rates.kill_every * 1.5, _away(Action.CUT)))
        rows.append(_row(f"{seed} silence", rates.kill_every * 2, _away(Action.SILENCE)))
        rows.append(_row(f"{seed} swallow", rates.kill_every / 4, lambda _, at: Disruption(at, Action.SWALLOW, STORE)))
    return heapq.merge(*rows, key=lambda disruption: disruption.at)


Make = Callable[[random.Random, float], Disruption]


def _row(seed: str, every: float, make: Make) -> Iterator[Disruption]:
    chance = random.Random(seed)
    at = every * chance.uniform(0.3, 1)
    while True:
        yield make(chance, at)
        at += every * chance.uniform(0.5, 1.5)


def _owed(every: float) -> Iterator[Disruption]:
    """Lost answers of sends and duplicated tasks, in turn."""
    for number, fault in enumerate(itertools.cycle((LOST_ANSWER, TASK_TWICE))):
        yield Disruption(every * (number + 0.5), Action.FAULT, str(fault["on"]), fault=fault)


def _outages(seed: str, rates: FaultRates) -> Iterator[Disruption]:
    """WhatsApp cannot be reached, each time for a little longer than eight attempts would take."""
    chance = random.Random(seed)
    at = rates.length * chance.uniform(0.1, 0.5)
    while True:
        fault = {"on": "provider", "kind": "unreachable", "seconds": round(rates.outage * chance.uniform(1, 1.2), 3)}
        yield Disruption(at, Action.FAULT, "provider", fault=fault)
        at += rates.outage * chance.uniform(3, 6)


def _kill(name: str) -> Make:
    return lambda _, at: Disruption(at, Action.KILL, name)


def _stall(name: str, lease: float) -> Make:
    """Shorter or longer than a lease: a worker that stalled past its lease must not send."""
    return lambda chance, at: Disruption(at, Action.STALL, name, chance.uniform(0.1, 1.4) * lease)


def _away(kind: Action) -> Make:
    return lambda chance, at: Disruption(at, kind, STORE, chance.uniform(0.2, 2))


def _fault(rates: FaultRates) -> Make:
    menu = list(_menu(rates))
    weights = [weight for weight, _ in menu]

    def make(chance: random.Random, at: float) -> Disruption:
        fault = dict(chance.choices(menu, weights)[0][1])
        if longest := fault.pop("longest", None):
            fault["seconds"] = round(chance.uniform(0.1, 1) * longest, 3)
        return Disruption(at, Action.FAULT, fault["on"], fault=fault)

    return make


def _menu(rates: FaultRates) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Faults by weight. Answers that are lost without a message being accepted are rare: two in a row rightly end a
    message in doubt, and prove nothing.
    """
    lost: Sequence[Mapping[str, Any]] = ({"status": 500}, {"code": 131000, "status": 500}, {"code": 1})
    refused: Sequence[Mapping[str, Any]] = (
        *({"code": code} for code in (2, 131016, 133004)),
        {"status": 429},
        {"code": 199999, "status": 400, "transient": True},
    )
    limited = (130429, 131056, 80007, 4)
    yield 1, {"on": "provider", "kind": "refuse", "times": 4}
    yield 1, {"on": "provider", "kind": "hang", "longest": rates.lease / 2}
    yield 9, LOST_ANSWER
    yield 4, {"on": "send", "kind": "slow", "longest": rates.lease / 4}
    yield 8, {"on": "send", "kind": "slow", "longest": rates.lease / 12, "times": 3}  # within its timeout, for a kill
    yield 1, {"on": "send", "kind": "drop"}
    yield 1, {"on": "send", "kind": "refuse"}
    yield from ((1, {"on": "send", "kind": "error", **how}) for how in (*lost, *refused))
    yield from ((2, {"on": "send", "kind": "error", "code": code}) for code in limited)
    if rates.receipts:
        yield 4, {"on": "receipt", "kind": "duplicate", "times": 2}
        yield 4, {"on": "receipt", "kind": "reorder"}
        yield 4, {"on": "receipt", "kind": "slow", "longest": rates.doubt / 3}
    yield 3, {"on": "webhook", "kind": "duplicate"}
    yield 3, {"on": "webhook", "kind": "reorder", "longest": 1}
    yield 2, {"on": "webhook", "kind": "drop"}
    yield 12, TASK_TWICE
    yield 4, {"on": "task", "kind": "early", "times": 2}
    yield 2, {"on": "task", "kind": "slow", "longest": rates.lease / 2}
    yield 2, {"on": "task", "kind": "free_name"}
    if rates.loses_tasks:
        yield 4, {"on": "task", "kind": "drop"}
