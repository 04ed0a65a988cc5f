"""POST /v1/messages: the API service beside a bare Flask app with the same store and queue, in the same run.

Each sample has a new store: SQLite's file, a redis-server of its own, or the fake of Firestore. Tasks go to the fake of
Cloud Tasks. Both servers get the same requests, and the counts prove that each stored and queued what it answered.
"""

import http.client
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from bench import payloads
from bench.environments import CACHE, Environments
from bench.errors import BenchError
from bench.figures import API_FIGURES, Summary, markdown_cell, summarise, table
from bench.measure import (
    CONNECTIONS,
    MOST_REQUESTS,
    START_SECONDS,
    WARM_UP_SECONDS,
    Fakes,
    Harness,
    free_port,
    next_tag,
    run_load,
)
from bench.processes import started
from bench.proof import Work, check_answers, check_work
from bench.servers import BASELINES, THREADS, settings
from local.stores import PROGRAMS
from shared import config
from shared.bootstrap.backends import build_store
from shared.domain.record import State
from shared.domain.tenants import DEFAULT_TENANT, Scope
from shared.operations.keys import add_key
from shared.pipeline.clock import SystemClock

API, BARE = "api", "bare"
KEYS = 64
"""API keys of the load: one may make 50 requests a second."""

ACCEPTED = 202
MOST_RATE = 3_000
"""Requests a second that the keys allow, and that are prepared."""

Samples = Mapping[str, Mapping[str, list[float]]]
"""Of one store, by server and figure."""


class StoreMissing(Exception):
    """The store's server is not installed."""


def _service(environments: Environments, port: int) -> list[str]:  # noqa: ARG001 - the port is in PORT
    return [str(environments.product_python), "-m", "services.api"]


def _bare(environments: Environments, port: int) -> list[str]:
    program = [str(environments.product_python), "-m", "gunicorn", "--no-control-socket", "--threads", THREADS]
    where = ["--pythonpath", f".,{BASELINES}", "--bind", f"127.0.0.1:{port}"]
    return [*program, "--worker-class", "gthread", *where, "bare_api:app"]


SERVERS: Mapping[str, Callable[[Environments, int], list[str]]] = {API: _service, BARE: _bare}


def measure(store: str, name: str, harness: Harness) -> dict[str, float]:
    """The figures of one server on a new store. `harness` has the environment of the API service. Raises BenchError and
    StoreMissing.
    """
    with tempfile.TemporaryDirectory(prefix="pombo-bench-") as directory, ExitStack() as ending:
        given = ending.enter_context(_store(store, Path(directory), harness))
        keys, port = _new_keys(given), free_port()
        environment = {**given, **harness.environments.product_variables, "PORT": str(port)}
        errors = CACHE / f"{name}-{store}.log"
        command, app = SERVERS[name](harness.environments, port), harness.environments.app
        process = ending.enter_context(started(command, environment, app, harness.server_core, errors))
        _present(keys, port, process, errors)
        sample = _Sample(name, store, given, harness, process.pid, port, keys)
        sample.load(CONNECTIONS, min(WARM_UP_SECONDS, harness.seconds))
        many, one = sample.load(CONNECTIONS, harness.seconds), sample.load(1, harness.seconds)
    return {"api_rate": many["rate"], "api_cpu_16": many["cpu"] * 1e6, "api_cpu_1": one["cpu"] * 1e6}


