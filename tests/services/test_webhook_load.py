"""Many clients of the webhook service at once: who waits for whom, how much is in memory, and how it ends."""

import asyncio
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from services.exchange import App
from services.webhook import admission
from services.webhook.__main__ import make_app
from shared import config
from shared.bootstrap.webhook import Webhook, build_webhook
from shared.domain import deadline
from shared.domain.deadline import Deadline
from shared.domain.errors import PomboError, QueueUnavailable, RegistryUnavailable, RegistryUnreadable, StoreUnavailable
from shared.pipeline.clock import SystemClock
from shared.pipeline.intake import Incoming
from tests.services.test_bounded_worker import ALIVE, MEGABYTE, PATIENCE, WEBHOOK, Served
from tests.support import event_loop, parts
from tests.support.asgi_client import AsgiClient
from tests.support.counting_fakes import counting_fakes
from tests.support.outlasting import SHUTDOWN
from tests.support.parts import signed

PATH = "/webhooks/whatsapp"
LARGE = 3 * MEGABYTE
GRACE = 8.0
CONCURRENCY: int = config.load({}, config.WEBHOOK)["WEBHOOK_CONCURRENCY"]


def head_of(length: int, signature: str = "", *headers: str) -> bytes:
    lines = (f"POST {PATH} HTTP/1.1", "Host: x", f"X-Hub-Signature-256: {signature}", f"Content-Length: {length}")
    return "\r\n".join((*lines, *headers, "", "")).encode()


SMALL = head_of(2, signed(b"{}"), "Connection: close") + b"{}"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("served"), WEBHOOK)
    yield served
    assert served.program.end() == 0
    assert served.program.err.read_text() == "", "something was said beside the log"
    said = served.program.out.read_text()
    assert set(parts.events(said)) <= {"started", "stopping", "webhook_refused", "webhook_received", "webhook_ignored"}


# ---- time


def test_slow_bodies_of_many_large_posts_do_not_delay_a_small_one(served: Served) -> None:
    with ExitStack() as slow:
        for _ in range(150):
            connection = slow.enter_context(served.connect())
            connection.sendall(head_of(LARGE) + bytes(2 * admission.SMALL))
        began = time.monotonic()
        assert served.ask(SMALL).startswith(b"HTTP/1.1 200 ")
        assert served.ask(ALIVE).startswith(b"HTTP/1.1 200 ")
        assert time.monotonic() - began < PATIENCE


def test_slow_bodies_of_many_small_posts_do_not_delay_another(served: Served) -> None:
    with ExitStack() as slow:
        for _ in range(2 * CONCURRENCY):
            connection = slow.enter_context(served.connect())
            connection.sendall(head_of(1000) + b"{")
        began = time.monotonic()
        assert served.ask(SMALL).startswith(b"HTTP/1.1 200 ")
        assert time.monotonic() - began < PATIENCE


LARGE_BODY = b"{}" + b" " * (2 * admission.SMALL)
LARGE_POST = head_of(len(LARGE_BODY), signed(LARGE_BODY), "Connection: close") + LARGE_BODY


def stalled(served: Served, stack: ExitStack, count: int) -> list[socket.socket]:
    """Clients that stop in the middle of a large body."""
    connections = [stack.enter_context(served.connect()) for _ in range(count)]
    for connection in connections:
        connection.sendall(head_of(LARGE) + bytes(2 * admission.SMALL))
    return connections


def test_fewer_stalled_large_bodies_than_places_delay_no_large_post(served: Served) -> None:
    with ExitStack() as stack:
        stalled(served, stack, admission.ARRIVING_AT_ONCE - 1)
        began = time.monotonic()
        assert served.ask(LARGE_POST).startswith(b"HTTP/1.1 200 ")
        assert time.monotonic() - began < PATIENCE


def test_stalled_large_bodies_lose_their_places_to_those_that_wait(served: Served) -> None:
    with ExitStack() as stack:
        stalled(served, stack, admission.ARRIVING_AT_ONCE)
        served.ask(SMALL)  # they have their places
        began = time.monotonic()
        assert served.ask(LARGE_POST).startswith(b"HTTP/1.1 200 ")
        assert time.monotonic() - began < 2 * admission.ARRIVAL_SECONDS


