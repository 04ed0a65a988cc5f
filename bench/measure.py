"""One server's measurements of one round, against the fakes."""

import http.client
import itertools
import json
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import payloads
from bench.environments import CACHE, ROOT, Environments
from bench.errors import BenchError
from bench.processes import cpu_seconds, memory_bytes, started
from bench.proof import Work, check_answers, check_work
from bench.servers import PRODUCT, Addresses, Server, variables

CONNECTIONS = 16
WARM_UP_SECONDS = 1.0
MOST_REQUESTS = 60_000
"""Of one load; they are prepared beforehand, and each takes about 1.5 kB."""
FIRST_RATE = 12_000
"""Requests a second to prepare for before a server's rate is known."""
START_SECONDS = 30.0
LARGE = 1_000
LARGE_DELIVERIES = 20
FEW_RECEIPTS = 200
_tag = itertools.count(int(time.time()) % 1_000_000 * 1_000)
"""Numbers that make every load's messages new, also to a store that keeps those of an earlier run."""


@dataclass(frozen=True, slots=True)
class Harness:
    """What a measurement needs around the server."""

    environments: Environments
    fakes: "Fakes"
    server_core: int | None
    load_core: int | None
    seconds: float
    rows: frozenset[str]
    token: bool = False
    """Whether the baselines fetch a token at their start, because the product does."""


