"""pombo dead on a running stack: what is listed, shown, replayed and discarded, and what nobody gets to see."""

import io
import json
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from cli.commands import pombo, run
from shared.domain.record import Attempt, Delivery, State
from tests.support.dead_desk import PRIVATE, Desk, ago, failed, said_of, tried
from tests.support.parts import free_port
from tests.support.payloads import text
from tests.support.stack import SENDER, Stack, fails, wait_until

Contacts = Callable[[], str]


@pytest.fixture(scope="module")
def desk(make_stack: Callable[..., Stack]) -> Iterator[Desk]:
    with make_stack() as stack:
        yield Desk(stack)


def keys(found: Any) -> set[str]:
    return {letter["key"] for letter in found["letters"]}


def refused_after_all(desk: Desk, contact: str, code: int = 131049) -> tuple[str, Delivery]:
    """A message that WhatsApp took, and then could not deliver."""
    desk.stack.fault("receipt", "error", code=code, match={"to": contact})
    message_id = desk.stack.say(contact, "hello")
    desk.stack.wait_until(
        lambda: (reply := desk.stack.reply(message_id)) and reply.final and reply.current_receipts.failed,
        "it was refused",
    )
    reply = desk.stack.reply(message_id)
    assert reply is not None
    assert reply.state is State.DONE
    return message_id, reply


# ---- list


@pytest.fixture(scope="module")
def shelf(desk: Desk) -> dict[str, Delivery]:
    """One letter of each sort, of a tenant of their own."""
    who = "15550100001"
    mine = {"tenant": "shelf"}
    records = {
        "refused for good": desk.put(who, attempts_log=tried("refused", 131026), **mine),
        "another code": desk.put(who, attempts_log=tried("refused", 131047), **mine),
        "all tries": desk.put(who, reason="attempts", attempt=8, attempts_log=tried("retry", 131016), **mine),
        "in doubt": desk.put(who, reason="in_doubt", doubts=2, **mine),
        "too old": desk.put(who, reason="waited", finished_at=ago(days=3), **mine),
        "window": desk.put(who, reason="window", finished_at=ago(hours=5), **mine),
        "the handler": desk.put_event(who, **mine),
        "unreadable": desk.put_event(who, {"field": "messages", "unparsable": {"id": 5}}, reason="unparsable", **mine),
        "refused later": desk.put(who, state=State.DONE, reason=None, provider_id="wamid.shelf", **mine),
        "done": desk.put(who, state=State.DONE, reason=None, **mine),
        "of a stranger": desk.put_event(who, state=State.DROPPED, reason="unknown_sender", tenant=""),
        "spam": desk.put_event(who, state=State.DROPPED, reason="spam", **mine),
    }
    desk.receive(failed(records["refused later"]))
    return records


OLD = {"too old", "window"}
EVENTS = {"the handler", "unreadable"}
MESSAGES = {"refused for good", "another code", "all tries", "in doubt", "refused later", *OLD}
FILTERS: dict[str, tuple[list[str], set[str]]] = {
    "none": ([], MESSAGES | EVENTS),
    "events": (["--kind", "inbound"], EVENTS),
    "messages": (["--kind", "outbound"], MESSAGES),
    "since some hours": (["--since", "4h"], (MESSAGES | EVENTS) - OLD),
    "until some hours ago": (["--until", "4h"], OLD),
    "between two times": (
        ["--since", f"{ago(days=2):%Y-%m-%dT%H:%M:%S}", "--until", f"{ago(hours=1):%Y-%m-%dT%H:%MZ}"],
        {"window"},
    ),
    "permanent": (["--error", "permanent"], {"refused for good", "another code"}),
    "attempts": (["--error", "attempts"], {"all tries"}),
    "in_doubt": (["--error", "in_doubt"], {"in doubt"}),
    "waited": (["--error", "waited"], {"too old"}),
    "window": (["--error", "window"], {"window"}),
    "error": (["--error", "error"], {"the handler"}),
    "unparsable": (["--error", "unparsable"], {"unreadable"}),
    "refused": (["--error", "refused"], {"refused later"}),
    "a code": (["--error", "131026"], {"refused for good"}),
    "a code of a receipt": (["--error", "131049"], {"refused later"}),
    "any of two": (["--error", "131026", "--error", "in_doubt"], {"refused for good", "in doubt"}),
    "two that fit nothing together": (["--error", "error", "--kind", "outbound"], set()),
}


