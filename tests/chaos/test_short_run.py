"""`pombo chaos` as a person runs it: a short run that proves something, and runs that it must not believe."""

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from cli.chaos.message_fate import BAD
from tests.support import forked, stack
from tests.support.stack import ROOT, clean_environment, need_server_of

TEAM = Path(__file__).with_name("team")
SHORT = ("--no-sweep", "--time-scale", "20")


def environment(**settings: str) -> dict[str, str]:
    """This process's own, with these settings of Pombo's and no others, and with the tests' handlers."""
    return clean_environment(PYTHONPATH=str(TEAM), **settings)


def command(data_dir: Path, *options: str) -> list[str]:
    return stack.command("chaos", "--data-dir", str(data_dir), *options)


def chaos(data_dir: Path, *options: str, **settings: str) -> tuple[int, dict[str, Any]]:
    """A run to its end: the exit code, and what it found."""
    words = ["--data-dir", str(data_dir), *SHORT, "--json", *options]
    ended = forked.run(["cli.main", "chaos", *words], environment(**settings), seconds=600)
    assert ended.stdout, ended.stderr
    return ended.returncode, json.loads(ended.stdout)


def none_of(counts: dict[str, int]) -> dict[str, int]:
    """The bad ones, which all have to be 0."""
    return {fate: counts[fate] for fate in BAD if counts[fate]}


@pytest.mark.timeout(600)  # a minute on a machine of its own
@pytest.mark.parametrize(("messages", "seconds"), [(100, 15), pytest.param(200, 25, marks=pytest.mark.slow)])
def test_nothing_is_lost_or_sent_twice_while_every_process_is_killed(
    tmp_path: Path, messages: int, seconds: int
) -> None:
    """Six attempts, for what raises at each of eight takes longer than all the rest."""
    options = ("--messages", str(messages), "--seconds", str(seconds), "--seed", "8")

    code, found = chaos(tmp_path / "data", *options, MAX_ATTEMPTS="6")

    assert (code, found["findings"], found["strays"]) == (0, [], []), json.dumps(found, indent=1)
    assert found["Run"]["messages sent to the business"] == f"{messages} of {messages}"
    received, replies = found["Messages received"], found["Replies"]
    assert (none_of(received), none_of(replies)) == ({}, {})
    assert sum(received.values()) == messages
    assert received["dead as planned"] > 0
    assert replies["delivered once"] > 1.5 * messages
    by_api = found["Messages sent through the API"]
    assert (none_of(by_api), sum(by_api.values())) == ({}, messages / 5)
    assert by_api["delivered once"] > messages / 10
    assert all(need["found"] >= need["least"] > 0 for need in found["needs"])


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("store", ["redis", "firestore"])
def test_killed_frozen_and_cut_off_store_loses_nothing(tmp_path: Path, store: str) -> None:
    need_server_of(store)

    code, found = chaos(tmp_path / "data", "--messages", "300", "--seconds", "40", "--seed", "3", "--store", store)

    assert code == 0, json.dumps(found, indent=1)
    done = found["What was done to it"]
    assert all(done[f"{what} the store"] > 0 for what in ("standstills of", "cut-offs of", "silences of"))
    assert done["answers of the store swallowed"] > 0
    assert ("kills of the store" in done) is (store == "redis"), "the Firestore emulator keeps its data in memory"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("policy", ["resend", "hold"])
def test_messages_without_receipts_are_doubled_only_by_the_resend_policy(tmp_path: Path, policy: str) -> None:
    options = ("--messages", "300", "--seconds", "40", "--seed", "3", "--withhold-receipts", "--policy", policy)

    code, found = chaos(tmp_path / "data", *options)

    assert code == 0, json.dumps(found, indent=1)
    replies = found["Replies"]
    assert (replies["doubled by policy, told"] > 0) is (policy == "resend")
    if policy == "hold":
        by_api = found["Messages sent through the API"].get("dead letter, told", 0)
        assert found["Dead letters, told"]["outbound: in_doubt"] == replies["dead letter, told"] + by_api > 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_dead_letters_caused_by_faults_are_replayed_and_delivered(tmp_path: Path) -> None:
    """With a single attempt each, every kill and every refusal is one."""
    options = ("--messages", "200", "--seconds", "25", "--seed", "8")

    code, found = chaos(tmp_path / "data", *options, MAX_ATTEMPTS="1")

    assert code == 0, json.dumps(found, indent=1)
    assert found["What that met"]["dead letters replayed"] > 0
    assert found["Replies"]["delivered once"] > 300


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_disobedient_handler_is_found(tmp_path: Path) -> None:
    code, found = chaos(
        tmp_path / "data", "--messages", "30", "--seconds", "5", "--seed", "9", "--handler", "disobedient:handle"
    )

    assert code == 1
    assert found["Replies"]["wrong content"] > 0
    assert found["Messages received"]["wrong content"] > 0
    assert found["findings"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_shortest_usual_run_proves_something(tmp_path: Path) -> None:
    code, found = chaos(tmp_path / "data", "--messages", "30", "--seed", "8")

    assert code == 0, json.dumps(found, indent=1)
    assert all(need["found"] >= need["least"] > 0 for need in found["needs"])


def test_too_quiet_a_run_proves_nothing(tmp_path: Path) -> None:
    code, found = chaos(tmp_path / "data", "--messages", "1", "--seconds", "5", "--seed", "8")

    assert code == 2
    assert found["conclusion"].startswith("Nothing proven")
    assert found["Messages received"]["handled once"] == 1


def test_ctrl_c_ends_it_cleanly_with_the_table_so_far(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    run = subprocess.Popen(
        command(data_dir, *SHORT, "--messages", "100", "--seconds", "600"),
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not (data_dir / "stack.json").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    run.send_signal(signal.SIGINT)
    said, errors = run.communicate(timeout=60)

    assert (run.returncode, errors) == (130, "")
    assert "messages sent to the business" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--messages", "0"), "messages"),
        (("--store", "mysql"), "store"),
        (("--seconds", "1"), "seconds"),
        (("--seconds", "nan"), "seconds"),
        (("--time-scale", "nan"), "time-scale"),
    ],
)
def test_a_wrong_call_is_refused_in_a_sentence(options: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    ended = stack.cli("chaos", "--data-dir", str(tmp_path / "data"), *options)

    assert ended.returncode == 2
    assert sentence in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_directory_that_cannot_be_created_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ended = stack.cli("chaos", "--data-dir", str(tmp_path / "file" / "data"))

    assert ended.returncode == 1
    assert ended.stderr.startswith("pombo: Cannot write to ")
    assert len(ended.stderr.splitlines()) == 1


def test_existing_directory_is_refused(tmp_path: Path) -> None:
    ended = stack.cli("chaos", "--data-dir", str(tmp_path))

    assert ended.returncode == 1
    assert "Name a new directory" in ended.stderr
