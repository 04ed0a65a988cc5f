"""Crash points: which there are, which passing is the last one, and who dies of it."""

import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from shared import crash
from shared.bootstrap.internal import build_internal
from shared.bootstrap.webhook import build_webhook
from shared.config import ConfigError
from shared.pipeline import clock, intake, ports, registry
from shared.pipeline.channels import Channels
from tests.support.crashing_port import Port

ROOT = Path(__file__).parents[2]


def program(body: str, mark: Path, crash_at: str) -> str:
    """What a process runs: this, with `port` wrapped as the handler."""
    return f"""
import os, sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent)!r})
from tests.support.crashing_port import Port
from shared import crash
port = crash.wrap("handler", Port(), {crash_at!r}, Path({str(mark)!r}))
{body}
"""


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, start_new_session=True)


def in_a_process(body: str, mark: Path, crash_at: str) -> subprocess.CompletedProcess[str]:
    """What it printed tells how far it came."""
    return run(sys.executable, "-c", program(body, mark, crash_at))


# ---- which there are


def test_the_points_are_before_and_after_every_method_of_every_port() -> None:
    protocols = {
        "store": (ports.Store, intake.IntakeStore),
        "queue": (ports.Queue, intake.IntakeQueue),
        "tenants": (ports.Tenants, intake.IntakeTenants),
        "registry": (registry.Registry, registry.IntakeRegistry),
        "credentials": (ports.Credentials,),
        "secrets": (ports.Secrets,),
        "channel": (ports.Channel, intake.IntakeChannel),
        "handler": (ports.Handler,),
        "clock": (clock.Clock,),
    }
    methods = {
        f"{name}.{'call' if method == '__call__' else method}"
        for name, halves in protocols.items()
        for protocol in halves
        for method, value in vars(protocol).items()
        if callable(value) and method != "close" and (method == "__call__" or not method.startswith("_"))
    }

    assert set(crash.points()) == {f"{moment}:{method}" for method in methods for moment in ("before", "after")}
    assert list(crash.points()) == sorted(crash.points())
    assert {"before:store.create", "after:queue.ensure", "before:handler.call"} <= set(crash.points())


def test_a_new_port_and_a_new_method_are_points_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    def call(self: object) -> None: ...

    media = type("Media", (ports.Protocol,), {"fetch": call, "_inner": call, "__module__": ports.__name__})
    monkeypatch.setattr(ports, "Media", media, raising=False)
    monkeypatch.setattr(ports.Queue, "count", call, raising=False)

    new = {"before:media.fetch", "after:media.fetch", "before:queue.count", "after:queue.count"}
    assert new <= set(crash.points())
    assert not any("_inner" in point for point in crash.points())


@pytest.mark.parametrize(
    "crash_at",
    ["before:store.creat", "before:media.fetch", "during:store.create", "store.create", "before:store.create:0", ""],
)
def test_a_point_that_no_port_has_is_refused_with_a_sentence(crash_at: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        crash.wrap("queue", object(), crash_at, tmp_path / "mark")

    assert refused.value.faults == [f"CRASH_AT names no crash point: {crash_at}. pombo doctor --points lists them."]


# ---- what is wrapped


def test_port_outside_the_crash_point_is_not_wrapped(tmp_path: Path) -> None:
    port = Port()
    assert crash.wrap("handler", port, "before:store.create", tmp_path / "mark") is port


def test_marks_of_different_crash_points_are_different_files(tmp_path: Path) -> None:
    points = ("before:handler.call", "before:handler.call:2", "after:handler.call")
    assert len({crash.mark_of(tmp_path, crash_at) for crash_at in points}) == len(points)


def test_past_crash_comes_again_only_once_its_mark_is_removed(tmp_path: Path) -> None:
    """Passings count from then on, so that a process that is up already can be made to crash."""
    mark = tmp_path / "mark"
    mark.touch()
    body = """
port(word="past"); port(word="past"); print("up", flush=True)
os.unlink(sys.argv[1])
port(word="one"); print("one", flush=True)
port(word="two"); print("two", flush=True)
"""

    done = run(sys.executable, "-c", program(body, mark, "before:handler.call:2"), str(mark))

    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "up\none\n")


def test_a_wrapped_port_does_all_that_it_did(tmp_path: Path) -> None:
    port = crash.wrap("handler", Port(), "after:handler.call:9", tmp_path / "mark")

    assert port.handles("text") is True
    assert port.exhausted is False
    assert port(word="hello") == "hello"
    assert (port.exhausted, port.calls) == (True, ["text", "hello"])
    with pytest.raises(ValueError, match="broken"):
        port.handles("broken")
    with pytest.raises(AttributeError):
        port.unheard_of  # type: ignore[attr-defined] # noqa: B018


SETTINGS = {"APP_ENV": "test", "HANDLER": "handlers.echo:handle"}
BUILDERS: Mapping[str, Callable[[Mapping[str, str]], object]] = {
    "webhook": build_webhook,
    "internal": build_internal,
}
PARTS = {
    "webhook": {"store", "queue", "tenants", "channel", "clock"},
    "internal": {"store", "queue", "tenants", "credentials", "channel", "clock", "handler"},
}


