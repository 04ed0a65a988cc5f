"""The real parts of the services, assembled in one process, and the provider's side of their calls."""

import hashlib
import hmac
import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
from google.cloud import tasks_v2
from google.cloud.tasks_v2.services.cloud_tasks.transports import CloudTasksGrpcTransport

from shared import logs
from shared.bootstrap.backends import build_store
from shared.bootstrap.internal import Internal, build_internal
from shared.bootstrap.webhook import Webhook, build_webhook
from shared.domain.delivery.answers import Answer, Step, TaskResult
from shared.domain.delivery.create import create
from shared.domain.events import ReceiptReceived
from shared.domain.identity import message_event_id, outbound_key, sender_id
from shared.domain.limits import Limits
from shared.domain.marks import Marks
from shared.domain.record import Delivery, Kind, ReceiptKind, State, Task
from shared.handlers.hung_threads import HungThreads
from shared.handlers.loader import TeamFunction
from shared.handlers.runner import HandlerRunner
from shared.pipeline.backend_marks import BackendMarks
from shared.pipeline.intake import Incoming
from tests.support import event_loop
from tests.support.event_loop import Asynchronous
from tests.support.one_handler import OneHandler

ROOT = Path(__file__).parents[2]
PLACE = "projects/pombo-local/locations/local"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LIMITS = Limits(sweep_after=timedelta(seconds=30))
SENDER, STRANGER = "100000000000001", "100000000000009"
PERSON = "15550002222"
SECRET, WORD, TOKEN = "test-app-secret", "test-verify-token", "test-internal-token"


