"""A copy of the repository in which a deployment runs: with the real terraform and the stand-in for its provider, a
project on a file behind a fake gcloud, and a webhook on this machine.
"""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.infra import fake_project
from tests.infra.offline.toolchain import HERE, Toolchain

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("infra", "services", "shared", "handlers", "pombo")
NUMBER = "100000000000001"

TERRAFORM = """#!{python} -IS
import json, os, sys
words = [it for it in sys.argv[1:] if not it.startswith("-backend-config=")]
project, root = os.environ["FAKE_PROJECT"], os.path.basename(os.getcwd())
with open(project + ".terraform", "a") as notes:
    notes.write(json.dumps([root, *sys.argv[1:]]) + "\\n")
broken = project + ".refusals"
if words[0] == "init":
    with open("local_override.tf", "w") as file:
        file.write('terraform {{\\n  backend "local" {{\\n    path = "%s.%s.tfstate"\\n  }}\\n}}\\n' % (project, root))
    if os.path.exists("terraform.tfvars"):
        with open(project + ".tfvars", "a") as file:
            file.write(open("terraform.tfvars").read())
if words[0] == "apply" and os.path.exists(broken):
    refusals = open(broken).read().splitlines()
    if refusals:
        open(broken, "w").write("\\n".join(refusals[1:]))
        sys.exit(refusals[0])
if words[0] == "apply" and root != "bootstrap":
    secrets = json.load(open(project))["secrets"]
    ours = {{"META_APP_SECRET", "META_VERIFY_TOKEN", "WHATSAPP_ACCESS_TOKEN", "INTERNAL_TASK_TOKEN", "ID_KEY"}}
    if not ours <= set(secrets):
        sys.exit("Error: a service that is to read a secret without a version is refused")
if words[0] == "output":
    webhook = os.environ["FAKE_WEBHOOK"]
    print({{"webhook_url": webhook, "api_url": webhook.removesuffix("/webhooks/whatsapp")}}[words[-1]], end="")
    sys.exit()
os.environ["PATH"] = os.environ["TERRAFORM_PATH"]
os.execv({terraform!r}, ["terraform", *words])
"""
"""The real terraform, with its state in a file next to the project's instead of in the bucket, which it cannot reach.
Its outputs are addresses on this machine. It refuses services whose secrets have no version, as Google does.
Each line of the file .refusals makes one apply fail with it.
"""


class Deployment:
    """The copy, the project and the programs."""

    def __init__(self, toolchain: Toolchain, folder: Path, webhook: str) -> None:
        self.folder, self.state_file = folder / "pombo", folder / "project.json"
        for part in PARTS:
            ignored = shutil.ignore_patterns("__pycache__", ".terraform*", "*.tfstate*", "terraform.tfvars")
            shutil.copytree(ROOT / part, self.folder / part, ignore=ignored)
        shutil.copy(ROOT / ".dockerignore", self.folder)
        self.bin = folder / "bin"
        self.bin.mkdir()
        self._program("gcloud", f'#!/bin/sh\nexec {sys.executable} -IS {Path(fake_project.__file__)} "$@"\n')
        self._program("terraform", TERRAFORM.format(python=sys.executable, terraform=toolchain.terraform))
        inner = toolchain.environment()
        self.environment = inner | {
            "PATH": os.pathsep.join([str(self.bin), str(HERE / "bin"), "/usr/bin", "/bin"]),
            "TERRAFORM_PATH": inner["PATH"],
            "FAKE_PROJECT": str(self.state_file),
            "FAKE_WEBHOOK": webhook,
            "POMBO_TEST_NOTES": f"{self.state_file}.waited",
            "PYTHONDONTWRITEBYTECODE": "1",
            "TF_VAR_tenant_queues": "1",  # twenty pairs are 120 more resources to each apply; test_terraform plans them
            "META_APP_SECRET": "",
            "WHATSAPP_ACCESS_TOKEN": "",
        }
        self.state = fake_project.new()

    def _program(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    @property
    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads(self.state_file.read_text())
        return state

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self.state_file.write_text(json.dumps(state))

    def change(self, **parts: Any) -> None:
        self.state = {**self.state, **parts}

    @property
    def terraform_calls(self) -> list[list[str]]:
        notes = Path(f"{self.state_file}.terraform")
        return [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []

    @property
    def variables_used(self) -> str:
        """Every terraform.tfvars with which a root was initialized, one after the other."""
        return Path(f"{self.state_file}.tfvars").read_text()

    def kept_state(self, root: str) -> dict[str, Any]:
        """Terraform's state of a root."""
        state: dict[str, Any] = json.loads(Path(f"{self.state_file}.{root}.tfstate").read_text())
        return state

    def refuse(self, *sentences: str) -> None:
        """Make the next applies fail, each with one of these."""
        Path(f"{self.state_file}.refusals").write_text("\n".join(sentences))

    def run(
        self, program: str, *options: str, timeout: float = 500, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run one program of infra/release, as a user does without a terminal."""
        place = (f"--project={fake_project.PROJECT}", f"--region={fake_project.REGION}")
        return subprocess.run(
            [sys.executable, "-m", f"infra.release.{program}", *place, *options],
            cwd=self.folder,
            env=self.environment | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )


class Webhook:
    """The public services' answers: to /health, to a handshake, to a POST, and to a call of the API without a key."""

    def __init__(self) -> None:
        self.health: tuple[int, Any] = (200, {"services": {"store": "connected", "queue": "connected"}})
        self.refusal = self.refusal_of_posts = 403
        self.without_key = 401
        self.posted: list[tuple[dict[str, str], bytes]] = []
        self.answer: Any = None
        """Called with the headers and the body of a signed POST; its status is the answer."""


@contextmanager
def listening(webhook: Webhook) -> Iterator[str]:
    """Its address, as Terraform outputs it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            others = webhook.without_key if self.path == "/v1/messages" else webhook.refusal
            status, body = webhook.health if self.path == "/health" else (others, {})
            self._say(status, json.dumps(body).encode())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/v1/messages":
                self._say(webhook.without_key, b"")
                return
            if "X-Hub-Signature-256" not in self.headers or webhook.answer is None:
                self._say(webhook.refusal_of_posts, b"")
                return
            webhook.posted.append((dict(self.headers), body))
            self._say(webhook.answer(dict(self.headers), body), b"")

        def _say(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/webhooks/whatsapp"
    finally:
        server.shutdown()
        server.server_close()
