"""The sample requests of examples/requests, through the running stack: each gets its 200, and becomes what it should.

Its handler asks for every kind: what does not reach it is never handed over, whatever a team asks for.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args

import pytest

from local.whatsapp.webhook_payloads import to_wire
from shared.channels.meta.changes import changes_in
from shared.channels.meta.kinds import ANSWERS, READERS
from shared.channels.meta.messages import read
from shared.channels.meta.other_fields import OTHER_FIELDS
from shared.channels.meta.webhook import RECEIPTS, parse
from shared.domain.events import Change, MessageReceived, ReceiptReceived
from shared.domain.marks import Block
from shared.domain.message_kinds import KINDS
from shared.domain.state_changes import ContactChanged, StateChange
from shared.pipeline.clock import SystemClock
from tests.support.stack import ROOT, SECRET, Stack, clean_environment

REQUESTS = ROOT / "examples" / "requests"
SEND = REQUESTS / "send.py"
LOCAL_SENDER = "100000000000001"

HANDED_OVER = {
    "text": "text",
    "text_about_product": "text",
    "text_forwarded": "text",
    "text_forwarded_often": "text",
    "text_from_advertisement": "text",
    "text_of_username": "text",
    "text_reply": "text",
    "image": "media",
    "video": "media",
    "audio": "media",
    "voice": "media",
    "voice_type": "media",
    "document": "media",
    "sticker": "media",
    "location": "location",
    "contacts": "contacts",
    "button_reply": "interactive",
    "list_reply": "interactive",
    "flow_reply": "interactive",
    "call_permission_reply": "interactive",
    "payment_method": "interactive",
    "button": "button",
    "order": "order",
    "reaction": "reaction",
    "reaction_removed": "reaction",
    "request_welcome": "request_welcome",
    "system_changed_number": "system",
    "system_changed_user_id": "system",
    "edit": "edit",
    "revoke": "revoke",
    "unsupported": "unsupported",
    "unknown_answer": "unsupported",
    "unknown_type": "unsupported",
    "batch": "text",
}
"""Each sample that is a message to a handler, with its kind."""

KEPT = {
    *OTHER_FIELDS,
    "account_update_disabled",
    "account_update_partner_removed",
    "account_update_reinstated",
    "account_update_restricted",
    "account_update_violation",
    "number_error",
    "own_message",
    "text_in_group",
    "user_actions",
}
"""Stored, done, and handed to nobody: news, what the business wrote itself, what was written to a group."""

RECEIPT = {f"receipt_{word}" for word in RECEIPTS}
UNKNOWN = {"unknown_field"}

SAMPLES = {path.stem: path.read_bytes() for path in sorted(REQUESTS.glob("*.json"))}


def send(*arguments: str, stack: Stack | None = None) -> subprocess.CompletedProcess[str]:
    url = ["--url", f"{stack.described['webhook']}/webhooks/whatsapp"] if stack else []
    command = [sys.executable, str(SEND), *arguments, *url]
    environment = clean_environment(META_APP_SECRET=SECRET)
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def curious(make_stack: Callable[..., Stack]) -> Iterator[Stack]:
    with make_stack(HANDLER="curious:handle", WHATSAPP_PHONE_NUMBER_ID=LOCAL_SENDER) as stack:
        yield stack


@pytest.fixture(scope="module")
def sent(curious: Stack) -> dict[str, list[str]]:
    """The ids of the events of each sample, all of it sent once and done."""
    result = send("--all", stack=curious)
    assert result.returncode == 0, result.stderr
    rows = [line.split() for line in result.stdout.splitlines()]
    assert all(status == "200" for _, status, *_ in rows)
    ids = {name.removesuffix(".json"): [one for one in keys if one != "-"] for name, _, *keys in rows}
    keys = [key for of_one in ids.values() for key in of_one]
    curious.wait_until(lambda: {curious.state_of(key) for key in keys} == {"done"}, "all of it is done", 90)
    return ids


# ---- the set is whole


def test_every_sample_is_in_one_table_of_this_test() -> None:
    tables = (set(HANDED_OVER), KEPT, RECEIPT, UNKNOWN)
    assert set().union(*tables) == set(SAMPLES)
    assert sum(map(len, tables)) == len(SAMPLES)


def items(name: str) -> list[dict[str, Any]]:
    value = json.loads(SAMPLES[name])["entry"][0]["changes"][0]["value"]
    return value.get("messages", []) if isinstance(value, dict) else []


def test_every_type_kind_field_and_receipt_in_the_code_has_a_sample() -> None:
    """Whoever adds one writes its sample."""
    messages = [item for name in HANDED_OVER for item in items(name)]
    assert set(READERS) <= {item["type"] for item in messages}
    assert set(HANDED_OVER.values()) == KINDS
    answers = {item["interactive"]["type"] for item in messages if "interactive" in item}
    assert answers == {*ANSWERS, "hologram_reply"}
    fields = {json.loads(body)["entry"][0]["changes"][0]["field"] for body in SAMPLES.values()}
    assert fields == OTHER_FIELDS | {"messages", "surprises"}
    receipts = [event for name in RECEIPT for event in parse(SAMPLES[name]).events]
    assert {event.kind for event in receipts if isinstance(event, ReceiptReceived)} == set(RECEIPTS.values())


def test_there_is_a_sample_of_every_change_of_our_state(sent: dict[str, list[str]], curious: Stack) -> None:
    records = [record for keys in sent.values() for key in keys if (record := curious.store.get(key))]
    found = {type(change) for record in records for change in changes_in(record)}
    assert found | {ContactChanged} == set(get_args(StateChange))
    assert read(curious.store.get(sent["system_changed_number"][0])).system.wa_id  # type: ignore[arg-type,union-attr]


@pytest.mark.parametrize("name", SAMPLES)
def test_sample_has_the_wire_form_of_meta_and_the_local_sender(name: str) -> None:
    body = SAMPLES[name]
    document = json.loads(body)
    assert body == to_wire(document), "compact, and escaped as Meta does"
    assert document["object"] == "whatsapp_business_account"
    parsed = parse(body)
    assert len(parsed.events) == {"batch": 3, "unknown_field": 0}.get(name, 1)
    assert parsed.ignored == ({"unknown_field": 1} if name == "unknown_field" else {})
    for event in parsed.events:
        assert isinstance(event, Change | MessageReceived | ReceiptReceived)
        if isinstance(event, MessageReceived):
            assert event.sender == LOCAL_SENDER


# ---- what becomes of each


@pytest.mark.parametrize("name", HANDED_OVER)
def test_message_reaches_the_handler_and_its_reply_the_customer(
    sent: dict[str, list[str]], curious: Stack, name: str
) -> None:
    calls = {call["id"]: call["kind"] for call in curious.handler_calls()}
    for item in items(name):
        assert calls[item["id"]] == HANDED_OVER[name]
    for key in sent[name]:
        record = curious.store.get(key)
        assert record is not None
        assert (record.state, record.plan_size) == ("done", 1)


@pytest.mark.parametrize("name", sorted(KEPT))
def test_other_event_is_stored_and_passed_to_no_handler(sent: dict[str, list[str]], curious: Stack, name: str) -> None:
    (key,) = sent[name]
    record = curious.store.get(key)
    assert record is not None
    assert (record.state, record.plan_size, record.tenant) == ("done", 0, "default")


def test_handler_saw_no_other_event(sent: dict[str, list[str]], curious: Stack) -> None:
    handed = {item["id"] for name in HANDED_OVER for item in items(name)}
    assert {call["id"] for call in curious.handler_calls()} == handed
    assert sent["batch"]


def test_receipt_is_stored_by_its_id_and_one_of_no_record_is_logged(sent: dict[str, list[str]], curious: Stack) -> None:
    assert all(sent[name] == [] for name in RECEIPT)
    for word in set(RECEIPTS) - {"failed"}:
        curious.wait_logs("receipt_applied", event_type=word, reason="no_echo")
    curious.wait_logs("receipt_unknown", event_type="failed")
    curious.wait_logs("receipt_failed", event_type="failed")


def test_unknown_field_creates_no_event_and_is_logged(sent: dict[str, list[str]], curious: Stack) -> None:
    assert sent["unknown_field"] == []
    curious.wait_logs("webhook_ignored", reason="unknown_field")


def test_resent_samples_are_duplicates_and_change_nothing(sent: dict[str, list[str]], curious: Stack) -> None:
    calls = curious.handler_calls()
    duplicates = len(curious.logs("inbound_duplicate"))

    assert send("--all", stack=curious).returncode == 0

    events = sum(map(len, sent.values()))
    curious.wait_until(lambda: len(curious.logs("inbound_duplicate")) == duplicates + events, "all are duplicates")
    assert curious.handler_calls() == calls


def test_new_samples_are_not_duplicates(sent: dict[str, list[str]], curious: Stack) -> None:
    result = send("text.json", "batch", "account_alerts.json", "calls", "--new", stack=curious)
    assert result.returncode == 0
    keys = [key for line in result.stdout.splitlines() for key in line.split()[2:]]
    assert len(keys) == len(set(keys)) == 6
    assert not set(keys) & {key for of_one in sent.values() for key in of_one}
    curious.wait_until(lambda: {curious.state_of(key) for key in keys} == {"done"}, "they are done")


# ---- an account webhook lifts a block


@pytest.mark.parametrize("name", ["account_update", "account_update_reinstated"])
def test_news_that_lift_a_block_clear_it(curious: Stack, name: str) -> None:
    now = SystemClock().now()
    curious.put_marks(block=Block(now + timedelta(hours=6), timedelta(hours=6), 368))

    (key,) = send(f"{name}.json", "--new", stack=curious).stdout.split()[2:]

    curious.wait_until(lambda: curious.state_of(key) == "done", "it is applied")
    assert curious.marks.block is None


@pytest.mark.parametrize("name", ["account_update_violation", "account_update_restricted", "account_review_update"])
def test_other_news_lift_no_block(curious: Stack, name: str) -> None:
    block = Block(SystemClock().now() + timedelta(hours=6), timedelta(hours=6), 368)
    curious.put_marks(block=block)
    try:
        (key,) = send(f"{name}.json", "--new", stack=curious).stdout.split()[2:]
        curious.wait_until(lambda: curious.state_of(key) == "done", "it is done")
        assert curious.marks.block == block
    finally:
        curious.put_marks(block=None)


# ---- the script itself


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ([], 2, "Name the samples, or use --all"),
        (["--all", "text.json"], 2, "Name the samples, or use --all"),
        (["nothing.json"], 2, "There is no sample 'nothing.json'"),
        (["text.json", "--url", "ftp://x"], 2, "--url is an http or https address."),
        (["text.json", "--url", "http://127.0.0.1:1/x"], 1, "nothing answers at http://127.0.0.1:1/x"),
    ],
)
def test_wrong_call_is_answered_with_one_sentence(arguments: list[str], code: int, says: str) -> None:
    result = send(*arguments)
    assert result.returncode == code
    assert says in result.stderr
    assert "Traceback" not in result.stderr


def test_refused_sample_exits_with_1(curious: Stack) -> None:
    url = f"{curious.described['webhook']}/webhooks/whatsapp"
    environment = clean_environment(META_APP_SECRET="wrong")
    command = [sys.executable, str(SEND), "text.json", "--url", url]
    result = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout.split()[:2]) == (1, ["text.json", "403"])


def test_sample_list_matches_the_files_and_help_has_an_example() -> None:
    assert send("--list").stdout.split() == [f"{name}.json" for name in SAMPLES]
    shown = send("--help")
    assert shown.returncode == 0
    assert "send.py text.json" in shown.stdout


def test_sample_sender_runs_from_any_directory(tmp_path: Path) -> None:
    result = subprocess.run([sys.executable, str(SEND), "--list"], cwd=tmp_path, env=dict(os.environ), timeout=60)
    assert result.returncode == 0


def test_the_page_on_what_comes_in_names_every_type_kind_and_field() -> None:
    page = (ROOT / "docs" / "inbound.md").read_text()
    changes = {change.__name__ for change in get_args(StateChange)}
    assert {
        word for word in {*READERS, *KINDS, *ANSWERS, *OTHER_FIELDS, *RECEIPTS, *changes} if word not in page
    } == set()
