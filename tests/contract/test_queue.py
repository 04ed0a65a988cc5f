"""Both clients of Cloud Tasks against the local emulator, over gRPC and REST, and the callers that tasks become."""

import json
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.cloud import tasks_v2
from werkzeug.datastructures import Headers

from local.faulty_proxy import FaultyProxy
from local.queues import target_of
from services.internal.callers import Callers
from shared import config
from shared.domain.drains import DrainTask, parse_drain
from shared.domain.errors import Forbidden, QueueUnavailable
from shared.domain.record import Kind, Task
from shared.domain.tasks import task_path
from shared.net.google_token import GoogleToken
from shared.queues.task_content import LEAST_DEADLINE, QueueSettings
from tests.support.pipelines import lines_of
from tests.support.real_servers import until
from tests.support.tasks_backend import CORRELATION, PLACE, TARGET, TOKEN, Emulator, Intake, Queue, a_task
from tests.support.tasks_harness import http_target

ROOT = Path(__file__).parents[2]
ACCOUNT = "tasks@pombo-test.iam.gserviceaccount.com"
WITHIN = 5.0
"""Seconds that a queue which is away may take to say so: the webhook has to answer by then."""


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    with Emulator(tmp_path_factory.mktemp("tasks")) as emulator:
        yield emulator


@pytest.fixture(params=["grpc", "rest"])
def each_client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The test runs with the client of most services, and with the webhook's."""
    if request.param == "grpc":
        yield
        return
    intakes: list[Intake] = []

    def make(settings: QueueSettings) -> Intake:
        intakes.append(Intake(settings, GoogleToken()))
        return intakes[-1]

    monkeypatch.setattr(Queue, "client", staticmethod(make))
    yield
    for intake in intakes:
        intake.close()


@pytest.fixture
def queue(emulator: Emulator) -> Queue:
    return Queue(emulator)


