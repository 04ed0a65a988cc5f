"""pombo say as a customer does more than write, and pombo ledger, on a running stack."""

import json
import os
import pty
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli.commands import pombo
from shared.domain.identity import message_event_id
from tests.support.dead_desk import Desk, tried
from tests.support.stack import ROOT, Stack, clean_environment, command

_YES_NO = [{"type": "reply", "reply": {"id": id, "title": title}} for id, title in {"y": "Yes", "n": "No"}.items()]
BUTTONS = {"type": "button", "body": {"text": "buttons"}, "action": {"buttons": _YES_NO}}
_ROWS = [{"id": id, "title": f"{id}:00"} for id in ("9", "10")]
LIST = {"type": "list", "body": {"text": "a list"}, "action": {"button": "Open", "sections": [{"rows": _ROWS}]}}


def run(stack: Stack, *arguments: str) -> Result:
    """A command, without the cost of a process."""
    return CliRunner(env={"STORE": None}).invoke(pombo, [*arguments, "--data-dir", str(stack.data_dir)])


def say(stack: Stack, contact: str, *arguments: str) -> Any:
    """What the customer's event holds: the item as WhatsApp's webhook had it."""
    result = run(stack, "say", *arguments, "--from", contact, "--json")
    assert result.exit_code == 0, result.output
    event = stack.store.get(json.loads(result.stdout)["inbound_event_id"])
    assert event is not None
    return event.payload["item"]


@pytest.fixture
def asked(stack: Stack, contact: str) -> str:
    """A customer who was sent buttons, and then a list."""
    for make in (BUTTONS, LIST):
        stack.wait_settled([stack.say(contact, f"!reply {json.dumps({'type': 'interactive', 'content': make})}")])
    assert len(stack.ledger(contact)) == 2
    return contact


def test_a_customer_taps_a_button_and_a_row(stack: Stack, asked: str) -> None:
    buttons, rows = stack.ledger(asked)
    item = say(stack, asked, "--tap", "n")
    assert item["interactive"] == {"type": "button_reply", "button_reply": {"id": "n", "title": "No"}}
    assert item["context"] == {"from": "15550001111", "id": buttons["wamid"]}
    item = say(stack, asked, "--tap", "10")
    assert item["interactive"] == {"type": "list_reply", "list_reply": {"id": "10", "title": "10:00"}}
    assert item["context"]["id"] == rows["wamid"]
    assert "they have: 9, 10, y, n." in run(stack, "say", "--tap", "maybe", "--from", asked).output


def test_a_customer_reacts_to_the_last_message(stack: Stack, asked: str) -> None:
    _, last = stack.ledger(asked)
    assert say(stack, asked, "--reaction", "👍")["reaction"] == {"message_id": last["wamid"], "emoji": "👍"}


def test_a_customer_sends_a_place_and_an_image_that_the_handler_reads(
    stack: Stack, contact: str, tmp_path: Path
) -> None:
    (tmp_path / "table.jpg").write_bytes(b"picture")
    for arguments, kind in (
        (["--location", "38.7,-9.1"], "location"),
        (["--image", str(tmp_path / "table.jpg")], "image"),
    ):
        assert say(stack, contact, *arguments)["type"] == kind
    stack.wait_until(lambda: len(stack.ledger(contact)) == 2, "both are answered")
    assert sorted(stack.texts(contact)) == ["location", "media"]


def test_customer_can_reply_to_a_message_by_any_of_its_ids(stack: Stack, contact: str) -> None:
    first = stack.say(contact, "!list 2")
    stack.wait_settled([first])
    one, two = (stack.reply(first, index) for index in range(2))
    event = stack.event(first)
    assert one is not None
    assert two is not None
    assert event is not None
    ids = {one.key[:8]: one, two.key: two, one.provider_id or "": one, event.correlation_id[:8]: two, event.key: two}
    for id, answered in ids.items():
        assert say(stack, contact, "yes", "--reply-to", id)["context"]["id"] == answered.provider_id


def test_reply_to_an_unknown_message_is_reported(stack: Stack, contact: str) -> None:
    unanswered = stack.say(contact, "!nothing")
    stack.wait_settled([unanswered])
    said = run(stack, "say", "yes", "--reply-to", stack.event_key(unanswered)).output
    assert "WhatsApp has not accepted this message or a reply to it" in said
    assert "No record has this id" in run(stack, "say", "yes", "--reply-to", "0" * 40).output
    assert say(stack, contact, "yes", "--reply-to", "wamid.of.nobodys")["context"]["id"] == "wamid.of.nobodys"


def test_message_to_another_number_has_its_own_timeline(stack: Stack, contact: str) -> None:
    result = run(stack, "say", "hello", "--from", contact, "--to", "123456123", "--wait", "--json")
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert said["inbound_event_id"] == message_event_id("meta", "123456123", said["message_id"])
    record = stack.store.get(said["inbound_event_id"])
    assert record is not None
    assert (record.state, record.reason, record.sender) == ("dropped", "unknown_sender", "123456123")


