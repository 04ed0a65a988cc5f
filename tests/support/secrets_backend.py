"""The back ends of the secrets' contract suite: the file, and Secret Manager's client on the local server."""

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.cloud import secretmanager_v1 as api
from google.cloud.secretmanager_v1.services.secret_manager_service.transports import SecretManagerServiceGrpcTransport

from shared.pipeline.ports import Secrets
from shared.secrets.file_secrets import FILE, FileSecrets
from shared.secrets.secret_manager import SecretManagerSecrets

ROOT = Path(__file__).parents[2]
PROJECT = "pombo-test"
PREFIX = "pombo-"


@dataclass
class SecretManager:
    """`python -m local.secret_manager` as a process, on one port and directory through every kill and start."""

    directory: Path
    port: int = 0
    options: tuple[str, ...] = ("--only", PREFIX)

    def start(self) -> None:
        command = [sys.executable, "-m", "local.secret_manager", "--port", str(self.port)]
        command += ["--data-dir", str(self.directory), *self.options]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        self.address = json.loads(self._process.stdout.readline())["address"]
        self.port = int(self.address.rpartition(":")[2])

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def client(self) -> tuple[api.SecretManagerServiceClient, Any]:
        """Google's own client, and the channel to close."""
        import grpc

        channel = grpc.insecure_channel(self.address, options=[("grpc.enable_http_proxy", 0)])
        return api.SecretManagerServiceClient(transport=SecretManagerServiceGrpcTransport(channel=channel)), channel


@dataclass
class FileBackend:
    directory: Path
    name: str = "file"

    @property
    def path(self) -> Path:
        return self.directory / FILE

    def port(self) -> Secrets:
        return FileSecrets(self.path)

    def disable(self, name: str, number: int) -> None:
        secrets = json.loads(self.path.read_text())
        secrets[name][number - 1] = None
        self.path.write_text(json.dumps(secrets))

    def deny(self) -> str:
        """Let nobody read a secret, and return its name."""
        FileSecrets(self.path).add("denied", "hidden-value")
        self.path.chmod(0o644)
        return "denied"

    def close(self) -> None:
        """Nothing is open."""

    def in_a_process(self) -> list[str]:
        """Arguments that make another process's port: its kind and place."""
        return ["file", str(self.path)]


@dataclass
class ServerBackend:
    server: SecretManager
    ports: list[SecretManagerSecrets] = field(default_factory=list)
    name: str = "secret manager"

    def port(self) -> Secrets:
        self.ports.append(SecretManagerSecrets(PROJECT, self.server.address))
        return self.ports[-1]

    def disable(self, name: str, number: int) -> None:
        client, channel = self.server.client()
        with channel:
            client.disable_secret_version(name=f"projects/{PROJECT}/secrets/{name}/versions/{number}")

    def deny(self) -> str:
        return "denied"  # the server allows names that begin with PREFIX

    def close(self) -> None:
        for port in self.ports:
            port.close()

    def in_a_process(self) -> list[str]:
        return ["server", self.server.address]


ADDING = """
import sys
from shared.secrets.file_secrets import FileSecrets
from shared.secrets.secret_manager import SecretManagerSecrets
from pathlib import Path
kind, place, *names = sys.argv[1:]
port = FileSecrets(Path(place)) if kind == "file" else SecretManagerSecrets("pombo-test", place)
for name in names:
    port.add(name, f"value of {name}")
"""
"""A process that adds a secret for each of its arguments."""
