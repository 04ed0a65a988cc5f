"""The running stack, as a test drives it from outside: `pombo up` as a process, webhooks in, the ledger out."""

import hashlib
import hmac
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TypeVar

import click
import httpx

from cli import running, trace
from cli.chaos.logs import OF_PEOPLE, UNAVAILABLE
from local import invocation, services
from local.stores import PROGRAMS
from shared import config
from shared.bootstrap.backends import build_store
from shared.domain.errors import StoreUnavailable
from shared.domain.identity import message_event_id, outbound_key, sender_id, task_name
from shared.domain.marks import Marks
from shared.domain.record import Delivery
from shared.logs import EVENTS
from tests.support import forked, log_table
from tests.support.machine import missing

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
TEAM = Path(__file__).with_name("team")
"""The directory of the tests' own handler, which goes on the stack's PYTHONPATH."""

SENDER = "200000000000002"
SECRET = "test_app_secret"
TASK_TOKEN = "test_internal_token"
OLD_TASK_TOKEN = "test_internal_token_of_before"
SERVICES = (*services.SERVICES, "tasks")

SECONDS = 30.0
"""A wait's deadline in seconds. It costs nothing if all works, and the machine may be busy."""

LONGEST_PAUSE = 0.3
"""Seconds between two looks at what lasts long: a look may ask several processes and read the whole log."""

UP_SECONDS = 60.0

LOCAL_EVENTS = frozenset(
    {
        "attempt_failed",
        "call_refused",
        "fault_made",
        "queue_created",
        "queue_deleted",
        "started",
        "stopping",
        "task_given_up",
        "webhook_failed",
        "webhook_given_up",
    }
)
"""The local cloud's processes, which log into the same file but are not services."""

_PRIVATE = re.compile("|".join((OF_PEOPLE, "test_app_secret", "test_internal_token")))
"""The tests' own data, which no log line may hold."""

POMBO_VARIABLES = frozenset(setting.name for setting in config.SETTINGS) | {"K_SERVICE", invocation.CALLED_BY}


def need_server_of(store: str) -> None:
    """Skip the test if this machine lacks the store's server; in CI, fail it."""
    try:
        if store in PROGRAMS:
            PROGRAMS[store].command(0, Path())
    except click.ClickException as error:
        missing(error.message)


def wait_until(
    condition: Callable[[], T],
    what: str,
    seconds: float = SECONDS,
    more: Callable[[], str] = str,
    pause: float = 0.03,
) -> T:
    """The condition's first true value. Between two looks lies a tenth of what was waited so far, at least `pause`
    seconds and at most LONGEST_PAUSE or `pause`. Fails after the deadline, with the text of `more`.
    """
    began = time.monotonic()
    while not (value := _tried(condition)):
        waited = time.monotonic() - began
        if waited > seconds:
            raise AssertionError(f"Not within {seconds:g} s: {what}.\n{more()}")
        time.sleep(max(pause, min(LONGEST_PAUSE, waited / 10)))
    return value


def _tried(condition: Callable[[], T]) -> T | None:
    """The condition's value; None while the store cannot be read."""
    try:
        return condition()
    except StoreUnavailable:
        return None