@pytest.mark.parametrize("name", FILTERS)
def test_list_contains_what_its_filter_matches(desk: Desk, shelf: dict[str, Delivery], name: str) -> None:
    arguments, expected = FILTERS[name]
    found = desk.listed("--tenant", "shelf", *arguments)
    names = {record.key: name for name, record in shelf.items()}
    assert {names[key] for key in keys(found)} == expected
    assert found["total"] == len(expected) == sum(one["count"] for one in found["counts"])


def test_events_of_unknown_senders_are_listed_on_request(desk: Desk, shelf: dict[str, Delivery]) -> None:
    stranger = shelf["of a stranger"].key
    assert stranger not in keys(desk.listed())
    assert stranger in keys(desk.listed("--error", "unknown_sender"))
    assert keys(desk.listed("--error", "unknown_sender", "--tenant", "shelf")) == set()


def test_the_newest_come_first_and_all_are_counted(desk: Desk, shelf: dict[str, Delivery]) -> None:
    found = desk.listed("--tenant", "shelf", "--limit", "3")
    at = [letter["at"] for letter in found["letters"]]
    assert (len(at), found["total"]) == (3, 9)
    assert at == sorted(at, reverse=True)
    assert desk.listed("--tenant", "shelf", "--limit", "100")["letters"][:3] == found["letters"]
    lines = desk.look("list", "--tenant", "shelf", "--limit", "3").splitlines()
    assert len(lines) == 1 + 3 + 1
    assert re.fullmatch(r"9 dead: attempts \(131016\) 1, .*\. Showing the newest 3\.", lines[-1])


def test_empty_list_is_reported(desk: Desk) -> None:
    assert desk.look("list", "--tenant", "nobody") == "No dead letter matches.\n"
    assert desk.listed("--tenant", "nobody") == {"letters": [], "counts": [], "total": 0, "unread": 0}


@pytest.mark.parametrize("form", [["--json"], []], ids=["json", "text"])
def test_neither_a_list_nor_a_preview_nor_a_replay_shows_anything_private(
    desk: Desk, shelf: dict[str, Delivery], form: list[str]
) -> None:
    told = desk.look("list", "--limit", "1000", *form) + desk.look("list", "--error", "unknown_sender", *form)
    told += desk.run("replay", "--tenant", "shelf", "--dry-run", *form).stdout
    assert shelf["in doubt"].key in told
    assert [one for one in PRIVATE if one in told.replace("CORRELATION", "")] == []


def test_records_of_a_newer_version_are_counted(desk: Desk, contact: str) -> None:
    kind: Any = "sideways"
    for changes in ({}, {"kind": kind}):
        desk.put(contact, tenant="newer", **changes)
    assert [desk.listed("--tenant", "newer")[name] for name in ("total", "unread")] == [1, 1]
    assert "1 more cannot be read: written by a newer version" in desk.look("list", "--tenant", "newer")


# ---- show


def test_dead_letter_shows_all_attempts_by_round(desk: Desk, contact: str) -> None:
    desk.stack.fault("send", "error", code=131026, match={"to": contact})
    desk.stack.fault("send", "error", code=131047, match={"to": contact})
    message_id = desk.stack.say(contact, "hello")
    desk.stack.wait_settled([message_id])
    letter = desk.stack.reply(message_id)
    assert letter is not None
    assert desk.run("replay", letter.key).returncode == 0
    desk.stack.wait_until(lambda: desk.get(letter).round == 1 and desk.get(letter).final, "it is dead again")

    (shown,) = json.loads(desk.look("show", letter.key, "--json"))["letters"]
    attempts = [(one["round"], one["attempt"], one["answer"], one["code"]) for one in shown["attempts"]]
    assert attempts == [(0, 1, "refused", 131026), (1, 1, "refused", 131047)]
    assert "the customer is not on WhatsApp" in shown["attempts"][0]["sentence"]
    assert "more than 24 hours" in shown["attempts"][1]["sentence"]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", one["at"]) for one in shown["attempts"])
    assert (shown["error"], shown["code"], shown["round"], shown["replay"]) == ("permanent", 131047, 1, "again")
    assert [one["what"] for one in shown["events"]] == ["planned", "refused", "dead", "replayed", "refused", "dead"]
    said = desk.look("show", letter.key)
    assert said.startswith(f"Dead letter {letter.key}: permanent (131047)\n")
    assert said.rstrip().endswith("A replay retries it in round 2.")
    assert contact not in said
    for known in (letter.correlation_id, message_id, desk.stack.event_key(message_id)):
        assert letter.key in desk.look("show", known)


