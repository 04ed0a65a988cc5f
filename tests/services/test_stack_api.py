"""The API service in the running stack: from a program's request to what WhatsApp has, through kills and outages."""

import itertools
import json
import os
import signal
import socket
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from shared.domain.record import Delivery
from tests.support.stack import SECONDS, SENDER, Stack

SCALE = 20
MOST_SECONDS = 5.0
"""Until a request is answered if the store or the queue is away."""

AWAY = (503, "UNAVAILABLE")
NOT_NOW = 2494100
"""Meta's code for a number under maintenance: the message is tried again, and each time counts."""


@pytest.fixture(scope="module")
def api(make_stack: Callable[..., Stack]) -> Iterator["Api"]:
    with make_stack(IN_DOUBT_SECONDS="120") as stack:
        yield Api(stack)


@pytest.fixture(autouse=True)
def no_fault_is_left(api: "Api") -> Iterator[None]:
    yield
    api.stack.control("DELETE", "faults")


class Api:
    """The API of a stack, asked with the key of its file."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack

    @property
    def authorization(self) -> str:
        return f"Bearer {Path(self.stack.described['api_key_file']).read_text().strip()}"

    def head(self, length: int) -> bytes:
        """The beginning of a request whose body the service asks for."""
        lines = {"Host": "x", "Authorization": self.authorization, "Content-Type": "application/json"}
        lines |= {"Content-Length": str(length), "Expect": "100-continue", "Connection": "close"}
        return "\r\n".join(["POST /v1/messages HTTP/1.1", *map(": ".join, lines.items()), "", ""]).encode()

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        """The answer. A request without one, as while the process starts, is repeated."""
        given = {"Authorization": self.authorization, "Connection": "close", **headers}

        def answer() -> httpx.Response | None:
            try:
                return self.stack.http.request(method, self.stack.described["api"] + path, json=body, headers=given)
            except httpx.TransportError:
                return None

        found = self.stack.wait_until(answer, "the API answers")
        assert found is not None
        return found

    def send(self, contact: str, key: str | None = None, text: str = "a reminder", **more: Any) -> httpx.Response:
        body = {"from": SENDER, "to": f"+{contact}", "text": text, **more}
        return self.call("POST", "/v1/messages", body, **({"Idempotency-Key": key} if key else {}))

    def accepted(self, contact: str, **more: Any) -> str:
        """The id of a message that is stored."""
        answer = self.send(contact, **more)
        assert answer.status_code == 202, answer.text
        id: str = answer.json()["id"]
        return id

    def record(self, id: str) -> Delivery:
        found = self.stack.store.get(id)
        assert isinstance(found, Delivery)
        return found

    def shown(self, id: str) -> Any:
        return self.call("GET", f"/v1/messages/{id}").json()["shown"]

    def wait(self, id: str, shown: str, seconds: float = SECONDS) -> Delivery:
        """The record, once it is final and the API shows this of it."""
        self.stack.wait_until(lambda: self.record(id).final, "the message is final", seconds)
        assert self.shown(id) == shown
        return self.record(id)


def a_key() -> str:
    return uuid.uuid4().hex


def test_message_sent_with_the_key_file_reaches_whatsapp_once(api: Api, contact: str) -> None:
    id = api.accepted(contact, metadata={"visit": 17})

    api.wait(id, "sent")

    assert api.stack.texts(contact) == ["a reminder"]
    shown = api.call("GET", f"/v1/messages/{id}").json()
    assert (shown["direction"], shown["state"], shown["metadata"]) == ("outbound", "done", {"visit": 17})
    assert [moment["what"] for moment in shown["timeline"]][:2] == ["planned", "accepted"]
    (line,) = api.stack.wait_logs("api_answered", delivery=id, http_status=202)
    assert (line["route"], line["tenant"]) == ("POST /v1/messages", "default")
    assert line["correlation_id"] == shown["correlation_id"]


def test_64_callers_with_one_idempotency_key_store_one_message(api: Api, contact: str) -> None:
    key = a_key()
    with ThreadPoolExecutor(64) as callers:
        answers = list(callers.map(lambda _: api.send(contact, key), range(64)))

    assert {answer.status_code for answer in answers} == {202}
    (body,) = {answer.content for answer in answers}
    api.wait(json.loads(body)["id"], "sent")
    assert api.stack.texts(contact) == ["a reminder"]
    assert api.send(contact, key, text="another").json()["code"] == "IDEMPOTENCY_CONFLICT"


def test_message_and_key_outlive_a_kill_of_the_api_and_a_restart(api: Api, contact: str) -> None:
    key = a_key()
    first = api.send(contact, key, delay="40s")
    text = (api.stack.data_dir / "api-key").read_text()

    api.stack.wait_back(api.stack.kill("api"))
    after_kill = api.send(contact, key, delay="40s")
    api.stack.restart()
    after_restart = api.send(contact, key, delay="40s")

    assert (api.stack.data_dir / "api-key").read_text() == text
    assert first.content == after_kill.content == after_restart.content
    api.wait(first.json()["id"], "sent")
    assert api.stack.texts(contact) == ["a reminder"]


def test_later_message_waits_until_it_is_due_unless_it_is_cancelled(api: Api, contacts: Callable[[], str]) -> None:
    began = time.time()
    cancelled, later = contacts(), contacts()
    gone = api.accepted(cancelled, delay="40s")
    due = api.accepted(later, delay="50s")
    assert api.shown(due) == "pending"

    answers = [api.call("POST", f"/v1/messages/{gone}/cancel") for _ in range(2)]

    assert [(answer.status_code, answer.json()["shown"]) for answer in answers] == [(200, "cancelled")] * 2
    api.wait(due, "sent")
    assert time.time() - began >= 50 / SCALE - 0.2
    assert api.call("POST", f"/v1/messages/{due}/cancel").json()["code"] == "NOT_CANCELLABLE"
    assert (api.stack.texts(cancelled), api.stack.texts(later)) == ([], ["a reminder"])


# ---- a delayed notification: 15 s, then three attempts 15 s apart, then a dead letter

NOTIFICATION: dict[str, Any] = {"delay": "15s", "retry": {"attempts": 3, "wait": "15s"}}


def test_notification_is_tried_three_times_with_its_wait_and_is_dead_then(api: Api, contact: str) -> None:
    api.stack.fault("send", "error", code=NOT_NOW, times=0, match={"to": contact})

    id = api.accepted(contact, **NOTIFICATION)

    record = api.wait(id, "failed")
    assert (record.state, record.attempt) == ("dead", 3)
    tried = [line["time"] for line in api.stack.logs("outbound_rescheduled", delivery=id)]
    tried += [line["time"] for line in api.stack.logs("outbound_failed", delivery=id)]
    moments = [record.received_at.timestamp(), *map(seconds_of, tried)]
    waits = [after - before for before, after in itertools.pairwise(moments)]
    assert len(waits) == 3
    assert all(wait >= 0.75 * 15 / SCALE for wait in waits), "the wait is scattered by a fifth"
    assert api.stack.texts(contact) == []


def seconds_of(written: str) -> float:
    """A time of the log in seconds since 1970."""
    return datetime.fromisoformat(written).timestamp()


def test_notification_in_hand_when_its_process_is_killed_ends_as_it_would(api: Api, contact: str) -> None:
    """The kill costs an attempt whose result nobody knows; the lease's end, and no second send, brings it back."""
    api.stack.fault("provider", "hang", seconds=60, match={"to": contact})
    id = api.accepted(contact, **NOTIFICATION)
    api.stack.wait_until(lambda: api.stack.state_of(id) == "leased", "the message is in hand")

    killed = api.stack.kill("internal")

    api.stack.control("DELETE", "faults")
    api.stack.fault("send", "error", code=NOT_NOW, times=0, match={"to": contact})
    api.stack.wait_back(killed)
    record = api.wait(id, "failed", 60)
    assert (record.state, record.attempt, record.doubts) == ("dead", 3, 1)
    assert api.stack.texts(contact) == []


