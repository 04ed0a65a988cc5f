"""The local Cloud Tasks emulator of the contract suite, and clients of its queues."""

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import grpc
from google.cloud import tasks_v2
from google.cloud.tasks_v2.services.cloud_tasks.transports import CloudTasksGrpcTransport

from shared.domain.deadline import Deadline
from shared.domain.record import Kind, Task
from shared.queues.cloud_tasks import CloudTasksQueue
from shared.queues.cloud_tasks_intake import CloudTasksIntake
from shared.queues.task_content import QueueSettings
from tests.support.blocking import Blocking

ROOT = Path(__file__).parents[2]
PLACE = "projects/pombo-test/locations/local"
TOKEN = "a-token-of-the-tests"
TARGET = "http://127.0.0.1:9"
CORRELATION = "corr_0001"


@dataclass
class Emulator:
    """The emulator as a process, on one port and one directory through every kill and start."""

    directory: Path
    port: int = 0

    def __enter__(self) -> "Emulator":
        command = [sys.executable, "-m", "local.tasks", "--port", str(self.port), "--data-dir", str(self.directory)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        self.address = json.loads(self._process.stdout.readline())["address"]
        self.port = int(self.address.rpartition(":")[2])
        self._channel = grpc.insecure_channel(self.address)
        self.client = tasks_v2.CloudTasksClient(transport=CloudTasksGrpcTransport(channel=self._channel))
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()
        self._process.kill()
        self._process.communicate()

    def queue(self, paused: bool = True, target: tasks_v2.HttpTarget | None = None, name: str = "") -> str:
        """The short name of a new queue."""
        name = name or f"q-{uuid.uuid4().hex[:12]}"
        self.client.create_queue(parent=PLACE, queue=tasks_v2.Queue(name=f"{PLACE}/queues/{name}", http_target=target))
        if paused:
            self.client.pause_queue(name=f"{PLACE}/queues/{name}")
        return name

    def tasks(self, queue: str) -> list[tasks_v2.Task]:
        return list(
            self.client.list_tasks(
                request={"parent": f"{PLACE}/queues/{queue}", "response_view": tasks_v2.Task.View.FULL}
            )
        )


class Intake(Blocking):
    """The webhook's client, which blocks, and also makes one task like the other services' client."""

    def __init__(self, settings: QueueSettings, token: Any = None) -> None:
        super().__init__(CloudTasksIntake(settings, token))

    def ensure(self, task: Task, at: datetime | None) -> None:
        (fault,) = self.ensure_all([(task, at)], a_deadline())
        if fault is not None:
            raise fault


@dataclass
class Queue:
    """A client of two new, paused queues."""

    client: ClassVar[Callable[[QueueSettings], Any]] = CloudTasksQueue
    emulator: Emulator
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.names = {kind: self.emulator.queue() for kind in Kind}
        given = {
            "project": "pombo-test",
            "location": "local",
            "queues": self.names,
            "base_url": TARGET,
            "token": TOKEN,
            "dispatch_deadline": timedelta(seconds=135),
            "emulator": self.emulator.address,
        }
        self.port = type(self).client(QueueSettings(**(given | self.settings)))

    def made(self, kind: Kind = Kind.INBOUND) -> list[tasks_v2.Task]:
        return self.emulator.tasks(self.names[kind])


def a_task(
    kind: Kind = Kind.INBOUND, generation: int = 0, hop: int = 0, tenant: str = "default", pair: int | None = None
) -> Task:
    return Task(uuid.uuid4().hex + "00000000", kind, CORRELATION, generation, hop, tenant, pair)


def a_deadline(seconds: float = 30) -> Deadline:
    return Deadline(time.monotonic, time.monotonic() + seconds, time.monotonic() + seconds)


def some_tasks(count: int) -> list[tuple[Task, None]]:
    return [(a_task(), None) for _ in range(count)]