def test_dead_letter_refused_by_receipt_shows_the_receipt(desk: Desk, contact: str) -> None:
    message_id, letter = refused_after_all(desk, contact)
    (shown,) = json.loads(desk.look("show", letter.provider_id or "", "--json"))["letters"]
    assert (shown["error"], shown["code"], shown["state"]) == ("refused", 131049, "done")
    assert [(one["kind"], one["code"]) for one in shown["receipts"]] == [("sent", None), ("failed", 131049)]
    assert shown["receipts"][1]["sentence"]
    story = desk.stack.timeline(message_id)
    assert story["replies"][0]["shown"] == "failed"
    (said,) = [one["sentence"] for one in story["events"] if one["what"] == "receipt_failed"]
    assert "Accepted by WhatsApp, but not delivered." in said
    assert shown["receipts"][1]["sentence"] in said
    assert "`pombo dead replay` retries it." in said


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("in doubt", "--may-double"),
        ("unreadable", "A replay parses it again."),
        ("of a stranger", "A replay looks up the tenant of its phone number ID again."),
        ("done", "Nothing to replay: its state is done."),
        ("spam", "Nothing to replay: its state is dropped."),
    ],
)
def test_dead_letter_shows_the_result_of_a_replay(desk: Desk, shelf: dict[str, Delivery], name: str, says: str) -> None:
    assert says in desk.look("show", shelf[name].key)


def test_dead_letter_shows_the_handler_error_but_not_the_contact(desk: Desk, contact: str) -> None:
    log = (Attempt(ago(minutes=1), 1, "handler_failed"),)
    told = desk.look("show", desk.put_event(contact, attempts_log=log).key)
    assert "The handler failed: LookupError: a c4n4ry text." in told
    assert contact not in told


# ---- replay


def test_dry_run_predicts_the_replay_and_changes_nothing(desk: Desk, shelf: dict[str, Delivery]) -> None:
    before = {name: desk.get(record) for name, record in shelf.items()}
    said = desk.json("replay", "--tenant", "shelf", "--dry-run")
    assert (said["total"], said["replayed"], said["untried"]) == (9, 8, 0)
    assert {"error": "permanent", "code": 131026, "count": 1} in said["counts"]
    (note,) = said["notes"]
    assert note["count"] == 1
    assert "--may-double" in note["what"]
    assert desk.json("discard", "--tenant", "shelf", "--reason", "old", "--dry-run")["total"] == 9
    assert "--may-double" in desk.run("replay", shelf["in doubt"].key, "--dry-run").stdout
    assert {name: desk.get(record) for name, record in shelf.items()} == before


def test_doubtful_message_needs_may_double_and_a_delivered_one_is_never_resent(desk: Desk, contacts: Contacts) -> None:
    doubt = {"tenant": "doubt", "reason": "in_doubt", "doubts": 2}
    unknown, arrived = contacts(), contacts()
    letters = [desk.put(unknown, "once", **doubt), desk.put(arrived, "never", **doubt)]
    desk.receive(said_of(replace(letters[1], provider_id="wamid.late"), "delivered"))
    assert desk.get(letters[1]).state is State.DEAD, "a receipt assigns no state"

    assert "--may-double" in fails(desk.run("replay", letters[0].key))
    said = desk.json("replay", "--tenant", "doubt", "--yes")
    assert (said["replayed"], said["done"], [one["count"] for one in said["skipped"]]) == (0, 1, [1])
    assert desk.get(letters[0]).state is State.DEAD
    (shown,) = json.loads(desk.look("show", letters[1].key, "--json"))["letters"]
    assert [one["what"] for one in shown["events"]][-1] == "done"

    assert desk.json("replay", "--tenant", "doubt", "--yes", "--may-double")["replayed"] == 1
    desk.wait_done(*letters)
    assert (desk.stack.texts(unknown), desk.stack.texts(arrived)) == (["once"], [])


