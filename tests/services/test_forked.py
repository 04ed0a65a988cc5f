"""What is forked (tests/support/forked.py) is as `python -m` starts it, so tests of a stack say what a user sees."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import forked
from tests.support.stack import TEAM, Stack, clean_environment, command

WORDS = [["--version"], ["no-such-command"], ["trace"], ["say", "--help"], ["trace", "x", "--data-dir", "/nowhere"]]


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_a_forked_command_ends_and_prints_as_a_started_one(words: list[str]) -> None:
    started = subprocess.run(command(*words), env=clean_environment(), capture_output=True, text=True)

    ended = forked.run(["cli.main", *words], clean_environment())

    assert (ended.returncode, ended.stdout, ended.stderr) == (started.returncode, started.stdout, started.stderr)


PROGRAM = """
import atexit, os, sys
atexit.register(print, "at exit")
print(sys.argv[1:], os.environ["GIVEN"], os.getcwd(), len(os.listdir("/proc/self/fd")) <= 5, sys.stdin.read())
print(b"GIVEN=a value\\0" in open("/proc/self/environ", "rb").read(), "ROOM" in str(os.environ))
sys.exit("the last words" if sys.argv[1:] == ["fail"] else 3)
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PYTHONPATH with the program."""
    (tmp_path / "a_program.py").write_text(PROGRAM)
    return str(tmp_path)


def test_a_forked_program_has_its_own_arguments_environment_input_and_end(path: str) -> None:
    ended = forked.run(["a_program", "one", "two"], {"GIVEN": "a value", "PYTHONPATH": path}, "its input")
    assert ended.stdout == f"['one', 'two'] a value {os.getcwd()} True its input\nTrue False\nat exit\n"
    assert (ended.returncode, ended.stderr) == (3, "")
    failed = forked.run(["a_program", "fail"], {"GIVEN": "a value", "PYTHONPATH": path})
    assert (failed.returncode, failed.stderr) == (1, "the last words\n")


def test_a_forked_program_that_is_killed_ends_with_its_signal(tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(60)\n")
    with (tmp_path / "errors").open("w") as errors:
        process = forked.start(["sleeps"], {"PYTHONPATH": str(tmp_path)}, errors)
    assert process.stdout is not None
    with process.stdout as said:
        assert said.readline() == "up\n"
        assert process.poll() is None
        process.kill()
        assert process.wait(10) == -signal.SIGKILL


HOW_IT_MEETS_SIGNALS = """
print([line for line in open("/proc/self/status") if line.startswith(("SigBlk", "SigIgn", "SigCgt"))])
"""
A_PARENT = """
import os, sys
from pathlib import Path
from local.children import Child
child = Child("program", ["a_program"], os.environ, Path(sys.argv[1]), Path(sys.argv[1]))
child.start()
child.wait(60)
"""


def test_a_forked_child_meets_signals_as_a_started_one(tmp_path: Path) -> None:
    """Of SIGPIPE it would die where it writes to a killed process; a started one gets an error."""
    (tmp_path / "a_program.py").write_text(HOW_IT_MEETS_SIGNALS)
    (tmp_path / "a_parent.py").write_text(A_PARENT)
    environment = {"PYTHONPATH": str(tmp_path)}

    subprocess.run([sys.executable, "-m", "a_parent", str(tmp_path / "started")], env=environment, check=True)
    forked.run(["a_parent", str(tmp_path / "forked")], environment)

    started = (tmp_path / "started").read_text()
    assert "SigIgn" in started
    assert (tmp_path / "forked").read_text() == started


def test_each_process_of_a_stack_is_forked_with_its_settings_again_after_a_death(stack: Stack) -> None:
    before = stack.pids()
    stack.wait_back(stack.kill("webhook"))

    assert stack.pids()["webhook"] != before["webhook"]
    for pid in stack.pids().values():
        assert f"PYTHONPATH={TEAM}" in Path(f"/proc/{pid}/environ").read_text().split("\0")
        assert "tests.support.forking" in Path(f"/proc/{pid}/cmdline").read_text()
