"""Ids by their first characters, on a running stack: every command that takes an id takes 8 of its characters."""

import json
import uuid
from collections.abc import Sequence

import pytest
from click.testing import CliRunner, Result

from cli.commands import pombo
from tests.support.dead_desk import Desk, tried
from tests.support.payloads import envelope, text, value, wire
from tests.support.stack import TASK_TOKEN, Stack, clean_environment, cli, fails

STRANGER = "123456123"
TEST_BUTTON = "ABGGFlA5Fpa"
"""The message id that Meta's Test button sends, for a number that is nobody's."""


@pytest.fixture(scope="module")
def desk(stack: Stack) -> Desk:
    return Desk(stack)


def run(stack: Stack, *arguments: str) -> Result:
    """A command, without the cost of a process."""
    return CliRunner(env={"STORE": None}).invoke(pombo, [*arguments, "--data-dir", str(stack.data_dir)])


def test_trace_takes_the_first_characters_of_every_id_on_the_screen(stack: Stack, contact: str) -> None:
    message_id = stack.say(contact, "hello")
    stack.wait_settled([message_id])
    event, reply = stack.event(message_id), stack.reply(message_id)
    assert event is not None
    assert reply is not None

    for id in (event.correlation_id, event.key, reply.key):
        for given in (id[:8], id[:20], f"{id[:12]}…", f"{id[:12]}..."):
            result = run(stack, "trace", given, "--json")
            assert result.exit_code == 0, result.output
            assert json.loads(result.stdout)["correlation_id"] == event.correlation_id


def test_fewer_than_eight_characters_report_the_minimum(stack: Stack, contact: str) -> None:
    message_id = stack.say(contact, "hello")
    stack.wait_settled([message_id])
    line = fails(stack.cli("trace", stack.event_key(message_id)[:7]))
    assert line.startswith("pombo: No record has this id: give 8 or more characters of a correlation id, event")
    assert line.endswith("or a whole WhatsApp message id.")


def test_every_dead_letter_command_accepts_the_first_characters_of_a_key(desk: Desk, contact: str) -> None:
    letter = desk.put(contact, attempts_log=tried("refused", 131026))
    shown = json.loads(desk.look("show", letter.key[:8], "--json"))
    assert [one["key"] for one in shown["letters"]] == [letter.key]
    assert "would be" in desk.run("discard", letter.key[:8], "--reason", "no", "--dry-run").stdout
    assert desk.json("replay", letter.key[:8])["replayed"] == 1
    desk.wait_done(letter)
    other = desk.put(contact, attempts_log=tried("refused", 131026))
    assert desk.json("discard", other.correlation_id[:8], "--reason", "wrong")["discarded"] == 1
    assert desk.get(other).state == "dropped"


def test_the_whole_message_id_of_a_reply_names_that_reply_alone(desk: Desk, contact: str) -> None:
    message_id = desk.stack.say(contact, "!list 2")
    desk.stack.wait_settled([message_id])
    second = desk.stack.reply(message_id, 1)
    assert second is not None
    shown = json.loads(desk.look("show", second.provider_id or "", "--json"))
    assert [one["key"] for one in shown["letters"]] == [second.key]


def ambiguous(desk: Desk, contact: str, number: int) -> str:
    """The beginning that so many correlation ids have in common."""
    prefix = uuid.uuid4().hex[:8]
    for n in range(number):
        desk.put(contact, correlation_id=f"{prefix}-{n:02}", attempts_log=tried("refused", 131026))
    return prefix


@pytest.mark.parametrize(
    "arguments",
    [
        ("trace",),
        ("dead", "show"),
        ("dead", "replay"),
        ("dead", "discard", "--reason", "x"),
        ("say", "x", "--reply-to"),
    ],
    ids=" ".join,
)
def test_ambiguous_id_lists_its_matches_with_exit_code_1(desk: Desk, contact: str, arguments: Sequence[str]) -> None:
    prefix = ambiguous(desk, contact, 2)
    where = ("--data-dir", str(desk.stack.data_dir))
    result = cli(*arguments, prefix, *where, env=clean_environment(INTERNAL_TASK_TOKEN=TASK_TOKEN))
    assert (result.returncode, result.stdout) == (1, "")
    *shown, last = result.stderr.splitlines()
    assert shown[0].split() == ["ID", "KIND", "SINCE", "(UTC)"]
    assert [line.split()[:3] for line in shown[1:]] == [[f"{prefix}-0{n}", "correlation", "id"] for n in range(2)]
    assert last == "pombo: 2 ids start with this; give more characters."
    assert contact not in result.stderr


def test_ten_of_many_matches_are_shown_with_a_note(desk: Desk, contact: str) -> None:
    result = desk.stack.cli("trace", ambiguous(desk, contact, 11))
    assert len(result.stderr.splitlines()) == 1 + 10 + 1
    assert result.stderr.splitlines()[-1] == "pombo: More than 10 ids start with this; give more characters."


def test_trace_finds_a_message_dropped_for_an_unknown_sender(stack: Stack, contact: str) -> None:
    body = wire(envelope(value([text(contact, TEST_BUTTON, "this is a text message")], sender=STRANGER)))
    assert stack.post(body).status_code == 200

    result = run(stack, "trace", TEST_BUTTON, "--json")

    timeline = json.loads(result.stdout)
    assert timeline["shown"] == "ignored"
    assert timeline["events"][-1]["sentence"].startswith("Dropped: no tenant owns this phone number ID.")
    shown = json.loads(run(stack, "dead", "show", TEST_BUTTON, "--json").stdout)
    assert [one["error"] for one in shown["letters"]] == ["unknown_sender"]


def test_event_known_only_from_the_log_is_found_by_its_first_characters(stack: Stack, contact: str, tmp_path) -> None:
    message_id = stack.say(contact, "hello")
    stack.wait_settled([message_id])
    event = stack.event(message_id)
    assert event is not None
    stack.wait_logs("inbound_processing_finished", inbound_event_id=event.key)
    environment = {"STORE": "sqlite", "SQLITE_PATH": str(tmp_path / "empty.sqlite")}
    for given in (event.correlation_id[:8], event.key[:8]):
        result = CliRunner(env=environment).invoke(pombo, ["trace", given, "--data-dir", str(stack.data_dir)])
        assert result.exit_code == 0, result.output
        assert "Its record was deleted" in result.output
        assert event.correlation_id in result.output


def test_an_ambiguous_id_in_the_log_is_shown_with_its_times(tmp_path) -> None:
    lines = [
        {"time": f"2026-11-28T10:15:0{n}Z", "event": "inbound_new", "correlation_id": f"4f1c2a90-{n}"} for n in range(2)
    ]
    (tmp_path / "logs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = cli(
        "trace", "4f1c2a90", "--data-dir", str(tmp_path),
        env={"STORE": "sqlite", "SQLITE_PATH": str(tmp_path / "empty.sqlite"), "PATH": ""},
    )  # fmt: skip
    assert result.returncode == 1
    assert result.stderr.splitlines()[1].split() == ["4f1c2a90-0", "in", "the", "log", "2026-11-28", "10:15:00"]
    assert result.stderr.splitlines()[-1] == "pombo: 2 ids start with this; give more characters."
