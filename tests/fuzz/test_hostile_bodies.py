"""The most that a signed body can cost: it is answered in time, in the memory of one instance, and loses nothing.

The process is the service itself; its memory is what the kernel says it had at most.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.fuzz.hostile_bodies import BODIES, BYTES, QUICK
from tests.support import parts
from tests.support.parts import signed

SECONDS = 20.0
"""It promises 10 s; the machine may be busy."""

MEGABYTE = 1024 * 1024
MEMORY = 384 * MEGABYTE
"""Of the 512 MiB that an instance has unless told otherwise."""


@dataclass
class Served:
    """The webhook, its store in memory, with a queue that takes everything."""

    process: subprocess.Popen[bytes]
    port: int
    client: httpx.Client

    def post(self, body: bytes) -> httpx.Response:
        url = f"http://127.0.0.1:{self.port}/webhooks/whatsapp"
        return self.client.post(url, content=body, headers={"X-Hub-Signature-256": signed(body)})

    def most_memory(self) -> int:
        """Bytes that the service has had at once, since it began."""
        peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self.process.pid}/status").read_text())
        assert peak
        return int(peak[1]) * 1024


@pytest.fixture(scope="module")
def served(quick_directory: Path) -> Iterator[Served]:
    directory = quick_directory / "hostile"
    directory.mkdir()
    port = parts.free_port()
    out, err = directory / "out", directory / "err"
    environ = parts.environment(
        directory, PORT=str(port), PYTHONPATH=os.pathsep.join(sys.path), PATH=os.environ["PATH"]
    )
    with out.open("wb") as said, err.open("wb") as complained:
        program = [sys.executable, str(Path(__file__).with_name("no_queue.py"))]
        process = subprocess.Popen(program, env=environ, cwd=parts.ROOT, stdout=said, stderr=complained)
    parts.until(lambda: process.poll() is not None or '"started"' in out.read_text())
    with httpx.Client(timeout=SECONDS, trust_env=False) as client:
        yield Served(process, port, client)
    process.terminate()
    assert process.wait(20) == 0
    assert err.read_text() == "", "something was said beside the log"
    errors = [line for line in parts.lines(out.read_text()) if line["event"] == "unexpected_error"]
    assert {line["reason"] for line in errors} <= {"store_unavailable"}


def check(served: Served, name: str) -> None:
    body = BODIES[name]()
    assert 0.9 * BYTES < len(body) <= BYTES
    answer = served.post(body)
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in BODIES]
)
def test_worst_body_is_answered_in_time_and_in_bounded_memory(served: Served, name: str) -> None:
    check(served, name)
    assert served.most_memory() < MEMORY


@pytest.mark.slow
def test_several_worst_bodies_at_once_use_bounded_memory_and_are_accepted(served: Served) -> None:
    """Where all of them together take longer than a POST has, some are answered 500, and come again."""
    bodies = [BODIES[name]() for name in ("nested objects", "as many keys as fit", "half characters", "messages")] * 2
    with ThreadPoolExecutor(len(bodies)) as pool:
        answers = list(pool.map(served.post, bodies))
    assert {answer.status_code for answer in answers} <= {200, 500}
    for body, answer in zip(bodies, answers, strict=True):
        assert answer.status_code == 200 or served.post(body).status_code == 200
    assert served.most_memory() < 512 * MEGABYTE
    print(f"{served.most_memory() // MEGABYTE} MiB")


def test_oversized_body_is_drained_without_holding_it_in_memory(served: Served) -> None:
    before = served.most_memory()
    answer = served.post(bytes(30 * MEGABYTE))
    assert (answer.status_code, answer.json()) == (413, {"error": "too_large"})
    assert served.most_memory() - before < 16 * MEGABYTE
