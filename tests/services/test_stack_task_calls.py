"""The private service, called directly: who may, and what it says to tasks that are late, strange or forged."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from google.cloud.tasks_v2 import CloudTasksClient, Task
from google.cloud.tasks_v2.services.cloud_tasks.transports import CloudTasksGrpcTransport

from shared.domain.identity import outbound_key
from shared.domain.record import Delivery, State
from tests.support.payloads import of_texts, text
from tests.support.stack import OLD_TASK_TOKEN, TASK_TOKEN, Stack

KEY_FIELDS = {"inbound": "inbound_event_id", "outbound": "outbound_key"}
FORGED = {
    "X-CloudTasks-TaskName": "anything",
    "X-CloudTasks-QueueName": "outbound",
    "X-CloudTasks-TaskRetryCount": "0",
    "X-AppEngine-QueueName": "outbound",
    "User-Agent": "Google-Cloud-Tasks",
    "Authorization": "Bearer forged",
}
BOTH = pytest.mark.parametrize("kind", ["inbound", "outbound"])


def body(kind: str, key: str, generation: int = 0, hop: int = 0, version: Any = 2) -> dict[str, Any]:
    """A task's body."""
    given = {"v": version, "tenant": "default", KEY_FIELDS[kind]: key, "correlation_id": "correlation-of-a-test"}
    return {**given, "generation": generation, "hop": hop}


def records(stack: Stack, contact: str, words: str = "hello") -> dict[str, Delivery]:
    """A message that was answered: its two records."""
    message_id = stack.say(contact, words)
    stack.wait_until(
        lambda: stack.is_settled(message_id) and (reply := stack.reply(message_id)) and reply.current_receipts.read,
        "it was read",
    )
    event, reply = stack.event(message_id), stack.reply(message_id)
    assert event is not None
    assert reply is not None
    return {"inbound": event, "outbound": reply}


@contextmanager
def tasks_client(stack: Stack) -> Iterator[CloudTasksClient]:
    with grpc.insecure_channel(stack.described["tasks"]) as channel:
        yield CloudTasksClient(transport=CloudTasksGrpcTransport(channel=channel))


def tasks_in(stack: Stack, queue: str) -> list[Task]:
    """What is in a queue, headers and all."""
    with tasks_client(stack) as client:
        parent = client.queue_path("pombo-local", "local", queue)
        return list(client.list_tasks(request={"parent": parent, "response_view": Task.View.FULL}))


# ---- who may


@BOTH
@pytest.mark.parametrize("token", [None, "wrong", TASK_TOKEN + "x", TASK_TOKEN[:-1], TASK_TOKEN.upper(), "é"])
def test_a_call_without_the_right_token_is_refused(stack: Stack, kind: str, token: str | None) -> None:
    refused = len(stack.logs("task_refused"))
    headers = {} if token is None else {"X-Internal-Token": token.encode("utf-8").decode("latin-1")}

    answer = stack.http.post(
        f"{stack.described['internal']}/internal/process_{kind}",
        json=body(kind, "0" * 40),
        headers=[(name, given.encode("latin-1")) for name, given in headers.items()],
    )

    assert (answer.status_code, answer.json()) == (403, {"error": "forbidden"})
    stack.wait_until(lambda: len(stack.logs("task_refused")) > refused, "the refusal is logged")


@BOTH
def test_the_headers_of_cloud_tasks_prove_nothing(stack: Stack, contact: str, kind: str) -> None:
    stack.fault("send", "error", code=80007, match={"to": contact})
    message_id = stack.say(contact, "hello")
    stack.wait_until(lambda: "limited" in stack.what(message_id), "the reply waits")
    reply = stack.reply(message_id)
    assert reply is not None

    answer = stack.task(kind, body(kind, reply.key, generation=reply.generation), token=None, **FORGED)

    assert (answer.status_code, answer.json()) == (403, {"error": "forbidden"})
    assert stack.reply(message_id) == reply
    stack.wait_texts(contact, ["hello"])


def test_sweep_without_the_token_is_forbidden(stack: Stack) -> None:
    url = f"{stack.described['internal']}/internal/sweep"

    assert stack.http.post(url).status_code == 403
    assert stack.http.post(url, headers={"X-Internal-Token": "wrong"}).status_code == 403
    answer = stack.http.post(url, headers={"X-Internal-Token": TASK_TOKEN})

    assert answer.status_code == 200
    counts = {"selected", "enqueued", "pending", "leased", "in_doubt", "dead", "receipts_failed"}
    assert answer.json().keys() == counts | {"oldest_pending_seconds", "oldest_dead_seconds"}


