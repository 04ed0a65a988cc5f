"""A small HTTP server: it answers what a test scripted, and keeps the requests."""

import json
import socket
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

RESET, SILENCE = "reset", "silence"
"""Instead of an answer: the connection is reset once the request is read, or nothing comes until the client goes."""

Scripted = tuple[int, Mapping[str, str], Any] | str


@dataclass(frozen=True)
class Received:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class ScriptedServer:
    """`script`: status, headers and body (JSON, or bytes as they are) of each answer; the last one is repeated."""

    url: str
    script: list[Scripted] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)

    def will(self, *script: Scripted) -> None:
        self.script[:] = script

    def keys(self) -> Sequence[str | None]:
        """The Idempotency-Key of each request."""
        return [each.headers.get("Idempotency-Key") for each in self.received]


@contextmanager
def scripted_server() -> Iterator[ScriptedServer]:
    """Serve on this machine until the block ends."""
    made = ScriptedServer("")

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            made.received.append(Received(self.command, self.path, dict(self.headers), body))
            planned = made.script.pop(0) if len(made.script) > 1 else made.script[0]
            if planned == SILENCE:
                self.rfile.read(1)
            if isinstance(planned, str):
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.close_connection = True
                return
            status, headers, content = planned
            sent = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(sent)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(sent)

        do_GET = do_POST = answer

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made.url = f"http://127.0.0.1:{server.server_port}"
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        try:
            yield made
        finally:
            server.shutdown()
            serving.join()
