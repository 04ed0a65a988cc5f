"""A new process starts while Cloud Tasks is away, and does not while its store is."""

from pathlib import Path

import httpx
import pytest

from local.services import SERVICES
from tests.support.parts import free_port, run, until

NOBODY = "127.0.0.1:9"


def _asked(port: int, path: str) -> httpx.Response | None:
    try:
        return httpx.get(f"http://127.0.0.1:{port}{path}", timeout=10, trust_env=False)
    except httpx.TransportError:
        return None


@pytest.mark.parametrize("service", SERVICES)
def test_new_instance_starts_while_the_queue_is_unavailable(service: str, tmp_path: Path) -> None:
    port = free_port()
    environ = {
        "PORT": str(port),
        "SQLITE_PATH": str(tmp_path / "pombo.sqlite"),
        "CLOUD_TASKS_EMULATOR_HOST": NOBODY,
    }
    program = run(tmp_path, f"services.{service}", environ)
    try:
        until(lambda: _asked(port, "/livez"))
        start, ready = _asked(port, "/startz"), _asked(port, "/readyz")
    finally:
        program.end()
    assert start is not None
    assert ready is not None
    assert (start.status_code, start.json()["services"]) == (200, {"store": "connected"})
    assert (ready.status_code, ready.json()["services"]["queue"]) == (503, "unavailable")


@pytest.mark.parametrize("service", SERVICES)
def test_a_new_instance_does_not_start_without_its_store(service: str, tmp_path: Path) -> None:
    port = free_port()
    environ = {
        "PORT": str(port),
        "SQLITE_PATH": str(tmp_path / "pombo.sqlite"),
        "STORE": "redis",
        "REDIS_URL": f"redis://{NOBODY}",
        "CLOUD_TASKS_EMULATOR_HOST": NOBODY,
    }
    program = run(tmp_path, f"services.{service}", environ)
    try:
        until(lambda: _asked(port, "/livez"))
        start = _asked(port, "/startz")
    finally:
        program.end()
    assert start is not None
    assert (start.status_code, start.json()["services"]) == (503, {"store": "unavailable"})
