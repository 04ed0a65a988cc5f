"""What Pombo promises, from the webhook to the last receipt, seen from outside: the same on every store."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from local.services import SERVICES
from shared import config
from shared.domain.identity import change_event_id
from shared.domain.record import Delivery
from tests.support.payloads import ACCOUNT, envelope, of_texts, receipt, text, value, wire
from tests.support.stack import TASK_TOKEN, Stack, server_of

PATIENCE_SECONDS = 10
"""Meta's, for the answer to a POST."""

WRITTEN_AT = 1790416800
"""When the first message of a POST was written, by WhatsApp's clock, in seconds since 1970."""

DELIVERIES = 20
"""How often a POST is delivered again here. Meta does so for seven days."""


IN_CI = [pytest.param(store, marks=[pytest.mark.slow] if store == "redis" else []) for store in config.STORES]
"""The contract suites have what distinguishes Redis, and test_up_stores a message through a stack on it."""


@pytest.fixture(scope="module", params=IN_CI)
def store_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@dataclass(frozen=True)
class Held:
    """A stack whose number WhatsApp holds back: what was said while its token was refused, and while it was blocked."""

    stack: Stack
    refused: str
    while_refused: str
    blocked: str
    while_blocked: str


@pytest.fixture(scope="module")
def held(make_stack: Callable[..., Stack], store_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    """Both last ten minutes, which are 30 s here: they begin before the other tests. The token is replaced by a restart
    of all of it, so the store's server is not the stack's own: it stays up.
    """
    with ExitStack() as ending:
        settings = dict(ending.enter_context(server_of(store_name, tmp_path_factory.mktemp("server"))))
        stack = make_stack(store=store_name, WHATSAPP_ACCESS_TOKEN="refused", **settings)
        ending.enter_context(stack)
        stack.fault("send", "error", code=190, match={"to": "15553000001"})
        refused = stack.say("15553000001", "hello")
        stack.wait_until(lambda: stack.marks.refused, "the token is marked as refused")
        while_refused = stack.say("15553000002", "hello")
        stack.wait_until(lambda: "waiting" in stack.what(while_refused), "what comes later waits")
        assert stack.timeline(refused)["replies"][0]["why"] == "WHATSAPP_REAUTH_REQUIRED"
        stack.restart(WHATSAPP_ACCESS_TOKEN="another")
        stack.fault("send", "error", code=368, match={"to": "15553000003"})
        blocked = stack.say("15553000003", "hello")
        stack.wait_until(lambda: stack.marks.block, "the number is marked as blocked")
        yield Held(stack, refused, while_refused, blocked, stack.say("15553000004", "hello"))


@pytest.fixture(scope="module")
def stack(make_stack: Callable[..., Stack], store_name: str, held: Held) -> Iterator[Stack]:
    """The doubt window is as short as it may be: 120 s, which is 6 here. (What is held back begins before it.)"""
    with make_stack(store=store_name, IN_DOUBT_SECONDS="120") as stack:
        yield stack


def reply_of(stack: Stack, message_id: str, index: int = 0) -> Delivery:
    reply = stack.reply(message_id, index)
    assert reply is not None
    return reply


def answers(stack: Stack, message_id: str) -> list[str]:
    """What its reply was answered at each attempt."""
    reply = stack.reply(message_id)
    return [attempt.answer for attempt in reply.attempts_log] if reply else []


def sent_silently(stack: Stack, contact: str) -> str:
    """A message that is answered, of whose reply WhatsApp has said nothing yet."""
    stack.fault("receipt", "withhold", match={"to": contact})
    message_id = stack.say(contact, "hello")
    stack.wait_settled([message_id])
    return message_id


def status_of(reply: Delivery, status: str, **more: Any) -> bytes:
    """A POST of one receipt."""
    assert reply.provider_id is not None
    return wire(envelope(value(statuses=[receipt(reply.provider_id, status, **more)])))


# ---- a message and its replies


def test_answered_message_has_its_timeline_by_each_of_its_ids(stack: Stack, contact: str) -> None:
    said = json.loads(stack.cli("say", "hello", "--from", contact, "--wait", "--json").stdout)
    (entry,) = stack.ledger(contact)
    stack.wait_until(lambda: "receipt_read" in stack.what(said["message_id"]), "it was read")

    ids = [said["message_id"], said["inbound_event_id"], said["correlation_id"], entry["key"], entry["wamid"]]
    traced = [stack.cli("trace", one, "--json") for one in ids]

    assert {(one.returncode, one.stderr) for one in traced} == {(0, "")}
    assert len({one.stdout for one in traced}) == 1
    timeline = json.loads(traced[0].stdout)
    assert timeline == stack.timeline(said["message_id"])
    assert timeline["shown"] == "processed"
    assert timeline["replies"] == [{"key": entry["key"], "type": "text", "text": "hello", "shown": "sent"}]
    whats = [moment["what"] for moment in timeline["events"]]
    assert {"received", "replied", "done", "planned", "accepted", "receipt_sent", "receipt_read"} <= set(whats)
    assert entry["echo"] == f"pombo1.{entry['key']}.0.{said['correlation_id']}"
    assert stack.texts(contact) == ["hello"]


def test_several_replies_arrive_in_their_order(stack: Stack, contact: str) -> None:
    message_id = stack.say(contact, "!list 12")

    stack.wait_settled([message_id])

    assert stack.texts(contact) == [str(number) for number in range(1, 13)]
    event = stack.event(message_id)
    assert event is not None
    assert (event.state, event.plan_size) == ("done", 12)


def test_no_reply_overtakes_a_delayed_one(stack: Stack, contact: str) -> None:
    stack.fault("send", "error", code=131016, times=2, match={"to": contact})

    stack.wait_settled([stack.say(contact, "!list 4")])

    assert stack.texts(contact) == ["1", "2", "3", "4"]


def test_many_people_at_once_are_each_answered_once_and_in_order(stack: Stack, contacts: Callable[[], str]) -> None:
    people = [contacts() for _ in range(40)]
    stack.fault("task", "duplicate", times=20)

    with ThreadPoolExecutor(16) as pool:
        ids = list(pool.map(lambda one: stack.say(one, "!list 3"), people))

    stack.wait_settled(ids, 60)
    assert [stack.texts(one) for one in people] == [["1", "2", "3"]] * 40
    assert [stack.calls(one) for one in ids] == [1] * 40


# ---- the same again


def test_a_message_that_comes_again_at_once_and_later_is_answered_once(stack: Stack, contact: str) -> None:
    message_id = f"wamid.{contact}"
    body = of_texts(text(contact, message_id, "hello"))

    with ThreadPoolExecutor(20) as pool:
        at_once = list(pool.map(lambda _: stack.post(body).status_code, range(20)))
    stack.wait_settled([message_id])
    stack.wait_texts(contact, ["hello"])
    later = [stack.post(body).status_code for _ in range(3)]

    assert at_once + later == [200] * 23
    key = stack.event_key(message_id)
    stack.wait_until(lambda: len(stack.logs("inbound_duplicate", inbound_event_id=key)) >= 3, "it is counted")
    assert "duplicate" in stack.what(message_id)
    assert stack.calls(message_id) == 1
    assert stack.texts(contact) == ["hello"]
    event = stack.event(message_id)
    assert event is not None
    assert event.attempt == 1


def test_messages_that_come_again_in_other_batches_are_answered_once_each(stack: Stack, contact: str) -> None:
    items = [text(contact, f"wamid.{contact}.{number}", str(number)) for number in range(6)]
    bodies = [of_texts(*items[cut:], *items[:cut]) for cut in range(6)] + [of_texts(*items, *items)]

    with ThreadPoolExecutor(7) as pool:
        assert [answer.status_code for answer in pool.map(stack.post, bodies)] == [200] * 7

    ids = [item["id"] for item in items]
    stack.wait_settled(ids)
    assert sorted(stack.texts(contact)) == [str(number) for number in range(6)]
    assert [stack.calls(one) for one in ids] == [1] * 6


# ---- receipts


def test_receipts_are_joined_by_their_echo_and_by_whatsapps_id_in_any_order(
    stack: Stack, contacts: Callable[[], str]
) -> None:
    people = {by: contacts() for by in ("echo", "id")}
    ids = {by: sent_silently(stack, contact) for by, contact in people.items()}
    times = {"delivered": 2, "sent": 1, "read": 3}

    for status, second in (*times.items(), ("delivered", 9), ("sent", 1)):
        for by, contact in people.items():
            (entry,) = stack.ledger(contact)
            echo = {"biz_opaque_callback_data": entry["echo"]} if by == "echo" else {}
            body = status_of(reply_of(stack, ids[by]), status, timestamp=str(1790416800 + second), **echo)
            assert stack.post(body).status_code == 200

    for message_id in ids.values():
        word = reply_of(stack, message_id).current_receipts
        seen = {"sent": word.sent, "delivered": word.delivered, "read": word.read}
        assert {kind: int(at.timestamp()) - 1790416800 for kind, at in seen.items() if at} == times
        timeline = stack.timeline(message_id)
        assert timeline["replies"][0]["shown"] == "sent"
        assert {"receipt_sent", "receipt_delivered", "receipt_read"} <= {one["what"] for one in timeline["events"]}


def test_receipt_before_the_answer_to_the_send_is_stored(stack: Stack, contact: str) -> None:
    """The simulator's receipts come after 50 ms, its answer after 200."""
    stack.fault("send", "slow", seconds=0.2, match={"to": contact})

    message_id = stack.say(contact, "hello")

    stack.wait_until(
        lambda: (reply := stack.reply(message_id)) and reply.final and reply.current_receipts.read, "it was read"
    )
    assert stack.texts(contact) == ["hello"]


def test_a_receipt_of_a_failure_shows_the_reply_as_failed(stack: Stack, contact: str) -> None:
    message_id = sent_silently(stack, contact)

    body = status_of(reply_of(stack, message_id), "failed", errors=[{"code": 131026, "title": "Undeliverable"}])
    assert stack.post(body).status_code == 200

    assert reply_of(stack, message_id).current_receipts.failed_code == 131026
    assert stack.timeline(message_id)["replies"][0]["shown"] == "failed"


# ---- what WhatsApp may answer


def test_a_limit_is_waited_for_and_spends_no_attempt(stack: Stack, contact: str) -> None:
    stack.fault("send", "error", code=131056, times=2, match={"to": contact})

    message_id = stack.say(contact, "hello")

    stack.wait_settled([message_id])
    assert stack.texts(contact) == ["hello"]
    assert answers(stack, message_id) == ["limited", "limited", "accepted"]
    assert reply_of(stack, message_id).attempt == 1


def test_lost_answer_is_resolved_by_a_receipt_or_one_resend(stack: Stack, contacts: Callable[[], str]) -> None:
    confirmed, silent = contacts(), contacts()
    for contact in (confirmed, silent):
        stack.fault("send", "accept_then_drop", match={"to": contact})
    stack.fault("receipt", "withhold", times=0, match={"to": silent})

    with_receipt, without = stack.say(confirmed, "hello"), stack.say(silent, "hello")

    stack.wait_until(lambda: answers(stack, without) == ["lost"], "the answer is lost")
    assert stack.timeline(without)["replies"][0]["why"] == "in_doubt"
    stack.wait_settled([with_receipt, without], 60)
    assert (stack.texts(confirmed), stack.texts(silent)) == (["hello"], ["hello"] * 2)
    assert (answers(stack, with_receipt), answers(stack, without)) == (["lost"], ["lost", "accepted"])
    lost, accepted = reply_of(stack, without).attempts_log
    assert (accepted.at - lost.at).total_seconds() >= 6, "it was sent again within the window"


def test_permanent_refusal_is_dead_at_once_and_ends_its_task(stack: Stack, contact: str) -> None:
    stack.fault("send", "error", code=131026, times=0, match={"to": contact})

    message_id = stack.say(contact, "hello")

    stack.wait_settled([message_id])
    reply = reply_of(stack, message_id)
    assert (reply.state, reply.reason, reply.attempt) == ("dead", "permanent", 1)
    assert stack.ledger(contact) == []
    body = {"v": 1, "outbound_key": reply.key, "correlation_id": reply.correlation_id, "generation": 0, "hop": 0}
    answer = stack.task("outbound", body)
    assert (answer.status_code, answer.json()) == (200, {"state": "dead"})
    stack.wait_logs("dead_lettered", delivery=reply.key, code=131026, severity="ERROR")
    assert stack.timeline(message_id)["replies"][0]["shown"] == "failed"


# ---- the team's code


def test_failing_handler_is_retried_and_the_message_dead_after_its_last_attempt(
    stack: Stack, contacts: Callable[[], str]
) -> None:
    once, always, dropping, late = (contacts() for _ in range(4))
    told = {one: stack.say(one, words) for one, words in ((once, "!raise 1"), (always, "!raise always"))}
    told |= {dropping: stack.say(dropping, "!drop not for us"), late: stack.say(late, "!hang 9")}

    stack.wait_settled(list(told.values()), 60)

    shown = {one: stack.timeline(message_id)["shown"] for one, message_id in told.items()}
    assert shown == {once: "processed", always: "failed", dropping: "ignored", late: "processed"}
    assert [stack.calls(told[one]) for one in told] == [2, 3, 1, 2]
    assert [stack.texts(one) for one in told] == [["after 1"], [], [], ["after 1"]]
    dead = stack.event(told[always])
    assert dead is not None
    assert (dead.state, dead.reason, dead.attempt) == ("dead", "error", 3)


# ---- what comes in besides


def test_message_for_an_unknown_sender_is_stored_and_not_handled(stack: Stack, contact: str) -> None:
    item = text(contact, f"wamid.{contact}", "hello")

    assert stack.post(wire(envelope(value([item], sender="200000000000008")))).status_code == 200

    line = stack.wait_logs("inbound_new", state="dropped", reason="unknown_sender")[-1]
    record = stack.store.get(line["inbound_event_id"])
    assert record.sender == "200000000000008"
    assert "hello" in json.dumps(dict(record.payload))
    assert record.expire_at is not None
    assert stack.calls(f"wamid.{contact}") == 0


def test_unreadable_item_is_stored_dead_and_delays_no_other(stack: Stack, contact: str) -> None:
    items = [
        text(contact, f"wamid.{contact}.1", "one"),
        {"id": f"wamid.{contact}.2", "type": 5},
        text(contact, f"wamid.{contact}.3", "three"),
    ]

    assert stack.post(of_texts(*items)).status_code == 200

    stack.wait_settled([f"wamid.{contact}.1", f"wamid.{contact}.3"])
    assert sorted(stack.texts(contact)) == ["one", "three"]
    unread = stack.event(f"wamid.{contact}.2")
    assert unread is not None
    assert (unread.state, unread.reason) == ("dead", "unparsable")
    assert unread.expire_at is None


def test_a_change_of_the_account_is_done(stack: Stack) -> None:
    change = {"phone_number": "15550001111", "event": "ACCOUNT_UPDATE_OF_A_TEST"}

    for _ in range(2):
        assert stack.post(wire(envelope(change, field="account_update"))).status_code == 200

    key = change_event_id("meta", ACCOUNT, "account_update", change, None)
    stack.wait_until(lambda: stack.state_of(key) == "done", "it is done")


def test_without_the_internal_token_nothing_is_answered(stack: Stack, contact: str) -> None:
    message_id = sent_silently(stack, contact)
    event = stack.event(message_id)
    assert event is not None
    body = {"v": 1, "inbound_event_id": event.key, "correlation_id": event.correlation_id, "generation": 0, "hop": 0}

    refused = [stack.task(kind, body, token) for kind in ("inbound", "outbound") for token in (None, "", "wrong")]

    assert {(one.status_code, one.text.strip()) for one in refused} == {(403, '{"error":"forbidden"}')}
    assert stack.task("inbound", body).json() == {"state": "done"}


# ---- what dies


@pytest.mark.parametrize("victim", [*SERVICES, "tasks"])
def test_kill_loses_nothing_and_doubles_nothing(stack: Stack, contacts: Callable[[], str], victim: str) -> None:
    """With the sweep off."""
    people = {contacts(): "!list 3" for _ in range(8)}
    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(stack.say, people, people.values()))

    stack.wait_back(stack.kill(victim))

    stack.wait_settled(ids, 90)
    assert [stack.texts(one) for one in people] == [["1", "2", "3"]] * 8
    if victim != "internal":
        assert [stack.calls(one) for one in ids] == [1] * 8


