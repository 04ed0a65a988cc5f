"""The tour, which is make run and make demo: its hints; what dies on its way comes back; Ctrl-C ends it."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.stack import ROOT, clean_environment, wait_until

SLEEPY = """
import time
from pathlib import Path

def handle(message):
    Path(__file__).with_name("called").touch()
    time.sleep(50)
"""


def tour(directory: Path, *arguments: str, **settings: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "cli.tour", "--ports", "0", *arguments],
        cwd=directory,
        env=clean_environment(PYTHONPATH=f"{ROOT}:{directory}", **settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_service_that_dies_on_the_first_message_restarts_and_the_reply_arrives(
    tmp_path: Path,
) -> None:
    running = tour(tmp_path, "--once", CRASH_AT="after:channel.send", TIME_SCALE="20")
    said, errors = running.communicate(timeout=120)
    assert (running.returncode, errors) == (0, ""), said
    assert "internal died; Pombo restarted it" in said
    assert "The reply was sent. This Pombo stops and deletes its data" in said, "or its ids would be looked for in vain"


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


def test_make_run_explains_handlers_past_crashes_and_a_running_pombo(tmp_path: Path) -> None:
    """One stack for the three: the tour's hints, a CRASH_AT whose crash has been, and a second tour beside it."""
    (tmp_path / "handlers").symlink_to(ROOT / "handlers")
    (tmp_path / ".pombo").mkdir()
    mark = tmp_path / ".pombo" / "crashed-after:channel.send"
    mark.touch()
    running = tour(tmp_path, HANDLER="handlers.menu:handle", CRASH_AT="after:channel.send")
    said = said_until("Ctrl-C stops Pombo.", running)
    second = tour(tmp_path, POMBO_CALLED_BY="make")
    _, refused = second.communicate(timeout=60)
    third = tour(tmp_path, POMBO_CALLED_BY="")
    _, refused_without_make = third.communicate(timeout=60)
    running.terminate()  # as `kill` with the process that was named does
    running.communicate(timeout=60)

    assert f"rm {mark}" in said
    assert "CRASH_AT=after:channel.send has already happened and does not repeat." in said
    assert re.search(r"^  handlers/menu\.py +this handler decides the replies", said, re.M)
    assert "echo" not in said.partition("Next, in another terminal")[2]
    sentence = (
        f"pombo: A Pombo is already running (process {running.pid}), with its data in {tmp_path / '.pombo'}. "
        f"Stop it with Ctrl-C in its terminal, or with: kill {running.pid}."
    )
    assert (second.returncode, refused) == (1, f"{sentence} Or start another one with DATA=DIR and PORTS=N.\n")
    assert refused_without_make == f"{sentence} Or start another one with --data-dir DIR and --ports N.\n"
    assert running.returncode == 0


def said_until(end: str, running: "subprocess.Popen[str]") -> str:
    """What it says up to the line that begins so."""
    assert running.stdout is not None
    said = ""
    for line in running.stdout:
        said += line
        if line.startswith(end):
            return said
    raise AssertionError(said)
