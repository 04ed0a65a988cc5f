"""`pombo up --store`: the server of a store as one more process of the stack, or somebody else's that is left alone."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from local.services import SERVICES
from local.stores import PROGRAMS
from tests.support.stack import (
    ROOT,
    Stack,
    clean_environment,
    cli,
    command,
    need_server_of,
    processes_of,
    server_of,
    wait_until,
)

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are looked at in /proc, which is Linux's")
IN_CI = ["redis", pytest.param("firestore", marks=pytest.mark.slow)]
"""The stores with a server. The emulator takes ten seconds to start."""
served = pytest.mark.parametrize("store", IN_CI)
"""Each test of these starts a stack of its own."""
WORDS = {"redis": "redis-server", "firestore": "cloud-firestore-emulator.jar"}
"""What is in the arguments of the server itself."""


@pytest.fixture(scope="module", params=IN_CI)
def plain(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack with nothing but another store."""
    need_server_of(request.param)
    with Stack(tmp_path_factory.mktemp(request.param) / "data", options=(), store_name=request.param) as stack:
        yield stack


def refused(*arguments: str, env: Mapping[str, str]) -> str:
    """The one line with which `pombo up` does not start."""
    result = cli("up", "--json", "--ports", "0", *arguments, env=env)
    assert (result.returncode, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("pombo: ")
    return line


def arguments_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")


def listening(pid: int) -> set[str]:
    """The addresses on which a process listens, in the kernel's hexadecimal."""
    sockets = {os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir() if fd.is_symlink()}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                found.add(fields[1].partition(":")[0])
    return found


def store_port(stack: Stack) -> int:
    return int(json.loads((stack.data_dir / "ports.json").read_text())["store"])


# ---- its own server


def test_up_runs_its_own_store_process_on_loopback_only(plain: Stack) -> None:
    pid = plain.described["pids"]["store"]

    assert plain.described["store"] == plain.store_name
    assert WORDS[plain.store_name] in arguments_of(pid).partition(" -m ")[0]
    loopback = {"0100007F", "0000000000000000FFFF00000100007F"}
    assert listening(pid) <= loopback
    assert listening(pid), "nothing was looked at"
    assert pid in processes_of(plain.data_dir)
    result = plain.cli("say", "hello", "--wait", "--json")
    assert (result.returncode, result.stderr) == (0, "")
    assert plain.event(json.loads(result.stdout)["message_id"]) is not None
    assert not list(plain.data_dir.glob("pombo.sqlite*"))


def test_store_address_and_data_are_readable_by_the_owner_only(plain: Stack) -> None:
    kept = [plain.data_dir / "stack.json", *plain.data_dir.glob("redis/**/*")]

    assert {path.name: stat.S_IMODE(path.stat().st_mode) & 0o077 for path in kept} == {path.name: 0 for path in kept}


def test_killed_server_restarts_at_its_port_and_the_stack_continues(plain: Stack) -> None:
    before = json.loads(plain.cli("say", "before", "--wait", "--json").stdout)["message_id"]
    port = store_port(plain)

    killed = plain.kill("store")
    wait_until(lambda: plain.pids()["store"] != killed["store"], "pids.json names another one", 4)
    plain.wait_back(killed)

    assert store_port(plain) == port
    assert (plain.event(before) is None) == PROGRAMS[plain.store_name].forgets
    assert plain.cli("say", "after", "--wait").returncode == 0


@served
def test_stored_records_survive_a_full_restart_unless_in_memory(tmp_path: Path, store: str) -> None:
    need_server_of(store)
    with Stack(tmp_path / "data", store_name=store, is_forked=True) as stack:
        message_id = json.loads(stack.cli("say", "hello", "--wait", "--json").stdout)["message_id"]
        port = store_port(stack)

        stack.restart()

        assert store_port(stack) == port
        assert (stack.event(message_id) is None) == PROGRAMS[store].forgets


@served
def test_up_that_is_killed_leaves_no_server_behind(tmp_path: Path, store: str) -> None:
    need_server_of(store)
    stack = Stack(tmp_path / "data", store_name=store, is_forked=True)
    stack.start()
    stack.http.close()
    assert stack.described["pids"]["store"] in processes_of(stack.data_dir)

    assert stack.end(signal.SIGKILL) == -signal.SIGKILL

    wait_until(lambda: processes_of(stack.data_dir) == [], "all of it is gone")


@served
def test_server_that_must_not_restart_stays_down_and_is_reported(tmp_path: Path, store: str) -> None:
    need_server_of(store)
    with Stack(tmp_path / "data", ("--no-sweep", "--no-restart"), store_name=store, is_forked=True) as stack:
        stack.kill("store")

        for service in SERVICES:
            stack.wait_until(lambda of=service: stack.get(of, "/readyz").status_code == 503, f"{service} says so")
            assert stack.get(service, "/readyz").json()["services"] == {"store": "unavailable", "queue": "connected"}


@pytest.mark.slow
def test_up_warns_that_data_in_memory_is_lost(tmp_path: Path) -> None:
    need_server_of("firestore")
    data_dir = tmp_path / "data"
    up = subprocess.Popen(
        command("up", "--store", "firestore", "--ports", "0", "--data-dir", str(data_dir)),
        cwd=ROOT,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert up.stdout is not None
    said = iter(up.stdout)
    try:
        assert any("keeps its data in memory and loses it when Pombo stops" in line for line in said)
        assert any("Pombo is up" in line for line in said)
        os.kill(json.loads((data_dir / "pids.json").read_text())["store"], signal.SIGKILL)
        assert any("ALL EARLIER DATA IS LOST" in line for line in said)
    finally:
        up.terminate()
        up.communicate(timeout=30)


# ---- somebody else's


@served
def test_a_server_that_the_environment_names_is_used_and_left_running(tmp_path: Path, store: str) -> None:
    with server_of(store, tmp_path) as found:
        settings = dict(found)
        pid = int(settings.pop("PID"))
        (setting, address) = next(iter(settings.items()))
        with Stack(tmp_path / "data", settings=settings, store_name=store, is_forked=True) as stack:
            assert stack.described["pids"]["store"] is None
            assert stack.environment[setting] == address
            assert "store" not in json.loads((stack.data_dir / "ports.json").read_text())
            assert not (stack.data_dir / "store.log").exists()
            said = json.loads(stack.cli("say", "hello", "--wait", "--json").stdout)
            stack.restart()
            assert stack.cli("trace", said["message_id"]).returncode == 0

        assert PROGRAMS[store].answers(address)
        assert WORDS[store] in arguments_of(pid)


@served
def test_server_that_does_not_answer_is_reported_in_one_line(tmp_path: Path, store: str) -> None:
    need_server_of(store)
    setting = PROGRAMS[store].setting
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        nobody = PROGRAMS[store].address(holder.getsockname()[1])

        line = refused("--data-dir", str(tmp_path), "--store", store, env=clean_environment(**{setting: nobody}))

    assert f"The server in {setting} does not answer like {PROGRAMS[store].what}" in line
    assert processes_of(tmp_path) == []


# ---- what is not there


def programs(directory: Path, *names: str, **scripts: str) -> dict[str, str]:
    """An environment with these programs of this machine, and scripts of these words, and no others."""
    directory.mkdir()
    for name in names:
        (found,) = [path for path in (Path("/usr/bin", name), Path("/usr/local/bin", name)) if path.exists()][:1]
        (directory / name).symlink_to(found)
    for name, words in scripts.items():
        path = directory / name.replace("_", "-")
        path.write_text(f"#!/bin/sh\n{words}\n")
        path.chmod(0o755)
    return clean_environment(PATH=str(directory))


OLD_JAVA = (
    "echo 'Error: LinkageError occurred while loading main class X, X has been compiled by a more recent version of "
    "the Java Runtime (class file version 65.0), this version of the Java Runtime only recognizes class file versions "
    "up to 55.0' >&2; echo '    at somewhere' >&2; exit 1"
)

VERSION = '[ "$1" = --version ] && echo Redis server v=7.0.0 && exit; '
SILENT, KILLED = VERSION + "exit 3", VERSION + "kill -9 $$"


@pytest.mark.parametrize(
    ("store", "there", "scripts", "said"),
    [
        ("redis", (), {}, "apt-get install redis-server"),
        (
            "redis",
            (),
            {"redis_server": "echo Redis server v=6.0.16 sha=0"},
            "redis-server 7 or newer, and this one is 6.0",
        ),
        ("redis", (), {"redis_server": "echo Redis server v=7.0.0; echo no luck; exit 1"}, "no luck"),
        (
            "redis",
            (),
            {"redis_server": SILENT},
            "redis-server stopped while starting, with exit code 3: it printed nothing",
        ),
        ("redis", (), {"redis_server": KILLED}, "redis-server stopped while starting, by signal 9: it printed nothing"),
        ("redis", ("sleep",), {"redis_server": "exec sleep 60"}, "redis-server --version does not answer within 5 s"),
        ("firestore", (), {}, "gcloud is not installed"),
        ("firestore", (), {"gcloud": ""}, "gcloud components install cloud-firestore-emulator"),
        ("firestore", ("gcloud",), {}, "needs Java"),
        ("firestore", ("gcloud",), {"java": OLD_JAVA}, "it needs Java 21 or newer, and this is Java 11"),
    ],
    ids=[
        "no redis",
        "an old redis",
        "a redis that fails",
        "a redis that fails silently",
        "a redis that is killed",
        "a redis that hangs",
        "no gcloud",
        "no emulator",
        "no java",
        "an old java",
    ],
)
def test_missing_program_of_a_store_is_reported_with_advice(
    tmp_path: Path, store: str, there: tuple[str, ...], scripts: dict[str, str], said: str
) -> None:
    if "gcloud" in there:
        need_server_of(store)

    line = refused(
        "--data-dir", str(tmp_path / "data"), "--store", store, env=programs(tmp_path / "bin", *there, **scripts)
    )

    assert said in line
    assert processes_of(tmp_path / "data") == []


def test_silent_server_is_not_blamed_for_the_log_of_an_earlier_one(tmp_path: Path) -> None:
    (tmp_path / "store.log").write_text("Ready to accept connections\n")

    line = refused("--data-dir", str(tmp_path), "--store", "redis", env=programs(tmp_path / "bin", redis_server=SILENT))

    assert line == "pombo: redis-server stopped while starting, with exit code 3: it printed nothing"


def test_redis_that_cannot_be_run_is_reported_in_one_line(tmp_path: Path) -> None:
    env = programs(tmp_path / "bin", redis_server="")
    (tmp_path / "bin" / "redis-server").write_bytes(b"\x7fELF, but not really")

    line = refused("--data-dir", str(tmp_path), "--store", "redis", env=env)

    assert "Cannot run redis-server (Exec format error): apt-get install redis-server" in line


# ---- ports, options, and the tour


def test_the_servers_port_is_the_sixth_after_the_first(tmp_path: Path) -> None:
    need_server_of("redis")
    first = eight_free_ports()
    with Stack(tmp_path / "data", ("--no-sweep", "--ports", str(first)), store_name="redis", is_forked=True) as stack:
        assert stack.described["webhook"].endswith(f":{first}")
        assert stack.described["tasks"].endswith(f":{first + 3}")
        assert stack.environment["REDIS_URL"] == f"redis://127.0.0.1:{first + 6}/0"

        other = refused("--data-dir", str(tmp_path / "other"), "--ports", str(first + 6), env=clean_environment())

    assert f"Port {first + 6} is in use" in other


def eight_free_ports() -> int:
    """The first of eight."""
    for first in range(20000, 30000, 8):
        try:
            for port in range(first, first + 8):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first
    raise AssertionError("there are no eight ports in a row")


@pytest.mark.parametrize(
    ("settings", "options", "store"),
    [
        pytest.param({"STORE": "redis"}, (), "redis", marks=pytest.mark.slow),  # test_tour_runs_on_the_chosen_store
        ({"STORE": "redis"}, ("--store", "sqlite"), "sqlite"),
        pytest.param({"STORE": "firestore"}, ("--store", "redis"), "redis", marks=pytest.mark.slow),
        pytest.param({"STORE": ""}, (), "sqlite", marks=pytest.mark.slow),
    ],
    ids=["the environment", "the option wins", "and again", "nothing said"],
)
def test_the_store_is_the_options_or_the_environments(
    tmp_path: Path, settings: dict[str, str], options: tuple[str, ...], store: str
) -> None:
    need_server_of(store)
    with Stack(tmp_path / "data", ("--no-sweep", *options), settings, is_forked=True) as stack:
        assert stack.described["store"] == store == stack.environment["STORE"]
        assert (stack.described["pids"]["store"] is None) == (store == "sqlite")
        result = cli("say", "hello", "--wait", "--data-dir", str(stack.data_dir))
        assert result.returncode == 0


def test_unknown_store_is_reported_in_one_line(tmp_path: Path) -> None:
    assert "STORE" in refused("--data-dir", str(tmp_path), env=clean_environment(STORE="paper"))


def test_up_help_names_the_stores_and_their_port() -> None:
    words = " ".join(cli("up", "--help").stdout.split())

    for said in ("pombo up --store redis", "N+6", "[sqlite|firestore|redis]", "REDIS_URL", "in memory"):
        assert said in words


@pytest.mark.parametrize(
    ("store", "arguments", "settings"),
    [
        ("redis", [], {"STORE": "redis"}),
        pytest.param("firestore", ["--store", "firestore"], {}, marks=pytest.mark.slow),
    ],
    ids=["redis, by STORE", "firestore, by the option"],
)
def test_tour_runs_on_the_chosen_store(
    tmp_path: Path, store: str, arguments: list[str], settings: dict[str, str]
) -> None:
    need_server_of(store)
    result = subprocess.run(
        [sys.executable, "-m", "cli.tour", "--once", *arguments],
        cwd=ROOT,
        env=clean_environment(TMPDIR=str(tmp_path), **settings),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert (result.returncode, result.stderr) == (0, "")
    assert PROGRAMS[store].what in result.stdout
    assert "The reply was sent" in result.stdout
