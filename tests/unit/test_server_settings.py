"""The server around each service, and what its routes are wired to: each setting, where server and app take it."""

import asyncio
import json
import os
import runpy
import signal
import socket
import threading
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import flask
import pytest
import uvicorn

from services import async_server, server, serving
from services.bounded_protocol import BoundedProtocol
from services.bounded_worker import BoundedWorker
from services.exchange import Receive, Scope, Send
from services.internal.main import _context, create_app
from services.webhook.__main__ import make_app
from shared import config
from shared.bootstrap import webhook as bootstrap
from shared.bootstrap.api import build_api
from shared.bootstrap.backends import build_store
from shared.bootstrap.internal import Internal, build_internal
from shared.bootstrap.webhook import Webhook, build_webhook
from shared.domain.record import Kind, Task
from tests.support import parts as tests_parts
from tests.support.asgi_client import AsgiClient

SETTINGS = {"THREADS": "7", "GOOGLE_CLOUD_PROJECT": "a-project"}


def internal(directory: Path, **settings: str) -> Internal:
    return build_internal({"SQLITE_PATH": str(directory / "pombo.sqlite"), **SETTINGS, **settings})


def webhook(directory: Path, **settings: str) -> Webhook:
    return build_webhook({"SQLITE_PATH": str(directory / "pombo.sqlite"), **SETTINGS, **settings})


@pytest.fixture
def parts(tmp_path: Path) -> Internal:
    return internal(tmp_path)


def a_server(parts: Internal, bind: str = "127.0.0.1:0") -> Any:
    return server._Server(lambda: flask.Flask("test"), parts, bind)  # type: ignore[no-untyped-call]


def test_one_worker_serves_as_many_requests_as_cloud_run_sends(parts: Internal) -> None:
    cfg = a_server(parts).cfg
    assert (cfg.workers, cfg.threads, cfg.worker_class) == (1, 7, BoundedWorker)


def test_a_request_ends_by_its_own_budget_and_a_service_before_cloud_run_kills_it(parts: Internal) -> None:
    cfg = a_server(parts).cfg
    assert (cfg.timeout, cfg.graceful_timeout) == (0, serving.GRACEFUL_SECONDS)
    assert serving.GRACEFUL_SECONDS < 10


def test_a_connection_outlives_the_front_ends_idle_time(parts: Internal) -> None:
    """Google's front end keeps one for 60 s."""
    assert a_server(parts).cfg.keepalive == serving.KEEPALIVE_SECONDS > 60


def test_no_header_is_believed_and_nothing_else_listens_or_logs(parts: Internal) -> None:
    cfg = a_server(parts, "127.0.0.1:1234").cfg
    assert (cfg.bind, cfg.forwarded_allow_ips, cfg.control_socket_disable) == (["127.0.0.1:1234"], [], True)
    assert (cfg.loglevel, cfg.accesslog) == ("error", None)
    assert cfg.post_fork is server._die_with_parent


