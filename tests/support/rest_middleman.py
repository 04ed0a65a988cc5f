"""A REST server in front of an emulator: it passes calls on and records each, or answers by itself.

It is also a fake of a service that only says yes, if it has no target.
"""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PRIVATE = "15550002222"
"""Text that an error of the server contains."""

STATUSES = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "ABORTED": 409,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL": 500,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}


@dataclass(frozen=True)
class Call:
    """One call as it arrived."""

    verb: str
    path: str
    body: bytes
    authorization: str | None

    @property
    def method(self) -> str:
        return self.path.rpartition(":")[2]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def writes(self) -> int:
        return len(self.json.get("writes", ()))

    @property
    def reads(self) -> int:
        return len(self.json.get("documents", ()))


@dataclass
class Middleman:
    """Use it in a `with`; `address` is where it serves."""

    target: str | None = None
    calls: list[Call] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """The codes of the next answers; these calls do not reach the emulator."""
    always: str | None = None
    """The code of every answer after those."""
    answer: Callable[[bytes], bytes] = lambda answer: answer
    """Changes an answer."""
    seconds: float = 0
    """How long each call takes."""
    open: int = 0
    most: int = 0
    """How many calls were open at once."""
    lock: Any = field(default_factory=threading.Lock)

    def __enter__(self) -> "Middleman":
        middleman = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, answer = middleman.serve(self.command, self.path, body, self.headers["Authorization"])
                self.wfile.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(answer), answer))

            do_GET = do_POST

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False
            request_queue_size = 128

            def handle_error(self, *_: object) -> None:
                """A client that hung up is no error."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def serve(self, verb: str, path: str, body: bytes, authorization: str | None) -> tuple[int, bytes]:
        with self.lock:
            self.calls.append(Call(verb, path, body, authorization))
            self.open += 1
            self.most = max(self.most, self.open)
            code = self.errors.pop(0) if self.errors else self.always
        time.sleep(self.seconds)
        try:
            if code:
                error = {"code": STATUSES[code], "message": f"c4n4ry {PRIVATE}", "status": code}
                return STATUSES[code], json.dumps({"error": error}).encode()
            return self._pass_on(verb, path, body, authorization) if self.target else (200, b"{}")
        finally:
            with self.lock:
                self.open -= 1

    def _pass_on(self, verb: str, path: str, body: bytes, authorization: str | None) -> tuple[int, bytes]:
        connection = HTTPConnection(self.target or "", timeout=20)
        try:
            connection.request(verb, path, body, {"Authorization": authorization} if authorization else {})
            response = connection.getresponse()
            return response.status, self.answer(response.read())
        finally:
            connection.close()