def signed(body: bytes, secret: str = SECRET) -> dict[str, str]:
    """The header of a webhook that Meta signed."""
    return {"X-Hub-Signature-256": "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}


def cli(*arguments: str, env: Mapping[str, str] | None = None, seconds: float = 90) -> subprocess.CompletedProcess[str]:
    """Run one pombo command to its end."""
    return forked.run(["cli.main", *arguments], env or clean_environment(), seconds=seconds)


def as_operator(stack: "Stack", *arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a pombo command on a stack as its operator, who has its secrets, with this on its standard input."""
    environment = clean_environment(META_APP_SECRET=SECRET, INTERNAL_TASK_TOKEN=TASK_TOKEN)
    return forked.run(["cli.main", *arguments, "--data-dir", str(stack.data_dir)], environment, given)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "cli.main", *arguments]


def fails(result: subprocess.CompletedProcess[str], code: int = 1, only_error: bool = False) -> str:
    """The one line that a failed command prints on standard error."""
    assert result.returncode == code, result.stdout + result.stderr
    assert only_error or result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("pombo: ")
    assert "Traceback" not in line
    return line


def clean_environment(**settings: str) -> dict[str, str]:
    """This process's environment without Pombo's settings, plus these."""
    kept = {name: value for name, value in os.environ.items() if name not in POMBO_VARIABLES}
    return {**kept, **settings}


def processes_of(data_dir: Path) -> list[int]:
    """Every process of the stack on this directory, by its command line. (Linux; elsewhere none is found.)"""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            told = (entry / "environ").read_bytes() + b"\0" + (entry / "cmdline").read_bytes()
            is_zombie = (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except (OSError, IndexError):
            continue
        if f"SQLITE_PATH={data_dir}/pombo.sqlite".encode() in told and not is_zombie:
            found.append(int(entry.name))
    return found


@contextmanager
def server_of(store: str, data_dir: Path) -> Iterator[Mapping[str, str]]:
    """The store's server if it has one, independent of any stack: the settings that make a stack use it, and "PID"."""
    need_server_of(store)
    if store not in PROGRAMS:
        yield {}
        return
    program = PROGRAMS[store]
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
    address = program.address(port)
    with (data_dir / "server.log").open("ab") as said:
        process = subprocess.Popen(program.command(port, data_dir), stdout=said, stderr=said, stdin=subprocess.DEVNULL)
    try:
        wait_until(lambda: program.answers(address), f"{program.what} answers", UP_SECONDS)
        yield {program.setting: address, "PID": str(process.pid)}
    finally:
        process.kill()
        process.wait()


@dataclass
class Stack:
    """One `pombo up`, on free ports that a restart takes again. Settings are passed by environment."""

    data_dir: Path
    options: Sequence[str] = ("--no-sweep",)
    settings: Mapping[str, str] = field(default_factory=dict)
    store_name: str = "sqlite"
    root: Path = ROOT
    """The checkout whose Pombo runs."""
    is_forked: bool = field(default=False, kw_only=True)
    """Whether its processes are forked (forked.py), and not started one by one as a user's are."""

    def __post_init__(self) -> None:
        self.http = httpx.Client(trust_env=False, timeout=30)
        self.sent: deque[str] = deque(maxlen=2000)
        self.process: subprocess.Popen[str] | forked.Process | None = None
        self._store: Any = None

    # ---- its life

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.stop()
            if kind is None:
                self.check_logs()
        finally:
            self.http.close()

    def start(self, **changes: str) -> None:
        """Start it; it is ready when this returns. `changes` to its settings persist. Retries if another program took a
        free port between its choice and the start.
        """
        self.settings = {**self.settings, **changes}
        self.data_dir.mkdir(parents=True, exist_ok=True)
        line = self._first_line()
        for _ in range(2):
            if line or "is in use" not in self._why_not():
                break
            (self.data_dir / "up.stderr").unlink()
            line = self._first_line()
        if not line:
            raise AssertionError(f"pombo up did not start: {self._why_not()}")
        self.described: dict[str, Any] = json.loads(line)

    def _why_not(self) -> str:
        return (self.data_dir / "up.stderr").read_text()

    def _first_line(self) -> str:
        """What `pombo up` prints once it is ready; empty if it ended before."""
        self.errors = (self.data_dir / "up.stderr").open("a+")
        up = ("up", "--json", "--ports", "0", "--data-dir", str(self.data_dir), *self._store_option(), *self.options)
        environment = clean_environment(**self.settings)
        if self.is_forked:
            self.process = forked.start(["cli.main", *up], environment, self.errors)
        else:
            self.process = subprocess.Popen(
                command(*up), cwd=self.root, env=environment, stdout=subprocess.PIPE, stderr=self.errors, text=True
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.process.stdout.close()
            self.errors.close()
        return line

    def _store_option(self) -> tuple[str, ...]:
        return () if self.store_name == "sqlite" else ("--store", self.store_name)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End `pombo up` by a signal; return its exit code. It must have printed only its one line."""
        assert self.process is not None
        assert self.process.stdout is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            code = self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        more = self.process.stdout.read()
        self.process.stdout.close()
        self.errors.close()
        self.process = None
        if self._store:
            self._store.close()
            self._store = None
        assert more == "", f"more than one line on standard output: {more!r}"
        return code

    def stop(self) -> None:
        """End it as a user would, and leave nothing running."""
        if self.process is None:
            return
        assert self.end() == 0
        assert processes_of(self.data_dir) == []

    def restart(self, **changes: str) -> None:
        """Restart all of it on the same data."""
        self.stop()
        self.start(**changes)

    def pids(self) -> dict[str, int]:
        """The current pids."""
        return {
            name: pid for name, pid in json.loads((self.data_dir / "pids.json").read_text()).items() if pid is not None
        }

    def kill(self, *names: str) -> dict[str, int]:
        """SIGKILL all at once; return the pids they had."""
        pids = self.pids()
        for name in names:
            os.kill(pids[name], signal.SIGKILL)
        return {name: pids[name] for name in names}

    def wait_back(self, killed: Mapping[str, int], seconds: float = SECONDS) -> None:
        """Wait until each killed process has a new pid and answers."""

        def is_back() -> bool:
            now = self.pids()
            return all(now[name] != pid and self.answers(name) for name, pid in killed.items())

        self.wait_until(is_back, f"{', '.join(killed)} back again", seconds)

    def answers(self, name: str) -> bool:
        """Whether the process accepts connections; for the store's server, whether it can be used."""
        if name == "store":
            program = PROGRAMS[self.store_name]
            return program.answers(self.environment[program.setting])
        host, _, port = self.described[name].removeprefix("http://").partition(":")
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex((host, int(port))) == 0

    # ---- inputs from outside

    def post(self, body: bytes, headers: Mapping[str, Any] | None = None, path: str = "") -> httpx.Response:
        """A webhook with this body, signed unless headers are given."""
        url = self.described["webhook"] + (path or "/webhooks/whatsapp")
        return self.http.post(url, content=body, headers=signed(body) if headers is None else headers)

    def say(self, contact: str, text: str, **order: Any) -> str:
        """Send a text from a customer through the simulator; return the message's id."""
        return self.inbound(**{"from": contact, "type": "text", "content": {"body": text}, **order})[0]

    def inbound(self, **order: Any) -> list[str]:
        """Send whatever the simulator lets a customer send; return the messages' ids."""
        ids = self.control("POST", "inbound", order)["message_ids"]
        self.sent.extend(ids)
        return ids

    def fault(self, on: str, kind: str, **more: Any) -> None:
        """Inject a fault."""
        self.control("POST", "faults", {"on": on, "kind": kind, **more})

    def lose_first_task(self, message_id: str) -> None:
        """Let the queue lose the task that the message gets when it comes in, and no other."""
        self.fault("task", "drop", match={"name": self._first_task(message_id)})

    def wait_lost(self, message_id: str) -> None:
        self.wait_logs("fault_made", kind="drop", name=self._first_task(message_id))

    def _first_task(self, message_id: str) -> str:
        return task_name(self.event_key(message_id), generation=0, hop=0)

    def control(self, method: str, what: str, document: Any = None) -> Any:
        response = self.http.request(method, f"{self.described['control']}/control/{what}", json=document)
        assert response.status_code == 200, response.text
        return response.json()

    def task(self, kind: str, body: Any, token: str | None = TASK_TOKEN, **headers: str) -> httpx.Response:
        """A direct call of the private service: bytes unchanged, anything else as JSON."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        given = {"Content-Type": "application/json", **headers, **({"X-Internal-Token": token} if token else {})}
        return self.http.post(f"{self.described['internal']}/internal/process_{kind}", content=content, headers=given)

    def get(self, service: str, path: str) -> httpx.Response:
        return self.http.get(self.described[service] + path)

    # ---- results

    def ledger(self, contact: str | None = None) -> list[dict[str, Any]]:
        """What WhatsApp accepted, oldest first; for one contact, by number or user id."""
        entries = self.control("GET", "ledger")
        return [e for e in entries if contact is None or contact in (e["recipient"], (e["to"] or "").lstrip("+"))]

    def texts(self, contact: str) -> list[str]:
        """The texts that reached a contact, in the order in which WhatsApp accepted them."""
        return [entry["body"]["body"] for entry in self.ledger(contact)]

    def calls(self, event: str) -> int:
        """How often the tests' handler was called for a message, by its id."""
        return sum(call["id"] == event for call in self.handler_calls())

    def handler_calls(self) -> list[dict[str, Any]]:
        path = Path(self.settings["HANDLER_CALLS"])
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment by which a command finds its store."""
        environment: dict[str, str] = json.loads((self.data_dir / "stack.json").read_text())["environment"]
        return environment

    @property
    def store(self) -> Any:
        """Its records, read as a command reads them. (Any: a Store that can be closed.)"""
        if self._store is None:
            self._store = build_store(config.load(self.environment, config.CLI))
        return self._store

    @property
    def marks(self) -> Marks:
        """The marks of its sender."""
        marks: Marks = self.store.marks(sender_id("meta", self._sender))
        return marks

    def put_marks(self, **changes: Any) -> None:
        """Change the marks of its sender, as a response or a receipt would."""
        self.store.change_marks(sender_id("meta", self._sender), lambda marks: replace(marks, **changes))

    @property
    def _sender(self) -> str:
        return self.settings.get("WHATSAPP_PHONE_NUMBER_ID", "100000000000001")

    def event_key(self, message_id: str) -> str:
        return message_event_id("meta", self._sender, message_id)

    def event(self, message_id: str) -> Delivery | None:
        """The record of an inbound message."""
        return self.store.get(self.event_key(message_id))

    def reply(self, message_id: str, index: int = 0) -> Delivery | None:
        """The record of a reply to it."""
        return self.store.get(outbound_key(self.event_key(message_id), index))

    def state_of(self, key: str) -> str:
        record = self.store.get(key)
        return record.state if record else "absent"

    def timeline(self, message_id: str) -> dict[str, Any]:
        """What `pombo trace --json` prints, without the cost of a process."""
        found = running.Running(self.store, SENDER, None, self.data_dir / "logs.jsonl")
        event = self.event(message_id)
        assert event is not None, f"{message_id} is not stored"
        return trace.as_dict(trace.timeline_of(found, self.store.by_correlation(event.correlation_id)))

    def what(self, message_id: str) -> list[str]:
        """The sentences of its timeline, in order; none while it is not stored."""
        return [moment["what"] for moment in self.timeline(message_id)["events"]] if self.event(message_id) else []

    def cli(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return cli(*arguments, "--data-dir", str(self.data_dir))

    def logs(self, event: str | None = None, **fields: Any) -> list[dict[str, Any]]:
        """Log lines of one event that have these fields."""
        named = "" if event is None else f'"{event}"'
        *complete, _beginning = (self.data_dir / "logs.jsonl").read_text().split("\n")  # the last is being written
        lines = (json.loads(text) for text in complete if named in text)
        return [line for line in lines if event in (None, line["event"]) and fields.items() <= line.items()]

    # ---- waiting

    def wait_logs(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        """The result of `logs`, once there is any: a line may be written a moment after what it reports."""
        return self.wait_until(lambda: self.logs(event, **fields), f"{event} is logged, of {fields}")

    def wait_until(self, condition: Callable[[], T], what: str, seconds: float = SECONDS, pause: float = 0.03) -> T:
        return wait_until(condition, what, seconds, self.explain, pause)

    def wait_settled(self, message_ids: Sequence[str], seconds: float = SECONDS) -> None:
        """Wait until the events and all their replies are final."""
        waiting = deque(message_ids)

        def are_settled() -> bool:
            while waiting and self.is_settled(waiting[0]):
                waiting.popleft()  # a final record stays final
            return not waiting

        self.wait_until(are_settled, "all of it is final", seconds)

    def is_settled(self, message_id: str) -> bool:
        event = self.event(message_id)
        if event is None or not event.final:
            return False
        replies = (self.reply(message_id, index) for index in range(event.plan_size or 0))
        return all(reply is not None and reply.final for reply in replies)

    def wait_texts(self, contact: str, texts: Sequence[str], seconds: float = SECONDS) -> None:
        """Wait until exactly these texts have reached the contact, in this order."""
        self.wait_until(lambda: len(self.texts(contact)) >= len(texts), f"{contact} has {list(texts)}", seconds)
        assert self.texts(contact) == list(texts)

    def wait_quiet(self, contact: str, texts: Sequence[str], seconds: float = SECONDS) -> None:
        """The same, and wait until everything that was sent is settled: then nothing more is sent."""
        self.wait_texts(contact, texts, seconds)
        self.wait_settled([one for one in self.sent if self.event(one) is not None], seconds)
        assert self.texts(contact) == list(texts)

    def explain(self) -> str:
        """The timelines of unsettled messages, and the last log lines."""
        return "\n".join(self._explained())

    def _explained(self) -> Iterator[str]:
        try:
            for message_id in [one for one in self.sent if not self.is_settled(one)][:5]:
                result = self.cli("trace", message_id)
                yield click.unstyle(result.stdout + result.stderr)
            yield f"calls: {self.control('GET', 'calls')[-15:]}"
        except Exception as error:
            yield f"(no timeline: {error!r})"
        for path in sorted(self.data_dir.glob("*.stderr*")):
            if text := path.read_text(errors="replace").strip():
                yield f"--- {path.name}\n{text[-2000:]}"
        yield "--- logs.jsonl"
        yield from (self.data_dir / "logs.jsonl").read_text(errors="replace").splitlines()[-25:]

    # ---- invariants of every stack

    def check_logs(self) -> None:
        """Every line is JSON in the documented form, none holds private data, and none reports an unexpected error."""
        for text in (self.data_dir / "logs.jsonl").read_text().splitlines():
            line = json.loads(text)
            assert not _PRIVATE.search(text), f"private: {text}"
            if line["event"] not in LOCAL_EVENTS or {"severity", "message"} <= line.keys():
                assert {"time", "severity", "event", "message"} <= line.keys(), text
                assert line["event"] in EVENTS or line["event"] in LOCAL_EVENTS, text
            # A store or queue that is down, or slow on a busy machine, leads to a 5xx and the next delivery.
            if line.get("message") == EVENTS.get(line["event"], ""):
                assert log_table.faults(line) == [], text
            assert line["event"] != "unexpected_error" or line.get("reason") in UNAVAILABLE, text
        for path in (*self.data_dir.glob("*.stderr*"), *self.data_dir.glob("store.log")):
            assert not _PRIVATE.search(path.read_text(errors="replace")), f"private: {path.name}"
