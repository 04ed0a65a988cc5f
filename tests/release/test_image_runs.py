"""The images, run: as another user, on the port they are given, until they are told to end."""

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest

from infra.release import candidate, cloud_run
from shared.config import SETTINGS
from tests.support.dockerfile import Image, start
from tests.support.stack import SECRET, SENDER, TEAM, Stack, signed, wait_until
from tests.support.tree import SERVICES

UNCHECKED_HASH = b"\1\0\0\0"
CLOUD_RUN_SECONDS = 10
"""From SIGTERM to SIGKILL. https://cloud.google.com/run/docs/container-contract (2026-11)"""

LOOKS = """
import asyncio, importlib, json, os, sys
service = importlib.import_module("services.{service}.__main__")
from shared.bootstrap import {service} as bootstrap
parts = bootstrap.parts()
service.make_app(parts)
async def ping():
    for port in (parts.queue, parts.store):
        try:
            answer = port.ping()
            if answer is not None:
                await answer
        except Exception as error:
            assert type(error).__name__.endswith("Unavailable"), error
asyncio.run(ping())
for name in ("redis", "shared.stores.redis.store", "shared.stores.sqlite.store", "shared.crash", *{libraries!r}):
    importlib.import_module(name)
made = {{name: module.__spec__ for name, module in list(sys.modules.items()) if getattr(module, "__spec__", None)}}
sources = {{name: spec for name, spec in made.items() if (spec.origin or "").endswith(".py")}}
print(json.dumps({{
    "modules": sorted(made),
    "origins": sorted(spec.origin for spec in sources.values()),
    "uncompiled": sorted(name for name, spec in sources.items() if not (spec.cached and os.path.exists(spec.cached))),
    "installed": sorted(os.listdir(next(path for path in sys.path if path.endswith("site-packages")))),
}}))
"""
"""Start a service without serving, on a store and a queue that are not there, and say what that loaded."""


BY_NAME: Mapping[str, tuple[str, ...]] = {"webhook": ("uvloop",), "internal": (), "api": ()}
"""Libraries that a service imports only to serve."""

LOADED: Mapping[str, set[str]] = {
    "webhook": {"functions_framework", "httptools", "orjson", "redis", "starlette", "uvicorn", "uvloop"},
    "internal": {"grpc", "google.cloud.tasks_v2", "google.cloud.firestore_v1", "redis"},
    "api": {"flask_openapi3_swagger", "pydantic", "google.cloud.tasks_v2", "google.cloud.firestore_v1", "redis"},
}

Started = tuple[str, Image, Mapping[str, list[str]]]
"""A service, its image, and what a start of it there loaded."""


@pytest.fixture(scope="module", params=SERVICES)
def started(request: pytest.FixtureRequest, images: Mapping[str, Image]) -> Started:
    service, image = request.param, images[request.param]
    settings = {
        "STORE": "firestore",
        "FIRESTORE_EMULATOR_HOST": "127.0.0.1:1",
        "CLOUD_TASKS_EMULATOR_HOST": "127.0.0.1:1",
    }
    done = subprocess.run(
        [image.cmd[0], "-c", LOOKS.format(service=service, libraries=BY_NAME[service])],
        cwd=image.directory,
        env=image.environment(APP_ENV="test", GRPC_VERBOSITY="NONE", **settings),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return service, image, json.loads(done.stdout)


def test_everything_a_service_imports_is_in_its_image_as_bytecode(started: Started) -> None:
    service, image, seen = started
    assert LOADED[service] <= set(seen["modules"])
    assert seen["uncompiled"] == []
    outside = [origin for origin in seen["origins"] if "site-packages" in origin and str(image.root) not in origin]
    assert outside == []


@pytest.mark.parametrize("service", SERVICES)
def test_no_bytecode_of_an_image_goes_by_the_time_of_a_file(service: str, images: Mapping[str, Image]) -> None:
    made = list((images[service].directory / "bytecode").rglob("*.pyc"))
    assert len(made) > 1000
    flags = {path: path.read_bytes()[4:8] for path in made}  # https://peps.python.org/pep-0552/
    assert [path for path, flag in flags.items() if flag != UNCHECKED_HASH] == []


def test_an_image_is_without_what_slows_a_start_or_was_never_meant_to_be_there(started: Started) -> None:
    service, image, seen = started
    installed = {name.partition("-")[0] for name in seen["installed"]}
    assert not installed & {"aiohttp", "pip", "setuptools", "pytest", "hatchling", "uv"}
    held = {path.name for path in image.directory.iterdir()}
    code = {"handlers", "pombo", "services", "shared"} if service == "internal" else {"services", "shared"}
    assert held == {"venv", "bytecode", "requirements.txt", *code}
    assert {path.name for path in (image.directory / "services").iterdir() if path.is_dir()} == {service}


@pytest.mark.parametrize("service", SERVICES)
def test_user_of_an_image_can_write_nothing_in_it(service: str, images: Mapping[str, Image]) -> None:
    found = [path for path in images[service].directory.rglob("*") if not path.is_symlink()]
    assert len(found) > 1000
    assert [path for path in found if path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)] == []


# ---- in the place of the services of a stack


