"""One short round of the benchmark: the product by gRPC, a server by REST, and one that stores nothing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import environments
from bench.errors import BenchError
from tests.support.machine import missing

ROOT = Path(__file__).parents[2]
ANOTHER_RUN = "another run is going on"


@pytest.fixture(scope="module")
def built() -> None:
    """The environments of the benchmark; they are built here if they are missing."""
    try:
        if not environments.are_built(sys.executable):
            environments.build(sys.executable, lambda _: None)
    except BenchError as error:
        missing(f"The benchmark's environments cannot be built: {error}")


@pytest.mark.slow
@pytest.mark.usefixtures("built")
def test_a_short_run_measures_and_proves_the_work(tmp_path: Path) -> None:
    """It says nothing about speed: other tests run beside it."""
    path = tmp_path / "results.json"
    options = ["--rounds", "1", "--seconds", "0.3", "--servers", "product,floor,ack", "--rows", "cpu,rate,memory"]
    command = [sys.executable, "-m", "bench", *options, "--json", str(path)]

    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)

    if ANOTHER_RUN in ended.stderr:
        missing("Another run of the benchmark is going on in this clone.")
    assert ended.returncode == 0, ended.stderr
    assert "CPU per durable message, 16 connections" in ended.stdout
    assert "There are no ratios" in ended.stdout
    found = json.loads(path.read_text())
    assert found["figures"]["cpu_message_16"].keys() == {"product", "floor", "ack"}
    assert all(summary["median"] > 0 for its in found["figures"].values() for summary in its.values())
    assert found["versions"]["product"].keys() >= {"gunicorn", "flask"}
    assert "pywa" not in found["versions"]["product"]
