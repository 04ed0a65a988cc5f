"""A command finds the stack that runs, or what the last one has left, and says which; whatever ended it."""

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from cli.commands import pombo
from cli.dead import decision_context
from cli.running import Described, describe
from local import invocation
from local.stack import Options, Stack, _locked
from local.stack_files import is_running
from shared.domain.delivery.answers import Answer, Step, TaskResult
from shared.domain.delivery.create import create
from shared.domain.limits import Limits
from shared.domain.record import Delivery, Kind, State
from shared.stores.sqlite.store import SqliteStore
from tests.support.builders import at

KEY = "0f" * 20
SIMULATOR = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def no_store_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STORE", "SQLITE_PATH", "REDIS_URL", "FIRESTORE_EMULATOR_HOST", "GOOGLE_CLOUD_PROJECT", "APP_ENV"):
        monkeypatch.delenv(name, raising=False)


@contextmanager
def held(data_dir: Path) -> Iterator[None]:
    """As long as its process lives, a stack holds the lock of its directory."""
    with (data_dir / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def of_stack(data_dir: Path, store: str = "sqlite", **environment: str) -> None:
    """stack.json, as a stack writes it that is up, and a kill leaves it."""
    environment = {"STORE": store, "SQLITE_PATH": str(data_dir / "pombo.sqlite"), **environment}
    described = {"store": store, "data_dir": str(data_dir), "control": SIMULATOR, "environment": environment}
    described["secrets"] = ["HANDLER_URL_SECRET"]
    (data_dir / "stack.json").write_text(json.dumps(described))


def of_last(data_dir: Path, store: str, environment: dict[str, str] | None = None) -> None:
    (data_dir / "last.json").write_text(json.dumps({"store": store, "environment": environment}))


def letter_in(data_dir: Path) -> Delivery:
    store = SqliteStore(data_dir / "pombo.sqlite", Limits(), lambda: at(0))
    fresh = create(
        Kind.INBOUND,
        KEY,
        provider="meta",
        tenant="default",
        sender="100000000000001",
        contact="15550002222",
        correlation_id="c0" * 16,
        payload={"field": "messages", "item": {}, "contact": {}, "phone_number_id": "100000000000001"},
        limits=Limits(),
        now=at(0),
    )
    dead = replace(fresh, state=State.DEAD, reason="error", finished_at=at(1), last_error="LookupError: nothing")
    store.change(KEY, lambda _: Step(Answer(TaskResult.ACK, dead.state), write=dead))
    store.close()
    return dead


def run(data_dir: Path, *arguments: str, **environment: str) -> Result:
    return CliRunner(env=environment).invoke(pombo, [*arguments, "--data-dir", str(data_dir)])


def said(result: Result) -> str:
    assert result.exit_code == 1, result.output
    return result.output


# ---- a stack that was killed


def test_data_of_a_killed_stack_is_not_a_running_stack(tmp_path: Path) -> None:
    of_stack(tmp_path)
    letter_in(tmp_path)
    with held(tmp_path):
        assert (is_running(tmp_path), describe(tmp_path).runs, describe(tmp_path).control) == (True, True, SIMULATOR)
        assert describe(tmp_path).secrets == {"HANDLER_URL_SECRET"}

    found = describe(tmp_path)
    assert (is_running(tmp_path), found.runs, found.control) == (False, False, None)


@pytest.mark.parametrize("which", [(KEY,), ("--all", "--yes")], ids=" ".join)
def test_a_replay_after_a_kill_is_refused_before_anything_is_written(tmp_path: Path, which: tuple[str, ...]) -> None:
    of_stack(tmp_path, CLOUD_TASKS_EMULATOR_HOST="127.0.0.1:9", INTERNAL_TASK_BASE_URL=SIMULATOR)
    letter = letter_in(tmp_path)

    line = said(run(tmp_path, "dead", "replay", *which, INTERNAL_TASK_TOKEN="x" * 32))

    assert "no Pombo is running here to retry it. Start one with " in line
    assert f"up --data-dir {tmp_path}." in line
    assert describe(tmp_path).environ["SQLITE_PATH"] == str(tmp_path / "pombo.sqlite")
    assert SqliteStore(tmp_path / "pombo.sqlite", Limits(), lambda: at(0)).get(KEY) == letter


def test_a_replay_is_refused_while_the_queue_does_not_answer(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        queue = f"127.0.0.1:{closed.getsockname()[1]}"
    of_stack(
        tmp_path,
        CLOUD_TASKS_EMULATOR_HOST=queue,
        INTERNAL_TASK_BASE_URL=SIMULATOR,
        GOOGLE_CLOUD_PROJECT="p",
        CLOUD_TASKS_LOCATION="l",
    )
    letter = letter_in(tmp_path)

    with held(tmp_path):
        line = said(run(tmp_path, "dead", "replay", KEY, INTERNAL_TASK_TOKEN="x" * 32))

    assert f"Nothing was replayed: the task queue does not answer at {queue}" in line
    assert SqliteStore(tmp_path / "pombo.sqlite", Limits(), lambda: at(0)).get(KEY) == letter


@pytest.mark.parametrize("arguments", [("say", "hello"), ("ledger",)], ids=" ".join)
def test_command_that_needs_the_simulator_explains_how_to_start_one_after_a_kill(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    of_stack(tmp_path)
    letter_in(tmp_path)

    assert f"up --data-dir {tmp_path}" in said(run(tmp_path, *arguments))
    with held(tmp_path):
        line = said(run(tmp_path, *arguments))
    assert f"The WhatsApp simulator does not answer at {SIMULATOR}" in line
    assert f"up --data-dir {tmp_path}" in line


def test_doctor_after_a_kill_reports_that_nothing_runs_and_blames_no_setting(tmp_path: Path) -> None:
    of_stack(tmp_path, HANDLER_URL="http://127.0.0.1:9/")
    letter_in(tmp_path)

    found = {one["check"]: one for one in json.loads(run(tmp_path, "doctor", "--json").stdout)}

    assert [name for name, one in found.items() if not one["ok"]] == ["task", "token", "drain"]
    assert {found[name]["sentence"] for name in ("task", "token", "drain")} == {
        "Cannot be checked: no Pombo is running here. Start one with pombo up (or make run)."
    }


def test_stack_that_is_not_up_yet_is_reported_as_starting(tmp_path: Path) -> None:
    letter_in(tmp_path)
    with held(tmp_path):
        assert "Pombo is starting or stopping with its data in" in said(run(tmp_path, "trace", KEY))


# ---- another store


@pytest.mark.parametrize("store", ["redis", "firestore"])
@pytest.mark.parametrize("arguments", [("trace", KEY), ("dead", "list"), ("doctor",), ("say", "hello")], ids=" ".join)
@pytest.mark.parametrize("is_named", [False, True])
def test_records_of_a_server_that_ended_are_not_looked_for_in_sqlite(
    tmp_path: Path, store: str, arguments: tuple[str, ...], is_named: bool
) -> None:
    letter_in(tmp_path)
    of_last(tmp_path, store)

    line = said(run(tmp_path, *arguments, **({"STORE": store} if is_named else {})))

    assert f"The last one kept its records in {store}, whose server stopped with it. Start it again with: " in line
    assert f"up --data-dir {tmp_path} --store {store}." in line


def test_the_command_to_start_one_is_make_s_for_the_default_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(".pombo").mkdir()
    of_last(Path(".pombo"), "redis")

    with pytest.raises(click.ClickException, match=r"Start it again with: make run STORE=redis\.$"):
        describe(Path(".pombo"))
    monkeypatch.setenv("STORE", "firestore")
    with pytest.raises(click.ClickException, match=r"Start one with: make run STORE=firestore\.$"):
        describe(Path(".pombo"))


def test_a_server_of_the_user_s_own_can_be_read_when_no_stack_runs(tmp_path: Path) -> None:
    of_last(tmp_path, "redis", {"STORE": "redis", "REDIS_URL": "redis://127.0.0.1:6380/3"})

    found = describe(tmp_path)

    assert (found.runs, found.is_local, found.environ["REDIS_URL"]) == (False, True, "redis://127.0.0.1:6380/3")

    line = said(run(tmp_path, "dead", "list", STORE="firestore"))
    assert "No Pombo here keeps its records in firestore. Start one with: " in line


def test_the_sqlite_file_of_the_last_one_is_read_wherever_it_was(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    letter_in(elsewhere)
    of_last(tmp_path, "sqlite", {"STORE": "sqlite", "SQLITE_PATH": str(elsewhere / "pombo.sqlite")})
    (tmp_path / "pombo.sqlite").touch()

    assert json.loads(run(tmp_path, "dead", "list", "--json").stdout)["total"] == 1


def test_store_alone_means_the_stack_s_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_stack(tmp_path, "redis", REDIS_URL="redis://127.0.0.1:6381/0")
    with held(tmp_path):
        monkeypatch.setenv("STORE", "redis")
        assert (describe(tmp_path).control, describe(tmp_path).is_local) == (SIMULATOR, True)
        monkeypatch.setenv("STORE", "sqlite")
        with pytest.raises(click.ClickException, match="keeps its records in redis, but STORE is sqlite: unset STORE"):
            describe(tmp_path)


@pytest.mark.parametrize(
    ("address", "is_local"), [("redis://127.0.0.1:6380/3", True), ("redis://127.0.0.1:6380/4", False)]
)
def test_a_store_that_was_exported_for_the_stack_too_leads_to_the_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, is_local: bool
) -> None:
    """Else say would find no simulator, in the very shell that started one."""
    of_stack(tmp_path, "redis", REDIS_URL="redis://127.0.0.1:6380/3")
    monkeypatch.setenv("STORE", "redis")
    monkeypatch.setenv("REDIS_URL", address)
    with held(tmp_path):
        assert describe(tmp_path).is_local is is_local
        monkeypatch.setenv("APP_ENV", "prod")
        assert not describe(tmp_path).is_local
    monkeypatch.delenv("APP_ENV")
    assert not describe(tmp_path).is_local, "nothing runs"


def test_in_staging_and_prod_store_means_what_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_stack(tmp_path, "redis")
    monkeypatch.setenv("STORE", "redis")
    monkeypatch.setenv("APP_ENV", "prod")
    with held(tmp_path):
        assert describe(tmp_path).is_local is False


# ---- what a stack writes


@pytest.mark.parametrize(
    ("store", "environment", "kept"),
    [
        ("sqlite", {}, {"STORE": "sqlite", "SQLITE_PATH": "{}/pombo.sqlite"}),
        ("redis", {"REDIS_URL": "redis://127.0.0.1:6380/3"}, {"REDIS_URL": "redis://127.0.0.1:6380/3"}),
        ("redis", {}, None),
        ("firestore", {}, None),
    ],
)
def test_a_stack_leaves_the_way_to_its_records_unless_their_server_ends_with_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    store: str,
    environment: dict[str, str],
    kept: dict[str, Any] | None,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("local.stack.PROGRAMS", {name: _Server(name) for name in ("redis", "firestore")})

    last = Stack(Options(tmp_path, store, first_port=0))._last()

    assert last["store"] == store
    if kept is None:
        assert last["environment"] is None
    else:
        expected = {name: value.format(tmp_path) for name, value in kept.items()}
        assert expected.items() <= last["environment"].items()


def test_a_tenant_is_added_to_the_queues_of_the_last_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENANT_QUEUES", "1")
    last = Stack(Options(tmp_path, "sqlite", first_port=0))._last()
    monkeypatch.delenv("TENANT_QUEUES")
    of_last(tmp_path, "sqlite", last["environment"])
    letter_in(tmp_path)
    for tenant in ("bakery", "florist"):
        added = json.loads(run(tmp_path, "tenants", "add", tenant, "--json").stdout)
        assert added == {"id": tenant, "queue": 0}


class _Server:
    """A store's server that is never started."""

    def __init__(self, store: str) -> None:
        self.setting = {"redis": "REDIS_URL", "firestore": "FIRESTORE_EMULATOR_HOST"}[store]

    def address(self, port: int) -> str:
        return f"127.0.0.1:{port}"

    def command(self, *_: object) -> list[str]:
        return ["true"]


def test_a_command_that_looks_does_not_keep_a_stack_from_starting(tmp_path: Path) -> None:
    """It holds the lock for a moment."""
    looked, over = Event(), Event()

    def look() -> None:
        while not over.is_set():
            is_running(tmp_path)
            looked.set()

    (tmp_path / "lock").touch()
    thread = Thread(target=look)
    thread.start()
    try:
        assert looked.wait(10)
        for _ in range(50):
            with _locked(tmp_path):
                assert is_running(tmp_path)
    finally:
        over.set()
        thread.join()


def test_two_commands_that_look_at_once_take_each_other_for_no_stack(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        assert not is_running(tmp_path)


# ---- how a person types it


def test_pombo_is_named_as_a_shell_here_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bin = tmp_path / ".venv" / "bin"
    bin.mkdir(parents=True)
    (bin / "pombo").touch(0o755)
    monkeypatch.setattr("sys.executable", str(bin / "python"))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.chdir(tmp_path)
    assert invocation.program() == ".venv/bin/pombo"

    other_place = tmp_path / "elsewhere"
    other_place.mkdir()
    monkeypatch.chdir(other_place)
    assert invocation.program() == str(bin / "pombo")

    monkeypatch.setenv("PATH", str(bin))
    assert invocation.program() == "pombo"

    other = tmp_path / "other"
    other.mkdir()
    (other / "pombo").touch(0o755)
    monkeypatch.setenv("PATH", str(other))
    assert invocation.program() == str(bin / "pombo"), "another program of that name"


def test_a_log_that_is_not_there_yet_is_made_for_its_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.logs.write_to", os.close)
    log = tmp_path / "logs.jsonl"
    before = os.umask(0)
    try:
        decision_context._log_beside(Described({}, log, is_local=True))
    finally:
        os.umask(before)
    assert log.stat().st_mode & 0o777 == 0o600
