"""Large POSTs at the webhook service, with store and queue so many milliseconds away: how many deliveries each takes.

    python -m tests.large_posts.large_post_runs --store firestore --events 2000

The service, the store and the Cloud Tasks emulator are real processes; a proxy before each delays its answers. The
queue is paused, as one that is behind would be: no event is handled, and every redelivery finds all of it waiting.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import httpx

from local.stores import PROGRAMS
from shared import config
from shared.bootstrap.backends import build_store
from tests.support import parts
from tests.support.machine import missing

STORES = ("sqlite", "firestore", "redis")
HERE = Path(__file__).parent
META_WAITS = 20.0
"""Seconds, longer than Meta's: an answer that took too long is to be seen as such."""


@dataclass(frozen=True)
class Latency:
    """Milliseconds until store and queue answer."""

    commit: int
    read: int
    task: int

    def __str__(self) -> str:
        return f"{self.commit}/{self.read}/{self.task} ms"


NEAR, FAR = Latency(40, 20, 50), Latency(120, 50, 150)


@dataclass(frozen=True)
class Delivery:
    """One time that a POST was sent: what it was answered, and after how many seconds."""

    status: int
    seconds: float


@dataclass
class Webhook:
    """The service with what is behind it."""

    url: str
    emulator: parts.Emulator
    environ: dict[str, str]

    def post(self, body: bytes, client: Any = httpx) -> Delivery:
        began = time.monotonic()
        headers = {"X-Hub-Signature-256": parts.signed(body)}
        answer = client.post(f"{self.url}/webhooks/whatsapp", content=body, headers=headers, timeout=META_WAITS)
        return Delivery(answer.status_code, time.monotonic() - began)

    def deliver(self, body: bytes, at_most: int = 6) -> list[Delivery]:
        """As Meta does: again until it is answered 200."""
        deliveries: list[Delivery] = []
        while len(deliveries) < at_most and not (deliveries and deliveries[-1].status == 200):
            deliveries.append(self.post(body))
        return deliveries

    @contextmanager
    def store(self) -> Iterator[Any]:
        """The store itself, at no distance."""
        store = build_store(config.load(self.environ, config.WEBHOOK))
        try:
            yield store
        finally:
            store.close()  # type: ignore[attr-defined] # all have it


@contextmanager
def running(store: str, latency: Latency, directory: Path) -> Iterator[Webhook]:
    with ExitStack() as stack:
        emulator = parts.Emulator(directory)
        stack.callback(emulator.close)
        tasks_port = int(emulator.address.rpartition(":")[2])
        port = parts.free_port()
        environ = parts.environment(directory, PORT=str(port), STORE=store)
        near = environ | {"CLOUD_TASKS_EMULATOR_HOST": emulator.address}
        far = environ | {"CLOUD_TASKS_EMULATOR_HOST": stack.enter_context(_proxy(tasks_port, latency.task))}
        if store in PROGRAMS:
            program = PROGRAMS[store]
            store_port = stack.enter_context(_store_server(store, directory))
            near[program.setting] = program.address(store_port)
            far_port = int(stack.enter_context(_proxy(store_port, latency.commit)).rpartition(":")[2])
            far[program.setting] = program.address(far_port)
        commit, read = (latency.commit, latency.read) if store == "sqlite" else (0, 0)
        stack.enter_context(_service(far, commit, read, port))
        yield Webhook(f"http://127.0.0.1:{port}", emulator, near)