def test_sweep_counts_open_records_and_replaces_a_lost_task(stack: Stack, contact: str) -> None:
    body = of_texts(text(contact, f"wamid.{contact}", "hello"), {"id": f"wamid.{contact}.unreadable"})
    stack.lose_first_task(f"wamid.{contact}")
    assert stack.post(body).status_code == 200
    key = stack.event_key(f"wamid.{contact}")
    stack.wait_lost(f"wamid.{contact}")
    assert stack.state_of(key) == "pending"

    first = sweep(stack)
    stack.wait_until(
        lambda: sweep(stack)["enqueued"] > 0 and stack.store.get(key).generation > 0,
        "it is overdue and gets another task",
    )

    counts = {"selected", "enqueued", "pending", "leased", "in_doubt", "dead", "receipts_failed"}
    assert first.keys() == counts | {"oldest_pending_seconds", "oldest_dead_seconds"}
    assert first["pending"] >= 1
    assert first["oldest_pending_seconds"] >= 0
    assert first["dead"] >= 1, "what could not be read"
    stack.wait_texts(contact, ["hello"])
    stack.wait_settled([f"wamid.{contact}"])
    assert stack.calls(f"wamid.{contact}") == 1


def test_several_sweeps_at_once_make_no_more_tasks_than_one(stack: Stack, contacts: Callable[[], str]) -> None:
    """The tasks of ten messages are lost; eight sweeps look for them together until each has another."""
    items = [text(contact, f"wamid.{contact}", "hello") for contact in (contacts() for _ in range(10))]
    keys = {stack.event_key(item["id"]) for item in items}
    for item in items:
        stack.lose_first_task(item["id"])
    assert stack.post(of_texts(*items)).status_code == 200
    for item in items:
        stack.wait_lost(item["id"])

    with ThreadPoolExecutor(8) as pool:

        def sweep_at_once() -> int:
            return sum(swept["enqueued"] for swept in pool.map(lambda _: sweep(stack), range(8)))

        tasks = 0
        while tasks < len(keys):
            tasks += stack.wait_until(sweep_at_once, "they are overdue and get another task")

    assert tasks == len(keys)
    stack.wait_settled([item["id"] for item in items])
    assert {stack.store.get(key).generation for key in keys} == {1}
    assert [stack.calls(item["id"]) for item in items] == [1] * len(items)