# ---- ledger


def test_the_ledger_shows_the_newest_first_with_what_can_be_tapped(stack: Stack, asked: str) -> None:
    heading, newest, before, foot = run(stack, "ledger", "--limit", "2").output.splitlines()
    assert heading.split() == ["ACCEPTED", "(UTC)", "TO", "TYPE", "KEY", "TEXT"]
    rows, buttons = (one for one in reversed(stack.ledger(asked)))
    at = rows["accepted_at"][:19].replace("T", " ")
    assert newest == f"{at}  +{asked}  interactive  {rows['key']}  a list [9] [10]"
    assert before.endswith(f"{buttons['key']}  buttons [y] [n]")
    assert foot == f"{len(stack.ledger())} messages. Showing the newest 2."
    assert f"{len(stack.ledger())} messages." not in run(stack, "ledger", "--limit", "10000").output


def test_the_ledger_as_json_is_the_simulators_newest_first(stack: Stack, asked: str) -> None:
    result = run(stack, "ledger", "--json", "--limit", "10000")
    assert json.loads(result.stdout) == stack.ledger()[::-1]
    assert json.loads(run(stack, "ledger", "--json", "--limit", "1").stdout) == [stack.ledger(asked)[-1]]


def test_ledger_shows_20_messages_by_default(stack: Stack, contact: str) -> None:
    stack.wait_settled([stack.say(contact, "!list 21")], 60)
    assert len(json.loads(run(stack, "ledger", "--json").stdout)) == 20


def test_lost_response_is_shown_in_the_ledger(stack: Stack, contact: str) -> None:
    stack.fault("send", "accept_then_drop", match={"to": contact})
    stack.wait_settled([stack.say(contact, "hello\x1b[31m")])
    assert "(response lost) hello\\x1b[31m" in run(stack, "ledger").output


def test_empty_ledger_is_reported(make_stack: Callable[..., Stack]) -> None:
    with make_stack() as fresh:
        assert run(fresh, "ledger").output == "WhatsApp has accepted no messages.\n"
        assert json.loads(run(fresh, "ledger", "--json").output) == []


def test_ledger_without_a_stack_reports_it(tmp_path: Path) -> None:
    result = CliRunner(env={"STORE": None}).invoke(pombo, ["ledger", "--data-dir", str(tmp_path)])
    assert result.exit_code == 1
    assert "No Pombo is running" in result.output


@pytest.mark.parametrize(("arguments", "whole"), [(("ledger",), 200), (("dead", "list"), 120)], ids=["ledger", "dead"])
def test_on_a_terminal_the_lines_of_a_table_fit_and_in_a_pipe_they_are_whole(
    stack: Stack, contact: str, arguments: tuple[str, ...], whole: int
) -> None:
    stack.wait_settled([stack.say(contact, "a long text " * 15)])
    Desk(stack).put(contact, attempts_log=tried("refused", 131026))
    *lines, foot = at_a_terminal(stack, *arguments, columns=80)
    assert max(map(len, lines)) <= 80
    assert any("…" in line for line in lines), foot
    assert max(map(len, run(stack, *arguments).output.splitlines())) > whole


def at_a_terminal(stack: Stack, *arguments: str, columns: int) -> list[str]:
    """The lines that a command shows on a terminal of this width."""
    ours, theirs = pty.openpty()
    subprocess.run(["stty", "cols", str(columns)], stdin=theirs, check=True)
    env = {name: value for name, value in clean_environment(PYTHONIOENCODING="utf-8").items() if name != "COLUMNS"}
    given = command(*arguments, "--data-dir", str(stack.data_dir))
    with subprocess.Popen(given, cwd=ROOT, env=env, stdin=theirs, stdout=theirs, stderr=theirs) as shown:
        os.close(theirs)
        said = b""
        try:
            while piece := os.read(ours, 65536):
                said += piece
        except OSError:
            pass  # so Linux tells the end of a terminal
        assert shown.wait(60) == 0
    os.close(ours)
    return said.decode().splitlines()


@pytest.mark.parametrize("arguments", [("say",), ("ledger",), ("trace",)], ids=" ".join)
def test_help_has_an_example_of_every_option_that_is_hard_to_guess(arguments: tuple[str, ...]) -> None:
    said = CliRunner().invoke(pombo, [*arguments, "--help"]).output
    examples = said.partition("Examples:")[2].partition("Options:")[0]
    wanted = {
        "say": ("--tap", "--reaction", "--image", "--location", "--reply-to", "--to", "--from", "--user-id", "--wait"),
        "ledger": ("--limit", "--json", "say --tap"),
        "trace": ("trace 4f1c2a90\n", "wamid.", "--cloud"),
    }
    assert [one for one in wanted[arguments[0]] if one not in examples] == []