def test_notification_waits_for_a_provider_that_is_away_and_spends_no_attempt(api: Api, contact: str) -> None:
    api.stack.put_marks(down=None)
    before = len(api.stack.logs("provider_down"))
    api.stack.fault("provider", "refuse", times=0)
    id = api.accepted(contact, **NOTIFICATION)
    api.stack.wait_until(lambda: len(api.stack.logs("provider_down")) >= before + 4, "four probes failed", 60)
    assert api.shown(id) == "pending"

    api.stack.control("DELETE", "faults")

    record = api.wait(id, "sent")
    assert (record.attempt, record.doubts) == (1, 0)
    assert api.stack.texts(contact) == ["a reminder"]


# ---- the store or the queue is away


def refusal(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["Retry-After"].isdigit()
    return answer.status_code, answer.json()["code"]


def test_request_without_a_queue_is_refused_in_time_and_counts_once_when_repeated(
    api: Api, contacts: Callable[[], str]
) -> None:
    keyed, unkeyed = contacts(), contacts()
    key = a_key()
    pid = api.stack.pids()["tasks"]
    os.kill(pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        refused = api.send(keyed, key)
        took = time.monotonic() - began
        lost = api.send(unkeyed)
    finally:
        os.kill(pid, signal.SIGCONT)

    assert (refusal(refused), refusal(lost)) == (AWAY, AWAY)
    assert took < MOST_SECONDS
    id = api.accepted(keyed, key=key)
    api.wait(id, "sent")
    assert (api.stack.texts(keyed), api.stack.texts(unkeyed)) == (["a reminder"], [])


@contextmanager
def locked(stack: Stack) -> Iterator[None]:
    """Nobody can write into the store's file until the block ends."""
    with closing(sqlite3.connect(stack.data_dir / "pombo.sqlite")) as db:
        db.execute("BEGIN IMMEDIATE")
        yield


def test_request_without_a_store_is_refused_in_time_and_nothing_is_stored(api: Api, contact: str) -> None:
    key = a_key()
    with locked(api.stack):
        began = time.monotonic()
        refused = api.send(contact, key)
        took = time.monotonic() - began

    assert refusal(refused) == AWAY
    assert took < MOST_SECONDS
    api.wait(api.accepted(contact, key=key), "sent")
    assert api.stack.texts(contact) == ["a reminder"]


def test_request_in_flight_at_sigterm_is_answered(api: Api, contact: str) -> None:
    pid = api.stack.pids()["api"]
    host, _, port = api.stack.described["api"].removeprefix("http://").partition(":")
    body = json.dumps({"from": SENDER, "to": f"+{contact}", "text": "a reminder"}).encode()
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(api.head(len(body)))
        assert connection.recv(64).startswith(b"HTTP/1.1 100"), "so it is in a thread"
        os.kill(pid, signal.SIGTERM)
        connection.sendall(body)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))

    assert answer.startswith(b"HTTP/1.1 202 ")
    api.stack.wait_until(lambda: api.stack.pids()["api"] != pid and api.stack.answers("api"), "the api is back")
    api.wait(json.loads(answer.partition(b"\r\n\r\n")[2])["id"], "sent")


def test_bytes_that_are_no_http_are_refused_with_a_problem_document(api: Api) -> None:
    host, _, port = api.stack.described["api"].removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(b"GET /v1/messages?c4n4ry HTTP/1.1\r\nX c4n4ry: 1\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(65536), b""))

    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["code"] == "INVALID_REQUEST"
    assert b"c4n4ry" not in answer
