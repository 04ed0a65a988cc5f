"""Outage runs of a backend behind HANDLER_URL: it is away for a while, and what followed is accounted for.

python -m tests.outages.backend_runs --store redis --minutes 15 --kind 503
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

from tests.outages.outage_runs import LONGEST_WAIT, SCALE, SLACK_REAL, make_stack
from tests.support.stack import Stack

KINDS = ("503", "429", "502", "unreachable", "hang")
SECRET = "whsec_" + "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0"
_contacts = count(8_000_000)


class Backend:
    """A backend that answers each message with its own text, unless it is away. `calls` are when it was called for
    which event; `poisons` are texts that it never answers, with the status it gives them.
    """

    def __init__(self) -> None:
        self.mode = ""
        self.poisons: dict[str, int] = {}
        self.calls: list[tuple[float, str, str]] = []
        self._port = 0
        self._server: ThreadingHTTPServer | None = None
        self.listen()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/messages"

    def listen(self) -> None:
        handler = type("Handler", (_Handler,), {"backend": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), handler)
        self._server.daemon_threads = True
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def away(self, kind: str) -> None:
        self.mode = kind
        if kind == "unreachable":
            self.close()

    def back(self) -> None:
        if self.mode == "unreachable":
            self.listen()
        self.mode = ""


class _Handler(BaseHTTPRequestHandler):
    backend: Backend
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = body["message"]["text"]
        self.backend.calls.append((time.time(), body["inbound_event_id"], text))
        mode = self.backend.mode
        while self.backend.mode == mode == "hang":
            time.sleep(0.05)
        if mode in ("hang", "unreachable"):
            self.close_connection = True
        elif mode:
            self._answer(int(mode), b"")
        elif text in self.backend.poisons:
            self._answer(self.backend.poisons[text], b"")
        else:
            self._answer(200, json.dumps({"replies": [{"type": "text", "content": {"body": text}}]}).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@dataclass(frozen=True, slots=True)
class Outage:
    """One outage of the backend to run."""

    kind: str
    minutes: float
    messages: int

    def __str__(self) -> str:
        return f"{self.kind}, {self.minutes:g} min, {self.messages}"


@dataclass(frozen=True, slots=True)
class Account:
    """What came of it. Times in seconds of the protocol."""

    answered: int
    doubled: int
    dead: int
    attempts_spent: int
    calls: int
    failed_trials: int
    first_after: float
    all_after: float


@contextmanager
def backend_stack(data_dir: Path, store: str, sweep: bool, is_forked: bool = False) -> Iterator[tuple[Stack, Backend]]:
    """A stack whose handler is a backend of ours."""
    backend = Backend()
    settings = {"HANDLER": "", "HANDLER_URL": backend.url, "HANDLER_URL_SECRET": SECRET}
    try:
        with make_stack(data_dir, store, sweep, is_forked=is_forked, **settings) as stack:
            stack.wait_settled([stack.say("15557999998", "hello")])
            yield stack, backend
    finally:
        backend.close()


def run(stack: Stack, backend: Backend, outage: Outage) -> Account:
    """Let the backend be away while people write; then wait until all has come to its end."""
    stack.control("DELETE", "ledger")
    began = time.time()
    backend.away(outage.kind)
    people = {f"1555{next(_contacts):07}": "" for _ in range(outage.messages)}
    for person in people:
        people[person] = stack.say(person, "hello")
    stack.wait_until(lambda: all(stack.event(one) for one in people.values()), "all is stored", 60)
    time.sleep(max(0.0, began + outage.minutes * 60 / SCALE - time.time()))
    calls = sum(at >= began for at, *_ in backend.calls)
    trials = len([line for line in stack.logs("backend_down") if _at(line) >= began])
    backend.back()
    back = time.time()
    stack.wait_settled(list(people.values()), 3 * LONGEST_WAIT / SCALE + SLACK_REAL + outage.messages * 0.2)
    events = [stack.event(one) for one in people.values()]
    took = Counter(entry["key"] for entry in stack.ledger())
    accepted = [_seconds(entry["accepted_at"]) for entry in stack.ledger()]
    return Account(
        answered=len(took),
        doubled=sum(times - 1 for times in took.values()),
        dead=sum(event is None or event.state == "dead" for event in events),
        attempts_spent=max(event.attempt for event in events if event) - 1,
        calls=calls,
        failed_trials=trials,
        first_after=round((min(accepted) - back) * SCALE, 1) if accepted else -1,
        all_after=round((time.time() - back) * SCALE, 1),
    )


def faults_of(outage: Outage, account: Account) -> list[str]:
    """What the account shows that must not be."""
    found = []
    if account.doubled or account.dead or account.answered != outage.messages:
        found.append(f"{account.answered} of {outage.messages} answered, {account.doubled} twice, {account.dead} dead")
    if account.attempts_spent > 1:  # a call that was under way when the backend went, or one that a busy machine lost
        found.append(f"the outage spent {account.attempts_spent} attempts of one event")
    if account.first_after > LONGEST_WAIT + SLACK_REAL * SCALE:
        found.append(f"the first event was handled {account.first_after:.0f} s after the return")
    return found


def delays(stack: Stack, backend: Backend, events: int, every: float = 0.5) -> list[float]:
    """Seconds (of the machine) from a person's writing to the call of the backend, for two events a second."""
    found = []
    for number in range(events):
        began = time.time()
        text = f"hello {began}"
        stack.say(f"1555{next(_contacts):07}", text)
        stack.wait_until(lambda text=text: any(said == text for *_, said in list(backend.calls)), f"event {number}")
        found.append(next(at for at, _, said in backend.calls if said == text) - began)
        time.sleep(max(0.0, began + every - time.time()))
    return found


def p95(values: Sequence[float]) -> float:
    return sorted(values)[int(len(values) * 0.95) - 1]


def _at(line: dict[str, Any]) -> float:
    return _seconds(line["time"])


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def main() -> int:
    """Run the outages that the options name, on one stack. 1 where one of them shows a fault."""
    parser = argparse.ArgumentParser("backend_runs", description=__doc__)
    parser.add_argument("--store", default="sqlite", choices=("sqlite", "firestore", "redis"))
    parser.add_argument("--no-sweep", action="store_true")
    parser.add_argument("--kind", action="append", choices=KINDS)
    parser.add_argument("--minutes", action="append", type=float)
    parser.add_argument("--messages", action="append", type=int)
    asked = parser.parse_args()
    bad = 0
    with tempfile.TemporaryDirectory() as directory:
        with backend_stack(Path(directory) / "data", asked.store, not asked.no_sweep) as (stack, backend):
            for minutes in asked.minutes or (1, 15):
                for kind in asked.kind or KINDS:
                    for messages in asked.messages or (200, 1):
                        outage = Outage(kind, minutes, messages)
                        account = run(stack, backend, outage)
                        found = faults_of(outage, account)
                        bad += bool(found)
                        told = (*list(asdict(account).values())[:6], account.first_after, account.all_after)
                        where = f"{asked.store} | {'no sweep' if asked.no_sweep else 'sweep'} | {outage}"
                        print(f"| {where} | " + " | ".join(map(str, told)) + " |", flush=True)
                        if found:
                            print(found, file=sys.stderr, flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
