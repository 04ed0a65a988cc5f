"""A project on a file: its builds and deployments run their real steps against the cloud of fake_cloud.py."""

import copy
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from tests.support import fake_cloud
from tests.support.fake_cloud import REPOSITORY, serving
from tests.support.tree import ROOT, SERVICES

BUILD: Mapping[str, Any] = yaml.safe_load((ROOT / "cloudbuild.yaml").read_text())
DEPLOYMENT: Mapping[str, Any] = yaml.safe_load((ROOT / "cloudbuild-deploy.yaml").read_text())
STEP_SECONDS = 60
"""Seconds. Far longer than any step takes here; a step that takes longer hangs."""


@dataclass
class Candidate:
    """Answers at a candidate's address, and as Cloud Monitoring, which reports `metrics`."""

    health: tuple[int, str] = (200, '{"services": {"store": "connected", "queue": "connected"}}')
    handshake: int = 403
    unsigned: int = 403
    without_key: int = 401
    metrics: Callable[[Mapping[str, list[str]]], tuple[int, dict[str, Any]]] = lambda _: (200, {})
    url: str = ""


@contextmanager
def answering(says: Candidate) -> Iterator[Candidate]:
    """Always end the server with the test: a thread that goes on would keep pytest from ending."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith("/v3/"):
                assert self.headers["Authorization"] == "Bearer a-token"
                assert urlsplit(self.path).path == "/v3/projects/my-project/timeSeries"
                status, document = says.metrics(parse_qs(urlsplit(self.path).query))
                self._answer(status, json.dumps(document))
            elif self.path == "/health":
                self._answer(*says.health)
            else:
                self._answer(says.without_key if self.path == "/v1/messages" else says.handshake, "")

        def do_POST(self) -> None:
            assert not {"X-Hub-Signature-256", "Authorization"} & set(self.headers)
            self._answer(says.without_key if self.path == "/v1/messages" else says.unsigned, "")

        def _answer(self, status: int, body: str) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    says.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield says
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def bounded(command: Sequence[str | Path], seconds: float, **how: Any) -> tuple[int, str]:
    """A command's exit code and output; 124 if it had to be killed, with all its children."""
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, start_new_session=True, **how
        )
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            code = 124
        said.seek(0)
        return code, said.read()


