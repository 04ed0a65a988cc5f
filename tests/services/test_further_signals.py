"""A signal ends each program with 0, whatever signals follow: Ctrl-C in a terminal reaches every process of the stack,
which its parent then ends once more.
"""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support import parts
from tests.support.parts import ROOT, free_port
from tests.support.stack import clean_environment


def a_program(module: str, directory: Path) -> subprocess.Popen[bytes]:
    """This program, started."""
    if module == "cli.main":
        options = ["up", "--json", "--ports", "0", "--data-dir", str(directory / "data")]
        up = subprocess.Popen(
            [sys.executable, "-m", module, *options], cwd=ROOT, env=clean_environment(), stdout=subprocess.PIPE
        )
        assert up.stdout is not None
        with up.stdout:
            up.stdout.readline()
        return up
    environ = parts.environment(directory, PORT=str(free_port()), META_APP_SECRET="a secret", WHATSAPP_ACCESS_TOKEN="x")
    options = [] if module.startswith("services.") else ["--port", "0", "--data-dir", str(directory / "data")]
    if module == "local.whatsapp":
        options += ["--webhook-url", "http://127.0.0.1:9/webhooks/whatsapp"]
    return parts.run(directory, module, environ, *options).process


PROGRAMS = ("services.webhook", "services.internal", "local.tasks", "local.whatsapp", "cli.main")
SIGNALS = (signal.SIGTERM, signal.SIGINT)


@pytest.mark.parametrize(
    ("module", "number"),
    [
        pytest.param(module, number, marks=[pytest.mark.slow] * (module == "cli.main" and number is signal.SIGTERM))
        for module in PROGRAMS
        for number in SIGNALS
    ],
)
def test_a_program_ends_with_0_however_many_signals_it_gets(
    tmp_path: Path, module: str, number: signal.Signals
) -> None:
    process = a_program(module, tmp_path)
    while process.poll() is None:
        process.send_signal(number)
        time.sleep(0.002)
    assert process.returncode == 0
