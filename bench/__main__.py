"""python -m bench: the webhook service and the API service beside other servers, against instant fakes.

docs/performance.md says how it measures and how to read the table.
"""

import fcntl
import itertools
import os
import signal
import statistics
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from bench import api, emulators, environments, results
from bench.errors import BenchError
from bench.figures import FIGURES, rotated, table
from bench.measure import Harness, asks_for_token, cold_start, measure, running_fakes
from bench.options import API, EMULATORS, FAKES, Options, parse
from bench.processes import cores
from bench.progress import Progress
from bench.servers import PRODUCT, SERVERS, STOCK

COLD_STARTS = 2
"""Starts in each round, besides the one of the other rows: a start is short and varies much."""

FULL = 0.85
"""A core that is this busy is the limit."""

Samples = dict[str, dict[str, list[float]]]


def main() -> int:
    options = parse()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with _alone():
            _run(options)
    except BenchError as error:
        print(f"\nbench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nbench: stopped; every process was ended and no result was written.", file=sys.stderr)
        return 130
    return 0


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a signal's handler
    raise KeyboardInterrupt


@contextmanager
def _alone() -> Iterator[None]:
    """Two runs at once would measure each other."""
    environments.CACHE.mkdir(parents=True, exist_ok=True)
    with (environments.CACHE / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BenchError("another run is going on in this clone; wait for its end.") from None
        yield


def _run(options: Options) -> None:
    if not Path("/proc/self/smaps_rollup").exists():
        raise BenchError("it reads processor time and memory from /proc, which this system lacks: run it on Linux.")
    progress = Progress(_steps(options))
    built = environments.build(options.python, progress.say)
    samples: Samples = {}
    harness: dict[str, Any] = {}
    stores: dict[str, Any] = {}
    of_api: dict[str, Any] = {}
    if FAKES in options.against:
        samples, harness = _against_fakes(options, built, progress)
    if EMULATORS in options.against:
        stores = _against_emulators(options, built, progress)
    if API in options.against:
        of_api = _of_api(options, progress)
    progress.clear()
    for line in _report(samples, harness, stores, of_api):
        print(line)
    path = options.json or results.default_path()
    results.write(path, results.document(options, built, samples, harness, stores, of_api))
    print(f"\nEvery sample is in {path}")


def _steps(options: Options) -> int:
    fakes = options.rounds * len(options.servers) if FAKES in options.against else 0
    emulated = options.rounds * len(options.stores) if EMULATORS in options.against else 0
    of_api = options.rounds * len(options.stores) * len(api.SERVERS) if API in options.against else 0
    return fakes + emulated + of_api


@contextmanager
def _bound(progress: Progress) -> Iterator[tuple[int | None, int | None]]:
    """The core of the server, and that of everything else, to which this process is bound."""
    everywhere = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    server_core, load_core = cores()
    if load_core is None:
        progress.say(
            "There are fewer than two cores to bind processes to, so the servers share theirs with the load: "
            "only CPU and memory can be compared."
        )
    else:
        os.sched_setaffinity(0, {load_core})
    try:
        yield server_core, load_core
    finally:
        if load_core is not None:
            os.sched_setaffinity(0, everywhere)


def _against_fakes(
    options: Options, built: environments.Environments, progress: Progress
) -> tuple[Samples, dict[str, Any]]:
    samples: Samples = {name: {} for name in options.servers}
    busy: dict[str, list[dict[str, float]]] = {name: [] for name in options.servers}
    with _bound(progress) as (server_core, load_core), running_fakes(built, load_core) as fakes:
        harness = Harness(built, fakes, server_core, load_core, options.seconds, frozenset(options.rows))
        if PRODUCT in options.servers:
            harness = replace(harness, token=asks_for_token(SERVERS[PRODUCT], harness))
        for round_ in range(options.rounds):
            for name in rotated(options.servers, round_):
                progress.step(f"Round {round_ + 1} of {options.rounds}", name)
                _one(name, harness, samples[name], busy[name])
    found = {name: _medians(its) for name, its in busy.items() if its}
    return samples, {"pinned": load_core is not None, "token": harness.token, "busy": found}


def _one(name: str, harness: Harness, samples: dict[str, list[float]], busy: list[dict[str, float]]) -> None:
    """One server's part of a round."""
    server = SERVERS[name]
    if "cold" in harness.rows:
        for _ in range(COLD_STARTS):
            samples.setdefault("cold", []).append(cold_start(server, harness) * 1000)
    if harness.rows - {"cold"}:
        measured = measure(server, harness)
        for key, value in measured.figures.items():
            samples.setdefault(key, []).append(value)
        busy.append(measured.busy)


def _medians(samples: list[dict[str, float]]) -> dict[str, float]:
    return {key: statistics.median(sample[key] for sample in samples if key in sample) for key in samples[0]}


def _against_emulators(
    options: Options, built: environments.Environments, progress: Progress
) -> dict[str, dict[str, list[emulators.Sample]]]:
    found: dict[str, dict[str, list[emulators.Sample]]] = {}
    missing: set[str] = set()
    for round_ in range(options.rounds):
        for store in rotated(options.stores, round_):
            progress.step(f"Local stack, round {round_ + 1} of {options.rounds}", store)
            if store in missing:
                continue
            try:
                measured = emulators.measure_store(store, built, options.seconds)
            except emulators.StoreMissing as error:
                progress.say(f"{store} is left out: {error}")
                missing.add(store)
                continue
            for condition, sample in measured.items():
                found.setdefault(store, {}).setdefault(condition, []).append(sample)
    return found


def _of_api(options: Options, progress: Progress) -> dict[str, dict[str, dict[str, list[float]]]]:
    """The samples, by store, server and figure."""
    built = environments.build(options.python, progress.say, environments.API)
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    missing: set[str] = set()
    with _bound(progress) as (server_core, load_core), running_fakes(built, load_core) as fakes:
        harness = Harness(built, fakes, server_core, load_core, options.seconds, frozenset())
        for round_, store in itertools.product(range(options.rounds), options.stores):
            for name in rotated(tuple(api.SERVERS), round_):
                progress.step(f"POST /v1/messages, {store}, round {round_ + 1} of {options.rounds}", name)
                if store in missing:
                    continue
                try:
                    measured = api.measure(store, name, harness)
                except api.StoreMissing as error:
                    progress.say(f"{store} is left out: {error}")
                    missing.add(store)
                    continue
                for key, value in measured.items():
                    found.setdefault(store, {}).setdefault(name, {}).setdefault(key, []).append(value)
    return found


def _report(
    samples: Samples, harness: Mapping[str, Any], stores: Mapping[str, Any], of_api: Mapping[str, Any]
) -> Iterator[str]:
    if samples:
        yield from table(results.summaries_of(samples), FIGURES)
        yield ""
        yield from _notes(harness)
        if STOCK not in samples:
            yield "There are no ratios, because the stock server was not in the run."
    if stores:
        yield from emulators.table(stores)
    yield from api.lines(of_api)


def _notes(harness: Mapping[str, Any]) -> Iterator[str]:
    """What limits the figures."""
    yield "Every document, task and write of a receipt was counted: each server did the work it answered 200 for."
    if harness["token"]:
        yield "The product and the stock server fetched a token from the fake metadata server at their first webhook."
    else:
        yield "No server fetched a token: with emulators' addresses the product asks for none."
    for name, busy in harness["busy"].items():
        yield f"{name}: {_busy(busy)}"
        if busy["load"] >= FULL:
            yield f"{name}: the load and the fakes limit its requests/s; 1 / CPU is what its core could do."
        elif busy["server"] < FULL and harness["pinned"]:
            yield f"{name}: neither core was full; other work on this machine limits its requests/s."


def _busy(busy: Mapping[str, float]) -> str:
    alone = f", the fakes alone {busy['fakes']:,.0f}" if busy["fakes"] else ""
    late = f"; the load sent {busy['late_p99_ms']:.1f} ms late at p99" if "late_p99_ms" in busy else ""
    return (
        f"its core {busy['server']:.0%} busy, that of load and fakes {busy['load']:.0%}, which can carry "
        f"{busy['limit']:,.0f} requests/s{alone}{late}."
    )


if __name__ == "__main__":
    sys.exit(main())
