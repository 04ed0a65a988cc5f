"""The team's code, in every way it may answer or fail, and what the timeline says of it."""

import json
import re
from collections.abc import Callable

import pytest

from tests.support.dead_desk import Desk
from tests.support.stack import Stack, fails

ANSWERS: dict[str, list[str]] = {
    "!nothing": [],
    "!str plain": ["plain"],
    "!list 0": [],
    "!list 3": ["1", "2", "3"],
    "!mixed": ["made", "plain"],
    "!generator 3": ["1", "2", "3"],
    "!async awaited": ["awaited"],
    "!asyncgenerator 3": ["1", "2", "3"],
    "!list 30": [str(number) for number in range(1, 31)],
    "!long 4096": ["x" * 4096],
    "!raise 1": ["after 1"],
    "!hang 9": ["after 1"],
}

FAILURES: dict[str, str] = {
    "!raise always": "RuntimeError: the team's code is broken",
    "!exit": "SystemExit: 1",
    "!unknown": "KeyError: '_unknown'",
    "!list 31": "ValueError: A handler may give 30 replies; this one gave more.",
    "!generator 31": "ValueError: A handler may give 30 replies; this one gave more.",
    "!asyncgenerator 31": "ValueError: A handler may give 30 replies; this one gave more.",
    "!int": "TypeError: A handler gives None, str, OutboundMessage or several of them, not int.",
    "!bytes": "TypeError: A handler gives None, str, OutboundMessage or several of them, not bytes.",
    "!dict": "TypeError: A handler gives None, str, OutboundMessage or several of them, not dict.",
    "!empty": "ValueError: The text of a message is empty.",
    "!long 5000": "ValueError: The text of a message has 5000 characters; WhatsApp takes 4096.",
    "!surrogate": "ValueError: The message has a lone surrogate (half a character).",
    "!half": "RuntimeError: half way",
}

PLACE = r"(tests/support/team/scripted\.py|scripted):\d+"

Told = dict[str, tuple[str, str]]


@pytest.fixture(scope="module")
def told(stack: Stack) -> Told:
    """Everything that is to be asked of the handler, asked at once: text to contact and message id."""
    texts = [*ANSWERS, *FAILURES, "!drop not for us"]
    people = {words: f"155520{number:05}" for number, words in enumerate(texts)}
    return {words: (contact, stack.say(contact, words)) for words, contact in people.items()}


@pytest.mark.parametrize("words", ANSWERS)
def test_every_shape_of_answer_is_sent_in_order(stack: Stack, told: Told, words: str) -> None:
    contact, message_id = told[words]

    stack.wait_settled([message_id], 60)

    assert stack.texts(contact) == ANSWERS[words]
    timeline = stack.timeline(message_id)
    assert timeline["shown"] == "processed"
    assert [reply["text"] for reply in timeline["replies"]] == ANSWERS[words]
    assert {reply["shown"] for reply in timeline["replies"]} <= {"sent"}
    again = words in ("!raise 1", "!hang 9")
    assert stack.calls(message_id) == 1 + again
    assert stack.what(message_id).count("handler_failed") == again


@pytest.mark.parametrize("words", FAILURES)
def test_failing_handler_is_retried_and_then_the_message_is_dead(stack: Stack, told: Told, words: str) -> None:
    contact, message_id = told[words]

    stack.wait_settled([message_id], 60)

    assert stack.calls(message_id) == 3
    assert stack.texts(contact) == []
    timeline = stack.timeline(message_id)
    assert timeline["shown"] == "failed"
    assert timeline["replies"] == []
    said = [moment for moment in timeline["events"] if moment["what"] in ("handler_failed", "dead")]
    assert [moment["what"] for moment in said] == ["handler_failed"] * 3 + ["dead"]
    assert all(FAILURES[words] in failed["sentence"] for failed in said[:3])
    assert said[3]["sentence"].startswith("The handler failed on the last attempt.")
    event = stack.event(message_id)
    assert event is not None
    assert (event.state, event.reason, event.attempt) == ("dead", "error", 3)
    stack.wait_logs("dead_lettered", delivery=event.key, severity="ERROR", reason="error")


def test_handler_drop_is_shown_with_its_reason(stack: Stack, told: Told) -> None:
    contact, message_id = told["!drop not for us"]

    stack.wait_settled([message_id])

    assert stack.calls(message_id) == 1
    assert stack.texts(contact) == []
    timeline = stack.timeline(message_id)
    assert timeline["shown"] == "ignored"
    assert timeline["events"][-1]["sentence"] == "The handler dropped it: not for us."


