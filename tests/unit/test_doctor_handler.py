"""What doctor says of the handler and its backend, by a connection and by the log; and how its checks are shown."""

import json
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from google.api_core.exceptions import NotFound, PermissionDenied
from google.auth.exceptions import DefaultCredentialsError, RefreshError

from cli.doctor import checks, handler_check
from cli.doctor.checks import Wrong
from cli.doctor.command import as_text, examine
from cli.doctor.handler_check import NO_FAILURE, backend, last_call
from cli.doctor.settings import Check
from cli.running import Described
from shared import config
from shared.bootstrap.backends import build_store
from shared.config import SETTINGS, STORE_SETTINGS
from shared.domain.errors import QueueUnavailable
from shared.domain.tasks import CHECK_BODY
from shared.stores.redis.store import RedisStore

EVENT, OTHER = "0f" * 20, "0e" * 20


def line(event: str, id: str = EVENT, **fields: Any) -> dict[str, Any]:
    return {"time": "2026-03-01T12:00:01.123456Z", "event": event, "inbound_event_id": id, **fields}


REFUSED = line(
    "inbound_rescheduled",
    verdict="handler_failed",
    cause="The backend answered 401 (does it know HANDLER_URL_SECRET?).",
)
RAISED = line(
    "inbound_failed", verdict="handler_failed", error_type="KeyError", place="handlers/mine.py:7", function="book"
)
STARTED = {"event": "started", "stage": "internal"}
ANSWERED = line("inbound_processing_finished", OTHER, verdict="replied", outbound_planned=1)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return tmp_path / "logs.jsonl"


def written(logs: Path, *lines: dict[str, Any]) -> Path:
    logs.write_text("".join(json.dumps(one) + "\n" for one in lines) + "no JSON: inbound_\n")
    return logs


# ---- the last call


def test_backend_answering_401_fails_the_check(logs: Path) -> None:
    with pytest.raises(Wrong) as wrong:
        last_call(written(logs, STARTED, ANSWERED, REFUSED))

    assert str(wrong.value) == (
        "The last call failed at 12:00:01 UTC: The backend answered 401 (does it know HANDLER_URL_SECRET?)."
    )


@pytest.mark.parametrize(("tenant", "said"), [("bakery", "UTC, for tenant bakery: "), ("default", "UTC: ")])
def test_failed_call_for_a_tenant_names_the_tenant(logs: Path, tenant: str, said: str) -> None:
    """Its own backend may have failed, and not the deployment's."""
    with pytest.raises(Wrong, match=said):
        last_call(written(logs, STARTED, {**RAISED, "tenant": tenant}))


def test_handler_exception_is_shown_by_type_and_line_without_its_text(logs: Path) -> None:
    with pytest.raises(Wrong, match=r"UTC: KeyError at handlers/mine\.py:7, in book\.$"):
        last_call(written(logs, STARTED, RAISED))


@pytest.mark.parametrize(
    "later",
    [
        ANSWERED,
        line("inbound_processing_finished", EVENT, verdict="replied", outbound_planned=0),
        line("inbound_processing_finished", EVENT, verdict="dropped"),
    ],
)
def test_a_call_that_was_answered_later_makes_it_right(logs: Path, later: dict[str, Any]) -> None:
    assert last_call(written(logs, REFUSED, later)) == "The last call, at 12:00:01 UTC, was answered."


@pytest.mark.parametrize(
    "later",
    [
        line("inbound_processing_finished", OTHER, verdict="replied", outbound_planned=0),
        line("inbound_rescheduled", OTHER, verdict="released"),
        line("inbound_processing_started", OTHER),
        {"event": "started", "stage": "webhook"},
    ],
    ids=["an event without a handler", "a shutdown", "a call that is under way", "another process"],
)
def test_later_line_without_a_backend_answer_leaves_the_failure(logs: Path, later: dict[str, Any]) -> None:
    with pytest.raises(Wrong, match="401"):
        last_call(written(logs, REFUSED, later))


def test_failure_before_the_last_service_start_is_ignored(logs: Path) -> None:
    assert last_call(written(logs, REFUSED, STARTED)) == NO_FAILURE
    assert last_call(logs.with_name("none")) == NO_FAILURE


def test_unreadable_log_line_is_skipped(logs: Path) -> None:
    lines = (b"inbound_ cut off\n", b'"inbound_"\n', json.dumps(REFUSED).encode() + b"\n", b"inbound_ \xff\n")
    logs.write_bytes(b"".join(lines))
    with pytest.raises(Wrong, match="401"):
        last_call(logs)


# ---- the connection


def test_a_backend_that_is_not_there_refuses_the_connection(logs: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]

    with pytest.raises(Wrong) as wrong:
        backend(f"http://127.0.0.1:{port}/", logs)

    assert (
        str(wrong.value)
        == f"The backend of HANDLER_URL refuses the connection at 127.0.0.1:{port}: check that it is running."
    )