@BOTH
def test_a_token_of_before_a_rotation_is_still_accepted(stack: Stack, kind: str) -> None:
    for token, status in [(TASK_TOKEN, 200), (OLD_TASK_TOKEN, 200), (f"{TASK_TOKEN},{OLD_TASK_TOKEN}", 403)]:
        assert stack.task(kind, body(kind, "0" * 40), token=token).status_code == status


def test_tasks_carry_the_first_token_and_nothing_private(stack: Stack, contact: str) -> None:
    stack.fault("send", "error", code=80007, match={"to": contact})
    message_id = stack.say(contact, "a secret text")
    stack.wait_until(lambda: "limited" in stack.what(message_id), "the reply waits")
    key = outbound_key(stack.event_key(message_id), 0)

    mine = [task for task in tasks_in(stack, "outbound") if key.encode() in task.http_request.body]

    assert mine
    for task in mine:
        told = f"{task.name} {task.http_request.url} {task.http_request.body!r} {task.http_request.headers}"
        assert contact not in told
        assert "secret" not in told
        assert message_id not in told
        fields = {"v", "tenant", "outbound_key", "correlation_id", "generation", "hop"}
        assert json.loads(task.http_request.body).keys() == fields
        assert task.http_request.headers["X-Internal-Token"] == TASK_TOKEN
    stack.wait_texts(contact, ["a secret text"])


# ---- what it says


@BOTH
def test_task_for_a_missing_record_is_answered_200(stack: Stack, kind: str) -> None:
    gone = len(stack.logs("task_gone"))

    answer = stack.task(kind, body(kind, "0" * 40))

    assert (answer.status_code, answer.json()) == (200, {"state": "gone"})
    stack.wait_until(lambda: len(stack.logs("task_gone")) > gone, "it is logged")


@BOTH
@pytest.mark.parametrize("generation", [0, 7])
def test_a_task_that_comes_again_after_the_end_does_nothing_more(
    stack: Stack, contact: str, kind: str, generation: int
) -> None:
    before = records(stack, contact)

    answers = [stack.task(kind, body(kind, before[kind].key, generation)) for _ in range(3)]

    assert [(a.status_code, a.json()) for a in answers] == [(200, {"state": "done"})] * 3
    stack.wait_quiet(contact, ["hello"])
    assert stack.store.get(before[kind].key) == before[kind]


def test_task_of_an_old_generation_neither_sends_nor_changes_the_record(stack: Stack, contact: str) -> None:
    stack.fault("send", "error", code=80007, match={"to": contact})
    message_id = stack.say(contact, "hello")
    waiting = stack.wait_until(
        lambda: (reply := stack.reply(message_id)) and reply.generation == 1 and reply, "the reply waits its turn"
    )

    answer = stack.task("outbound", body("outbound", waiting.key, generation=0))

    assert (answer.status_code, answer.json()) == (200, {"state": "waiting"})
    assert stack.reply(message_id) == waiting
    assert stack.texts(contact) == []
    stack.wait_texts(contact, ["hello"])
    assert stack.task("outbound", body("outbound", waiting.key, generation=0)).json() == {"state": "done"}


def test_older_task_of_an_event_leaves_its_next_attempt_alone(stack: Stack, contact: str) -> None:
    message_id = stack.say(contact, "!raise 2")
    waiting = stack.wait_until(
        lambda: (event := stack.event(message_id)) and event.generation == 2 and event.state == "pending" and event,
        "it waits for its third try",
    )

    answer = stack.task("inbound", body("inbound", waiting.key, generation=0))

    if answer.json() != {"state": "done"}:  # a busy machine may have let the third try come first
        assert (answer.status_code, answer.json()) == (200, {"state": "waiting"})
    stack.wait_texts(contact, ["after 2"])
    assert stack.calls(message_id) == 3


@BOTH
def test_an_unknown_version_of_a_task_is_left_to_a_newer_pombo(stack: Stack, contact: str, kind: str) -> None:
    before = records(stack, contact)
    known = len(stack.logs("state_unknown"))

    answer = stack.task(kind, body(kind, before[kind].key, version=3) | {"more": "of it"})

    assert (answer.status_code, answer.json()) == (409, {"state": "unknown"})
    assert stack.store.get(before[kind].key) == before[kind]
    stack.wait_until(lambda: len(stack.logs("state_unknown")) > known, "it is logged")


@BOTH
def test_record_in_an_unknown_state_is_unchanged(stack: Stack, contact: str, kind: str) -> None:
    key = records(stack, contact)[kind].key

    with sqlite3.connect(stack.data_dir / "pombo.sqlite", timeout=10) as db:
        (kept,) = db.execute("SELECT body FROM records WHERE key = ?", (key,)).fetchone()
        strange = json.dumps(json.loads(kept) | {"state": "hibernating", "more": {"of": "it"}})
        db.execute("UPDATE records SET state = 'hibernating', body = ? WHERE key = ?", (strange, key))
        db.commit()
        stored = db.execute("SELECT * FROM records WHERE key = ?", (key,)).fetchone()
        try:
            answer = stack.task(kind, body(kind, key))
            assert (answer.status_code, answer.json()) == (409, {"state": "unknown"})
            assert db.execute("SELECT * FROM records WHERE key = ?", (key,)).fetchone() == stored
            assert stack.texts(contact) == ["hello"]
        finally:
            db.execute("UPDATE records SET state = 'done', body = ? WHERE key = ?", (kept, key))
            db.commit()
    db.close()


