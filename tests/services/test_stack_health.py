"""A store or a queue that is away: said by health, answered 500 in time, and made good by the redelivery."""

import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import pytest

from local.services import SERVICES
from tests.support.payloads import of_texts, text
from tests.support.stack import ROOT, Stack, clean_environment, wait_until

PROMISED_SECONDS = 5
EACH_SERVICE = pytest.mark.parametrize("service", SERVICES)


@pytest.fixture(scope="module")
def fragile(make_stack: Callable[..., Stack]) -> Iterator[Stack]:
    """What dies stays dead."""
    with make_stack("--no-restart", THREADS="8") as stack:
        yield stack


@EACH_SERVICE
def test_healthy_service_answers_ok(stack: Stack, service: str) -> None:
    ready = stack.get(service, "/readyz")

    assert (stack.get(service, "/livez").status_code, ready.status_code) == (200, 200)
    body = ready.json()
    assert body["status"] == "ok"
    assert body["services"] == {"store": "connected", "queue": "connected"}
    assert body["timestamp"].endswith("Z")
    assert datetime.fromisoformat(body["timestamp"])
    health = stack.get(service, "/health")
    said = health.json()
    outages = said.pop("outages", {})
    assert (health.status_code, said | {"timestamp": ""}) == (200, body | {"timestamp": ""})
    assert outages.keys() == ({"provider_down", "backend_down"} if service == "internal" else set())


@EACH_SERVICE
@pytest.mark.parametrize("path", ["/livez", "/startz", "/readyz", "/health"])
def test_health_routes_accept_only_get(stack: Stack, service: str, path: str) -> None:
    """The API asks for a key before it tells what a path takes."""
    expected = 401 if service == "api" else 405
    assert stack.http.post(stack.described[service] + path).status_code == expected


def test_a_service_whose_handlers_all_hang_asks_to_be_replaced(fragile: Stack, contacts: Callable[[], str]) -> None:
    ids = [fragile.say(contacts(), "!hang 8") for _ in range(int(fragile.settings["THREADS"]))]

    fragile.wait_until(lambda: fragile.get("internal", "/livez").status_code == 503, "it gives up on itself")

    assert fragile.get("webhook", "/livez").status_code == 200, "the webhook goes on taking messages"
    fragile.wait_until(lambda: fragile.get("internal", "/livez").status_code == 200, "the handlers end after all")
    fragile.wait_settled(ids, 60)


def test_locked_store_answers_500_in_time_and_redelivery_succeeds(fragile: Stack, contact: str) -> None:
    """The file is held for longer than a POST waits for it."""
    body = of_texts(*[text(contact, f"wamid.{contact}.{number}", f"text {number}") for number in range(20)])
    db = sqlite3.connect(fragile.data_dir / "pombo.sqlite", isolation_level=None, timeout=10)
    db.execute("BEGIN EXCLUSIVE")
    try:
        began = time.monotonic()
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(fragile.post, [body] * 4))
        took = time.monotonic() - began
    finally:
        db.execute("ROLLBACK")
        db.close()

    assert [answer.status_code for answer in answers] == [500] * 4
    assert took < 2 * PROMISED_SECONDS
    assert "text" not in answers[0].text
    assert contact not in answers[0].text
    assert fragile.post(body).status_code == 200
    ids = [f"wamid.{contact}.{number}" for number in range(20)]
    fragile.wait_settled(ids)
    assert sorted(fragile.texts(contact)) == sorted(f"text {number}" for number in range(20))
    assert {fragile.calls(one) for one in ids} == {1}


def test_locked_store_during_processing_only_delays_messages(fragile: Stack, contacts: Callable[[], str]) -> None:
    people = [contacts() for _ in range(6)]
    ids = [fragile.say(one, "!list 2") for one in people]
    db = sqlite3.connect(fragile.data_dir / "pombo.sqlite", isolation_level=None, timeout=10)
    db.execute("BEGIN EXCLUSIVE")
    try:
        answers = [fragile.get(service, "/livez").status_code for service in SERVICES]
        wait_until(lambda: fragile.logs("attempt_failed") or fragile.logs("webhook_failed"), "somebody had to wait")
    finally:
        db.execute("ROLLBACK")
        db.close()

    assert answers == [200] * len(SERVICES)
    fragile.wait_settled(ids, 90)
    assert [fragile.texts(one) for one in people] == [["1", "2"]] * 6


def test_unavailable_queue_is_reported_and_redelivery_enqueues_the_message(
    fragile: Stack, contact: str, contacts: Callable[[], str]
) -> None:
    """Stored and not queued: the redelivery finds it there, and still has to make its task."""
    body = of_texts(text(contact, f"wamid.{contact}", "hello"))
    fragile.kill("tasks")
    wait_until(lambda: not fragile.answers("tasks"), "the queue is gone")

    began = time.monotonic()
    answer = fragile.post(body)
    took = time.monotonic() - began

    assert (answer.status_code, took < 2 * PROMISED_SECONDS) == (500, True)
    assert fragile.state_of(fragile.event_key(f"wamid.{contact}")) == "pending"
    for service in SERVICES:
        ready = fragile.get(service, "/readyz")
        assert (ready.status_code, ready.json()["status"]) == (503, "degraded")
        assert ready.json()["services"] == {"store": "connected", "queue": "unavailable"}
        health = fragile.get(service, "/health")
        assert (health.status_code, health.json()["status"]) == (200, "degraded")
        assert fragile.get(service, "/livez").status_code == 200
        start = fragile.get(service, "/startz")
        assert (start.status_code, start.json()["services"]) == (200, {"store": "connected"})
    people = [contacts() for _ in range(60)]  # a person's messages are handled one at a time
    large = of_texts(*[text(people[it % 60], f"wamid.{contact}.{it}", f"{it}") for it in range(300)])
    began = time.monotonic()
    assert fragile.post(large).status_code == 500
    assert time.monotonic() - began < 2 * PROMISED_SECONDS

    port = fragile.described["tasks"].rpartition(":")[2]
    command = [sys.executable, "-m", "local.tasks", "--port", port, "--data-dir", str(fragile.data_dir)]
    with (fragile.data_dir / "logs.jsonl").open("a") as log:
        queue = subprocess.Popen(
            [*command, "--time-scale", "20"], cwd=ROOT, env=clean_environment(), stdout=log, stdin=subprocess.DEVNULL
        )
    try:
        for service in SERVICES:
            fragile.wait_until(lambda of=service: fragile.get(of, "/readyz").status_code == 200, f"{service} is ready")
        assert fragile.post(body).status_code == 200
        fragile.wait_until(lambda: fragile.post(large).status_code == 200, "the large one is taken", 60)
        ids = [f"wamid.{contact}", *(f"wamid.{contact}.{number}" for number in range(300))]
        fragile.wait_settled(ids, 90)
        assert fragile.texts(contact) == ["hello"]
        assert [fragile.texts(one) for one in people] == [
            [str(it) for it in range(first, 300, 60)] for first in range(60)
        ]
        assert {fragile.calls(one) for one in ids} == {1}
    finally:
        queue.terminate()
        queue.wait(20)
