"""A backend for HANDLER_URL: checks that a call is from Pombo and answers it, with the standard library only.

    python examples/backend/main.py --port 9000 --secret whsec_...

Copy it and put your own code in place of `answer`. docs/handler-url.md says what each answer does.
"""

import argparse
import base64
import hashlib
import hmac
import json
import os
import re
import signal
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOLERANCE_SECONDS = 5 * 60
"""An older signature may be a replayed call; one from the future means a wrong clock."""

LARGEST_CALL = 1024 * 1024
SLOWEST_READ_SECONDS = 10

REMEMBERED_CALLS = 1000
"""In memory: enough for an example. Keep them in your database, so that they survive a restart."""


# ---- your code


def answer(message: Mapping[str, Any]) -> list[Any]:
    """The replies to one message, in order: each a string, or Meta's object for its type."""
    interactive = message.get("interactive")
    if interactive:
        return [f"You chose {interactive.get('title')}."]
    text = message.get("text")
    if not text:
        return ["I can read text messages only, so far."]
    if text.strip().lower() == "menu":
        return [buttons("What would you like?", {"hours": "Opening hours", "person": "Talk to a person"})]
    return [{"type": "text", "content": {"body": text}, "reply_to": message["id"]}]


def buttons(body: str, choices: Mapping[str, str]) -> dict[str, Any]:
    """A text with up to three buttons, by id and title."""
    made = [{"type": "reply", "reply": {"id": id, "title": title}} for id, title in choices.items()]
    return {
        "type": "interactive",
        "content": {"type": "button", "body": {"text": body}, "action": {"buttons": made}},
    }


# ---- the signature: https://www.standardwebhooks.com


class Refused(Exception):
    """The call is not from Pombo, or not recent."""


def verify(key: bytes, call_id: str, timestamp: str, signatures: str, body: bytes, now: float) -> None:
    """Raises Refused unless the call is signed with our key, over the bytes as received, and recent."""
    if not call_id or not re.fullmatch(r"[0-9]{1,15}", timestamp):
        raise Refused("it is not signed")
    signed = f"{call_id}.{timestamp}.".encode() + body
    expected = b"v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest())
    # There are several signatures while Pombo's secret is rotated; one must be by our secret. compare_digest takes the
    # same time for a wrong one as for a right one, so that its time reveals nothing.
    if not any(hmac.compare_digest(expected, one) for one in signatures.encode().split()):
        raise Refused("its signature is not by our secret")
    if abs(now - int(timestamp)) > TOLERANCE_SECONDS:
        raise Refused("it was not signed within the last five minutes")


# ---- the server


class Answers:
    """The answer to each call. If an answer was lost, Pombo calls again with the same id."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, list[Any]] = OrderedDict()

    def get(self, call_id: str) -> list[Any] | None:
        with self._lock:
            return self._known.get(call_id)

    def keep(self, call_id: str, replies: list[Any]) -> None:
        with self._lock:
            self._known[call_id] = replies
            if len(self._known) > REMEMBERED_CALLS:
                self._known.popitem(last=False)


class Server(ThreadingHTTPServer):
    """A thread for each call. The threads do not delay the shutdown."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, host: str, port: int, key: bytes) -> None:
        super().__init__((host, port), Calls)
        self.key = key
        self.answers = Answers()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a caller that hangs up or is too slow; print a fault of ours."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class Calls(BaseHTTPRequestHandler):
    """One call: read it, verify that it is from Pombo, answer."""

    server: Server
    timeout = SLOWEST_READ_SECONDS

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdigit() or int(length) > LARGEST_CALL:
            return self.reply(413, {"error": f"A call has a Content-Length of at most {LARGEST_CALL}."})
        body = self.rfile.read(int(length))
        call_id = self.headers.get("webhook-id", "")
        timestamp, signatures = self.headers.get("webhook-timestamp", ""), self.headers.get("webhook-signature", "")
        try:
            verify(self.server.key, call_id, timestamp, signatures, body, time.time())
        except Refused as error:
            return self.reply(401, {"error": f"The call is refused: {error}."})
        replies = self.server.answers.get(call_id)
        if replies is None:
            replies = answer(json.loads(body)["message"])
            self.server.answers.keep(call_id, replies)
        return self.reply(200, {"replies": replies})

    def reply(self, status: int, document: Mapping[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


# ---- the command line


def key_of(secret: str) -> bytes:
    """The bytes that a secret stands for. Raises ValueError."""
    key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    if not secret.startswith("whsec_") or not 24 <= len(key) <= 64:
        raise ValueError
    return key


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="A small backend that answers Pombo's calls: it says a text back, and to 'menu' it shows buttons.",
        epilog="Then, in another terminal: HANDLER_URL=http://127.0.0.1:9000/ HANDLER_URL_SECRET=whsec_... make run",
    )
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (default: %(default)s)")
    parser.add_argument("--port", type=int, default=9000, help="0 takes a free one (default: %(default)s)")
    parser.add_argument(
        "--secret",
        default=os.environ.get("HANDLER_URL_SECRET", ""),
        help="whsec_ and base64, the one that Pombo signs with (default: HANDLER_URL_SECRET, which `ps` does not show)",
    )
    return parser.parse_args()


def main() -> None:
    """Serve until Ctrl-C or SIGTERM."""
    given = arguments()
    try:
        key = key_of(given.secret)
    except ValueError:
        sys.exit(
            "backend: --secret is whsec_ and the base64 of 24 to 64 bytes, the same as Pombo's HANDLER_URL_SECRET."
        )
    try:
        server = Server(given.host, given.port, key)
    except (OSError, OverflowError) as error:
        sys.exit(f"backend: cannot listen on {given.host}:{given.port} ({error}); choose another port with --port.")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with server:
        try:
            print(f"The backend answers on http://{given.host}:{server.server_port}. Ctrl-C stops it.", flush=True)  # noqa: T201
            server.serve_forever()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