def test_a_webhook_for_an_event_in_an_unknown_state_is_a_duplicate(stack: Stack, contact: str) -> None:
    webhook = of_texts(text(contact, f"wamid.{contact}", "hello"))
    assert stack.post(webhook).status_code == 200
    stack.wait_settled([f"wamid.{contact}"])
    key = stack.event_key(f"wamid.{contact}")

    with sqlite3.connect(stack.data_dir / "pombo.sqlite", timeout=10) as db:
        (kept,) = db.execute("SELECT body FROM records WHERE key = ?", (key,)).fetchone()
        strange = json.dumps(json.loads(kept) | {"state": "hibernating"})
        db.execute("UPDATE records SET state = 'hibernating', body = ? WHERE key = ?", (strange, key))
        db.commit()
        try:
            assert stack.post(webhook).status_code == 200
            assert db.execute("SELECT body FROM records WHERE key = ?", (key,)).fetchone() == (strange,)
        finally:
            db.execute("UPDATE records SET state = 'done', body = ? WHERE key = ?", (kept, key))
            db.commit()
    db.close()
    assert stack.state_of(key) == State.DONE


NO_TASK: dict[str, Any] = {
    "empty": b"",
    "not JSON": b"hello",
    "not UTF-8": b"\xff\xfe",
    "null": None,
    "a list": [],
    "a string": "task",
    "an empty object": {},
    "nested 40,000 deep": b"[" * 40_000,
    "a number of 90,000 digits": b"9" * 90_000,
    "no version": {"inbound_event_id": "0" * 40, "correlation_id": "correlation", "generation": 0, "hop": 0},
    "the version is a string": body("inbound", "0" * 40, version="1"),
    "the version is true": body("inbound", "0" * 40, version=True),
    "the version is a float": body("inbound", "0" * 40, version=1.5),
    "the version is negative": body("inbound", "0" * 40, version=-1),
    "no key": {"v": 1, "correlation_id": "correlation", "generation": 0, "hop": 0},
    "the key is short": body("inbound", "0" * 39),
    "the key is upper case": body("inbound", "A" * 40),
    "the key is a number": body("inbound", 5),  # type: ignore[arg-type]
    "the key has a line break": body("inbound", "0" * 40 + "\n"),
    "no correlation id": {"v": 1, "inbound_event_id": "0" * 40, "generation": 0, "hop": 0},
    "a correlation id of spaces": body("inbound", "0" * 40) | {"correlation_id": " " * 10},
    "the generation is missing": {"v": 1, "inbound_event_id": "0" * 40, "correlation_id": "correlation", "hop": 0},
    "the generation is below that of a wake task": body("inbound", "0" * 40, generation=-2),
    "the generation is huge": body("inbound", "0" * 40, generation=10**30),
    "the hop is a string": body("inbound", "0" * 40) | {"hop": "0"},
    "the hop is null": body("inbound", "0" * 40) | {"hop": None},
    "a task of the other kind": body("outbound", "0" * 40),
}


@pytest.mark.parametrize("given", NO_TASK.values(), ids=NO_TASK)
def test_invalid_task_body_is_refused_and_logged(stack: Stack, given: Any) -> None:
    refused = len(stack.logs("task_refused"))

    answer = stack.task("inbound", given)

    assert answer.status_code == 400
    stack.wait_until(lambda: len(stack.logs("task_refused")) > refused, "it is logged")


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "nonsense"])
def test_the_content_type_of_a_task_is_ignored(stack: Stack, contact: str, content_type: str) -> None:
    event = records(stack, contact)["inbound"]

    answer = stack.task("inbound", body("inbound", event.key), **{"Content-Type": content_type})

    assert (answer.status_code, answer.json()) == (200, {"state": "done"})


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/internal/process_inbound", 405),
        ("PUT", "/internal/process_outbound", 405),
        ("GET", "/internal/sweep", 405),
        ("POST", "/internal/other", 404),
        ("POST", "/webhooks/whatsapp", 404),
    ],
)
def test_other_method_or_path_is_refused(stack: Stack, method: str, path: str, status: int) -> None:
    answer = stack.http.request(method, stack.described["internal"] + path, headers={"X-Internal-Token": TASK_TOKEN})

    assert answer.status_code == status