@dataclass
class Numbered:
    """A client of two shared queues and two numbered pairs, all new and paused."""

    emulator: Emulator
    pairs: int = 2
    names: dict[Kind, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        patterns = {}
        for kind in Kind:
            prefix = f"{kind}-{uuid.uuid4().hex[:8]}-t"
            self.names[kind] = [self.emulator.queue(name=f"{prefix}{number:03d}") for number in range(2)]
            patterns[kind] = prefix + "{n:03d}"
        self.queue = Queue(self.emulator, {"pairs": self.pairs, "patterns": patterns})


# ---- what a task is


@pytest.mark.usefixtures("each_client")
@pytest.mark.parametrize("kind", list(Kind))
def test_a_task_holds_a_reference_and_nothing_else(queue: Queue, kind: Kind) -> None:
    task = a_task(kind, generation=3, hop=2)
    queue.port.ensure(task, None)
    (made,) = queue.made(kind)
    assert made.name == f"{PLACE}/queues/{queue.names[kind]}/tasks/{task.name}"
    request = made.http_request
    assert request.url == f"{TARGET}/internal/process_{kind}"
    assert request.http_method == tasks_v2.HttpMethod.POST
    key = "inbound_event_id" if kind is Kind.INBOUND else "outbound_key"
    assert json.loads(request.body) == {
        "v": 2,
        key: task.key,
        "tenant": "default",
        "correlation_id": CORRELATION,
        "generation": 3,
        "hop": 2,
    }
    assert dict(request.headers) == {
        "Content-Type": "application/json",
        "X-Internal-Token": TOKEN,
        "X-Correlation-Id": CORRELATION,
        "User-Agent": "Google-Cloud-Tasks",
    }
    assert made.dispatch_deadline == timedelta(seconds=135)
    assert not request.oidc_token.service_account_email


@pytest.mark.usefixtures("each_client")
def test_each_kind_has_its_queue(queue: Queue) -> None:
    queue.port.ensure(a_task(Kind.INBOUND), None)
    assert (len(queue.made(Kind.INBOUND)), len(queue.made(Kind.OUTBOUND))) == (1, 0)


@pytest.mark.usefixtures("each_client")
@pytest.mark.parametrize("kind", list(Kind))
def test_a_task_goes_to_the_numbered_queue_of_its_pair(emulator: Emulator, kind: Kind) -> None:
    numbered = Numbered(emulator)
    queue = numbered.queue
    for pair, expected in ((0, numbered.names[kind][0]), (1, numbered.names[kind][1]), (None, queue.names[kind])):
        task = a_task(kind, pair=pair)
        queue.port.ensure(task, None)
        assert queue.port.queue_of(task) == expected
        assert [made.name for made in emulator.tasks(expected)] == [f"{PLACE}/queues/{expected}/tasks/{task.name}"]


@pytest.mark.usefixtures("each_client")
def test_a_pair_beyond_the_last_uses_the_shared_queues(emulator: Emulator) -> None:
    """As after a smaller TENANT_QUEUES, though the queue is still there."""
    numbered = Numbered(emulator, pairs=1)
    task = a_task(pair=1)
    numbered.queue.port.ensure(task, None)
    assert numbered.queue.port.queue_of(task) == numbered.queue.names[Kind.INBOUND]
    assert len(numbered.queue.made()) == 1


@pytest.mark.usefixtures("each_client")
@pytest.mark.parametrize("kind", list(Kind))
def test_shared_queue_takes_the_tasks_of_a_missing_numbered_one(
    emulator: Emulator, kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    lines = lines_of(caplog)
    numbered = Numbered(emulator)
    queue, missing = numbered.queue, numbered.names[kind][1]
    emulator.client.delete_queue(name=f"{PLACE}/queues/{missing}")
    first, second = a_task(kind, pair=1), a_task(kind, pair=1)
    later = datetime.now(UTC) + timedelta(hours=1)
    queue.port.ensure(first, later)
    for task in (first, second, second):
        queue.port.ensure(task, None)
    made = {made.name: made for made in queue.made(kind)}
    assert made.keys() == {f"{PLACE}/queues/{queue.names[kind]}/tasks/{task.name}" for task in (first, second)}
    due = made[f"{PLACE}/queues/{queue.names[kind]}/tasks/{first.name}"].schedule_time
    assert abs(due - later) < timedelta(seconds=1)
    assert queue.port.queue_of(second) == queue.names[kind], "where it is"
    (line,) = lines("queue_missing")
    assert (line["queue"], line["instead"]) == (missing, queue.names[kind])


@pytest.mark.usefixtures("each_client")
def test_a_missing_queue_leaves_the_other_numbered_ones_in_use(emulator: Emulator) -> None:
    numbered = Numbered(emulator)
    emulator.client.delete_queue(name=f"{PLACE}/queues/{numbered.names[Kind.INBOUND][1]}")
    numbered.queue.port.ensure(a_task(pair=1), None)
    for kind, pair in ((Kind.INBOUND, 0), (Kind.OUTBOUND, 1)):
        numbered.queue.port.ensure(a_task(kind, pair=pair), None)
        assert len(emulator.tasks(numbered.names[kind][pair])) == 1


@pytest.mark.usefixtures("each_client")
def test_a_missing_shared_queue_behind_a_missing_one_is_unavailable(emulator: Emulator) -> None:
    """Nothing else is left."""
    nowhere = dict.fromkeys(Kind, "no-such-queue")
    queue = Queue(emulator, {"queues": nowhere, "pairs": 1, "patterns": dict.fromkeys(Kind, "neither-{n}")})
    with pytest.raises(QueueUnavailable):
        queue.port.ensure(a_task(pair=0), None)


@pytest.mark.usefixtures("each_client")
def test_a_missing_numbered_queue_fails_no_ping(emulator: Emulator) -> None:
    Queue(emulator, {"pairs": 1, "patterns": dict.fromkeys(Kind, "missing-{n}")}).port.ping()


def test_a_missing_queue_of_drains_fails_its_own_ping_alone(emulator: Emulator) -> None:
    """The services are ready without: waiting messages go later."""
    port = Queue(emulator, {"drain": "no-such-queue"}).port
    port.ping()
    with pytest.raises(QueueUnavailable) as caught:
        port.ping_drain()
    assert type(caught.value.__cause__).__name__ == "NotFound", "doctor says what to do about it"
    Queue(emulator, {"drain": emulator.queue()}).port.ping_drain()


DRAIN = DrainTask("0e" * 20, datetime(2026, 3, 1, 12, tzinfo=UTC), CORRELATION, "a cursor", 3)


def test_a_drain_is_made_once_in_its_own_queue(emulator: Emulator) -> None:
    name = emulator.queue()
    queue = Queue(emulator, {"drain": name})
    for drain in (DRAIN, DRAIN, replace(DRAIN, page=4)):
        queue.port.ensure_drain(drain)
    made = {task.name.rpartition("/")[2]: task for task in emulator.tasks(name)}
    assert made.keys() == {DRAIN.name, replace(DRAIN, page=4).name}
    request = made[DRAIN.name].http_request
    assert (request.url, request.http_method) == (f"{TARGET}/internal/drain", tasks_v2.HttpMethod.POST)
    assert parse_drain(json.loads(request.body)) == DRAIN
    assert (request.headers["X-Internal-Token"], request.headers["X-Correlation-Id"]) == (TOKEN, CORRELATION)


def test_a_drain_waits_until_all_services_know_of_the_reconnect(emulator: Emulator) -> None:
    name, since = emulator.queue(), datetime.now(UTC) + timedelta(hours=1)
    Queue(emulator, {"drain": name}).port.ensure_drain(replace(DRAIN, since=since))
    (made,) = emulator.tasks(name)
    assert abs(made.schedule_time - since) < timedelta(milliseconds=1)


def test_a_drain_without_its_queue_is_unavailable(emulator: Emulator) -> None:
    with pytest.raises(QueueUnavailable):
        Queue(emulator, {"drain": "no-such-queue"}).port.ensure_drain(DRAIN)


@pytest.mark.usefixtures("each_client")
@pytest.mark.parametrize("kind", list(Kind))
def test_the_queue_of_a_task_is_the_one_in_which_it_is_made(queue: Queue, kind: Kind) -> None:
    task = a_task(kind)
    queue.port.ensure(task, None)
    (made,) = queue.made(kind)
    assert made.name.split("/")[-3] == queue.port.queue_of(task)


@pytest.mark.usefixtures("each_client")
def test_task_name_depends_on_key_generation_and_hop(queue: Queue) -> None:
    task = a_task()
    for generation, hop in ((0, 0), (0, 1), (1, 0), (1, 1), (0, 0)):
        queue.port.ensure(Task(task.key, task.kind, CORRELATION, generation, hop), None)
    assert len(queue.made()) == 4


@pytest.mark.usefixtures("each_client")
def test_too_short_deadline_is_raised_to_the_least_the_service_accepts(emulator: Emulator) -> None:
    """A time scale divides it, and the service refuses what is under 15 s."""
    queue = Queue(emulator, {"dispatch_deadline": timedelta(seconds=135) / 20})
    queue.port.ensure(a_task(), None)
    (made,) = queue.made()
    assert made.dispatch_deadline == LEAST_DEADLINE == timedelta(seconds=15)


@pytest.mark.usefixtures("each_client")
def test_longest_handler_has_a_deadline_that_the_service_accepts(emulator: Emulator) -> None:
    limits = config.load({"HANDLER_TIMEOUT": "1700"}, config.INTERNAL).limits
    queue = Queue(emulator, {"dispatch_deadline": limits.dispatch_deadline})
    queue.port.ensure(a_task(), None)
    assert len(queue.made()) == 1


# ---- when it runs


@pytest.mark.usefixtures("each_client")
def test_later_task_has_a_schedule_time(queue: Queue) -> None:
    at = datetime.now(UTC) + timedelta(hours=1)
    queue.port.ensure(a_task(), at)
    (made,) = queue.made()
    assert abs(made.schedule_time - at) < timedelta(milliseconds=1)


@pytest.mark.usefixtures("each_client")
@pytest.mark.parametrize("ahead", [timedelta(days=30, minutes=1), timedelta(days=400)])
def test_task_for_later_than_the_service_takes_is_made_for_earlier(queue: Queue, ahead: timedelta) -> None:
    """It finds that its message is not due, and waits again."""
    now = datetime.now(UTC)
    queue.port.ensure(a_task(), now + ahead)
    (made,) = queue.made()
    assert timedelta(days=29) <= made.schedule_time - now < timedelta(days=29, minutes=1)


@pytest.mark.usefixtures("each_client")
@pytest.mark.parametrize("ago", [None, timedelta(), timedelta(days=3)])
def test_a_task_for_now_or_before_runs_at_once(emulator: Emulator, queue: Queue, ago: timedelta | None) -> None:
    before = datetime.now(UTC)
    queue.port.ensure(a_task(), None if ago is None else before - ago)
    (made,) = queue.made()
    assert before - timedelta(seconds=1) <= made.schedule_time <= datetime.now(UTC)


# ---- twice is once


@pytest.mark.usefixtures("each_client")
def test_existing_task_is_a_success_and_unchanged(queue: Queue) -> None:
    task = a_task()
    queue.port.ensure(task, None)
    (before,) = queue.made()
    queue.port.ensure(task, datetime.now(UTC) + timedelta(hours=1))
    assert queue.made() == [before]


@pytest.mark.usefixtures("each_client")
def test_a_name_that_was_used_up_is_success_and_makes_no_task(emulator: Emulator, queue: Queue) -> None:
    task = a_task()
    queue.port.ensure(task, None)
    (made,) = queue.made()
    emulator.client.delete_task(name=made.name)
    queue.port.ensure(task, None)
    assert queue.made() == []


@pytest.mark.usefixtures("each_client")
def test_many_at_once_make_one_task_each_name(queue: Queue) -> None:
    tasks = [a_task() for _ in range(8)]
    threads = [threading.Thread(target=queue.port.ensure, args=(task, None)) for task in tasks * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made.name.rpartition("/")[2] for made in queue.made()) == sorted(task.name for task in tasks)


# ---- away


@pytest.mark.usefixtures("each_client")
def test_a_queue_that_does_not_exist_is_unavailable(emulator: Emulator) -> None:
    queue = Queue(emulator, {"queues": dict.fromkeys(Kind, "no-such-queue")})
    with pytest.raises(QueueUnavailable):
        queue.port.ensure(a_task(), None)
    with pytest.raises(QueueUnavailable):
        queue.port.ping()


@pytest.mark.usefixtures("each_client")
def test_both_queues_answer_a_ping(queue: Queue) -> None:
    queue.port.ping()


@pytest.mark.usefixtures("each_client")
def test_one_queue_without_an_answer_fails_the_ping(emulator: Emulator, queue: Queue) -> None:
    emulator.client.delete_queue(name=f"{PLACE}/queues/{queue.names[Kind.OUTBOUND]}")
    with pytest.raises(QueueUnavailable):
        queue.port.ping()


def assert_unavailable_in_time(ask: Callable[..., None], *given: Any) -> None:
    began = time.monotonic()
    with pytest.raises(QueueUnavailable) as caught:
        ask(*given)
    assert time.monotonic() - began < WITHIN
    assert str(caught.value) == "", "what a library says of it may name anything"
    assert caught.value.__cause__ is not None


@pytest.mark.usefixtures("each_client")
def test_stopped_emulator_is_unavailable_in_time_and_works_again_on_the_same_client(tmp_path: Path) -> None:
    emulator = Emulator(tmp_path)
    with emulator:
        queue = Queue(emulator)
        queue.port.ensure(a_task(), None)
    assert_unavailable_in_time(queue.port.ensure, a_task(), None)
    with emulator:
        task = a_task()

        def works() -> bool:
            try:
                queue.port.ensure(task, None)
            except QueueUnavailable:
                return False
            return True

        until(works)
        assert len(queue.made()) == 2


@pytest.mark.usefixtures("each_client")
def test_queue_that_never_answers_is_unavailable_in_time(emulator: Emulator) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        queue = Queue(emulator, {"emulator": f"127.0.0.1:{mute.getsockname()[1]}"})
        assert_unavailable_in_time(queue.port.ensure, a_task(), None)
        assert_unavailable_in_time(queue.port.ping)


@pytest.mark.usefixtures("each_client")
@pytest.mark.parametrize("silenced", ["the answer", "the connection"])
def test_a_connection_that_went_silent_costs_less_than_a_second_and_makes_one_task(
    emulator: Emulator, silenced: str
) -> None:
    """As after an idle hour: the call is made again on a new connection."""
    with FaultyProxy("127.0.0.1", emulator.port, names_target=True) as proxy:
        queue = Queue(emulator, {"emulator": proxy.address})
        queue.port.ping()
        task = a_task()
        if silenced == "the answer":
            proxy.swallow_next_answer(hang_up=False, holding=task.name.encode())
        else:
            proxy.silence()
        began = time.monotonic()
        queue.port.ensure(task, None)
        assert 0.6 < time.monotonic() - began < 1.4
        queue.port.ping()
        assert len(queue.made()) == 1


def test_slow_service_is_awaited_on_every_call(emulator: Emulator) -> None:
    """It is no silent connection: after one try that was too short each call has all of the patience."""
    with a_slow_queue(0) as slow:
        queue = Queue(emulator, {"emulator": slow.address})
        queue.port.ensure(a_task(), None)
        slow.seconds = 0.9
        for _ in range(3):
            queue.port.ensure(a_task(), None)
        assert slow.calls == 5
        slow.seconds = 0
        queue.port.ensure(a_task(), None)
        slow.seconds = 0.9
        queue.port.ensure(a_task(), None)
        assert slow.calls == 8, "once it was quick again a first try is short again"


@pytest.mark.usefixtures("each_client")
def test_first_call_of_a_process_gets_the_full_patience(emulator: Emulator) -> None:
    with FaultyProxy("127.0.0.1", emulator.port, names_target=True) as proxy, proxy.silent():
        queue = Queue(emulator, {"emulator": proxy.address})
        began = time.monotonic()
        with pytest.raises(QueueUnavailable):
            queue.port.ensure(a_task(), None)
        assert 1.5 < time.monotonic() - began < 3


@dataclass
class Moody:
    """A queue that answers its first calls with these codes, and the others well."""

    codes: tuple[grpc.StatusCode, ...]
    calls: int = 0
    address: str = ""

    def service(self, _: object) -> Any:
        return grpc.unary_unary_rpc_method_handler(self._answer)

    def _answer(self, _: bytes, context: Any) -> bytes:
        self.calls += 1
        if self.calls <= len(self.codes):
            context.abort(self.codes[self.calls - 1], "c4n4ry")
        return b""


@contextmanager
def a_moody_queue(*codes: grpc.StatusCode) -> Iterator[Moody]:
    moody = Moody(codes)
    server = grpc.server(ThreadPoolExecutor(2), handlers=[moody])
    moody.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield moody
    server.stop(0).wait()


@dataclass
class Slow:
    """A queue that takes its time, and counts how many calls it has at once."""

    seconds: float
    calls: int = 0
    open: int = 0
    most: int = 0
    address: str = ""
    lock: Any = field(default_factory=threading.Lock)

    def service(self, _: object) -> Any:
        return grpc.unary_unary_rpc_method_handler(self._answer)

    def _answer(self, _: bytes, __: Any) -> bytes:
        with self.lock:
            self.calls, self.open = self.calls + 1, self.open + 1
            self.most = max(self.most, self.open)
        time.sleep(self.seconds)
        with self.lock:
            self.open -= 1
        return b""


@contextmanager
def a_slow_queue(seconds: float) -> Iterator[Slow]:
    slow = Slow(seconds)
    server = grpc.server(ThreadPoolExecutor(200), handlers=[slow])
    slow.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield slow
    server.stop(0).wait()


CODES = grpc.StatusCode


@pytest.mark.parametrize(
    "code",
    [
        CODES.UNAVAILABLE,
        CODES.DEADLINE_EXCEEDED,
        CODES.INTERNAL,
        CODES.ABORTED,
        CODES.RESOURCE_EXHAUSTED,
        CODES.UNKNOWN,
    ],
)
@pytest.mark.parametrize("then", [(), (CODES.ALREADY_EXISTS,)], ids=["made now", "was made"])
def test_briefly_failing_call_is_retried(
    emulator: Emulator, code: grpc.StatusCode, then: tuple[grpc.StatusCode, ...]
) -> None:
    """Only because it is named: what was made and not answered is not made twice."""
    with a_moody_queue(code, *then) as moody:
        Queue(emulator, {"emulator": moody.address}).port.ensure(a_task(), None)
        assert moody.calls == 2


NUMBERED = {"pairs": 1, "patterns": dict.fromkeys(Kind, "numbered-{n}")}


@pytest.mark.parametrize("code", [CODES.NOT_FOUND, CODES.FAILED_PRECONDITION, CODES.PERMISSION_DENIED])
@pytest.mark.parametrize("then", [(), (CODES.ALREADY_EXISTS,)], ids=["made now", "was made"])
def test_a_refused_numbered_queue_costs_one_call_more_a_minute(
    emulator: Emulator, code: grpc.StatusCode, then: tuple[grpc.StatusCode, ...]
) -> None:
    """Cloud Tasks says FAILED_PRECONDITION where there is no queue, and IAM PERMISSION_DENIED."""
    with a_moody_queue(code, *then) as moody:
        queue = Queue(emulator, {"emulator": moody.address, **NUMBERED})
        queue.port.ensure(a_task(pair=0), None)
        assert moody.calls == 2
        queue.port.ensure(a_task(pair=0), None)
        assert moody.calls == 3


@pytest.mark.parametrize("code", [CODES.INVALID_ARGUMENT, CODES.UNAUTHENTICATED])
def test_a_task_that_a_numbered_queue_refuses_otherwise_goes_nowhere_else(
    emulator: Emulator, code: grpc.StatusCode
) -> None:
    with a_moody_queue(code) as moody:
        with pytest.raises(QueueUnavailable):
            Queue(emulator, {"emulator": moody.address, **NUMBERED}).port.ensure(a_task(pair=0), None)
        assert moody.calls == 1


@pytest.mark.parametrize(
    "code", [CODES.INVALID_ARGUMENT, CODES.NOT_FOUND, CODES.PERMISSION_DENIED, CODES.UNAUTHENTICATED]
)
def test_refused_call_is_not_retried(emulator: Emulator, code: grpc.StatusCode) -> None:
    with a_moody_queue(*[code] * 9) as moody:
        with pytest.raises(QueueUnavailable):
            Queue(emulator, {"emulator": moody.address}).port.ensure(a_task(), None)
        assert moody.calls == 1


def test_conflict_other_than_a_used_name_is_not_a_success(emulator: Emulator) -> None:
    """The client library gives both the same base class."""
    with a_moody_queue(*[CODES.ABORTED] * 99) as moody:
        with pytest.raises(QueueUnavailable):
            Queue(emulator, {"emulator": moody.address}).port.ensure(a_task(), None)
        assert moody.calls > 1


@pytest.mark.usefixtures("each_client")
def test_missing_credentials_make_the_queue_unavailable(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/credentials.json")
    queue = Queue(emulator, {"emulator": None})
    with pytest.raises(QueueUnavailable):
        queue.port.ensure(a_task(), None)
    with pytest.raises(QueueUnavailable):
        queue.port.ping()


# ---- the fork

FORK = """
import os, sys, threading, warnings
from datetime import timedelta
from shared.domain.record import Kind, Task
from shared.domain.tasks import task_path
from shared.queues.cloud_tasks import CloudTasksQueue
from shared.queues.task_content import QueueSettings

address, inbound, used_before = sys.argv[1:]
queue = CloudTasksQueue(QueueSettings("pombo-test", "local", {Kind.INBOUND: inbound}, "http://127.0.0.1:9", "token",
                                      timedelta(seconds=135), emulator=address))
if used_before == "used":
    queue.ensure(Task("0" * 40, Kind.INBOUND, "corr_0001", 0), None)
if (child := os.fork()) == 0:
    threading.Timer(20, os._exit, (3,)).start()
    queue.ensure(Task("1" * 40, Kind.INBOUND, "corr_0001", 0), None)
    os._exit(0)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize("used_before", ["built", "used"])
def test_a_client_is_made_after_the_fork(emulator: Emulator, used_before: str) -> None:
    """gunicorn builds the service in one process and serves it in another."""
    name = emulator.queue()
    command = [sys.executable, "-c", FORK, emulator.address, name, used_before]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    assert len(emulator.tasks(name)) == (2 if used_before == "used" else 1)


# ---- OIDC: what a task carries, and what the service makes of it


@dataclass
class Site:
    """An address that answers with what it is told, and notes the headers it is sent."""

    url: str = ""
    body: bytes = b""
    seen: list[Headers] = field(default_factory=list)


@contextmanager
def a_site() -> Iterator[Site]:
    site = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            site.seen.append(Headers(self.headers.items()))
            self.send_response(200)
            self.send_header("Content-Length", str(len(site.body)))
            self.end_headers()
            self.wfile.write(site.body)

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        site.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield site
        server.shutdown()
        thread.join()


@pytest.fixture
def certificates(emulator: Emulator) -> Iterator[Site]:
    """Google's certificates, as the emulator has them."""
    with a_site() as site:
        site.body = (emulator.directory / "oidc-certs.json").read_bytes()
        yield site


def callers(certificates: Site, **environ: str) -> Callers:
    given = {
        "INTERNAL_TASK_TOKEN": TOKEN,
        "INTERNAL_TASK_BASE_URL": TARGET,
        "TASKS_SERVICE_ACCOUNT": ACCOUNT,
        "OIDC_CERTS_URL": certificates.url,
    }
    return Callers(config.load(given | environ, config.INTERNAL))


@pytest.fixture(scope="module")
def sent(emulator: Emulator) -> Headers:
    """The headers of a task, as the service is sent them by the queue."""
    with a_site() as service:
        targets = {kind: http_target(target_of(service.url, task_path(kind), ACCOUNT)) for kind in Kind}
        running = {kind: emulator.queue(False, target) for kind, target in targets.items()}
        queue = Queue(emulator, {"base_url": "https://elsewhere.example.com", "queues": running})
        queue.port.ensure(a_task(), None)
        until(lambda: service.seen)
        headers = service.seen[0]
        headers["Audience"] = service.url
        return headers


def as_service(sent: Headers, **environ: str) -> dict[str, str]:
    """The configuration of the service that this task was meant for."""
    return {"INTERNAL_TASK_BASE_URL": sent["Audience"], **environ}


def test_task_passes_with_the_token_and_identity_of_its_queue(certificates: Site, sent: Headers) -> None:
    callers(certificates, **as_service(sent)).check_task(sent)


def without(headers: Headers, *names: str) -> Headers:
    return Headers([(name, value) for name, value in headers.items() if name not in names])


def test_neither_token_is_enough_alone(certificates: Site, sent: Headers) -> None:
    checked = callers(certificates, **as_service(sent))
    for missing in ("X-Internal-Token", "Authorization"):
        with pytest.raises(Forbidden):
            checked.check_task(without(sent, missing))
    with pytest.raises(Forbidden):
        checked.check_task(Headers())


def test_without_an_account_the_internal_token_is_enough(certificates: Site, sent: Headers) -> None:
    callers(certificates, TASKS_SERVICE_ACCOUNT="").check_task(without(sent, "Authorization"))
    assert certificates.seen == []


def test_a_task_for_another_service_is_refused(certificates: Site, sent: Headers) -> None:
    with pytest.raises(Forbidden):
        callers(certificates, INTERNAL_TASK_BASE_URL="https://another.example.com").check_task(sent)


def test_a_task_of_another_account_is_refused(certificates: Site, sent: Headers) -> None:
    checked = callers(certificates, **as_service(sent, TASKS_SERVICE_ACCOUNT="other@example.com"))
    with pytest.raises(Forbidden):
        checked.check_task(sent)