@dataclass
class Project:
    """A project on a file, a work tree for its builds, and the programs of the steps' images."""

    directory: Path
    tests: str = "exit 0"
    step_seconds: float = STEP_SECONDS
    keeps_workspace: bool = False
    said: list[str] = field(default_factory=list)

    @property
    def state(self) -> dict[str, Any]:
        return json.loads((self.directory / "cloud.json").read_text())

    def change(self, change: Callable[[dict[str, Any]], Any]) -> None:
        state = self.state
        change(state)
        (self.directory / "cloud.json").write_text(json.dumps(state))

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": f"{self.directory}/bin:/usr/bin:/bin",
            "FAKE_CLOUD": str(self.directory / "cloud.json"),
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_MONITORING": f"{self.state['url']}/",
        }

    def build(
        self, number: int, steps: Sequence[str] = (), build: Mapping[str, Any] = BUILD, **given: str
    ) -> str | None:
        """Run every step of a build, or these, and the push after them; return the step that failed."""
        mapped = {"BUILD_ID": build_id(number), **given}
        failed = self.run_steps(build, steps, mapped)
        names = [self._expanded(name, mapped | build["substitutions"]) for name in build.get("images", ())]
        images = [] if failed or steps else names
        missing = set(images) - set(self.state["built"])
        account = build["serviceAccount"].replace("$PROJECT_ID", "my-project")
        status = "FAILURE" if failed or missing else "SUCCESS"
        self.change(lambda state: fake_cloud.record(state, build_id(number), account, status, images))
        return failed or ("push" if missing else None)

    def deploy(
        self, number: int, steps: Sequence[str] = (), deployment: Mapping[str, Any] = DEPLOYMENT, **given: str
    ) -> str | None:
        """Run every step of the deployment of a build, or these; return the step that failed."""
        mapped = {"_HOLD_SECONDS": "0", "_BUILD": build_id(number), **given}
        return self.run_steps(deployment, steps, mapped)

    def release(self, number: int, steps: Sequence[str] = (), **given: str) -> str | None:
        """Build it if it is not built yet, and deploy by these steps of the deployment; return the step that failed."""
        is_built = self.state["builds"].get(build_id(number), {}).get("status") == "SUCCESS"
        return (None if is_built else self.build(number)) or self.deploy(number, steps, **given)

    def run_steps(self, config: Mapping[str, Any], steps: Sequence[str], given: Mapping[str, str]) -> str | None:
        """Run steps as Cloud Build would, one after another in one work tree. A step that hangs has failed."""
        workspace = self.directory / "workspace"
        if not self.keeps_workspace:
            shutil.rmtree(workspace, ignore_errors=True)
            for name in ("infra/release", "services"):
                shutil.copytree(ROOT / name, workspace / name)
            (workspace / ".ci").mkdir()
        (workspace / ".ci" / "run").write_text(f"command -v terraform && {self.tests}\n")
        mapped = {"PROJECT_ID": "my-project", "LOCATION": fake_cloud.BUILDS_IN, **config["substitutions"], **given}
        for step in (one for one in config["steps"] if not steps or one["id"] in steps):
            self.change(lambda state: state.update(configured=[]))  # each step has a separate home
            script = self.directory / "script"
            script.write_text(step["script"])
            script.chmod(0o755)
            ended, said = bounded([script], self.step_seconds, cwd=workspace, env=self.environment | mapped)
            self.said.append(said)
            if ended != 0:
                return str(step["id"])
        return None

    def _expanded(self, text: str, mapped: Mapping[str, str]) -> str:
        for name, value in {"PROJECT_ID": "my-project", **mapped}.items():
            text = text.replace(f"${name}", value)
        return text

    def run(self, action: str, *services: str) -> subprocess.CompletedProcess[str]:
        """Run the program of the last steps by hand."""
        place = ("--project=my-project", "--region=europe-west1")
        return subprocess.run(
            [sys.executable, "-m", "infra.release.candidate", action, *services, *place],
            cwd=ROOT,
            env=self.environment | {"PATH": str(self.directory / "bin")},
            capture_output=True,
            text=True,
            timeout=STEP_SECONDS,
        )

    def gcloud(self, *words: str) -> None:
        """Run a gcloud command as an operator."""
        subprocess.run(["gcloud", *words], env=self.environment, check=True, capture_output=True, timeout=STEP_SECONDS)

    def serves(self) -> tuple[str, ...]:
        """The image that each service serves, in the order of the list of services."""
        return tuple(serving(self.state, f"pombo-{service}") for service in SERVICES)

    def addresses(self) -> list[str]:
        """Revisions that have an address of their own."""
        return [
            target["revisionName"]
            for name in self.state["services"]
            for target in fake_cloud.status(self.state, name)["traffic"]
            if "tag" in target
        ]


def a_project(directory: Path, state: dict[str, Any]) -> Project:
    (directory / "bin").mkdir()
    for name in ("gcloud", "docker", "terraform"):
        (directory / "bin" / name).write_text(fake_cloud.program(name))
        (directory / "bin" / name).chmod(0o755)
    (directory / "bin" / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    (directory / "bin" / "python3").chmod(0o755)
    (directory / "cloud.json").write_text(json.dumps(state))
    return Project(directory)


def after(history: Sequence[dict[str, Any]], releases: int, directory: Path, url: str) -> Project:
    """A project after this many releases."""
    return a_project(directory, {**copy.deepcopy(history[releases]), "url": url})


def build_id(number: int) -> str:
    return f"{number:08}-0000-4000-8000-000000000000"


def image(service: str, number: int) -> str:
    return fake_cloud._digest(f"{REPOSITORY}/{service}:{build_id(number)}")


def all_of(number: int) -> tuple[str, ...]:
    """The image of each service of one release."""
    return tuple(image(service, number) for service in SERVICES)


def images(webhook: int, api: int, internal: int) -> tuple[str, str, str]:
    """Images of several releases."""
    return image("webhook", webhook), image("api", api), image("internal", internal)
