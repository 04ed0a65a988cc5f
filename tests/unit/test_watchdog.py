"""A test that hangs, wherever it does, is ended with its stack, and the run fails and names it."""

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENDS = 120
"""Seconds; each alone needs about three."""
PLUGINS = ("-p", "pytest_timeout", "-p", "xdist.plugin")
"""The others that are installed take longer to import than a run lasts."""

HEAD = """
import ctypes, socket, sqlite3, threading, time
from concurrent.futures import ThreadPoolExecutor
import pytest

forever = threading.Event()

def a_thread_of_its_own():
    forever.wait()

def the_call_that_hangs():
    # not to be interrupted, with the interpreter's lock held: the second lock of a plain mutex
    mutex = ctypes.create_string_buffer(256)
    for _ in range(2):
        ctypes.PyDLL(None).pthread_mutex_lock(mutex)
"""
BY_TIMEOUT, BY_WATCHDOG = "Timeout (>1.0s)", "Timeout (0:00:0"
"""pytest-timeout's words, and faulthandler's."""

HANGS: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "a lock": (
        """
def test_hangs():
    threading.Thread(target=a_thread_of_its_own, daemon=True).start()
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
""",
        BY_TIMEOUT,
        ("test_hangs", "lock.acquire()", "in a_thread_of_its_own", "forever.wait()"),
    ),
    "a socket": (
        """
def test_hangs():
    listening = socket.create_server(("127.0.0.1", 0))
    socket.create_connection(listening.getsockname()).recv(1)
""",
        BY_TIMEOUT,
        ("test_hangs", ".recv(1)"),
    ),
    "a busy SQLite file": (
        """
def test_hangs(tmp_path):
    held = sqlite3.connect(tmp_path / "file", isolation_level=None)
    held.execute("BEGIN EXCLUSIVE")
    sqlite3.connect(tmp_path / "file", timeout=3600).execute("CREATE TABLE t (c)")
""",
        BY_WATCHDOG,
        ("in test_hangs",),
    ),
    "a call into C": (
        """
def test_hangs():
    threading.Thread(target=a_thread_of_its_own, daemon=True).start()
    the_call_that_hangs()
""",
        BY_WATCHDOG,
        ("in test_hangs", "in the_call_that_hangs", "in a_thread_of_its_own"),
    ),
    "a finally that waits": (
        """
def test_hangs():
    with ThreadPoolExecutor() as pool:
        pool.submit(forever.wait).result()
""",
        BY_WATCHDOG,
        ("in test_hangs", "in shutdown"),
    ),
    "a fixture": (
        """
@pytest.fixture
def slow():
    forever.wait()

def test_hangs(slow):
    pass
""",
        BY_TIMEOUT,
        ("test_hangs", "forever.wait()"),
    ),
    "a teardown": (
        """
@pytest.fixture(scope="session")
def slow():
    yield
    forever.wait()

def test_hangs(slow):
    pass
""",
        BY_TIMEOUT,
        ("test_hangs", "forever.wait()"),
    ),
    "a teardown after the timeout": (
        """
@pytest.fixture
def slow():
    yield
    while True:
        try:
            the_call_that_hangs()
        finally:
            pass

def test_hangs(slow):
    forever.wait()
""",
        BY_WATCHDOG,
        ("in slow", "in the_call_that_hangs"),
    ),
    "an import": ("forever.wait()", BY_WATCHDOG, ("test_it.py",)),
    "a thread that stays": (
        """
def test_passes():
    threading.Thread(target=a_thread_of_its_own).start()
""",
        BY_WATCHDOG,
        ("in a_thread_of_its_own",),
    ),
}
PASSES = """
def test_passes():
    time.sleep(5)
"""
LONG = {
    "by its mark": "@pytest.mark.timeout(30)" + PASSES,
    "by its mark's word": "@pytest.mark.timeout(timeout=30)" + PASSES,
    "without a timeout": PASSES,
}
"""Longer than the default and than what collection may take: nobody ends them."""
LONG_RUNS = [*((name, "0") for name in LONG), ("by its mark", "1")]
IN_A_WORKER = ("a lock", "a call into C", "a teardown after the timeout", "a thread that stays")
PASSED_ALREADY = ("a thread that stays", "1")
"""The worker has told all its results before it cannot end; it is ended, and the run is what the results make it."""
RUNS = [*((name, "0") for name in HANGS), *((name, "1") for name in IN_A_WORKER)]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Mapping[tuple[str, str], tuple[int | None, str]]:
    """The exit code and the words of a run of each, three at a time."""
    found: dict[tuple[str, str], tuple[int | None, str]] = {}
    turn = threading.Semaphore(3)
    tmp_path_factory.getbasetemp()  # made now: of several threads that make it at once, all but one fail

    def run(name: str, workers: str) -> None:
        directory = tmp_path_factory.mktemp("hang")
        (directory / "test_it.py").write_text(HEAD + (LONG.get(name) or HANGS[name][0]))
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "-p",
            "tests.support.watchdog",
            *PLUGINS,
            "-n",
            workers,
            "-c",
        ]
        command += [os.devnull, "--rootdir", str(directory), "-o", "timeout=1", "-o", "watchdog_grace=1"]
        command += ["-o", "watchdog_around=4", str(directory)]
        command += ["--timeout", "0"] if name == "without a timeout" else []
        with turn:
            try:
                done = subprocess.run(
                    command,
                    cwd=directory,
                    env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    timeout=ENDS,
                )
                found[name, workers] = done.returncode, done.stdout
            except subprocess.TimeoutExpired as error:
                found[name, workers] = None, str(error.stdout)

    threads = [threading.Thread(target=run, args=both) for both in (*RUNS, *LONG_RUNS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize(("name", "workers"), RUNS, ids=[f"{name}, -n {workers}" for name, workers in RUNS])
def test_a_hanging_test_ends_with_its_stack(
    ended: Mapping[tuple[str, str], tuple[int | None, str]], name: str, workers: str
) -> None:
    code, said = ended[name, workers]
    _, by, lines = HANGS[name]
    assert code == (0 if (name, workers) == PASSED_ALREADY else 1), said
    assert by in said
    assert [line for line in lines if line not in said] == [], said


@pytest.mark.parametrize("name", ["a call into C", "a teardown after the timeout"])
def test_a_run_in_workers_names_the_test_whose_worker_was_ended(
    ended: Mapping[tuple[str, str], tuple[int | None, str]], name: str
) -> None:
    _, said = ended[name, "1"]
    assert "crashed while running 'test_it.py::test_hangs'" in said


@pytest.mark.parametrize(("name", "workers"), LONG_RUNS, ids=[f"{name}, -n {workers}" for name, workers in LONG_RUNS])
def test_long_test_with_a_longer_timeout_passes(
    ended: Mapping[tuple[str, str], tuple[int | None, str]], name: str, workers: str
) -> None:
    code, said = ended[name, workers]
    assert code == 0, said
    assert "1 passed" in said


def test_the_watchdog_is_on_in_every_run_and_waits_longer_than_the_timeout(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.pluginmanager.has_plugin("pombo-watchdog")
    assert float(pytestconfig.getini("timeout")) == 180
    assert (float(pytestconfig.getini("watchdog_grace")), float(pytestconfig.getini("watchdog_around"))) == (60, 300)