def test_a_backend_that_takes_connections_is_not_called(logs: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert (
            backend(f"http://127.0.0.1:{server.getsockname()[1]}/", logs)
            == f"The backend accepts connections. {NO_FAILURE}"
        )
        connection, _ = server.accept()
        with connection:
            assert connection.recv(1) == b""


def test_backend_with_broken_tls_timeout_or_name_is_reported(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler_check, "CONNECT_SECONDS", 0.2)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(Wrong, match=r"no connection at .* within 0.2 s"),
    ):
        backend(f"https://127.0.0.1:{silent.getsockname()[1]}/", logs)
    with pytest.raises(Wrong, match=r"The host name backend\.invalid of HANDLER_URL does not resolve"):
        backend("http://backend.invalid/", logs)


# ---- all of it


def described(logs: Path, is_local: bool = True, secrets: frozenset[str] = frozenset(), **environ: str) -> Described:
    environ = {"STORE": "sqlite", "SQLITE_PATH": str(logs.with_name("pombo.sqlite")), **environ}
    environ |= {"INTERNAL_TASK_BASE_URL": "http://127.0.0.1:9", "CLOUD_TASKS_EMULATOR_HOST": "127.0.0.1:9"}
    return Described(environ, logs, is_local=is_local, runs=False, secrets=secrets)


def test_the_check_is_named_after_what_answers_and_is_this_machine_s_alone(logs: Path) -> None:
    def checks(found: Described) -> dict[str, Check]:
        return {check.check: check for check in examine(found, 0.1)}

    with_url = _as_running(described(logs, HANDLER_URL="http://127.0.0.1:9/"))
    assert not checks(with_url)["backend"].ok
    assert checks(_as_running(described(logs)))["handler"].ok
    assert not {"backend", "handler"} & checks(_as_running(described(logs, is_local=False))).keys()


def _as_running(found: Described) -> Described:
    return replace(found, runs=True)


def test_a_secret_that_the_stack_was_started_with_is_not_missed_here(logs: Path) -> None:
    def of_secret(found: Described) -> Check:
        return next(check for check in examine(found, 0.1) if check.check == "HANDLER_URL_SECRET")

    url = {"HANDLER_URL": "http://127.0.0.1:9/"}
    assert not of_secret(described(logs, **url)).ok
    told = of_secret(described(logs, secrets=frozenset({"HANDLER_URL_SECRET"}), **url))
    assert (told.ok, told.sentence) == (True, "Set in the running Pombo (a secret, not shown).")
    wrong = of_secret(described(logs, secrets=frozenset({"HANDLER_URL_SECRET"}), HANDLER_URL_SECRET="no secret", **url))
    assert not wrong.ok, "what is set here is what is looked at"


def test_the_parts_come_first_and_settings_that_are_right_take_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    names = [setting.name for setting in SETTINGS]
    found = [Check("store", True, "It is written."), *(Check(name, name != "THREADS", "It is 5.") for name in names)]

    assert as_text(found, all_settings=False).splitlines() == [
        "ok  store     It is written.",
        "NO  THREADS   It is 5.",
        f"ok  settings  {len(names) - 1} are correct; pombo doctor --settings shows each.",
    ]
    assert len(as_text(found, all_settings=True).splitlines()) == len(found)


@pytest.mark.parametrize(("right", "name"), [(1, "setting "), (2, "settings")])
def test_one_correct_setting_is_called_a_setting(right: int, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    found = [Check(setting.name, True, "It is 5.") for setting in SETTINGS[:right]]
    assert as_text(found, all_settings=False) == (
        f"ok  {name.strip()}  {right} are correct; pombo doctor --settings shows each."
    )


def test_the_token_is_checked_by_a_body_that_the_service_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []

    def post(_url: str, *, json: Any, **_: Any) -> httpx.Response:
        sent.append(json)
        return httpx.Response(400, content=b'{"error": "task_invalid"}')

    monkeypatch.setattr("httpx.post", post)
    settings: Any = {"INTERNAL_TASK_BASE_URL": "http://127.0.0.1:9", "INTERNAL_TASK_TOKEN": ["a-token"]}

    assert checks.token(settings, has_task_come_back=False) == "The internal service accepts the token."
    assert sent == [CHECK_BODY]


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (PermissionDenied("no"), "this account may not create tasks there"),
        (NotFound("no"), "the queue does not exist"),
        (DefaultCredentialsError("no"), "this machine has no Google credentials"),
        (RefreshError("no"), "this machine's Google credentials have expired"),
    ],
    ids=lambda given: type(given).__name__,
)
def test_google_queue_error_comes_with_advice(cause: Exception, said: str) -> None:
    error = QueueUnavailable("The task queue cannot be reached.")
    error.__cause__ = cause
    assert checks._reason(error).startswith(said)


def test_the_settings_of_the_store_are_all_that_redis_needs() -> None:
    given = {"STORE": "redis", "REDIS_URL": "redis://127.0.0.1:9"}
    assert isinstance(build_store(config.load(given, config.CLI, only=STORE_SETTINGS)), RedisStore)