@contextmanager
def _proxy(target: int, milliseconds: int) -> Iterator[str]:
    command = [
        sys.executable,
        str(parts.ROOT / "tests" / "support" / "delay_proxy.py"),
        str(target),
        str(milliseconds / 1000),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as proxy:
        assert proxy.stdout
        yield f"127.0.0.1:{proxy.stdout.readline().strip()}"
        proxy.kill()


@contextmanager
def _store_server(store: str, directory: Path) -> Iterator[int]:
    program, port = PROGRAMS[store], parts.free_port()
    try:
        command = program.command(port, directory)
    except click.ClickException as error:
        missing(error.message)
    with (directory / f"{store}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        parts.until(lambda: program.answers(program.address(port)), 100)
        yield port
    finally:
        process.kill()
        process.wait()


@contextmanager
def _service(environ: dict[str, str], commit: int, read: int, port: int) -> Iterator[None]:
    command = [sys.executable, str(HERE / "slow_webhook.py"), str(commit / 1000), str(read / 1000)]
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(parts.ROOT), **environ}
    process = subprocess.Popen(command, cwd=parts.ROOT, env=environ, stdout=subprocess.DEVNULL)
    try:
        parts.until(lambda: _answers(f"http://127.0.0.1:{port}/readyz"), 60)
        yield
    finally:
        process.terminate()
        process.wait(20)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


# ---- what is posted


def of_messages(count: int, name: str = "a") -> bytes:
    return parts.post(*(parts.text(f"wamid.{name}.{number}") for number in range(count)))


def of_receipts(count: int, name: str = "a") -> bytes:
    """Half of them of the events above, as if those were messages of ours; the others without an echo."""
    items = []
    for number in range(count):
        key = parts.key_of(f"wamid.{name}.{number}")
        echo = {"biz_opaque_callback_data": f"pombo1.{key}.0.correlation-{number}"} if number % 2 else {}
        items.append(parts.receipt(f"wamid.out.{name}.{number}", **echo))
    return parts.post(statuses=tuple(items))


MOST_DELIVERIES = 12
"""Of a large POST beside another: a machine with much else to do makes a third of the tasks in a delivery."""


def beside(webhook: Webhook, events: int, posts: int, singles: int) -> tuple[list[Delivery], list[list[Delivery]]]:
    """Single messages, one after another, while several large POSTs are delivered: how each went."""
    large: list[list[Delivery]] = []
    threads = [
        threading.Thread(
            target=lambda name=name: large.append(webhook.deliver(of_messages(events, name), MOST_DELIVERIES))
        )
        for name in (f"large{number}" for number in range(posts))
    ]
    with httpx.Client() as client:
        webhook.post(of_messages(1, "first"), client)
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        single = []
        while len(single) < singles and any(thread.is_alive() for thread in threads):
            single.append(webhook.post(of_messages(1, f"single{len(single)}"), client))
    for thread in threads:
        thread.join()
    return single, large


def percentile(seconds: Sequence[float], of_100: int) -> float:
    """The least of them that so many of a hundred do not exceed."""
    return sorted(seconds)[max(0, -(-len(seconds) * of_100 // 100) - 1)]


def told(deliveries: Sequence[Delivery]) -> str:
    return ", ".join(f"{one.status} in {one.seconds:.1f} s" for one in deliveries)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=STORES, action="append")
    parser.add_argument("--events", type=int, action="append")
    parser.add_argument("--latency", default="40/20/50,120/50/150", help="commit/read/task in ms, several by commas")
    parser.add_argument("--beside", action="store_true", help="single messages beside two large POSTs as well")
    given = parser.parse_args()
    for store in given.store or STORES:
        for text in given.latency.split(","):
            latency = Latency(*map(int, text.split("/")))
            for events in given.events or (1000, 2000):
                with tempfile.TemporaryDirectory() as directory, running(store, latency, Path(directory)) as webhook:
                    _print(store, latency, f"{events} messages", webhook.deliver(of_messages(events)))
                    _print(store, latency, f"{events} again", webhook.deliver(of_messages(events)))
                    _print(store, latency, f"{events} receipts", webhook.deliver(of_receipts(events)))
                    if given.beside:
                        single, large = beside(webhook, events, 2, 60)
                        seconds = [one.seconds for one in single]
                        said = f"p50 {percentile(seconds, 50):.2f} s, p95 {percentile(seconds, 95):.2f} s"
                        _print(store, latency, f"{len(single)} singles beside: {said}", single[:1])
                        for deliveries in large:
                            _print(store, latency, f"{events} beside another", deliveries)


def _print(store: str, latency: Latency, what: str, deliveries: Sequence[Delivery]) -> None:
    print(json.dumps([store, str(latency), what, len(deliveries), told(deliveries)]), flush=True)


if __name__ == "__main__":
    main()
