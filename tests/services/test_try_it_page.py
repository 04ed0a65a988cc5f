"""docs/try-it.md, followed step by step: what it says under a command is what the command leads to."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.stack import ROOT, Stack, clean_environment, wait_until

PAGE = (ROOT / "docs" / "try-it.md").read_text()
COMMAND = re.compile(r"make |curl |kill |\.venv/bin/|[A-Z_]+=\S+ ")


def step(number: int) -> str:
    """One section of the page."""
    return PAGE.partition(f"\n## {number}. ")[2].partition("\n## ")[0]


def lines_of(number: int) -> list[str]:
    """What stands in the blocks of a step."""
    return re.sub(r"\\\n", " ", step(number)).replace("\n    ", "\n\t").split("\n\t")[1:]


def commands_of(number: int) -> list[str]:
    return [line.partition("\n")[0] for line in lines_of(number) if COMMAND.match(line)]


def said_of(number: int) -> list[str]:
    """The lines of a timeline that the page shows, without times."""
    shown = [re.search(r"(?:message|reply \d)  .*", line) for line in lines_of(number)]
    return [it[0].partition("\n")[0] for it in shown if it]


@dataclass(frozen=True)
class Done:
    """One command of the page, carried out."""

    command: str
    code: int
    said: str


class Reader:
    """Somebody who reads the page, in a clone with a Pombo that answers by the menu."""

    def __init__(self, clone: Path, stack: Stack) -> None:
        self._clone = clone
        self._ports = {"8080": stack.described["webhook"], "8087": stack.described["control"]}

    def does(self, number: int) -> list[Done]:
        """Every command of a step."""
        return [self.run(command) for command in commands_of(number)]

    def run(self, command: str) -> Done:
        typed = command.replace("http://127.0.0.1:8087", self._ports["8087"])
        if "send.py" in typed:
            typed += f" --url {self._ports['8080']}/webhooks/whatsapp"
        environment = clean_environment(PYTHONPATH=str(ROOT))
        done = subprocess.run(
            ["bash", "-c", typed], cwd=self._clone, env=environment, capture_output=True, text=True, timeout=120
        )
        return Done(command, done.returncode, done.stdout)


def clone_at(folder: Path) -> Path:
    """What the page's commands name, with this virtual environment."""
    for name in ("examples", "handlers"):
        (folder / name).symlink_to(ROOT / name)
    programs = folder / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name, arguments in (("python", ""), ("pombo", " -m cli.main")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}"{arguments} "$@"\n')
        (programs / name).chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    clone = clone_at(tmp_path_factory.mktemp("clone"))
    with Stack(clone / ".pombo", settings={"HANDLER": "handlers.menu:handle"}) as stack:
        yield Reader(clone, stack)


def test_first_step_shows_the_output_of_make_try() -> None:
    (command,) = commands_of(1)
    assert command == "make try"
    count = len(list((ROOT / "examples" / "requests").glob("*.json")))
    assert f"• All {count} samples passed. Next: docs/try-it.md, from step 2 on." in step(1)


def test_a_customer_is_answered_and_the_ledger_shows_it(reader: Reader) -> None:
    start, say, tap, ledger = commands_of(2)
    assert start == "HANDLER=handlers.menu:handle make run"
    said = reader.run(say)
    assert said.code == 0
    assert [line for line in said_of(2) if line not in said.said] == []
    assert reader.run(tap).code == 0
    assert "[drinks]" in wait_until(lambda: reader.run(ledger).said, "the ledger is there")


def test_a_webhook_that_comes_twice_is_answered_once(reader: Reader) -> None:
    first, second = reader.does(3)
    assert (first.code, first.said) == (second.code, second.said)
    assert re.match(r"text\.json +200 ", first.said)
    (line,) = said_of(3)
    event = first.said.split()[2]
    wait_until(lambda: line in reader.run(f".venv/bin/pombo trace {event}").said, line)


def test_unsigned_webhook_is_refused_and_an_unknown_field_accepted(reader: Reader) -> None:
    unsigned, unknown = reader.does(4)
    assert re.match(r"text\.json +403 ", unsigned.said)
    assert unsigned.code == 1
    assert (unknown.code, unknown.said.split()) == (0, ["unknown_field.json", "200", "-"])


@pytest.mark.parametrize(("number", "code"), [(5, 1), (6, 0)])
def test_timeline_shows_what_became_of_a_failing_send(reader: Reader, number: int, code: int) -> None:
    fault, say = reader.does(number)
    assert (fault.code, say.code) == (0, code), say.said
    assert said_of(number)
    assert [line for line in said_of(number) if line not in say.said] == []


def test_a_service_that_is_killed_comes_back_and_so_does_the_reply(reader: Reader) -> None:
    kill, say, *_ = commands_of(7)
    assert reader.run(kill).code == 0
    assert reader.run(say).code == 0


def test_crash_right_after_the_send_is_recovered_within_seconds(tmp_path: Path) -> None:
    (start,) = [command for command in commands_of(7) if command.startswith("CRASH_AT")]
    *settings, make, run = shlex.split(start)
    assert (make, run) == ("make", "run")
    given: Mapping[str, str] = dict(setting.split("=", 1) for setting in settings)
    once = subprocess.run(
        [sys.executable, "-m", "cli.tour", "--once"],
        cwd=tmp_path,
        env=clean_environment(PYTHONPATH=os.pathsep.join([str(ROOT), str(tmp_path)]), **given),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert once.returncode == 0, once.stdout + once.stderr
    assert "internal died; Pombo restarted it" in once.stdout
    assert said_of(7)
    assert [line for line in said_of(7) if line not in once.stdout] == []


def test_doctor_passes_at_the_end(reader: Reader) -> None:
    (doctor,) = reader.does(10)
    assert doctor.code == 0, doctor.said
