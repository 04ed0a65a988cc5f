"""What a stack has left can be read when none runs: trace, dead and doctor look at the SQLite file."""

import json
import os
import pty
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen

import pytest
from click.testing import CliRunner, Result

from cli.commands import pombo
from cli.doctor.command import NO_STACK
from cli.ids import NOTHING_KNOWN
from cli.running import describe, find
from shared.domain.record import Delivery
from tests.support.dead_desk import Desk, tried
from tests.support.stack import ROOT, TASK_TOKEN, Stack, clean_environment, command, fails


@dataclass(frozen=True)
class Left:
    """A data directory whose stack has ended."""

    stack: Stack
    message_id: str
    letter: Delivery
    contact: str

    def run(self, *arguments: str, **environment: str) -> Result:
        env = {"STORE": None, "SQLITE_PATH": None, **environment}
        return CliRunner(env=env).invoke(pombo, [*arguments, "--data-dir", str(self.stack.data_dir)])


@pytest.fixture(scope="module")
def left(make_stack: Callable[..., Stack]) -> Iterator[Left]:
    contact = "15559990001"
    with make_stack() as stack:
        message_id = stack.say(contact, "hello")
        stack.wait_settled([message_id])
        stack.wait_until(lambda: "receipt_read" in stack.what(message_id), "it was read")
        letter = Desk(stack).put(contact, attempts_log=tried("refused", 131026))
        key = stack.event_key(message_id)
        stack.wait_logs("outbound_enqueued", inbound_event_id=key)
        stack.stop()
        yield Left(stack, key, letter, contact)


def test_trace_reads_the_file_and_the_log(left: Left) -> None:
    result = left.run("trace", left.message_id, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    events = json.loads(result.stdout)["events"]
    assert [one["what"] for one in events][-1] == "receipt_read"
    assert "(enqueued 1)" in " ".join(one["sentence"] for one in events), "which the log alone knows"


@pytest.mark.parametrize("command", [["trace"], ["dead", "show"]], ids=" ".join)
def test_unknown_id_is_refused_with_the_ids_there_are(left: Left, command: list[str]) -> None:
    result = left.run(*command, "f" * 40)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.endswith(f": {NOTHING_KNOWN}\n")


def test_dead_letters_are_listed_and_shown(left: Left) -> None:
    listed = json.loads(left.run("dead", "list", "--json").stdout)
    assert left.letter.key in {one["key"] for one in listed["letters"]}
    shown = json.loads(left.run("dead", "show", left.letter.key[:8], "--json").stdout)
    assert [one["key"] for one in shown["letters"]] == [left.letter.key]


def test_a_replay_is_refused_before_anything_is_written(left: Left) -> None:
    dry = left.run("dead", "replay", left.letter.key, "--dry-run", INTERNAL_TASK_TOKEN=TASK_TOKEN)
    assert dry.exit_code == 0, dry.output
    line = fails(left.stack.cli("dead", "replay", left.letter.key))
    assert line.startswith("pombo: Nothing was replayed: no Pombo is running here to retry it. Start one with ")
    assert line.endswith(f"pombo up --data-dir {left.stack.data_dir}.")
    assert find(left.stack.data_dir).store.get(left.letter.key) == left.letter


def test_dead_letter_can_be_discarded(left: Left) -> None:
    result = left.run("dead", "discard", left.letter.key[:8], "--reason", "a wrong number", "--json")
    assert (result.exit_code, json.loads(result.stdout)["discarded"]) == (0, 1)
    record = find(left.stack.data_dir).store.get(left.letter.key)
    assert record is not None
    assert record.state == "dropped"
    assert left.stack.logs("discarded", delivery=left.letter.key)


def test_doctor_checks_the_store_and_names_what_it_cannot_check(left: Left) -> None:
    result = left.run("doctor", "--json")
    assert result.exit_code == 1
    found = {one["check"]: one for one in json.loads(result.stdout)}
    assert found["store"]["ok"]
    assert found["clock"]["ok"]
    assert [found[name]["sentence"] for name in ("task", "token", "drain")] == [NO_STACK] * 3
    assert [found[name]["ok"] for name in ("task", "token")] == [False, False]


@pytest.mark.parametrize("arguments", [("say", "hello"), ("ledger",)], ids=" ".join)
def test_command_that_needs_the_simulator_explains_how_to_start_one(left: Left, arguments: tuple[str, ...]) -> None:
    assert f"pombo up --data-dir {left.stack.data_dir}" in fails(left.stack.cli(*arguments))


def test_sqlite_path_selects_the_file(left: Left, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STORE", raising=False)
    monkeypatch.setenv("SQLITE_PATH", str(left.stack.data_dir / "pombo.sqlite"))
    found = describe(tmp_path)
    assert found.environ["SQLITE_PATH"] == str(left.stack.data_dir / "pombo.sqlite")
    assert (found.runs, found.is_local) == (False, True)


def test_store_in_the_environment_goes_before_the_file(left: Left, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORE", "redis")
    monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:9")
    found = describe(left.stack.data_dir)
    assert (found.environ["STORE"], found.runs, found.is_local) == ("redis", True, False)


def test_file_that_is_not_a_database_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "pombo.sqlite").write_bytes(b"this is no database, and never was one\n" * 200)
    result = CliRunner(env={"STORE": None}).invoke(pombo, ["trace", "x", "--data-dir", str(tmp_path)])
    assert result.exit_code == 1
    assert "damaged or not a database" in result.output


def test_a_look_makes_no_file(tmp_path: Path) -> None:
    result = CliRunner(env={"STORE": None}).invoke(pombo, ["trace", "x", "--data-dir", str(tmp_path)])
    assert "No Pombo is running" in result.output
    assert list(tmp_path.iterdir()) == []


def test_trace_without_a_stack_announces_it_on_a_terminal(left: Left) -> None:
    ours, theirs = pty.openpty()
    arguments = command("trace", left.message_id, "--data-dir", str(left.stack.data_dir))
    with Popen(arguments, cwd=ROOT, env=clean_environment(), stdout=theirs, stderr=theirs) as trace:
        os.close(theirs)
        said = b""
        try:
            while piece := os.read(ours, 65536):
                said += piece
        except OSError:
            pass
        assert trace.wait(60) == 0
    os.close(ours)
    assert said.startswith(b"No Pombo is running with its data in ")
