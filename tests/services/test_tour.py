"""The tour, which is make run and make demo: what dies on the way of its first message comes back; Ctrl-C ends it."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from stack import ROOT, clean_environment, wait_until

SLEEPY = """
import time
from pathlib import Path

def handle(message):
    Path(__file__).with_name("called").touch()
    time.sleep(50)
"""


def tour(directory: Path, *arguments: str, **settings: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "local", "--ports", "0", *arguments],
        cwd=directory,
        env=clean_environment(PYTHONPATH=f"{ROOT}:{directory}", **settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_service_that_dies_while_the_first_message_is_on_its_way_comes_back_and_so_does_the_reply(
    tmp_path: Path,
) -> None:
    running = tour(tmp_path, "--once", CRASH_AT="after:channel.send", TIME_SCALE="20")
    said, errors = running.communicate(timeout=120)
    assert (running.returncode, errors) == (0, ""), said
    assert "internal died and was started again" in said
    assert "The reply came." in said


@pytest.mark.parametrize(("arguments", "code"), [([], 0), (["--once"], 130)], ids=["make run", "make demo"])
def test_ctrl_c_ends_it_while_it_waits_for_the_first_reply(tmp_path: Path, arguments: list[str], code: int) -> None:
    (tmp_path / "sleepy.py").write_text(SLEEPY)
    running = tour(tmp_path, *arguments, HANDLER="sleepy:handle")
    wait_until((tmp_path / "called").exists, "the handler is called", 60)
    running.send_signal(signal.SIGINT)
    began = time.monotonic()
    _, errors = running.communicate(timeout=60)
    assert time.monotonic() - began < 30, "it did not wait for the handler's end"
    assert running.returncode == code
    assert "Traceback" not in errors