@dataclass(frozen=True, slots=True)
class Fakes:
    """The running fakes."""

    at: Addresses
    pid: int

    def counts(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(_get(self.at.metadata, "/bench/counts"))
        return found

    def reset(self) -> None:
        _get(self.at.metadata, "/bench/reset")


@dataclass(slots=True)
class Measured:
    """The figures of one server in one round, and how busy each side was."""

    figures: dict[str, float] = field(default_factory=dict)
    busy: dict[str, float] = field(default_factory=dict)
    """During the load of 16 connections: the shares of a core that `server` and `load` (with the fakes) took; the
    requests per second that the load and the fakes could reach on their core, `limit`, and the fakes alone, `fakes`.
    """


@contextmanager
def running_fakes(environments: Environments, core: int | None) -> Iterator[Fakes]:
    """The fakes, while they run."""
    command = [str(environments.baselines_python), "-m", "bench.fakes"]
    with started(command, {"PATH": "/usr/bin:/bin"}, ROOT, core, CACHE / "fakes.log", pipes=True) as process:
        line = process.stdout.readline() if process.stdout else ""
        if not line:
            raise BenchError(f"The fakes did not start; {_seen(CACHE / 'fakes.log')}")
        ports = json.loads(line)
        yield Fakes(Addresses(ports["firestore"], ports["tasks"], ports["metadata"]), process.pid)


def cold_start(server: Server, harness: Harness) -> float:
    """Seconds from exec to the first signed webhook that is answered 200."""
    harness.fakes.reset()
    with _running(server, harness) as (_, seconds, _port):
        check_work(server.name, server.durable, Work(messages=1), harness.fakes.counts())
        return seconds


def asks_for_token(server: Server, harness: Harness) -> bool:
    """Whether the server asks the metadata server for a token before its first answer."""
    cold_start(server, harness)
    return bool(harness.fakes.counts()["tokens"])


def measure(server: Server, harness: Harness) -> Measured:
    """All rows but `cold`, on one process. Raises BenchError."""
    found = Measured()
    with _running(server, harness) as (process, _, port):
        round_ = _Round(server, harness, process.pid, port, found)
        round_.warm_up()
        round_.messages()
        if "cpu" in harness.rows:
            round_.single()
            round_.receipts()
        if "memory" in harness.rows:
            found.figures["memory"] = memory_bytes(process.pid) / 2**20
        if "latency" in harness.rows:
            round_.latency()
        if "large" in harness.rows:
            round_.large()
        if server.name == "pywa":
            _check_pywa(port)
    return found


@dataclass(slots=True)
class _Round:
    server: Server
    harness: Harness
    pid: int
    port: int
    found: Measured
    rate: float = FIRST_RATE

    def warm_up(self) -> None:
        seconds = min(WARM_UP_SECONDS, self.harness.seconds)
        self.rate = self._load("message", CONNECTIONS, seconds)["rate"]
        if "cpu" in self.harness.rows:
            self._load("receipt", CONNECTIONS, seconds, most=FEW_RECEIPTS)

    def messages(self) -> None:
        result = self._load("message", CONNECTIONS, self.harness.seconds)
        self.rate = result["rate"]
        if "rate" in self.harness.rows:
            self.found.figures |= {"rate": self.rate, "capacity": 1 / result["cpu"]}
        if "cpu" in self.harness.rows:
            self.found.figures["cpu_message_16"] = result["cpu"] * 1e6
        other = result["fakes_cpu"] + result["own_cpu"]
        self.found.busy = {
            "server": result["cpu"] * self.rate,
            "load": other * self.rate / result["ok"],
            "limit": result["ok"] / other,
            "fakes": result["ok"] / result["fakes_cpu"] if self.server.durable else 0.0,
        }

    def single(self) -> None:
        result = self._load("message", 1, self.harness.seconds)
        self.found.figures["cpu_message_1"] = result["cpu"] * 1e6

    def receipts(self) -> None:
        result = self._load("receipt", CONNECTIONS, self.harness.seconds)
        self.found.figures["cpu_receipt_16"] = result["cpu"] * 1e6

    def latency(self) -> None:
        result = self._load("message", 4 * CONNECTIONS, self.harness.seconds, rate=self.rate / 2)
        self.found.figures |= {name: result[name] * 1000 for name in ("p50", "p95", "p99")}
        self.found.busy["late_p99_ms"] = result["late_p99"] * 1000

    def large(self) -> None:
        result = self._load("message", 1, 0, most=LARGE_DELIVERIES, large=LARGE)
        self.found.figures |= {
            "large_seconds": result["seconds"],
            "large_deliveries": result["sent"],
            "large_cpu": result["server_cpu"] * 1e6 / LARGE,
        }

    def _load(
        self, kind: str, connections: int, seconds: float, rate: float = 0.0, most: int = 0, large: int = 0
    ) -> dict[str, Any]:
        """Run one load, and prove the server's work."""
        fakes = self.harness.fakes
        fakes.reset()
        most = most or min(MOST_REQUESTS, int(max(self.rate, 1000) * 3 * seconds))
        spec = {"port": self.port, "kind": kind, "tag": next_tag(), "connections": connections, "seconds": seconds}
        spec |= {"most": most, "rate": rate, "large": large}
        harness = self.harness
        result = run_load(spec, harness.environments, harness.load_core, self.pid, fakes.pid)
        if large:
            if not result["ok"]:
                raise BenchError(
                    f"{self.server.name} did not take a POST of {large:,} messages in {result['sent']} deliveries."
                )
            work = Work(messages=large)
        else:
            check_answers(self.server.name, result["sent"], result["ok"], result["statuses"])
            work = Work(result["ok"], 0) if kind == "message" else Work(0, result["ok"])
        check_work(self.server.name, self.server.durable, work, fakes.counts())
        return {**result, "cpu": result["server_cpu"] / result["ok"], "rate": result["ok"] / result["seconds"]}


def next_tag() -> int:
    """A tag for payloads.requests that was never used before."""
    return next(_tag)


def run_load(
    spec: Mapping[str, Any],
    environments: Environments,
    core: int | None = None,
    server: int | None = None,
    fakes: int | None = None,
) -> dict[str, Any]:
    """The result of bench.load, and the processor time that these two processes took meanwhile."""
    command, errors = [str(environments.baselines_python), "-m", "bench.load"], CACHE / "load.log"
    with started(command, {"PATH": "/usr/bin:/bin"}, ROOT, core, errors, pipes=True) as load:
        assert load.stdin is not None
        assert load.stdout is not None
        load.stdin.write(json.dumps(spec) + "\n")
        load.stdin.flush()
        if load.stdout.readline().strip() != "ready":
            raise BenchError(f"The load could not begin; {_seen(errors)}")
        before = [cpu_seconds(pid) if pid else 0.0 for pid in (server, fakes)]
        load.stdin.write("go\n")
        load.stdin.flush()
        line = load.stdout.readline()
        after = [cpu_seconds(pid) if pid else 0.0 for pid in (server, fakes)]
    if not line:
        raise BenchError(f"The load broke off; {_seen(errors)}")
    taken = [end - begin for begin, end in zip(before, after, strict=True)]
    result: dict[str, Any] = json.loads(line)
    return {**result, "server_cpu": taken[0], "fakes_cpu": taken[1]}


@contextmanager
def _running(server: Server, harness: Harness) -> Iterator[tuple["subprocess.Popen[str]", float, int]]:
    """The server, the seconds until its first 200, and its port."""
    port = free_port()
    token = harness.token or server.name == PRODUCT
    environment = variables(server, harness.environments, port, harness.fakes.at, token)
    errors = CACHE / f"{server.name}.log"
    command, directory = server.command(harness.environments, port), server.directory(harness.environments)
    first = next(payloads.requests("message", next_tag(), 1))
    began = time.perf_counter()
    with started(command, environment, directory, harness.server_core, errors) as process:
        status = _first_answer(process, port, first, began + START_SECONDS)
        seconds = time.perf_counter() - began
        if status != 200:
            raise BenchError(f"{server.name} did not answer its first webhook with 200 but {status}; {_seen(errors)}")
        yield process, seconds, port


def _first_answer(process: "subprocess.Popen[str]", port: int, request: bytes, deadline: float) -> int | str:
    while time.perf_counter() < deadline:
        if process.poll() is not None:
            return f"ended with exit code {process.returncode}"
        with suppress(ConnectionError), socket.create_connection(("127.0.0.1", port), timeout=START_SECONDS) as client:
            client.sendall(request)
            if head := client.recv(4096):
                return int(head.split()[1])
        time.sleep(0.001)
    return "nothing"


def _check_pywa(port: int) -> None:
    handled = json.loads(_get(port, "/handled"))
    if not handled["messages"]:
        raise BenchError("pywa's handler saw no message: it dropped what it was sent.")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _get(port: int, path: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path)
        return connection.getresponse().read()
    finally:
        connection.close()


def _seen(errors: Path) -> str:
    lines = errors.read_text(errors="replace").strip().splitlines() if errors.exists() else []
    return f"it wrote: {lines[-1][:300]}" if lines else "it wrote nothing."