def test_message_refused_late_is_replayed_and_leaves_the_dead_letters(desk: Desk, contact: str) -> None:
    message_id, letter = refused_after_all(desk, contact, code=131053)
    assert keys(desk.listed("--error", "131053")) == {letter.key}

    assert desk.json("replay", "--error", "131053", "--yes")["replayed"] == 1
    desk.stack.wait_until(lambda: desk.get(letter).current_receipts.read, "it was read")
    assert desk.stack.texts(contact) == ["hello", "hello"]
    assert desk.stack.timeline(message_id)["replies"][0]["shown"] == "sent"
    assert keys(desk.listed("--error", "131053")) == set()
    (line,) = desk.stack.logs("replayed", delivery=letter.key)
    assert (line["round"], line["correlation_id"], line["tenant"]) == (1, letter.correlation_id, "default")


def test_a_refusal_that_names_only_whatsapp_s_id_is_found_and_replayed(desk: Desk, contact: str) -> None:
    desk.stack.fault("receipt", "withhold", match={"to": contact})
    message_id = desk.stack.say(contact, "hello")
    desk.stack.wait_settled([message_id])
    letter = desk.stack.reply(message_id)
    assert letter is not None
    desk.receive(*[failed(letter, code=131052, echo="job-0001")] * 2)

    assert keys(desk.listed("--error", "131052")) == {letter.key}
    assert desk.json("replay", "--error", "131052", "--yes")["replayed"] == 1
    desk.stack.wait_until(lambda: desk.get(letter).current_receipts.read, "it was read")
    assert keys(desk.listed("--error", "131052")) == set()
    assert desk.stack.texts(contact) == ["hello", "hello"]


def test_repeated_late_receipts_update_dead_letters_without_sending(desk: Desk, contact: str) -> None:
    """One that was refused after all stays in doubt: a copy of it may have arrived; one that was read does not."""
    doubt = {"reason": "in_doubt", "doubts": 2, "provider_id": "wamid.late", "tenant": "late"}
    refused, was_read = desk.put(contact, **doubt), desk.put(contact, **doubt)
    for _ in range(2):
        desk.receive(failed(refused, 131026), *(said_of(was_read, one) for one in ("read", "sent", "failed")))

    found = {letter["key"]: letter["replay"] for letter in desk.listed("--tenant", "late")["letters"]}
    assert found == {refused.key: "may_double", was_read.key: "done"}
    assert {desk.get(one).state for one in (refused, was_read)} == {State.DEAD}
    assert desk.json("replay", "--tenant", "late", "--yes")["done"] == 1
    assert desk.get(was_read).state is State.DONE
    assert desk.stack.texts(contact) == []


def test_receipts_of_unknown_messages_are_logged_and_make_no_dead_letter(desk: Desk, contact: str) -> None:
    before = desk.listed()["total"]
    nobody = desk.put(contact, state=State.DONE, reason=None, provider_id=f"wamid.nobody.{contact}")
    unknown = replace(nobody, key="0" * 40)
    desk.receive(failed(unknown), failed(replace(unknown, provider_id=f"wamid.x.{contact}"), echo="job-0002"))
    desk.stack.wait_logs("receipt_unknown", delivery="0" * 40, event_type="failed")
    assert desk.listed()["total"] == before


def test_unreadable_event_is_parsed_again_on_replay(desk: Desk, contacts: Contacts) -> None:
    """As an older parser left it, which did not know its shape; and one that makes no sense to this one either."""
    who = contacts()
    message_id = f"wamid.{who}"
    kept = {"item": text(who, message_id, "hello"), "contact": {}, "phone_number_id": SENDER}
    unread = {"reason": "unparsable", "attempt": 0, "contact": "", "tenant": "default"}
    readable = desk.put_event("", {"field": "messages", "unparsable": kept}, **unread)
    broken = desk.put_event("", {"field": "messages", "unparsable": {**kept, "item": {"id": 5}}}, **unread)
    for letter in (readable, broken):
        assert desk.run("replay", letter.key).returncode == 0
    desk.wait_done(readable)
    desk.stack.wait_texts(who, ["hello"])
    desk.stack.wait_until(lambda: desk.get(broken).final, "it was read again")
    assert (desk.get(broken).state, desk.get(broken).reason, desk.get(broken).round) == ("dead", "unparsable", 1)
    desk.stack.wait_logs("dead_lettered", delivery=broken.key, reason="unparsable")


