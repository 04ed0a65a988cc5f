"""The figures of the admin health, on a running stack whose provider and store are slow by so much."""

import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.payloads import of_texts, text
from tests.support.stack import SENDER, Stack

AT_ONCE = 8
"""Messages and webhooks: as many as the queue sends at once, so that none waits for another."""

SEND_SECONDS = 1.0
"""How long the provider takes for a message."""

LOCK_SECONDS = 0.8
"""How long the store takes no write; after 1.8 s a webhook would be answered 500."""

OFF = 0.2
"""How far a figure may be from the time that the other side measured."""


@pytest.fixture(scope="module")
def unhurried(make_stack: Callable[..., Stack]) -> Iterator[Stack]:
    """In real time, where the provider may be that slow. A service that ends stays away."""
    with make_stack("--no-restart", TIME_SCALE="1") as stack:
        yield stack


def call(stack: Stack, method: str, path: str, body: Any = None) -> Any:
    key = Path(stack.described["api_key_file"]).read_text().strip()
    answer = stack.http.request(
        method, stack.described["api"] + path, json=body, headers={"Authorization": f"Bearer {key}"}
    )
    assert answer.status_code in (200, 202), answer.text
    return answer.json()


def sent_by_a_slow_provider(stack: Stack, contacts: Sequence[str]) -> list[float]:
    """Milliseconds from when each message was stored to the provider's answer, by the provider's ledger."""
    stack.fault("send", "slow", seconds=SEND_SECONDS, times=0)
    bodies = [{"from": SENDER, "to": f"+{contact}", "text": "a reminder"} for contact in contacts]
    with ThreadPoolExecutor(AT_ONCE) as programs:
        ids = [found["id"] for found in programs.map(lambda body: call(stack, "POST", "/v1/messages", body), bodies)]
    stack.wait_until(lambda: all(stack.state_of(id) == "done" for id in ids), "all are sent")
    stored = [stack.store.get(id).received_at for id in ids]
    answered = [datetime.fromisoformat(stack.ledger(contact)[0]["answered"]) for contact in contacts]
    return sorted((end - begin).total_seconds() * 1000 for begin, end in zip(stored, answered, strict=True))


def posted_to_a_slow_store(stack: Stack, contacts: Sequence[str]) -> list[float]:
    """Milliseconds that each webhook took, by the clock of who posted it. Nobody answers these messages."""

    def post(contact: str) -> float:
        began = time.monotonic()
        assert stack.post(of_texts(text(contact, f"wamid.{contact}", "!nothing"))).status_code == 200
        return (time.monotonic() - began) * 1000

    with ThreadPoolExecutor(AT_ONCE) as posters:
        with closing(sqlite3.connect(stack.data_dir / "pombo.sqlite", timeout=10)) as db:
            db.execute("BEGIN IMMEDIATE")
            taken = [posters.submit(post, contact) for contact in contacts]
            time.sleep(LOCK_SECONDS)
        return sorted(one.result() for one in taken)


def figures(stack: Stack) -> Any:
    """What the API shows once both services have ended, and so have written what they counted."""
    for service in ("webhook", "internal"):
        os.kill(stack.pids()[service], signal.SIGTERM)

    def shown() -> Any:
        found = call(stack, "GET", "/v1/admin/health")
        return found if found["send_p95_ms"] and found["webhook_p95_ms"] else None

    return stack.wait_until(shown, "both services have written their counters")


def test_figures_are_the_injected_latencies_within_a_fifth(unhurried: Stack, contacts: Callable[[], str]) -> None:
    sends = sent_by_a_slow_provider(unhurried, [contacts() for _ in range(AT_ONCE)])
    posts = posted_to_a_slow_store(unhurried, [contacts() for _ in range(AT_ONCE)])

    found = figures(unhurried)

    assert sends[-1] >= SEND_SECONDS * 1000
    assert posts[-1] >= LOCK_SECONDS * 900
    (ours,) = found["tenants"]
    for its in (found, ours):
        assert its["send_p95_ms"] == pytest.approx(sends[-1], rel=OFF)
        assert its["webhook_p95_ms"] == pytest.approx(posts[-1], rel=OFF)
        assert (its["sent_last_1h"], its["failed_last_1h"], its["send_success_rate_last_1h"]) == (AT_ONCE, 0, 1.0)