@pytest.mark.parametrize(("service", "port"), [(service, port) for service in PARTS for port in crash.methods()])
def test_bootstrap_wraps_every_port_of_a_service(service: str, port: str, tmp_path: Path) -> None:
    first = crash.methods()[port][0]
    environment = {**SETTINGS, "SQLITE_PATH": str(tmp_path / "pombo.sqlite")}

    plain = BUILDERS[service](environment)
    crashing = BUILDERS[service]({**environment, "CRASH_AT": f"before:{port}.{first}"})

    assert {wrapped for _, wrapped in fields_of(plain)} == {False}
    assert {name for name, wrapped in fields_of(crashing) if wrapped} == {port} & PARTS[service]
    assert (port, False) not in fields_of(crashing), "one of its users has it unwrapped"


def fields_of(parts: object) -> set[tuple[str, bool]]:
    """The names of all that these parts are made of, and whether it is a wrapped port."""
    found: set[tuple[str, bool]] = set()
    for name in getattr(parts, "__dataclass_fields__", {}):
        value = getattr(parts, name)
        if isinstance(value, Channels):
            found |= {("channel", type(channel).__module__ == crash.__name__) for channel in value.values()}
            continue
        is_wrapped = type(value).__module__ == crash.__name__
        found |= {(name, is_wrapped)} if is_wrapped else {(name, False), *fields_of(value)}
    return found


def test_a_service_with_a_point_that_does_not_exist_is_not_built(tmp_path: Path) -> None:
    environment = {**SETTINGS, "SQLITE_PATH": str(tmp_path / "pombo.sqlite"), "CRASH_AT": "before:store.creat"}
    for build in BUILDERS.values():
        with pytest.raises(ConfigError, match=r"before:store\.creat"):
            build(environment)


# ---- who dies, and when


def test_before_crashes_before_the_call_and_after_crashes_after_it(tmp_path: Path) -> None:
    body = 'port._port.handles = lambda kind: print("called", flush=True)\nport.handles("text")\nprint("over")'

    before = in_a_process(body, tmp_path / "before", "before:handler.handles")
    after = in_a_process(body, tmp_path / "after", "after:handler.handles")

    assert (before.returncode, before.stdout) == (-signal.SIGKILL, "")
    assert (after.returncode, after.stdout) == (-signal.SIGKILL, "called\n")


def test_call_that_raises_reaches_its_after_point(tmp_path: Path) -> None:
    body = 'try: port.handles("broken")\nexcept ValueError: print("raised")'
    assert in_a_process(body, tmp_path / "mark", "after:handler.handles").returncode == -signal.SIGKILL


def test_nth_call_crashes_counting_the_calls_of_every_thread(tmp_path: Path) -> None:
    body = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(4) as pool:
    list(pool.map(lambda n: port(word=str(n)), range(9)))
print(len(port.calls), flush=True)
port(word="the tenth")
print("over")
"""
    result = in_a_process(body, tmp_path / "mark", "before:handler.call:10")
    assert (result.returncode, result.stdout) == (-signal.SIGKILL, "9\n")


def test_crash_happens_once_and_leaves_its_mark(tmp_path: Path) -> None:
    mark, body = crash.mark_of(tmp_path / "new", "before:handler.call"), 'print(port(word="hello"))'

    first = in_a_process(body, mark, "before:handler.call")
    second = in_a_process(body, mark, "before:handler.call")

    assert first.returncode == -signal.SIGKILL
    assert mark.exists()
    assert (second.returncode, second.stdout) == (0, "hello\n")


def test_second_armed_process_does_not_crash_after_the_mark(tmp_path: Path) -> None:
    body = f'Path({str(tmp_path / "mark")!r}).touch()\nprint(port(word="hello"))'  # as the other service just did
    result = in_a_process(body, tmp_path / "mark", "before:handler.call")
    assert (result.returncode, result.stdout) == (0, "hello\n")


def test_the_process_that_put_the_service_together_dies_with_its_worker(tmp_path: Path) -> None:
    """The pipe ends when both are gone; the master alone would have printed."""
    body = """
worker = os.fork()
if worker == 0:
    port(word="hello")
    os._exit(0)
os.waitpid(worker, 0)
print("the master lives")
"""
    result = in_a_process(body, tmp_path / "mark", "after:handler.call")
    assert (result.returncode, result.stdout) == (-signal.SIGKILL, "")


def test_parent_script_survives_the_crash(tmp_path: Path) -> None:
    """Its children have its process group: the group is not what dies."""
    source = program('port(word="hello")', tmp_path / "mark", "after:handler.call")

    script = run("bash", "-c", '"$0" -c "$1"; echo "exit $?"', sys.executable, source)

    assert script.stdout == f"exit {128 + signal.SIGKILL}\n"