def sweep(stack: Stack) -> dict[str, Any]:
    url = f"{stack.described['internal']}/internal/sweep"
    answer = stack.http.post(url, headers={"X-Internal-Token": TASK_TOKEN})
    assert answer.status_code == 200
    counts: dict[str, Any] = answer.json()
    return counts


# ---- as many as Meta sends


@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.timeout(600)])])
def test_largest_post_is_handled_once_for_each_update(stack: Stack, contact: str, count: int) -> None:
    """On a busy machine a delivery may be stored in part, and the rest with the next one. Each person's messages are of
    one second after the other, so that their order is WhatsApp's even then.
    """
    people = [f"{contact}{number:02}" for number in range(40)]
    ids = [f"wamid.{contact}.{number}" for number in range(count)]
    texts = [
        text(people[number % len(people)], one, str(number), timestamp=str(WRITTEN_AT + number // len(people)))
        for number, one in enumerate(ids)
    ]

    deliver(stack, of_texts(*texts))
    stack.wait_settled(ids, 150)
    entries = [entry for person in people for entry in stack.ledger(person)]
    statuses = [receipt(one["wamid"], "played", biz_opaque_callback_data=one["echo"]) for one in entries]
    deliver(stack, wire(envelope(value(statuses=statuses))))

    assert sorted(int(entry["body"]["body"]) for entry in entries) == [*range(count)]
    for person in people:
        assert stack.texts(person) == sorted(stack.texts(person), key=int), "each person's in order"
    calls = Counter(call["id"] for call in stack.handler_calls())
    assert {calls[one] for one in ids} == {1}
    assert all(reply_of(stack, one).current_receipts.played for one in ids)


def deliver(stack: Stack, body: bytes) -> None:
    """As Meta does: within its patience, and the whole POST again until the answer is 200."""
    for _ in range(DELIVERIES):
        began = time.monotonic()
        status = stack.post(body).status_code
        assert time.monotonic() - began < 2 * PATIENCE_SECONDS
        if status == 200:
            return
        assert status == 500
    raise AssertionError(f"not taken in {DELIVERIES} deliveries")


# ---- what is said of it


def test_nothing_private_is_in_any_file_but_the_stores(stack: Stack, contact: str) -> None:
    """The other tests' words are looked for when the stack ends."""
    item = text(
        contact, f"wamid.unmistakable.{contact}", "an unmistakable text", from_user_id=f"US.2000000000{contact}"
    )
    assert stack.post(of_texts(item)).status_code == 200
    assert stack.post(of_texts(item | {"text": 5})).status_code == 200
    assert stack.post(of_texts(item), {"X-Hub-Signature-256": "sha256=00"}).status_code == 403
    stack.wait_settled([item["id"]])
    stack.wait_texts(contact, ["an unmistakable text"])

    seen = {path: path.read_text(errors="replace") for path in files_said(stack.data_dir)}

    assert {"logs.jsonl", "webhook.stderr.log"} <= {path.name for path in seen}
    for path, words in seen.items():
        for private in (contact, "an unmistakable text", "unmistakable.", "US.2000000000"):
            assert private not in words, path.name
    assert b"unmistakable" not in (stack.data_dir / "tasks.sqlite").read_bytes()


def files_said(data_dir: Path) -> list[Path]:
    """What the programs say, and what they say of themselves."""
    return [
        path
        for path in data_dir.iterdir()
        if path.suffix in (".jsonl", ".log", ".json", ".stderr") and path.name != "calls.jsonl"
    ]


# ---- a number that is held back


def test_a_refused_token_and_a_block_are_waited_out(held: Held) -> None:
    stack = held.stack
    ids = [held.refused, held.while_refused, held.blocked, held.while_blocked]

    stack.wait_settled(ids, 120)

    assert [len(stack.ledger(f"1555300000{number}")) for number in range(1, 5)] == [1] * 4
    assert answers(stack, held.refused) == ["credential_refused", "accepted"]
    assert answers(stack, held.blocked) == ["blocked", "accepted"]
    assert answers(stack, held.while_refused) == answers(stack, held.while_blocked) == ["accepted"]
    assert [reply_of(stack, one).attempt for one in ids] == [1] * 4, "none of it spends an attempt"
    assert not stack.marks.block
    stack.wait_logs("tenant_needs_reauth", code=190, severity="ERROR")
    stack.wait_logs("sender_blocked", code=368, severity="ERROR")