def test_slow_large_body_keeps_its_place_if_nobody_waits(served: Served) -> None:
    with ExitStack() as stack:
        connection = stack.enter_context(served.connect())
        connection.sendall(LARGE_POST[:-10])
        time.sleep(admission.ARRIVAL_SECONDS * 1.5)
        connection.sendall(LARGE_POST[-10:])
        assert connection.recv(12) == b"HTTP/1.1 200"


# ---- memory


def test_large_bodies_of_many_clients_take_bounded_memory(served: Served) -> None:
    assert served.ask(SMALL).startswith(b"HTTP/1.1 200 ")
    before, answers = served.most_memory(), []

    def post() -> None:
        with socket.create_connection(("127.0.0.1", served.port), timeout=60) as connection:
            connection.sendall(head_of(LARGE, "", "Connection: close"))
            connection.sendall(bytes(LARGE))
            answers.append(connection.recv(12))

    clients = [threading.Thread(target=post) for _ in range(60)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert answers == [b"HTTP/1.1 403"] * len(clients)
    assert served.most_memory() - before < 64 * MEGABYTE


# ---- turns


class Counted:
    """Stands for the work on a POST, and counts how many are in work."""

    def __init__(self, built: Webhook) -> None:
        self.built = built
        self.clock = SystemClock()
        self.seconds, self.is_away = 0.01, False
        self.away: PomboError | None = None
        self.deadlines: list[Deadline] = []
        self.now = self.most = 0
        self.bodies: list[bytes] = []
        self.client = AsgiClient(self.app())

    async def __call__(self, incoming: Incoming, deadline: Deadline) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        self.bodies.append(incoming.body[:2])
        self.deadlines.append(deadline)
        await asyncio.sleep(self.seconds)
        self.now -= 1
        if self.is_away:
            raise StoreUnavailable
        if self.away:
            raise self.away

    def app(self) -> App:
        """A webhook service whose POSTs it counts."""
        settings = config.Config(config.WEBHOOK, {**self.built.config.values, "WEBHOOK_CONCURRENCY": 5})
        return make_app(replace(self.built, accept=self, config=settings))  # type: ignore[arg-type]

    def post_all(self, bodies: list[bytes]) -> list[int]:
        """At once, in this order."""
        return [answer.status_code for answer in event_loop.run(post(self.client, bodies))]


@pytest.fixture
def counted(tmp_path: Path) -> Iterator[Counted]:
    with parts.logged():
        yield Counted(build_webhook(parts.environment(tmp_path)))


async def post(client: AsgiClient, bodies: list[bytes]) -> list[Any]:
    return await asyncio.gather(*(client.ask(PATH, method="POST", data=body) for body in bodies))


def test_at_most_so_many_posts_are_in_work_at_once(counted: Counted) -> None:
    assert counted.post_all([b"{}"] * 23) == [200] * 23
    assert counted.most == 5
    assert counted.now == 0


def test_large_bodies_have_their_turn_in_order(counted: Counted) -> None:
    bodies = [b"%02d" % number + bytes(64 * 1024) for number in range(20)]
    assert counted.post_all(bodies) == [200] * 20
    assert counted.most == admission.LARGE_AT_ONCE == 4
    assert counted.bodies == [b"%02d" % number for number in range(20)]


@pytest.mark.parametrize("size", [2, 2 * admission.SMALL], ids=["small", "large"])
def test_two_services_in_one_process_share_no_turns(counted: Counted, size: int) -> None:
    """While all places of the first are taken, the second answers."""

    async def both() -> None:
        first = asyncio.create_task(post(counted.client, [bytes(size)] * 5))
        async with asyncio.timeout(10):
            while counted.now < in_work:
                await asyncio.sleep(0)
        counted.seconds = 0.0
        await post(AsgiClient(counted.app()), [bytes(size)])
        assert not first.done()
        await first

    in_work = admission.LARGE_AT_ONCE if size > admission.SMALL else 5
    counted.seconds = 1.0
    event_loop.run(both())


def test_large_post_without_a_turn_in_time_is_answered_500(
    counted: Counted, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(deadline, "HEALTHY_SECONDS", 0.0)
    statuses = counted.post_all([bytes(2 * admission.SMALL)] * 6)
    assert sorted(statuses) == [200] * admission.LARGE_AT_ONCE + [500] * 2
    assert [line["reason"] for line in parts.lines(capfd.readouterr().out)] == ["busy"] * 2
    assert counted.post_all([bytes(2 * admission.SMALL)]) == [200]


def test_turn_that_comes_too_late_is_refused_as_busy(
    counted: Counted, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Else the store would be called slow, because it got only the rest of the POST's time."""
    monkeypatch.setattr(deadline, "HEALTHY_SECONDS", 2.0 + admission.LEAST_SECONDS / 2)
    counted.seconds = 2.0
    assert sorted(counted.post_all([b"{}"] * 6)) == [200] * 5 + [500]
    assert [line["reason"] for line in parts.lines(capfd.readouterr().out)] == ["busy"]
    assert len(counted.deadlines) == 5
    counted.seconds = 0.01
    assert counted.post_all([b"{}"] * 10) == [200] * 10


def test_deadline_counts_from_the_head_and_bounds_both_turns(counted: Counted) -> None:
    """The third round of large bodies has waited 0.6 s, and the work gets what is left of its 9.5 s."""
    counted.seconds = 0.3
    began = time.monotonic()
    assert counted.post_all([bytes(admission.SMALL + 1)] * 9) == [200] * 9
    ends = [each.healthy - began for each in counted.deadlines]
    assert 9.5 <= min(ends) <= max(ends) < 9.8


@pytest.mark.parametrize(("count", "size"), [(14, 70_000), (23, 2)], ids=["large", "small"])
def test_outage_refuses_those_that_wait_for_a_turn(
    counted: Counted, count: int, size: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """The store takes 2 s to fail. One after the other, the last would be answered after 8 or 10 s."""
    counted.seconds, counted.is_away = 2.0, True
    began = time.monotonic()
    assert counted.post_all([bytes(size)] * count) == [500] * count
    assert time.monotonic() - began < 4.0
    in_work = admission.LARGE_AT_ONCE if size > admission.SMALL else 5
    reasons = Counter(line["reason"] for line in parts.lines(capfd.readouterr().out))
    assert reasons == {"store_unavailable": in_work, "busy": count - in_work}
    counted.seconds, counted.is_away = 0.01, False
    assert counted.post_all([bytes(size)] * count) == [200] * count
    assert counted.most == in_work, "a refused POST gave back a place that it never had"


def test_unreadable_entry_of_one_tenant_refuses_no_other_post(
    counted: Counted, capfd: pytest.CaptureFixture[str]
) -> None:
    counted.seconds, counted.away = 0.05, RegistryUnreadable()
    assert counted.post_all([b"{}"] * 8) == [500] * 8
    assert {line["reason"] for line in parts.lines(capfd.readouterr().out)} == {"registry_unreadable"}


@pytest.mark.parametrize(
    "away", [StoreUnavailable(), QueueUnavailable(), RegistryUnavailable()], ids=lambda it: it.code
)
def test_each_outage_refuses_those_that_wait_and_is_logged_as_a_warning(
    counted: Counted, away: PomboError, capfd: pytest.CaptureFixture[str]
) -> None:
    counted.seconds, counted.away = 0.2, away
    assert counted.post_all([b"{}"] * 8) == [500] * 8
    found = parts.lines(capfd.readouterr().out)
    assert Counter(line["reason"] for line in found) == {away.code: 5, "busy": 3}
    assert {line["severity"] for line in found} == {"WARNING"}


def test_post_that_took_all_its_time_refuses_no_other(
    counted: Counted, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It had too many events for its time: that says nothing of the store."""
    counted.is_away = True
    monkeypatch.setattr(Deadline, "has_passed", True)
    assert counted.post_all([b"{}"] * 10) == [500] * 10
    assert {line["reason"] for line in parts.lines(capfd.readouterr().out)} == {"store_unavailable"}


# ---- how it ends


def test_client_that_hangs_up_in_the_middle_leaves_no_traceback(served: Served) -> None:
    """Within the head, within the body, and before it has its answer; with a reset or without."""
    for sent in (SMALL[:30], SMALL[:-1], SMALL, head_of(LARGE) + bytes(MEGABYTE)):
        for linger in (b"", struct.pack("ii", 1, 0)):
            connection = served.connect()
            connection.sendall(sent)
            if linger:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            connection.close()
    assert served.ask(SMALL).startswith(b"HTTP/1.1 200 ")


def slow(directory: Path, seconds: float) -> tuple[parts.Program, int]:
    """The service, where a POST takes so long."""
    port = parts.free_port()
    environ = parts.environment(directory, PORT=str(port))
    return parts.run(directory, "tests.support.slow_accept", environ, str(seconds)), port


@contextmanager
def in_work(port: int, timeout: float) -> Iterator[socket.socket]:
    """The connection of a POST in work."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as connection:
        connection.sendall(SMALL)
        time.sleep(0.3)
        yield connection


def ends_after_its_answer(directory: Path, seconds: float, patience: float, grace: float) -> parts.Program:
    """A service that gets SIGTERM while a POST that takes so long is in work."""
    program, port = slow(directory, seconds)
    with in_work(port, patience) as connection:
        began = time.monotonic()
        program.process.terminate()
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert program.process.wait(grace) == 0
    assert time.monotonic() - began < grace
    return program


def test_post_in_flight_at_sigterm_gets_its_answer_and_the_exit_code_is_0(tmp_path: Path) -> None:
    program = ends_after_its_answer(tmp_path, 1.0, PATIENCE, GRACE)
    assert program.err.read_text() == ""
    said = parts.lines(program.out.read_text())
    assert [(line["event"], line["stage"], line["pid"]) for line in said] == [
        ("started", "webhook", program.process.pid),
        ("stopping", "webhook", program.process.pid),
    ]


def test_post_that_takes_all_its_time_at_sigterm_gets_its_answer_too(tmp_path: Path) -> None:
    """An outage is answered within 5 s, so one that has just begun ends before the service does."""
    ends_after_its_answer(tmp_path, 5.5, 8, 8)


def test_post_that_takes_too_long_does_not_hold_up_the_end(tmp_path: Path) -> None:
    program, port = slow(tmp_path, 60)
    with in_work(port, 20) as connection:
        began = time.monotonic()
        assert program.end() == 0
        assert time.monotonic() - began < SHUTDOWN.total_seconds()
        assert connection.recv(12) in (b"HTTP/1.1 500", b"")


def test_service_closes_its_connections_at_sigterm_before_it_ends(tmp_path: Path) -> None:
    """One to the store and one to the queue."""
    port, may_end = parts.free_port(), tmp_path / "may_end"
    with counting_fakes() as fakes:
        firestore = {"STORE": "firestore", "FIRESTORE_EMULATOR_HOST": fakes.firestore}
        environ = parts.environment(tmp_path, PORT=str(port), CLOUD_TASKS_EMULATOR_HOST=fakes.cloud_tasks, **firestore)
        program = parts.run(tmp_path, "tests.support.lingering_webhook", environ, str(may_end))
        try:
            body = parts.post(parts.text("wamid.1"))
            with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
                connection.sendall(head_of(len(body), signed(body), "Connection: close") + body)
                assert connection.recv(12) == b"HTTP/1.1 200"
            assert len(fakes.open) == 2
            program.process.terminate()
            parts.until(lambda: not fakes.open, GRACE)
            assert program.process.poll() is None, "it is the process that closed them, not its end"
        finally:
            may_end.touch()
            code = program.end()
    assert (code, fakes.broken, program.err.read_text()) == (0, [], "")
    assert parts.events(program.out.read_text())[-1] == "stopping"


def test_service_dies_at_once_by_sigkill(tmp_path: Path) -> None:
    served = Served(tmp_path, WEBHOOK)
    served.program.process.kill()
    assert served.program.process.wait(PATIENCE) == -9
    with pytest.raises(ConnectionRefusedError):
        served.connect()