def test_event_of_a_still_unknown_sender_is_dropped_again(desk: Desk, contact: str) -> None:
    letter = desk.put_event(contact, state=State.DROPPED, reason="unknown_sender", tenant="", sender="200000000000008")
    assert desk.run("replay", letter.key).returncode == 0
    desk.stack.wait_until(lambda: desk.get(letter).round == 1 and desk.get(letter).final, "it was looked at again")
    assert (desk.get(letter).state, desk.get(letter).reason) == (State.DROPPED, "unknown_sender")


def test_replay_requested_twice_is_made_once(desk: Desk, contact: str) -> None:
    letter = desk.put(contact, "once")
    first = desk.run("replay", letter.key)
    assert (first.returncode, first.stdout) == (0, "Replayed. `pombo trace` shows its progress.\n")
    desk.wait_done(letter)
    again = desk.run("replay", letter.key)
    assert again.returncode == 0 or "It is done." in again.stderr
    assert desk.stack.texts(contact) == ["once"]
    assert desk.get(letter).round == 1


def test_replay_respects_the_requested_limit(desk: Desk, contacts: Contacts) -> None:
    letters = desk.put_many([contacts() for _ in range(5)], tenant="some")
    assert desk.json("replay", "--tenant", "some", "--limit", "2", "--yes")["replayed"] == 2
    assert sum(desk.get(letter).round for letter in letters) == 2
    assert desk.listed("--tenant", "some")["total"] == 3


# ---- discard


def test_discard_reason_is_shown_in_the_timeline_only(desk: Desk, contact: str) -> None:
    desk.stack.fault("send", "error", code=131026, match={"to": contact})
    message_id = desk.stack.say(contact, "hello")
    desk.stack.wait_settled([message_id])
    letter = desk.stack.reply(message_id)
    assert letter is not None
    for _ in range(2):
        assert desk.run("discard", letter.key, "--reason", "a c4n4ry's number").returncode == 0

    after = desk.get(letter)
    assert (after.state, after.reason, after.expire_at is not None) == (State.DROPPED, "discarded", True)
    story = desk.stack.timeline(message_id)["events"][-1]
    assert (story["what"], story["sentence"]) == ("discarded", "An operator discarded it: a c4n4ry's number.")
    (line,) = desk.stack.logs("discarded", delivery=letter.key)
    assert line["reason"] == "permanent"
    assert "c4n4ry" not in (desk.stack.data_dir / "logs.jsonl").read_text()
    assert fails(desk.run("replay", letter.key)).endswith("It is dropped.")


def test_discard_skips_messages_that_were_sent(desk: Desk, contacts: Contacts) -> None:
    letters = desk.put_many([contacts() for _ in range(3)], tenant="over")
    sent = desk.put(contacts(), state=State.DONE, reason=None, provider_id="wamid.over", tenant="over")
    desk.receive(failed(sent))
    said = desk.json("discard", "--tenant", "over", "--reason", "too old", "--yes")
    assert (said["discarded"], [one["count"] for one in said["skipped"]]) == (3, [1])
    assert {desk.get(letter).state for letter in letters} == {State.DROPPED}
    assert desk.get(sent).state is State.DONE


# ---- a wrong call

