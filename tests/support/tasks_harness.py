"""A harness for the tests of the local Cloud Tasks: the emulator as a process, a recording target, a wait."""

import json
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
from google.cloud import tasks_v2
from google.cloud.tasks_v2.services.cloud_tasks.transports import CloudTasksGrpcTransport

from local.faults import Fault, FaultBook
from tests.support import forked

LOCATION = "projects/pombo-local/locations/local"


def http_target(document: dict[str, Any]) -> tasks_v2.HttpTarget:
    """A target of a queue as the client has it."""
    return tasks_v2.HttpTarget.from_json(json.dumps(document))


def wait_until(condition: Callable[[], Any], seconds: float = 15.0) -> Any:
    """The condition's first true value; AssertionError if there is none in time."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "the condition did not become true in time"
        time.sleep(0.01)
    return value


@dataclass(frozen=True)
class Received:
    method: str
    path: str
    headers: Message
    body: bytes
    at: float

    @property
    def task(self) -> str:
        return self.headers["X-CloudTasks-TaskName"]


@dataclass
class Target:
    """An HTTP server that records requests and answers what `answer` says: a status, given each request; `headers`
    go with every answer."""

    url: str = ""
    answer: Callable[[Received], int] = lambda _: 200
    headers: dict[str, str] = field(default_factory=dict)
    received: list[Received] = field(default_factory=list)
    running: int = 0
    most_at_once: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def at(self, path: str) -> list[Received]:
        return [request for request in list(self.received) if request.path == path]


@contextmanager
def a_target() -> Iterator[Target]:
    target = Target()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def handle_one(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            request = Received(self.command, self.path, self.headers, body, time.time())
            with target.lock:
                target.received.append(request)
                target.running += 1
                target.most_at_once = max(target.most_at_once, target.running)
            try:
                status = target.answer(request)
            finally:
                with target.lock:
                    target.running -= 1
            self.send_response(status)
            for name, value in {"Content-Length": "0", **target.headers}.items():
                self.send_header(name, value)
            self.end_headers()

        do_POST = do_GET = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_HEAD = handle_one

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False
        request_queue_size = 256

        def handle_error(self, *_: object) -> None:
            pass  # a killed emulator leaves its connections reset

    with Server(("127.0.0.1", 0), Handler) as server:
        target.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield target
        server.shutdown()
        thread.join()


class Emulator:
    """`python -m local.tasks` on a data directory, and the unmodified client on its address."""

    def __init__(self, data_dir: Path, *options: str) -> None:
        self.data_dir = data_dir
        self.options = options
        self.log: list[dict[str, Any]] = []
        self.port = 0
        self.start()

    def start(self) -> None:
        command = ["local.tasks", "--port", str(self.port), "--data-dir", str(self.data_dir), *self.options]
        with (self.data_dir / "emulator.stderr").open("a") as errors:
            self.process = forked.start(command, os.environ, errors)
        assert self.process.stdout is not None
        self.started = started = json.loads(self.process.stdout.readline())
        assert started["event"] == "started"
        self.port = int(started["address"].rpartition(":")[2])
        self._reader = threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True)
        self._reader.start()
        self.channel = grpc.insecure_channel(started["address"])
        self.client = tasks_v2.CloudTasksClient(transport=CloudTasksGrpcTransport(channel=self.channel))

    def _read(self, lines: Any) -> None:
        self.log.extend(json.loads(line) for line in lines)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(10)
        self._reader.join()
        self.process.stdout.close()
        self.channel.close()
        return code

    def __enter__(self) -> "Emulator":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def faults(self) -> FaultBook:
        return FaultBook(self.data_dir / "faults.sqlite")

    def add_fault(self, kind: str, queue: str, **rest: Any) -> None:
        """A fault on tasks of this queue only, so that tests that share an emulator do not affect each other."""
        match = {"queue": queue.rpartition("/")[2], **rest.pop("match", {})}
        self.faults.add(Fault("task", kind, match=match, **rest))

    def logged(self, event: str, queue: str) -> dict[str, Any]:
        """Wait for the first line of this event on the queue: it comes through a pipe, after what it reports."""
        name = queue.rpartition("/")[2]
        return wait_until(
            lambda: next((line for line in list(self.log) if (line["event"], line.get("queue")) == (event, name)), None)
        )

    def queue(self, rate: dict[str, Any] | None = None, retry: dict[str, Any] | None = None) -> str:
        """The full name of a new queue."""
        name = f"{LOCATION}/queues/q-{uuid.uuid4().hex[:12]}"
        queue = tasks_v2.Queue(name=name, rate_limits=rate or {}, retry_config=retry or {})
        self.client.create_queue(parent=LOCATION, queue=queue)
        return name

    def paused_queue(self) -> str:
        name = self.queue()
        self.client.pause_queue(name=name)
        return name

    def create(self, queue: str, url: str = "http://127.0.0.1:9/", **fields: Any) -> tasks_v2.Task:
        """A new task; `task_id` names it, other fields go into the Task or its HttpRequest."""
        if task_id := fields.pop("task_id", ""):
            fields["name"] = f"{queue}/tasks/{task_id}"
        http = {key: fields.pop(key) for key in ("body", "headers", "http_method", "oidc_token") if key in fields}
        task = tasks_v2.Task(http_request=tasks_v2.HttpRequest(url=url, **http), **fields)
        return self.client.create_task(parent=queue, task=task)

    def is_gone(self, task: str) -> bool:
        return all(found.name != task for found in self.client.list_tasks(parent=task.partition("/tasks/")[0]))
