"""python -m bench [--rounds N] [--posts N]: the cost of the webhook path and of the cold start, against a baseline.

Rounds of both alternate, so that the machine's load affects both alike; quote the median and its ratio. Load is
bounded: `--posts` requests a round from 8 threads, to this machine only.
"""

import argparse
import hashlib
import hmac
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from local.services import SERVICES
from local.stack import Options, Stack
from shared.config import LOCAL_SECRETS

CLIENTS = 8
SECRET = LOCAL_SECRETS["META_APP_SECRET"].encode()
SENDER = "100000000000001"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--posts", type=int, default=400)
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="pombo-bench-") as directory:
        _cold_start(Path(directory), given.rounds)
        _webhook(Path(directory), given.rounds, given.posts)


def _cold_start(directory: Path, rounds: int) -> None:
    """From exec to the first 200 of /livez."""
    modules = (*(f"services.{name}" for name in SERVICES), "bench.baseline")
    seconds = [[_start_seconds(module, directory) for module in modules] for _ in range(rounds)]
    *ours, base = ([value * 1000 for value in column] for column in zip(*seconds, strict=True))
    for name, column in zip(SERVICES, ours, strict=True):
        _report(f"cold start, {name}", column, base, "ms")


def _start_seconds(module: str, directory: Path) -> float:
    started = time.monotonic()
    with _process(module, directory, 18080):
        return time.monotonic() - started


@contextmanager
def _process(module: str, directory: Path, port: int) -> Iterator[str]:
    environment = {**os.environ, **LOCAL_SECRETS, "PORT": str(port), "SQLITE_PATH": str(directory / "bench.sqlite")}
    process = subprocess.Popen([sys.executable, "-m", module], env=environment, stdout=subprocess.DEVNULL)
    try:
        _wait_for(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(15)


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
            connection.request("GET", "/livez")
            if connection.getresponse().status == 200:
                return
        except OSError:
            time.sleep(0.005)
        finally:
            connection.close()
    raise SystemExit(f"nothing answers on port {port}")


def _webhook(directory: Path, rounds: int, posts: int) -> None:
    """Posts of one new message each, answered 200: Pombo stores it and creates its task, the baseline does neither."""
    stack = Stack(Options(data_dir=directory / "stack", first_port=0, sweep=False), say=lambda _: None)
    with _process("bench.baseline", directory, 18081) as base, stack.running():
        ours = stack.describe()["webhook"]
        rates: dict[str, list[float]] = {"ours": [], "base": []}
        for round_ in range(rounds):
            rates["base"].append(_rate(base, posts, f"b{round_}"))
            rates["ours"].append(_rate(ours, posts, f"o{round_}"))
    _report("webhook path", rates["ours"], rates["base"], "posts/s")


def _rate(url: str, posts: int, name: str) -> float:
    numbers = iter(range(posts))
    lock = threading.Lock()
    failures: list[int] = []

    def work() -> None:
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                break
            body = _body(f"wamid.{name}.{number}", number)
            signature = "sha256=" + hmac.new(SECRET, body, hashlib.sha256).hexdigest()
            connection.request("POST", "/webhooks/whatsapp", body, {"X-Hub-Signature-256": signature})
            answer = connection.getresponse()
            answer.read()
            if answer.status != 200:
                failures.append(answer.status)
        connection.close()

    seconds = _timed(lambda: _in_threads(work))
    if failures:
        raise SystemExit(f"{len(failures)} of {posts} posts were not answered 200: {sorted(set(failures))}")
    return posts / seconds


def _in_threads(work: Callable[[], None]) -> None:
    threads = [threading.Thread(target=work) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _timed(work: Callable[[], None]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started


def _body(message_id: str, number: int) -> bytes:
    message = {
        "id": message_id,
        "timestamp": "1790416800",
        "type": "text",
        "from": f"1555100{number % 10000:04d}",
        "text": {"body": "hello"},
    }
    value = {
        "messaging_product": "whatsapp",
        "metadata": {"display_phone_number": "15550001111", "phone_number_id": SENDER},
        "contacts": [{"profile": {"name": "Test User"}, "wa_id": message["from"]}],
        "messages": [message],
    }
    entry = {"id": "1", "changes": [{"field": "messages", "value": value}]}
    return json.dumps({"object": "whatsapp_business_account", "entry": [entry]}).encode()


def _report(name: str, ours: list[float], base: list[float], unit: str) -> None:
    one, other = statistics.median(ours), statistics.median(base)
    spread = f"[{min(ours):.0f}-{max(ours):.0f}]"
    print(f"{name:<22} {one:8.0f} {unit} {spread:<14} baseline {other:8.0f}   ratio {one / other:.2f}")


if __name__ == "__main__":
    main()