def test_hanging_handler_times_out_with_a_sentence(stack: Stack, told: Told) -> None:
    _, message_id = told["!hang 9"]
    stack.wait_settled([message_id])

    failed = [m["sentence"] for m in stack.timeline(message_id)["events"] if m["what"] == "handler_failed"]

    (sentence,) = failed
    line = r"tests/support/team/scripted\.py:\d+ in _hang"
    assert re.fullmatch(rf"The handler failed at {line}: The handler took longer than 3 s\. \(attempt 1\)", sentence)
    assert stack.get("internal", "/livez").status_code == 200


def test_the_command_line_prints_the_same_timeline(stack: Stack, told: Told) -> None:
    for words in ("!raise 1", "!raise always", "!drop not for us"):
        _, message_id = told[words]
        stack.wait_settled([message_id])
        result = stack.cli("trace", message_id, "--json")
        assert (result.returncode, result.stderr) == (0, "")
        assert json.loads(result.stdout) == stack.timeline(message_id)


def test_a_failing_handler_holds_back_no_other_message(stack: Stack, contacts: Callable[[], str]) -> None:
    failing, fine = contacts(), contacts()
    bad = [stack.say(failing, "!raise always") for _ in range(10)]
    good = [stack.say(fine, "hello") for _ in range(5)]

    stack.wait_settled(good)
    assert stack.texts(fine) == ["hello"] * 5
    stack.wait_settled(bad)


def test_replies_that_cannot_be_sent_keep_no_other_from_being_sent(stack: Stack, contact: str) -> None:
    message_id = stack.say(contact, "!wrong")

    stack.wait_settled([message_id])

    assert stack.texts(contact) == ["1", "4"]
    assert stack.calls(message_id) == 1
    timeline = stack.timeline(message_id)
    assert timeline["shown"] == "processed"
    assert [reply["shown"] for reply in timeline["replies"]] == ["sent", "failed", "failed", "sent"]
    for index, sentence in (
        (1, "The text of a message has 6000 characters; WhatsApp takes 4096."),
        (2, "A reply is a str or an OutboundMessage, not int."),
    ):
        reply = stack.reply(message_id, index)
        assert reply is not None
        assert (reply.state, reply.reason, reply.attempt, reply.last_error) == ("dead", "invalid", 0, sentence)
        told = [moment["sentence"] for moment in timeline["events"] if moment["delivery"] == reply.key]
        assert told[-1].startswith(f"Cannot be sent: {sentence}")
        assert stack.wait_logs("dead_lettered", delivery=reply.key, severity="ERROR", reason="invalid")
    (finished,) = stack.logs("inbound_processing_finished", inbound_event_id=stack.event_key(message_id))
    assert (finished["outbound_planned"], finished["outbound_invalid"]) == (4, 2)


def test_unsendable_reply_is_listed_shown_not_replayed_and_discarded(stack: Stack, contact: str) -> None:
    desk = Desk(stack)
    message_id = stack.say(contact, "!wrong")
    stack.wait_settled([message_id])
    letter = stack.reply(message_id, 2)
    assert letter is not None
    sentence = "The message is invalid and cannot be sent: A reply is a str or an OutboundMessage, not int."

    (listed,) = [one for one in desk.listed("--error", "invalid")["letters"] if one["key"] == letter.key]
    assert (listed["error"], listed["kind"], listed["replay"], listed["tries"]) == ("invalid", "outbound", "never", 0)
    assert f"A replay is refused. {sentence}" in desk.look("show", letter.key)
    assert fails(desk.run("replay", letter.key)) == f"pombo: {sentence} It is dead."
    assert desk.json("replay", "--error", "invalid", "--dry-run")["replayed"] == 0
    said = desk.json("replay", "--error", "invalid", "--yes")
    assert said["replayed"] == 0
    assert sentence in [one["why"] for one in said["skipped"]]
    assert desk.get(letter).round == 0

    assert desk.run("discard", letter.key, "--reason", "seen").returncode == 0
    assert (desk.get(letter).state, desk.get(letter).reason) == ("dropped", "discarded")
    assert stack.texts(contact) == ["1", "4"]


