"""The simulator as a real process, and a webhook service that records what it receives."""

import hashlib
import hmac
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from tests.support import forked

SECRET = "test_app_secret"
TOKEN = "test_access_token"
SENDER = "100000000000001"
CUSTOMER = "15550002222"
BSUID = "US.10000000000000000001"
ROOT = Path(__file__).parents[2]


def until(condition: Callable[[], Any], what: str, seconds: float = 15.0) -> Any:
    """The condition's first true value; fails after the deadline."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        time.sleep(0.01)
    return value


@dataclass(frozen=True)
class Post:
    """One webhook as it arrived."""

    at: float
    body: bytes
    signature: str

    @property
    def value(self) -> dict[str, Any]:
        return json.loads(self.body)["entry"][0]["changes"][0]["value"]

    @property
    def message_ids(self) -> list[str]:
        return [message["id"] for message in self.value.get("messages", [])]

    @property
    def receipts(self) -> list[str]:
        return [receipt["status"] for receipt in self.value.get("statuses", [])]

    @property
    def is_signed(self) -> bool:
        digest = hmac.new(SECRET.encode(), self.body, hashlib.sha256).hexdigest()
        return hmac.compare_digest(self.signature, f"sha256={digest}")


@dataclass
class Webhook:
    """Answers 200, or the next of `answers` while there are any."""

    posts: list[Post] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.open(0)

    def open(self, port: int) -> None:
        self.server = _Server(("127.0.0.1", port), _handler(self))
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/webhooks/whatsapp"

    @property
    def receipts(self) -> list[str]:
        return [kind for post in list(self.posts) for kind in post.receipts]

    @property
    def messages(self) -> list[Post]:
        return [post for post in list(self.posts) if post.message_ids]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that its client dropped is not an error."""


def _handler(webhook: Webhook) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 5

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            webhook.posts.append(Post(time.time(), body, self.headers.get("X-Hub-Signature-256", "")))
            self.send_response(webhook.answers.pop(0) if webhook.answers else 200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, format: str, *args: Any) -> None:
            """Silent."""

    return Handler


class Simulator:
    """`python -m local.whatsapp`, which may be killed and restarted on the same data directory."""

    def __init__(self, data_dir: Path, webhook_url: str, *options: str, **environment: str) -> None:
        self.data_dir = data_dir
        self.webhook_url = webhook_url
        self.options = options
        self.environment = {"META_APP_SECRET": SECRET, "WHATSAPP_ACCESS_TOKEN": TOKEN} | environment
        self.client = httpx.Client(timeout=15)
        self.start()

    def start(self) -> None:
        self.log = (self.data_dir / "stdout.jsonl").open("a+")
        begin = self.log.seek(0, os.SEEK_END)
        where = ["--port", "0", "--data-dir", str(self.data_dir), "--webhook-url", self.webhook_url]
        with (self.data_dir / "simulator.stderr").open("a") as errors:
            self.process = forked.start(
                ["local.whatsapp", *where, *self.options], _plain_environment() | self.environment, errors, self.log
            )

        def line() -> str:
            assert self.process.poll() is None, "the simulator ended"
            self.log.seek(begin)
            return self.log.readline()

        started = json.loads(until(line, "the line that says it listens"))
        self.address, self.control_address = started["address"], started["control"]

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.log.close()

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=10)
        self.log.close()
        return code

    def log_text(self) -> str:
        return (self.data_dir / "stdout.jsonl").read_text()

    def call(self, fields: Any, token: str = TOKEN, path: str = f"/v25.0/{SENDER}/messages") -> httpx.Response:
        content = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        return self.client.post(self.address + path, content=content, headers=headers)

    def send(self, body: str = "hi", **fields: Any) -> httpx.Response:
        return self.call(message(text={"body": body}) | fields)

    def read(self, message_id: str, typing: bool = False) -> httpx.Response:
        """Mark a message as read, or show the typing indicator."""
        indicator = {"typing_indicator": {"type": "text"}} if typing else {}
        return self.call({"messaging_product": "whatsapp", "status": "read", "message_id": message_id} | indicator)

    def calls(self) -> list[tuple[str, int | None, int | None]]:
        """Each call with its status and code."""
        return [(call["call"], call["status"], call["code"]) for call in self.control("GET", "calls")]

    def refusal(self, fault: Any) -> str:
        """The sentence with which the simulator refuses a fault."""
        answer = self.client.post(f"{self.control_address}/control/faults", json=fault)
        assert answer.status_code == 400, answer.text
        return answer.json()["error"]

    def control(self, method: str, path: str, document: Any = None) -> Any:
        answer = self.client.request(method, f"{self.control_address}/control/{path}", json=document)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def fault(self, **fault: Any) -> None:
        self.control("POST", "faults", fault)

    def inbound(self, **order: Any) -> list[str]:
        order = {"type": "text", "content": {"body": "hello"}} | order
        if "user_id" not in order:
            order = {"from": CUSTOMER} | order
        return self.control("POST", "inbound", order)["message_ids"]

    def ledger(self) -> list[dict[str, Any]]:
        return self.control("GET", "ledger")

    def sockets(self) -> int:
        """How many sockets the process has open."""
        descriptors = Path(f"/proc/{self.process.pid}/fd").iterdir()
        return sum(str(fd.readlink()).startswith("socket:") for fd in descriptors if fd.is_symlink())

    def quiet(self) -> dict[str, int]:
        """Wait until every webhook is delivered."""

        def counts() -> dict[str, int] | None:
            now = self.control("GET", "webhooks")
            return now if now["pending"] == 0 else None

        return until(counts, "quiet")


def message(**fields: Any) -> dict[str, Any]:
    """A text to the customer, unless the fields say otherwise."""
    kind = next((name for name in fields if name not in ("to", "recipient", "context")), "text")
    return {"messaging_product": "whatsapp", "to": f"+{CUSTOMER}", "type": kind} | fields


def _plain_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("META_", "WHATSAPP_"))}


@contextmanager
def running(data_dir: Path, *options: str, **environment: str) -> Iterator[tuple[Simulator, Webhook]]:
    """A simulator and the webhook that it delivers to; both end with the block."""
    data_dir.mkdir(exist_ok=True)
    webhook = Webhook()
    simulator = Simulator(data_dir, webhook.url, *options, **environment)
    try:
        yield simulator, webhook
    finally:
        simulator.stop()
        simulator.client.close()
        webhook.close()
