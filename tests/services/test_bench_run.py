"""One short round of the benchmark: the product by gRPC, a server by REST, one that stores nothing, and the API."""

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
        for service in (environments.WEBHOOK, environments.API):
            if not environments.are_built(sys.executable, service):
                environments.build(sys.executable, lambda _: None, service)
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


@pytest.mark.slow
@pytest.mark.usefixtures("built")
def test_a_short_run_of_the_api_measures_it_beside_the_bare_app(tmp_path: Path) -> None:
    """It says nothing about speed: other tests run beside it."""
    path = tmp_path / "results.json"
    options = ["--against", "api", "--rounds", "1", "--seconds", "0.3", "--stores", "sqlite,firestore"]
    command = [sys.executable, "-m", "bench", *options, "--json", str(path)]

    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=170)

    if ANOTHER_RUN in ended.stderr:
        missing("Another run of the benchmark is going on in this clone.")
    assert ended.returncode == 0, ended.stderr
    assert "POST /v1/messages, sqlite" in ended.stdout
    document = json.loads(path.read_text())
    assert document["versions"]["api"].keys() >= {"flask-openapi3", "pydantic"}
    found = document["api"]
    assert found.keys() == {"sqlite", "firestore"}
    for samples in found.values():
        assert samples.keys() == {"api", "bare"}
        assert all(len(values) == 1 and values[0] > 0 for its in samples.values() for values in its.values())
