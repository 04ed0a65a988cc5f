"""Latency on the local stack: the webhook service with each real store and the Cloud Tasks emulator, also in outages.

All processes share the machine's cores, so these figures tell whether an outage changes the latency of a webhook, and
not how fast a project is. Each sample has a stack of its own, because a backlog would slow the next.
"""

import os
import signal
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from bench import payloads
from bench.environments import Environments
from bench.measure import CONNECTIONS, WARM_UP_SECONDS, next_tag, run_load
from bench.proof import check_answers
from local.stack import Options, Stack

NOBODY = "http://127.0.0.1:9"
"""The discard port, where no provider answers."""

CONDITIONS = ("normal", "provider down", "internal stopped")
MOST_RATE = 4_000


Sample = Mapping[str, float]
"""p50, p95 and p99 in milliseconds, and the requests per second that were sent, `rate`."""


class StoreMissing(Exception):
    """The stack could not be started with this store, for example because its server is not installed."""


def measure_store(store: str, environments: Environments, seconds: float) -> dict[str, Sample]:
    """One sample for each condition. Raises BenchError and StoreMissing."""
    with _stack(store, "normal") as port:
        _warm_up(port, environments)
        full = _load(port, environments, seconds)
    samples: dict[str, Sample] = {}
    for condition in CONDITIONS:
        with _stack(store, condition) as port:
            _warm_up(port, environments)
            found = _load(port, environments, seconds, rate=full["ok"] / full["seconds"] / 2)
            latencies = {name: found[name] * 1000 for name in ("p50", "p95", "p99")}
            samples[condition] = {**latencies, "rate": found["ok"] / found["seconds"]}
    return samples


def table(stores: Mapping[str, Mapping[str, Sequence[Sample]]]) -> Iterator[str]:
    """One line per store and condition: medians."""
    yield f"{'latency at half load, ms':<28}{'p50':>9}{'p95':>9}{'p99':>9}{'requests/s':>12}"
    for name, (p50, p95, p99, rate) in _medians(stores):
        yield f"{name:<28}{p50:>9.2f}{p95:>9.2f}{p99:>9.2f}{rate:>12.0f}"


def markdown(stores: Mapping[str, Mapping[str, Sequence[Sample]]]) -> Iterator[str]:
    """The same for a page."""
    yield "| local stack, latency at half load, ms | p50 | p95 | p99 | requests/s |"
    yield "|---|---|---|---|---|"
    for name, (p50, p95, p99, rate) in _medians(stores):
        yield f"| {name} | {p50:.2f} | {p95:.2f} | {p99:.2f} | {rate:.0f} |"


def _medians(stores: Mapping[str, Mapping[str, Sequence[Sample]]]) -> Iterator[tuple[str, list[float]]]:
    for store, conditions in stores.items():
        for condition, samples in conditions.items():
            names = ("p50", "p95", "p99", "rate")
            yield f"{store}, {condition}", [statistics.median(each[name] for each in samples) for name in names]


def _warm_up(port: int, environments: Environments) -> None:
    _load(port, environments, WARM_UP_SECONDS, most=200)


def _load(port: int, environments: Environments, seconds: float, rate: float = 0.0, most: int = 0) -> dict[str, Any]:
    spec = {
        "port": port,
        "kind": "message",
        "tag": next_tag(),
        "connections": CONNECTIONS * (4 if rate else 1),
        "seconds": seconds,
        "most": most or int(MOST_RATE * seconds),
        "rate": rate,
    }
    found = run_load(spec, environments)
    check_answers("product", found["sent"], found["ok"], found["statuses"])
    return found


@contextmanager
def _stack(store: str, condition: str) -> Iterator[int]:
    """A running stack in this condition; the webhook service's port."""
    with tempfile.TemporaryDirectory(prefix="pombo-bench-") as directory:
        options = Options(
            data_dir=Path(directory) / "data",
            store=store,
            first_port=0,
            whatsapp_url=NOBODY if condition == "provider down" else None,
            sweep=False,
            restart=False,
            settings={"META_APP_SECRET": payloads.SECRET, "WHATSAPP_PHONE_NUMBER_ID": payloads.SENDER},
        )
        try:
            with Stack(options, say=lambda _: None).running() as stack:
                found = stack.describe()
                if condition == "internal stopped":
                    with suppress(ProcessLookupError):
                        os.kill(found["pids"]["internal"], signal.SIGTERM)
                yield urlsplit(found["webhook"]).port or 0
        except click.ClickException as error:
            raise StoreMissing(error.format_message()) from error
