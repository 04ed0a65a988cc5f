"""gcloud and terraform, called from a program: what they say as text, and their failures as sentences."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

INSTALL = {
    "gcloud": "install the Google Cloud CLI: https://cloud.google.com/sdk/docs/install",
    "terraform": "install Terraform: https://developer.hashicorp.com/terraform/install",
    "python3": "install Python 3.11 or newer under that name",
}
AUTOMATED = {"TF_IN_AUTOMATION": "1", "TF_INPUT": "0", "CLOUDSDK_CORE_DISABLE_PROMPTS": "1"}
"""Neither program may wait for an answer on a terminal."""


GCLOUD_SECONDS = 600
"""Longer than any call takes whose output is read: Cloud Run gives up a revision after two minutes (modules/run)."""


class Refused(Exception):
    """It is not done. The message is a sentence or two: what happened, and what to do."""


class Failed(Refused):
    """A program ended with an error. `said` is all that it printed."""

    def __init__(self, command: tuple[str, ...], said: str) -> None:
        super().__init__(f"{' '.join(command)} failed: {complaint(said)}")
        self.said = said


def complaint(said: str) -> str:
    """The line of a program's output that says what is wrong."""
    lines = [line.strip(" │╷╵") for line in said.splitlines() if line.strip(" │╷╵")]
    named = next((line for line in lines if line.startswith(("ERROR:", "Error:"))), lines[-1] if lines else "no reason")
    at = lines.index(named) if named in lines else 0
    details = [line for line in lines[at + 1 : at + 4] if "Error 4" in line or "Error 5" in line]
    return " ".join([named, *details])


def gcloud(*arguments: str, given: str | None = None) -> str:
    """What a command of gcloud's prints, without the line's end. `given` goes to its standard input. Raises Failed."""
    return _said("gcloud", arguments, None, given, GCLOUD_SECONDS)


def terraform(folder: Path, *arguments: str) -> str:
    """What a command of terraform's prints. Raises Failed."""
    return _said("terraform", arguments, folder, None, None)


def _said(
    program: str, arguments: tuple[str, ...], folder: Path | None, given: str | None, seconds: float | None
) -> str:
    try:
        done = subprocess.run(
            [program, *arguments],
            input=given,
            stdin=subprocess.DEVNULL if given is None else None,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            cwd=folder,
            env={**os.environ, **AUTOMATED},
            timeout=seconds,
        )
    except FileNotFoundError:
        raise Refused(f"{program} is not here; {INSTALL[program]}") from None
    except subprocess.TimeoutExpired:
        raise Refused(f"{program} {' '.join(arguments[:3])} did not end within {seconds:g} s.") from None
    if done.returncode != 0:
        raise Failed((program, *arguments[:3]), done.stderr.strip() or done.stdout)
    return done.stdout.rstrip("\n")


def follow(
    program: str, *arguments: str, folder: Path | None = None, shown: Callable[[str], object] = str.strip
) -> str:
    """What a program prints, each line shown at once if it is one to show. Raises Failed.

    It runs in a session of its own, so that Ctrl-C reaches this program alone, which passes it on once: terraform then
    saves its state and ends. Two at once would make it stop without saving.
    """
    process = _started(program, arguments, folder)
    assert process.stdout is not None
    lines, stopped = list[str](), False
    while True:
        try:
            for line in process.stdout:
                lines.append(line)
                if shown(line):
                    print(f"    {line.rstrip()}", flush=True)
            status = process.wait()
            break
        except KeyboardInterrupt:
            if not stopped:
                print(f"pombo: Waiting until {program} has stopped; Ctrl-C again ends it at once.", file=sys.stderr)
            process.send_signal(signal.SIGKILL if stopped else signal.SIGINT)
            stopped = True
    process.stdout.close()
    if stopped:
        raise KeyboardInterrupt
    if status != 0:
        raise Failed((program, *arguments[:3]), "".join(lines))
    return "".join(lines)


def _started(program: str, arguments: tuple[str, ...], folder: Path | None) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(
            [program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            cwd=folder,
            env={**os.environ, **AUTOMATED},
            start_new_session=True,
        )
    except FileNotFoundError:
        raise Refused(f"{program} is not here; {INSTALL[program]}") from None