# ---- order


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "error", "code": 131016, "times": 2},
        {"kind": "error", "code": 130429, "times": 2},
        {"kind": "error", "code": 131056, "times": 2},
        {"kind": "error", "code": 2494100, "times": 1},
        {"kind": "refuse", "times": 2},
        {"kind": "accept_then_drop", "times": 1},
        {"kind": "slow", "seconds": 1.0, "times": 1},
        {"kind": "error", "code": 131026, "times": 1},
    ],
    ids=lambda fault: f"{fault['kind']} {fault.get('code', '')}".strip(),
)
def test_replies_leave_in_order_although_the_first_is_delayed(stack: Stack, contact: str, fault: dict) -> None:
    stack.fault("send", **fault, match={"to": contact})

    message_id = stack.say(contact, "!list 4")

    stack.wait_settled([message_id])
    lost = fault.get("code") == 131026
    assert stack.texts(contact) == ["1", "2", "3", "4"][lost:]
    assert [reply["shown"] for reply in stack.timeline(message_id)["replies"]][lost:] == ["sent"] * (4 - lost)


def test_reply_that_waits_for_the_one_before_it_spends_no_attempt(stack: Stack, contact: str) -> None:
    stack.fault("send", "error", code=80007, match={"to": contact})

    message_id = stack.say(contact, "!list 2")

    stack.wait_until(lambda: "waiting" in stack.what(message_id), "the second reply waits")
    second = stack.reply(message_id, 1)
    assert second is not None
    assert (second.state, second.attempt, second.generation) == ("pending", 0, 0)
    stack.wait_settled([message_id])
    assert stack.texts(contact) == ["1", "2"]
    sentences = [m["sentence"] for m in stack.timeline(message_id)["events"] if m["delivery"] == second.key]
    assert any("the message before it" in sentence for sentence in sentences)
    waits = stack.logs("outbound_waiting", delivery=second.key)
    assert [wait["hop"] for wait in waits] == sorted({wait["hop"] for wait in waits})


def test_an_exception_is_seen_at_once_by_its_line_and_whole_on_standard_error(stack: Stack, contact: str) -> None:
    message_id = stack.say(contact, "!raise 1")
    stack.wait_texts(contact, ["after 1"])
    key = stack.event_key(message_id)

    (line,) = stack.logs("inbound_rescheduled", inbound_event_id=key)
    assert (line["error_type"], line["function"]) == ("RuntimeError", "_raise")
    assert re.fullmatch(PLACE, line["place"])
    assert "broken" not in str(line)
    errors = (stack.data_dir / "internal.stderr.log").read_text()
    _, _, whole = errors.partition(
        f"The handler failed (event {key}, correlation id {line['correlation_id']}, attempt 1)."
    )
    assert whole.startswith("\nTraceback (most recent call last):")
    assert "RuntimeError: the team's code is broken" in whole
    told = [moment["sentence"] for moment in stack.timeline(message_id)["events"] if moment["what"] == "handler_failed"]
    where = f"at {line['place']} in _raise"
    assert told == [f"The handler failed {where}: RuntimeError: the team's code is broken. (attempt 1)"]


@pytest.mark.parametrize("as_json", [True, False], ids=["json", "text"])
def test_say_reports_a_failed_attempt_at_once_with_the_time_of_the_next(
    stack: Stack, contact: str, as_json: bool
) -> None:
    said = stack.cli("say", "!raise 1", "--from", contact, "--wait", *(["--json"] if as_json else []))
    assert said.returncode == 0
    (line,) = said.stderr.splitlines()
    failed = rf"message  The handler failed at {PLACE} in _raise: RuntimeError: the team's code is broken"
    assert re.fullmatch(rf"[\d:]{{8}}  {failed}\. Next attempt at [\d:]{{8}} UTC\. \(attempt 1\)", line)
    assert not as_json or json.loads(said.stdout)["replies"][0]["text"] == "after 1"


def test_output_of_a_handler_is_not_in_the_log(stack: Stack, contact: str) -> None:
    """It goes to standard error: standard output holds one JSON object a line."""
    stack.say(contact, "!print")
    stack.wait_texts(contact, ["spoken"])
    assert "a handler speaks" in (stack.data_dir / "internal.stderr.log").read_text()
    assert "a handler speaks" not in (stack.data_dir / "logs.jsonl").read_text()


def test_all_standard_output_of_a_handler_goes_to_standard_error(stack: Stack, contact: str) -> None:
    """By the descriptor, by a program that it starts, and while its module is imported."""
    stack.say(contact, "!shout 3 pigeons")
    stack.wait_texts(contact, ["shouted"])
    errors = (stack.data_dir / "internal.stderr.log").read_text()
    for words in ("a handler is imported", "by descriptor 3 pigeons", "by stdout 3 pigeons", "by program 3 pigeons"):
        assert words in errors
    logs = (stack.data_dir / "logs.jsonl").read_text()
    assert "pigeons" not in logs
    assert "imported" not in logs