def until(condition: Callable[[], Any], seconds: float = 30) -> Any:
    """The condition's first true value."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "the condition did not become true in time"
        time.sleep(0.01)
    return value


# ---- Meta's webhooks


def text(message_id: str, body: str = "hello", sender: str = PERSON) -> dict[str, Any]:
    return {"from": sender, "id": message_id, "timestamp": "1772366400", "type": "text", "text": {"body": body}}


def receipt(provider_id: str, status: str = "delivered", **fields: Any) -> dict[str, Any]:
    return {"id": provider_id, "status": status, "timestamp": "1772366400", "recipient_id": PERSON, **fields}


def post(*messages: Any, statuses: tuple[Any, ...] = (), to: str = SENDER) -> bytes:
    """A webhook with these messages to, and receipts of, one number."""
    value: dict[str, Any] = {"messaging_product": "whatsapp", "metadata": {"phone_number_id": to}}
    if messages:
        value |= {"messages": list(messages), "contacts": [{"wa_id": PERSON, "profile": {"name": "Ana"}}]}
    if statuses:
        value["statuses"] = list(statuses)
    return changes(("messages", value))


def changes(*news: tuple[str, Any]) -> bytes:
    """A webhook with these changes: field and value."""
    listed = [{"field": name, "value": value} for name, value in news]
    document = {"object": "whatsapp_business_account", "entry": [{"id": "300000000000003", "changes": listed}]}
    return json.dumps(document).encode()


def signed(body: bytes, secret: str = SECRET) -> str:
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def incoming(body: bytes, signature: str | None = None) -> Incoming:
    """The request that carries this body; with the right signature unless another is given."""
    headers = {"x-hub-signature-256": signed(body) if signature is None else signature}
    return Incoming("meta", "POST", "/webhooks/whatsapp", headers, body)


def key_of(message_id: str, to: str = SENDER) -> str:
    return message_event_id("meta", to, message_id)


# ---- ports


@dataclass
class Clock:
    """A clock that a test advances."""

    at: datetime = NOW
    seconds: float = 0.0

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.go(seconds)

    def go(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)
        self.seconds += seconds

    def jitter(self) -> float:
        return 0.5

    def token(self) -> str:
        return uuid.uuid4().hex


Fault = Callable[..., Exception | None]


class Tapped:
    """A port that records its calls and raises errors on demand, before or after the effect. What a port answers
    without calling anything outside is not a call and has no errors.
    """

    def __init__(self, port: Any) -> None:
        self.port = port
        self.calls: list[tuple[Any, ...]] = []
        self.before: Fault = lambda *_: None
        self.after: Fault = lambda *_: None

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name == "queue_of":
            found: Callable[..., Any] = getattr(self.port, name)
            return found

        def call(*given: Any, **named: Any) -> Any:
            self.calls.append((name, *given))
            if error := self.before(name, *given):
                raise error
            result = getattr(self.port, name)(*given, **named)
            if error := self.after(name, *given):
                raise error
            return result

        return call

    def asked(self, name: str) -> list[tuple[Any, ...]]:
        """The arguments of each call of this method."""
        return [call[1:] for call in list(self.calls) if call[0] == name]


class NoQueue:
    """A queue that accepts everything, for tests that only look at the calls."""

    def ensure(self, *_: Any) -> None:
        pass

    def ensure_drain(self, *_: Any) -> None:
        pass

    def ensure_all(self, tasks: Sequence[Any], _: Any) -> list[None]:
        return [None] * len(tasks)

    def queue_of(self, task: Task) -> str:
        return task.kind

    def ping(self) -> None:
        pass

    def close(self) -> None:
        pass


# ---- programs next to ours


class Emulator:
    """The Cloud Tasks emulator as a process, with both queues paused, so that created tasks stay for inspection."""

    def __init__(self, directory: Path) -> None:
        self.program = run(directory, "local.tasks", {}, "--port", "0", "--data-dir", str(directory))
        self.address = str(lines(self.program.out.read_text())[0]["address"])
        self._channel = grpc.insecure_channel(self.address)
        self.client = tasks_v2.CloudTasksClient(transport=CloudTasksGrpcTransport(channel=self._channel))
        for name in ("inbound", "outbound"):
            self.client.create_queue(parent=PLACE, queue=tasks_v2.Queue(name=f"{PLACE}/queues/{name}"))
            self.client.pause_queue(name=f"{PLACE}/queues/{name}")

    def resume(self, queue: str) -> None:
        self.client.resume_queue(name=f"{PLACE}/queues/{queue}")

    def close(self) -> None:
        self._channel.close()
        self.program.process.kill()
        self.program.process.wait()

    def tasks(self, queue: str) -> list[tasks_v2.Task]:
        found = self.client.list_tasks(
            request={"parent": f"{PLACE}/queues/{queue}", "response_view": tasks_v2.Task.View.FULL}
        )
        return list(found)

    def names(self, queue: str) -> set[str]:
        return {task.name.rpartition("/")[2] for task in self.tasks(queue)}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        return int(holder.getsockname()[1])


@dataclass
class Program:
    """One of our programs as a process, with its output in files."""

    process: subprocess.Popen[bytes]
    out: Path
    err: Path

    def end(self) -> int:
        """Send SIGTERM; return the exit code."""
        self.process.terminate()
        return self.process.wait(20)


def run(directory: Path, module: str, environ: Mapping[str, str], *arguments: str) -> Program:
    """Start `python -m module`, and wait until it reports that it has started."""
    out, err = directory / f"{module}.out", directory / f"{module}.err"
    with out.open("wb") as lines, err.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            env={"PATH": os.environ["PATH"], **environ},
            cwd=ROOT,
            stdout=lines,
            stderr=errors,
        )
    until(lambda: process.poll() is not None or '"started"' in out.read_text())
    assert process.poll() is None, err.read_text()
    return Program(process, out, err)


@dataclass
class Provider:
    """Graph, as far as a send sees it: takes a request, returns the next of its answers (status and document);
    `headers` are added to every answer.
    """

    url: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    answers: list[tuple[int, Any]] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    during: Callable[[bytes], Any] = lambda _: None
    accepted: tuple[int, Any] = (200, {"messages": [{"id": "wamid.accepted"}]})

    def __call__(self, body: bytes) -> tuple[int, bytes]:
        self.requests.append(json.loads(body))
        self.during(body)
        status, document = self.answers.pop(0) if self.answers else self.accepted
        return status, document if isinstance(document, bytes) else json.dumps(document).encode()


@contextmanager
def a_provider(provider: Provider | None = None) -> Iterator[Provider]:
    provider = provider or Provider()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            status, body = provider(self.rfile.read(int(self.headers["Content-Length"])))
            if status == 0:  # no answer at all
                self.close_connection = True
                return
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **provider.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            pass  # a client disconnected, which is normal

    with Server(("127.0.0.1", 0), Handler) as server:
        provider.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield provider
        server.shutdown()
        thread.join()


def error(code: int, status: int = 400, **fields: Any) -> tuple[int, Any]:
    """A refusal by Graph."""
    return status, {"error": {"message": f"(#{code}) refused", "code": code, **fields}}


# ---- ours


def environment(directory: Path, **more: str) -> dict[str, str]:
    return {
        "SQLITE_PATH": str(directory / "pombo.sqlite"),
        "META_APP_SECRET": SECRET,
        "META_VERIFY_TOKEN": WORD,
        "INTERNAL_TASK_TOKEN": TOKEN,
        "CLOUD_TASKS_EMULATOR_HOST": "127.0.0.1:9",
        **more,
    }


@contextmanager
def logged() -> Iterator[None]:
    """The services configure the logging of the whole process; restore it afterwards."""
    root, ours = logging.getLogger(), logging.getLogger("pombo")
    before = root.handlers[:], root.level, ours.level, sys.excepthook, threading.excepthook
    logs.configure("DEBUG")
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])
    sys.excepthook, threading.excepthook = before[3], before[4]


def lines(captured: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in captured.split("\n") if line]


def events(captured: str) -> list[str]:
    return [line["event"] for line in lines(captured)]


@dataclass
class WebhookParts:
    """The public service with its ports tapped."""

    parts: Webhook
    store: Tapped
    queue: Tapped
    clock: Clock

    def accept(self, incoming: Incoming) -> None:
        """As the service does, on an event loop."""
        event_loop.run(self.parts.accept(incoming))

    def close(self) -> None:
        self.store.port.close()


def webhook_parts(directory: Path, queue: Any = None, **more: str) -> WebhookParts:
    """`queue`: a stand-in for the real one."""
    built = build_webhook(environment(directory, **more))
    store, tapped, clock = Tapped(build_store(built.config)), Tapped(queue or built.queue), Clock()
    intake, tasks = Asynchronous(store), Asynchronous(tapped)
    accept = replace(built.accept, store=intake, queue=tasks, clock=clock)
    return WebhookParts(replace(built, accept=accept, store=intake, queue=tasks), store, tapped, clock)


@dataclass
class InternalParts:
    """The private service with its ports tapped."""

    parts: Internal
    store: Tapped
    queue: Tapped
    clock: Clock


def internal_parts(
    directory: Path, handle: Callable[..., Any] | None = None, queue: Any = None, **more: str
) -> InternalParts:
    built = build_internal(environment(directory, **more))
    store, tapped, clock = Tapped(built.store), Tapped(queue or built.queue), Clock()
    limits = built.config.limits
    dispatch = replace(built.process_outbound.dispatch, queue=tapped, clock=clock)
    handler = built.handler
    if handle is not None:
        handler = HandlerRunner(
            TeamFunction(handle, limits.max_replies),
            timeout=limits.handler_timeout,
            hung=HungThreads(2),
            stopping=built.shutdown,
            all_or_nothing=built.config["PLAN_ALL_OR_NOTHING"],
        )
    conversations = built.process_inbound.conversations
    assert conversations is not None
    changed = {"store": store, "dispatch": dispatch, "clock": clock}
    both = {**changed, "conversations": replace(conversations, store=store, clock=clock)}
    reconnects = replace(built.sweep.reconnects, **changed)
    backend = BackendMarks(handler.backend, store, limits, clock)
    senders = replace(built.senders, store=store, clock=clock, backend=handler.backend)
    parts = replace(
        built,
        process_inbound=replace(built.process_inbound, handlers=OneHandler(handler, backend), **both),
        process_outbound=replace(built.process_outbound, **both),
        sweep=replace(built.sweep, senders=senders, reconnects=reconnects, **changed),
        drain=replace(built.drain, store=store, dispatch=dispatch),
        senders=senders,
        handler=handler,
        store=store,
        queue=tapped,
    )
    return InternalParts(parts, store, tapped, clock)


# ---- records and marks


def marks_of(store: Any, sender: str = SENDER) -> Marks:
    """The marks of a sender."""
    marks: Marks = store.marks(sender_id("meta", sender))
    return marks


def put_marks(store: Any, sender: str = SENDER, **changes: Any) -> None:
    """Change the marks of a sender, as a response or a receipt would."""
    store.change_marks(sender_id("meta", sender), lambda marks: replace(marks, **changes))


def step(record: Delivery) -> Step:
    """The write of this record, unchanged."""
    return Step(Answer(TaskResult.ACK, record.state), write=record)


def a_receipt(provider_id: str, kind: ReceiptKind) -> ReceiptReceived:
    return ReceiptReceived("meta", SENDER, provider_id, kind, NOW)


def an_event(number: int = 1, **changes: Any) -> Delivery:
    """A text that waits for the handler."""
    item = text(f"wamid.{number}", f"hello {number}")
    record = create(
        Kind.INBOUND,
        key_of(f"wamid.{number}"),
        tenant="default",
        sender=SENDER,
        contact=PERSON,
        correlation_id=f"correlation-{number}",
        payload={"field": "messages", "item": item, "contact": {}, "phone_number_id": SENDER},
        limits=LIMITS,
        now=NOW,
        provider="meta",
    )
    return replace(record, **changes)


def a_reply(number: int = 1, **changes: Any) -> Delivery:
    """A text that waits to be sent."""
    record = create(
        Kind.OUTBOUND,
        outbound_key(key_of(f"wamid.{number}"), 0),
        tenant="default",
        sender=SENDER,
        contact=PERSON,
        correlation_id=f"correlation-{number}",
        payload={"type": "text", "content": {"body": "hello to you"}, "reply_to": None, "to": f"+{PERSON}"},
        limits=LIMITS,
        now=NOW,
        provider="meta",
    )
    return replace(record, **changes)


def held(seconds: float, **changes: Any) -> dict[str, Any]:
    """Under another attempt's lease, for this many seconds."""
    until = NOW + timedelta(seconds=seconds)
    return {"state": State.LEASED, "attempt": 1, "token": "another", "lease_until": until} | changes


def doubtful(seconds: float, **changes: Any) -> dict[str, Any]:
    """In doubt, for this many seconds."""
    until = NOW + timedelta(seconds=seconds)
    fields = {"state": State.IN_DOUBT, "attempt": 1, "token": "another", "doubts": 1, "doubt_until": until}
    return fields | {"sweep_at": until + timedelta(seconds=30)} | changes


def ended(state: State, **changes: Any) -> dict[str, Any]:
    return {"state": state, "attempt": 1, "token": "another", "sweep_at": None, "finished_at": NOW} | changes