class Containers:
    """The services of a running stack, replaced by images with the same settings and ports."""

    def __init__(self, stack: Stack, images: Mapping[str, Image], place: Path) -> None:
        self.stack, self._images, self._place = stack, images, place
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        known = {setting.name for setting in SETTINGS} | {"HANDLER_CALLS", "PYTHONPATH"}
        self._settings = {
            service: {
                name: value
                for name, value in (
                    pair.split("=", 1)
                    for pair in Path(f"/proc/{stack.pids()[service]}/environ").read_text().split("\0")
                    if "=" in pair
                )
                if name in known
            }
            for service in SERVICES
        }

    def replace(self, service: str) -> None:
        os.kill(self.stack.pids()[service], signal.SIGTERM)
        wait_until(lambda: not self.stack.answers(service), f"{service} has ended")
        for path in self.stack.data_dir.glob("*.sqlite*"):
            path.chmod(0o666)
        self.start(service)

    def start(self, service: str) -> int:
        process = start(self._images[service], self._place / f"{service}.log", **self._settings[service])
        self._processes[service] = process
        wait_until(
            lambda: process.poll() is not None or self.stack.answers(service), f"{service} answers", more=self.said
        )
        assert process.poll() is None, self.said()
        return process.pid

    def tell(self, service: str) -> float:
        """SIGTERM; when."""
        self._processes[service].terminate()
        return time.monotonic()

    def wait(self, service: str, since: float) -> None:
        """Its end, well and in time."""
        assert self._processes[service].wait(CLOUD_RUN_SECONDS + 5) == 0, self.said()
        assert time.monotonic() - since < CLOUD_RUN_SECONDS

    def pid(self, service: str) -> int:
        return self._processes[service].pid

    def said(self) -> str:
        return "\n".join(path.read_text()[-2000:] for path in self._place.glob("*.err"))

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def containers(images: Mapping[str, Image]) -> Iterator[Containers]:
    """A stack on data that the images' user may write, with both services out of their images."""
    place = Path(tempfile.mkdtemp(prefix="pombo-containers-"))
    place.chmod(0o755)
    data_dir, team = place / "data", place / "team"
    shutil.copytree(TEAM, team, ignore=shutil.ignore_patterns("__pycache__"))
    data_dir.mkdir()
    data_dir.chmod(0o777)
    (data_dir / "calls.jsonl").touch()
    (data_dir / "calls.jsonl").chmod(0o666)
    settings = {
        "TIME_SCALE": "20",
        "HANDLER": "scripted:handle",
        "HANDLER_CALLS": str(data_dir / "calls.jsonl"),
        "PYTHONPATH": str(team),
        "WHATSAPP_PHONE_NUMBER_ID": SENDER,
        "META_APP_SECRET": SECRET,
    }
    try:
        with Stack(data_dir, ("--no-sweep", "--no-restart"), settings, is_forked=True) as stack:
            replaced = Containers(stack, images, place)
            try:
                for service in SERVICES:
                    replaced.replace(service)
                yield replaced
            finally:
                replaced.close()
    finally:
        shutil.rmtree(place)


def test_a_message_is_answered_by_the_images(containers: Containers) -> None:
    containers.stack.say("15550100001", "hello")
    containers.stack.wait_quiet("15550100001", ["hello"])


def test_a_deployment_would_promote_the_image_of_the_webhook(containers: Containers) -> None:
    target = {"revisionName": "r", "tag": "candidate", "url": containers.stack.described["webhook"]}
    status = {"latestCreatedRevisionName": "r", "latestReadyRevisionName": "r", "traffic": [target]}
    assert "refuses strangers" in candidate.check(cloud_run.CloudRunService("webhook", "", "", status))


@pytest.mark.parametrize("service", SERVICES)
def test_an_image_runs_as_a_user_without_rights(service: str, containers: Containers) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    status = Path(f"/proc/{containers.pid(service)}/status").read_text()
    assert "\nUid:\t65532\t65532\t65532\t65532\nGid:\t65532\t65532\t65532\t65532\n" in status
    assert "\nCapEff:\t0000000000000000\n" in status


def test_a_handler_at_work_when_its_instance_is_ended_loses_nothing(containers: Containers) -> None:
    stack = containers.stack
    asked = stack.say("15550100002", "!hang 60")
    wait_until(lambda: stack.calls(asked) == 1, "the handler is at work")
    containers.wait("internal", containers.tell("internal"))
    assert stack.texts("15550100002") == []
    containers.start("internal")
    stack.wait_quiet("15550100002", ["after 1"])


def test_incomplete_webhook_at_shutdown_is_accepted_and_answered(containers: Containers) -> None:
    stack = containers.stack
    body = message("wamid.halfarrived", "15550100003", "still there")
    host, _, port = stack.described["webhook"].removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=CLOUD_RUN_SECONDS) as client:
        client.sendall(head(host, body))
        assert client.recv(64).startswith(b"HTTP/1.1 100")  # so it is in a thread
        client.sendall(body[:20])
        since = containers.tell("webhook")
        wait_until(lambda: not is_served(host, int(port)), "the webhook takes no more")
        client.sendall(body[20:])
        assert client.recv(64).startswith(b"HTTP/1.1 200")
    containers.wait("webhook", since)
    stack.wait_quiet("15550100003", ["still there"])
    containers.start("webhook")


def is_served(host: str, port: int) -> bool:
    """Whether one more request is answered. A connection is, by the system, until the process has ended."""
    try:
        return httpx.get(f"http://{host}:{port}/livez", timeout=0.5, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def message(message_id: str, sender: str, text: str) -> bytes:
    """A webhook as Meta sends it."""
    said = {"from": sender, "id": message_id, "timestamp": "1772366400", "type": "text", "text": {"body": text}}
    value = {"messaging_product": "whatsapp", "metadata": {"phone_number_id": SENDER}, "messages": [said]}
    entry = {"id": "300000000000003", "changes": [{"field": "messages", "value": value}]}
    return json.dumps({"object": "whatsapp_business_account", "entry": [entry]}).encode()


def head(host: str, body: bytes) -> bytes:
    fields = {"Host": host, "Content-Length": str(len(body)), "Expect": "100-continue", **signed(body)}
    return "\r\n".join(["POST /webhooks/whatsapp HTTP/1.1", *map(": ".join, fields.items()), "", ""]).encode()