class _Sample:
    """One server that is up, and the loads on it."""

    def __init__(
        self,
        name: str,
        store: str,
        given: Mapping[str, str],
        harness: Harness,
        pid: int,
        port: int,
        keys: Sequence[str],
    ) -> None:
        self._name, self._store, self._given, self._harness = name, store, given, harness
        self._pid, self._spec = pid, {"port": port, "kind": "api", "keys": keys, "status": ACCEPTED}

    def load(self, connections: int, seconds: float) -> dict[str, Any]:
        """Run one load, and prove that the server stored and queued each message that it accepted."""
        harness = self._harness
        most = min(MOST_REQUESTS, int(MOST_RATE * seconds))
        spec = {**self._spec, "tag": next_tag(), "connections": connections, "seconds": seconds, "most": most}
        before = self._counts()
        result = run_load(spec, harness.environments, harness.load_core, self._pid, harness.fakes.pid)
        check_answers(self._name, result["sent"], result["ok"], result["statuses"], ACCEPTED)
        after = self._counts()
        made = {what: after[what] - before[what] for what in ("created", "tasks")}
        check_work(self._name, True, Work(result["ok"]), {**made, "changed": 0, "unknown": after["unknown"]})
        return {**result, "cpu": result["server_cpu"] / result["ok"], "rate": result["ok"] / result["seconds"]}

    def _counts(self) -> dict[str, Any]:
        """What was made so far: by the fakes, and for a real store by its own count of waiting messages."""
        counts = self._harness.fakes.counts()
        if self._store == "firestore":
            return counts
        store = build_store(config.load(self._given, config.CLI))
        try:
            return {**counts, "created": store.backlog().counts[State.PENDING]}
        finally:
            store.close()


@contextmanager
def _store(store: str, directory: Path, harness: Harness) -> Iterator[Mapping[str, str]]:
    """The environment of a server with this store, which is new."""
    fakes: Fakes = harness.fakes
    fakes.reset()
    given = {"PATH": "/usr/bin:/bin", **settings(fakes.at), "STORE": store}
    given["SQLITE_PATH"] = str(directory / "pombo.sqlite")
    if store != "redis":
        yield given
        return
    program, port = PROGRAMS[store], free_port()
    address = program.address(port)
    try:
        command = program.command(port, directory)
    except click.ClickException as error:
        raise StoreMissing(error.format_message()) from error
    with started(command, {"PATH": "/usr/bin:/bin"}, directory, harness.load_core):
        _wait(lambda: program.answers(address), f"{program.what} did not start.")
        yield {**given, program.setting: address}


def _new_keys(given: Mapping[str, str]) -> list[str]:
    """API keys of tenant default, in the store."""
    store = build_store(config.load(given, config.CLI))
    try:
        return [add_key(store, SystemClock(), DEFAULT_TENANT, {Scope.SEND})[1] for _ in range(KEYS)]
    finally:
        store.close()


def _present(keys: Sequence[str], port: int, process: "subprocess.Popen[str]", errors: Path) -> None:
    """Send one message with each key: a process looks up only 20 unknown keys a second, and takes a known one at once.
    Raises BenchError.
    """
    for request in payloads.api_requests(next_tag(), len(keys), keys):
        _wait(lambda request=request: _status(port, request) == ACCEPTED, f"See {errors}.", process)  # type: ignore[misc]


def _status(port: int, request: bytes) -> int:
    """Of the answer; 0 if there is none."""
    head, _, body = request.partition(b"\r\n\r\n")
    headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_SECONDS)
    with suppress(OSError, http.client.HTTPException):
        connection.request("POST", payloads.API_PATH, body, headers)
        return connection.getresponse().status
    return 0


def _wait(condition: Callable[[], bool], otherwise: str, process: "subprocess.Popen[str] | None" = None) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        if time.monotonic() > deadline or (process and process.poll() is not None):
            raise BenchError(f"A server does not answer as it must. {otherwise}")
        time.sleep(0.02)


# ---- the tables


def summaries(samples: Samples) -> dict[str, dict[str, Summary]]:
    """By figure and then by server, each with its ratio to the bare app."""
    return {
        figure.key: summarise({server: its.get(figure.key, []) for server, its in samples.items()}, BARE)
        for figure in API_FIGURES
    }


def lines(stores: Mapping[str, Samples]) -> Iterator[str]:
    """A table for each store, for a terminal."""
    for store, samples in stores.items():
        yield f"POST /v1/messages, {store}"
        yield from table(summaries(samples), API_FIGURES, BARE)
        yield ""


def markdown(stores: Mapping[str, Samples]) -> Iterator[str]:
    """One table for a page."""
    yield f"| store | POST /v1/messages | {API} | {BARE} |"
    yield "|---|---|---|---|"
    for store, samples in stores.items():
        found = summaries(samples)
        for figure in API_FIGURES:
            cells = [markdown_cell(figure, found[figure.key].get(server)) for server in (API, BARE)]
            yield f"| {store} | {figure.label}, {figure.unit} | {' | '.join(cells)} |"