@pytest.mark.parametrize(
    ("environ", "settings", "bind"),
    [
        ({}, {}, "127.0.0.1:8081"),
        ({}, {"PORT": "9000"}, "127.0.0.1:9000"),
        ({"K_SERVICE": "internal"}, {"PORT": "8080"}, "0.0.0.0:8080"),
    ],
    ids=["on one machine", "at another port", "on Cloud Run"],
)
def test_each_service_listens_on_loopback_alone_except_on_cloud_run(
    environ: dict[str, str],
    settings: dict[str, str],
    bind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served: list[Any] = []
    monkeypatch.setattr(server._Server, "run", lambda it: served.append(it.cfg.bind))
    monkeypatch.setattr(async_server._Server, "run", lambda it: served.append([f"{it.config.host}:{it.config.port}"]))
    monkeypatch.setattr("shared.logs.take_standard_output", lambda: None)
    monkeypatch.delenv("K_SERVICE", raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    server.serve(lambda: internal(tmp_path, **settings), lambda _: flask.Flask("test"), default_port=8081)
    async_server.serve(lambda: webhook(tmp_path, **settings), lambda _: no_app, default_port=8081)
    assert served == [[bind], [bind]]


@pytest.fixture
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("make", [build_webhook, build_api, build_internal], ids=config.SERVICES)
def test_port_that_is_in_use_stops_the_start_with_one_sentence(
    make: Callable[[dict[str, str]], Any],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving, "PORT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as holder, tests_parts.logged():
        port = holder.getsockname()[1]
        service = make({"SQLITE_PATH": str(tmp_path / "pombo.sqlite"), "PORT": str(port)})
        with pytest.raises(SystemExit) as ended:
            serving.address(service, 9)
    out, err = capfd.readouterr()
    sentence = f"PORT {port} cannot be opened (Address already in use): stop the program that uses it, or set another"
    assert (ended.value.code, err) == (1, f"pombo: {sentence} PORT.\n")
    (line,) = tests_parts.lines(out)
    assert (line["event"], line["severity"], line["reason"]) == ("config_error", "CRITICAL", f"{sentence} PORT.")


def test_port_that_is_free_a_moment_later_is_taken(tmp_path: Path) -> None:
    assert serving.PORT_SECONDS == 4.0
    holder = socket.create_server(("127.0.0.1", 0))
    port = holder.getsockname()[1]
    threading.Timer(0.3, holder.close).start()
    assert serving.address(internal(tmp_path, PORT=str(port)), 9) == ("127.0.0.1", port)


def test_sigterm_stops_our_own_threads_before_gunicorn_winds_down(parts: Internal) -> None:
    told: list[bool] = []
    signal.signal(signal.SIGTERM, lambda *_: told.append(parts.shutdown()))
    running = a_server(parts)
    running.cfg.post_worker_init(type("Worker", (), {"pid": os.getpid()})())
    assert (told, parts.shutdown()) == ([], False)
    os.kill(os.getpid(), signal.SIGTERM)
    assert told == [True]


# ---- the server of the webhook service


@pytest.fixture
def webhook_parts(tmp_path: Path) -> Webhook:
    return webhook(tmp_path)


async def no_app(scope: Scope, receive: Receive, send: Send) -> None:
    pass


def an_async_server(parts: Webhook, port: int = 0) -> async_server._Server:
    return async_server._Server(no_app, parts, "127.0.0.1", port)


def test_one_process_serves_by_our_protocol(webhook_parts: Webhook) -> None:
    served = an_async_server(webhook_parts).config
    assert (served.workers, served.http, served.interface) == (1, BoundedProtocol, "asgi3")
    assert (served.ws, served.lifespan, served.limit_max_requests) == ("none", "off", None)


def test_webhook_service_runs_on_uvloop(webhook_parts: Webhook, monkeypatch: pytest.MonkeyPatch) -> None:
    running: list[str] = []

    async def serve(_: Any, __: Any) -> None:
        running.append(type(asyncio.get_running_loop()).__module__)

    monkeypatch.setattr(async_server._Server, "serve", serve)
    an_async_server(webhook_parts).run()
    assert running == ["uvloop"]


@pytest.mark.parametrize("name", ["WEB_CONCURRENCY", "FORWARDED_ALLOW_IPS"])
def test_no_variable_of_uvicorn_is_read(name: str, webhook_parts: Webhook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "7")
    served = an_async_server(webhook_parts).config
    assert (served.workers, served.forwarded_allow_ips) == (1, "")


def test_webhook_service_ends_before_cloud_run_kills_it(webhook_parts: Webhook) -> None:
    graceful = an_async_server(webhook_parts).config.timeout_graceful_shutdown
    assert graceful is not None
    assert graceful < serving.GRACEFUL_SECONDS < 10


def test_bounds_of_a_connection_are_those_of_the_documentation() -> None:
    """docs/decisions/0012: 10 s to arrive, 5 s to be read, 2 s to hang up. Cloud Run gives 10 s to end."""
    assert (serving.ARRIVAL_SECONDS, serving.ANSWER_SECONDS, serving.HANG_UP_SECONDS) == (10, 5, 2)
    assert (serving.GRACEFUL_SECONDS, serving.KEEPALIVE_SECONDS) == (8, 75)
    assert async_server.CHECK_SECONDS <= 0.5, "else a bound means little"


def test_failed_check_drops_its_connection_and_the_others_keep_their_limits(
    webhook_parts: Webhook, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(async_server, "CHECK_SECONDS", 0.0)

    class Connection:
        def __init__(self, fails: bool) -> None:
            self.fails, self.checked, self.aborted = fails, 0, 0

        def check(self, _: float) -> None:
            self.checked += 1
            if self.fails:
                raise ValueError("c4n4ry")

        def abort(self) -> None:
            self.aborted += 1
            running.server_state.connections.discard(self)  # type: ignore[arg-type] # as connection_lost does

    async def check(connections: list[Connection]) -> None:
        running.server_state.connections.update(connections)  # type: ignore[arg-type]
        checks = asyncio.create_task(running._check_connections())
        async with asyncio.timeout(5):
            while min(connection.checked for connection in connections if not connection.fails) < 3:
                await asyncio.sleep(0)
        checks.cancel()

    running, connections = an_async_server(webhook_parts), [Connection(fails) for fails in (False, True, False)]
    with tests_parts.logged():
        asyncio.run(check(connections))
    assert [connection.aborted for connection in connections] == [0, 1, 0]
    (line,) = tests_parts.lines(capfd.readouterr().out)
    assert (line["event"], line["severity"]) == ("unexpected_error", "ERROR")
    assert "c4n4ry" not in json.dumps(line)


def test_parts_are_finished_and_closed_at_the_end_of_the_shutdown(
    webhook_parts: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    monkeypatch.setattr(Webhook, "close", lambda _: done.append("closed"))

    async def finish(_: Webhook) -> None:
        done.append("finished")

    monkeypatch.setattr(Webhook, "finish", finish)

    async def end(*_: Any) -> None:
        done.append("all requests have ended")

    async def shut_down() -> None:
        running._checks = asyncio.create_task(asyncio.sleep(60))
        await running.shutdown()

    monkeypatch.setattr(uvicorn.Server, "shutdown", end)
    running = an_async_server(webhook_parts)
    asyncio.run(shut_down())
    assert done == ["all requests have ended", "finished", "closed"]


def test_worker_makes_its_last_calls_before_it_reports_its_end(
    parts: Internal, capfd: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []
    parts.shutdown.at_end(lambda: said.append(capfd.readouterr().out))
    with tests_parts.logged():
        capfd.readouterr()
        a_server(parts)._log_stopping(None, SimpleNamespace(pid=1))
        assert said == [""]
        assert tests_parts.events(capfd.readouterr().out) == ["stopping"]


def test_requests_that_the_end_cuts_off_are_logged_as_refused_and_as_no_error(
    webhook_parts: Webhook, capfd: pytest.CaptureFixture[str]
) -> None:
    """Any client can stall in the middle of a body: an error without a place would be taken for a bug of Pombo."""

    async def shut_down() -> None:
        running.config.load()
        running.lifespan = running.config.lifespan_class(running.config)
        running.servers = []
        running._checks = asyncio.create_task(asyncio.sleep(60))
        running.server_state.tasks |= {asyncio.create_task(asyncio.sleep(60)) for _ in range(2)}
        await running.shutdown()

    running = an_async_server(webhook_parts)
    running.config.timeout_graceful_shutdown = 0
    with tests_parts.logged():
        asyncio.run(shut_down())
    said = tests_parts.lines(capfd.readouterr().out)
    assert [(line["event"], line["severity"], line.get("reason")) for line in said] == [
        ("webhook_refused", "WARNING", "stopping"),
        ("webhook_refused", "WARNING", "stopping"),
        ("stopping", "INFO", None),
    ]


def test_webhook_connection_outlives_the_front_ends_idle_time(webhook_parts: Webhook) -> None:
    assert an_async_server(webhook_parts).config.timeout_keep_alive == serving.KEEPALIVE_SECONDS > 60


def test_webhook_service_believes_no_header_and_the_library_logs_nothing(webhook_parts: Webhook) -> None:
    served = an_async_server(webhook_parts, 1234).config
    assert (served.host, served.port, served.backlog) == ("127.0.0.1", 1234, async_server.BACKLOG)
    assert served.backlog >= 1000, "a burst opens hundreds of connections"
    assert (served.proxy_headers, served.forwarded_allow_ips) == (False, "")
    assert (served.server_header, served.date_header) == (False, False)
    assert (served.log_config, served.log_level, served.access_log) == (None, None, False)


def test_webhook_service_begins_to_get_its_token_once_before_it_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Webhook] = []
    served: list[Any] = []
    for name, value in {"SQLITE_PATH": str(tmp_path / "pombo.sqlite"), **SETTINGS}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(Webhook, "begin", lambda parts: begun.append(parts))
    monkeypatch.setattr(async_server, "serve", lambda build, *_, **__: served.extend((build(), build())))
    bootstrap.parts.cache_clear()
    try:
        runpy.run_path(make_app.__code__.co_filename, run_name="__main__")
    finally:
        bootstrap.parts.cache_clear()
    assert served == [begun[0]] * 2
    assert len(begun) == 1


@pytest.mark.usefixtures("handlers")
def test_sigterm_shuts_the_webhook_service_down_and_leaves_the_process(webhook_parts: Webhook) -> None:
    running = an_async_server(webhook_parts)
    with running.capture_signals():
        assert running.should_exit is False
        os.kill(os.getpid(), signal.SIGTERM)
        assert running.should_exit is True


@pytest.mark.usefixtures("handlers")
def test_ctrl_c_shuts_the_webhook_service_down_too(webhook_parts: Webhook) -> None:
    running = an_async_server(webhook_parts)
    with running.capture_signals():
        assert signal.getsignal(signal.SIGINT) == running.handle_exit


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_further_signal_does_not_end_the_webhook_service_that_is_ending(
    webhook_parts: Webhook, number: signal.Signals
) -> None:
    with an_async_server(webhook_parts).capture_signals():
        pass
    assert signal.getsignal(number) is signal.SIG_IGN


# ---- routes


def jwt() -> str:
    """A token of the right shape, which no certificate proves."""
    part = urlsafe_b64encode(json.dumps({"alg": "RS256", "kid": "1"}).encode()).decode().rstrip("=")
    return f"{part}.{part}.{part}"


@pytest.mark.parametrize(
    ("path", "status"),
    [("/internal/sweep", 503), ("/internal/process_inbound", 403), ("/internal/process_outbound", 403)],
)
def test_scheduler_without_internal_token_reaches_only_the_sweep(path: str, status: int, tmp_path: Path) -> None:
    """The answer is 503: its identity is looked at, and the certificates cannot be fetched here."""
    account = "scheduler@a-project.iam.gserviceaccount.com"
    parts = internal(tmp_path, SCHEDULER_SERVICE_ACCOUNT=account, OIDC_CERTS_URL="http://127.0.0.1:9/certs")
    answer = create_app(parts).test_client().post(path, json={}, headers={"Authorization": f"Bearer {jwt()}"})
    assert answer.status_code == status


def test_a_log_line_names_its_trace_in_the_project_of_the_settings(parts: Internal) -> None:
    task = Task("1" * 40, Kind.INBOUND, "corr_0001", 0)
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    with create_app(parts).test_request_context(headers={"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}):
        assert _context(task, parts, ())["logging.googleapis.com/trace"] == f"projects/a-project/traces/{trace}"


def test_a_log_line_of_the_webhook_names_its_trace_there_too(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    parts = webhook(tmp_path)
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    headers = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
    assert AsgiClient(make_app(parts)).post("/webhooks/whatsapp", headers=headers).status_code == 403
    assert f'"projects/a-project/traces/{trace}"' in capfd.readouterr().out


# ---- bootstrap: what has no part of its own


@pytest.mark.parametrize("build", [build_webhook, build_api, build_internal], ids=config.SERVICES)
def test_each_service_logs_from_the_level_of_its_settings(
    build: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    levels: list[str] = []
    monkeypatch.setattr("shared.logs.configure", levels.append)
    build({"SQLITE_PATH": str(tmp_path / "pombo.sqlite"), "LOG_LEVEL": "WARNING"})
    assert levels == ["WARNING"]


@pytest.mark.parametrize("damage", ["no database at all", "a damaged page"])
def test_a_file_that_is_damaged_stops_the_start(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "pombo.sqlite"
    if damage == "a damaged page":
        store = build_store(config.load({"SQLITE_PATH": str(path)}, config.WEBHOOK))
        store.ping()
        store.close()
        whole = path.read_bytes()
        path.write_bytes(whole[:100] + b"\xff" * 3900 + whole[4000:])
    else:
        path.write_bytes(b"no database" * 1000)
    with pytest.raises(config.ConfigError, match="SQLITE_PATH names a file that is damaged"):
        build_webhook({"SQLITE_PATH": str(path)})


def test_the_mark_of_a_crash_lies_beside_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the crash would come again with every start."""
    crash_at = "before:store.ping"
    killed: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, _: killed.append(pid))
    settings = config.load({"SQLITE_PATH": str(tmp_path / "p.sqlite"), "CRASH_AT": crash_at}, config.WEBHOOK)

    for _ in range(2):  # two starts
        build_store(settings).ping()

    assert set(killed) == {os.getpid()}
    assert len(killed) == 2, "the master and the worker, once"
    assert (tmp_path / f"crashed-{crash_at}").exists()