WRONG = {
    "nothing is chosen": (["replay"], "Give an ID, filters or --all."),
    "an id and a filter": (["replay", "abc", "--since", "2h"], "not both"),
    "an id and all": (["replay", "abc", "--all"], "not both"),
    "all and a filter": (["replay", "--all", "--error", "131026"], "not both"),
    "nobody to ask": (["replay", "--all"], "give --yes"),
    "a time that is none": (["list", "--since", "yesterday"], "give a time like"),
    "a time before all times": (["list", "--since", "999999d"], "give a time like"),
    "times the wrong way round": (["list", "--since", "1h", "--until", "2h"], "--since is later than --until"),
    "an error that is none": (["list", "--error", "bad luck"], "or a provider's error code"),
    "a kind that is none": (["list", "--kind", "sideways"], "sideways"),
    "a limit of nothing": (["list", "--limit", "0"], "--limit"),
    "a discard without a reason": (["discard", "--all", "--yes"], "--reason"),
    "a discard with an empty reason": (["discard", "--all", "--yes", "--reason", " "], "1 to 500 characters"),
    "a discard with an endless reason": (["discard", "abc", "--reason", "x" * 501], "1 to 500 characters"),
    "an unknown command": (["bury"], "bury"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_call_is_reported_in_a_sentence(
    desk: Desk, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, says = WRONG[name]
    monkeypatch.setattr("sys.argv", ["pombo", "dead", *arguments, "--data-dir", str(desk.stack.data_dir)])
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(SystemExit, match="2"):
        run()
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert out == ""
    assert line.startswith("pombo: ")
    assert says in line
    assert "--help" in line


def test_unknown_id_is_reported(desk: Desk) -> None:
    assert "No record has this id" in fails(desk.run("show", "f" * 40))
    assert "No record has this id" in fails(desk.run("replay", "f" * 40))


def test_id_of_several_dead_letters_lists_them(desk: Desk, contact: str) -> None:
    letters = [desk.put(contact, correlation_id=f"several-{contact}") for _ in range(2)]
    line = fails(desk.run("replay", f"several-{contact}"))
    assert all(letter.key in line for letter in letters)
    assert desk.look("show", f"several-{contact}").count("Dead letter ") == 2


def test_dead_list_without_a_stack_explains_how_to_start_one(tmp_path: Any) -> None:
    result = CliRunner(env={"STORE": None}).invoke(pombo, ["dead", "list", "--data-dir", str(tmp_path)])
    assert result.exit_code == 1
    assert re.search(r"Start one with: \S*pombo up", result.output)


# ---- that its tasks lead somewhere


def test_with_another_token_than_the_services_nothing_is_replayed(desk: Desk, contact: str) -> None:
    """Its tasks would be turned away, and the letters be no letters any more."""
    letter = desk.put(contact)
    line = fails(desk.run("replay", letter.key, INTERNAL_TASK_TOKEN="another"))
    assert "INTERNAL_TASK_TOKEN" in line
    assert desk.get(letter) == letter


@pytest.mark.parametrize(
    "store",
    [{"STORE": "firestore"}, {"STORE": "redis", "REDIS_URL": "rediss://127.0.0.1:9"}],
    ids=["Firestore", "Redis"],
)
def test_records_of_a_project_are_not_replayed_into_the_queue_of_this_machine(
    desk: Desk, store: dict[str, str]
) -> None:
    environment = {**store, "GOOGLE_CLOUD_PROJECT": "somebodys-project"}
    line = fails(desk.run("replay", "--all", "--yes", **environment))
    assert "CLOUD_TASKS" in line


def test_log_lines_join_the_stacks_log_when_the_environment_matches(desk: Desk, contact: str) -> None:
    letter = desk.put(contact)
    result = desk.run("replay", letter.key, **desk.stack.environment)
    assert (result.returncode, result.stderr) == (0, "")
    (line,) = desk.stack.wait_logs("replayed", delivery=letter.key)
    assert line["round"] == 1
    desk.wait_done(letter)


def test_log_lines_go_to_standard_error_when_the_queue_differs(desk: Desk, contact: str) -> None:
    letter = desk.put(contact)
    host = desk.stack.environment["CLOUD_TASKS_EMULATOR_HOST"].replace("127.0.0.1", "localhost")
    result = desk.run("replay", letter.key, **{**desk.stack.environment, "CLOUD_TASKS_EMULATOR_HOST": host})
    assert result.returncode == 0
    (line,) = [json.loads(line) for line in result.stderr.splitlines()]
    assert (line["event"], line["delivery"], line["round"]) == ("replayed", letter.key, 1)
    desk.wait_done(letter)


# ---- a person at a terminal


@pytest.mark.parametrize(("answer", "replayed"), [("n", 0), ("y", 1)])
def test_at_a_terminal_it_asks_before_it_replays_many(desk: Desk, contact: str, answer: str, replayed: int) -> None:
    letter = desk.put(contact, tenant=f"asked-{answer}")
    said, code = desk.at_a_terminal(answer, "replay", "--tenant", f"asked-{answer}")
    assert "1 would be replayed: permanent 1." in said
    assert desk.get(letter).round == replayed
    assert code == (0 if replayed else 1)
    assert ("Nothing was changed" in said) is not replayed


def test_ctrl_c_ends_a_run_with_what_was_done(desk: Desk, contact: str) -> None:
    letters = desk.put_many([contact] * 400, tenant="stopped")
    running = desk.start("discard", "--tenant", "stopped", "--reason", "old", "--yes", "--json")
    wait_until(lambda: any(desk.get(letter).state is State.DROPPED for letter in letters), "some are given up")
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)

    given_up = sum(desk.get(letter).state is State.DROPPED for letter in letters)
    said = json.loads(out)
    assert (running.returncode, err, said["whole"]) == ((130, "", False) if given_up < 400 else (0, "", True))
    assert said["discarded"] == given_up
    assert desk.json("discard", "--tenant", "stopped", "--reason", "old", "--yes")["discarded"] == 400 - given_up


# ---- many, and killed half way, with the sweep off


def test_killed_replay_of_300_dead_letters_sends_each_once_when_repeated(desk: Desk, contacts: Contacts) -> None:
    letters = desk.put_many([contacts() for _ in range(300)], tenant="many", reason="attempts")
    kill_half_way(desk, letters, "--tenant", "many", "--error", "attempts")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_replay_of_10000_dead_letters_sends_each_once_when_repeated(
    make_stack: Callable[..., Stack], capsys: pytest.CaptureFixture[str]
) -> None:
    """The time of the second run is told, and holds nobody to it."""
    with make_stack() as stack:
        desk = Desk(stack)
        letters = desk.put_many([f"1556{number:07}" for number in range(10_000)], reason="attempts")
        seconds = kill_half_way(desk, letters, "--error", "attempts")
        with capsys.disabled():
            print(f"\n10,000 letters: {seconds:.0f} s for the run after the kill")


@pytest.mark.slow
@pytest.mark.parametrize("store", ["redis", "firestore"])
def test_dead_letter_commands_work_on_every_store(
    make_stack: Callable[..., Stack], contacts: Contacts, store: str
) -> None:
    with make_stack(store=store) as stack:
        desk = Desk(stack)
        _, refused = refused_after_all(desk, contacts())
        doubtful = desk.put(contacts(), reason="in_doubt", doubts=2)
        event = desk.put_event(contacts())
        letters = desk.put_many([contacts() for _ in range(300)], tenant="many", reason="attempts")
        counts = {(one["error"], one["code"]): one["count"] for one in desk.listed()["counts"]}
        assert counts == {("attempts", None): 300, ("refused", 131049): 1, ("in_doubt", None): 1, ("error", None): 1}
        kill_half_way(desk, letters, "--tenant", "many", "--error", "attempts")
        said = desk.json("replay", "--all", "--yes")
        assert (said["replayed"], [one["count"] for one in said["skipped"]]) == (2, [1])
        desk.wait_done(refused, event)
        assert desk.run("discard", doubtful.key, "--reason", "a wrong number").returncode == 0
        assert desk.listed()["total"] == 0


def kill_half_way(desk: Desk, letters: Sequence[Delivery], *filters: str) -> float:
    """Kill a run once a third is written, run it again, and count what WhatsApp was given. How long that run took."""
    running = desk.start("replay", *filters, "--yes")
    wait_until(lambda: desk.get(letters[len(letters) // 3]).round, "a third of them", 300)
    running.kill()
    running.communicate()
    before = sum(desk.get(letter).round for letter in letters)
    began = time.monotonic()
    said = desk.json("replay", *filters, "--yes")
    took = time.monotonic() - began
    assert (said["replayed"], said["skipped"], said["whole"]) == (len(letters) - before, [], True)
    desk.wait_done(*letters, seconds=60 + len(letters) / 10)

    assert {desk.get(letter).round for letter in letters} == {1}
    ours = {letter.key for letter in letters}
    sent = Counter(entry["key"] for entry in desk.stack.ledger() if entry["key"] in ours)
    assert sent == Counter(ours)
    return took


def test_nothing_is_replayed_while_the_queue_does_not_answer(desk: Desk, contacts: Contacts) -> None:
    """A record that is written without a task would wait for the sweep, and be sent behind the person's back."""
    letters = desk.put_many([contacts() for _ in range(40)], tenant="queueless", reason="attempts")
    filters = ("--tenant", "queueless", "--yes")
    away = {**desk.stack.environment, "CLOUD_TASKS_EMULATOR_HOST": f"127.0.0.1:{free_port()}"}

    result = desk.run("replay", *filters, **away)

    assert result.returncode == 1
    assert re.search(
        r"Nothing was replayed: the task queue does not answer at \S+\. Check that its Pombo is running\.$",
        result.stderr.strip(),
    )
    assert [desk.get(letter).round for letter in letters] == [0] * len(letters)
    assert desk.json("replay", *filters)["replayed"] == len(letters)
    desk.wait_done(*letters)
    assert [len(desk.stack.ledger(letter.contact)) for letter in letters] == [1] * len(letters)
