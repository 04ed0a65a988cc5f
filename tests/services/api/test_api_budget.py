"""The budget of the API: what a request costs in calls and documents of Firestore, tasks, and lines of the log."""

import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from shared.stores.firestore.store import FirestoreStore
from tests.support import parts
from tests.support.api_service import ApiService
from tests.support.firestore_backend import DATABASE, fresh_project, shared_emulator
from tests.support.parts import ROOT, SENDER

BUDGET: Mapping[str, Mapping[str, int]] = tomllib.loads((ROOT / "tests/data/api_budget.toml").read_text())
UNKNOWN_KEY = f"pombo_{'0' * 16}_{'0' * 64}"


@dataclass
class Counting:
    """A Firestore client. It counts the calls that are made of it, and the documents in them."""

    client: Any
    counts: Counter[str]

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def call(request: Mapping[str, Any], **options: Any) -> Any:
            self.counts["store_calls"] += 1
            self.counts["writes"] += len(request.get("writes", ()))
            self.counts["reads"] += len(request["documents"]) if method == "batch_get_documents" else 0
            assert method in ("batch_get_documents", "commit"), "a query costs what it finds"
            return getattr(self.client, method)(request=request, **options)

        return call


@dataclass
class Costs:
    """The API on Firestore, and what its requests cost."""

    api: ApiService
    counts: Counter[str]
    capfd: pytest.CaptureFixture[str]
    key: str

    def send(self, key: str | None = None, again: str = "", **more: Any) -> int:
        """Send a message. `again`: its Idempotency-Key."""
        headers = {"Idempotency-Key": again} if again else {}
        return self.api.call("POST", "/v1/messages", message(**more), key=key or self.key, headers=headers).status_code

    def send_many(self, count: int) -> int:
        body = {"messages": [message()] * count}
        return self.api.call("POST", "/v1/messages/batch", body, key=self.key).status_code

    def begin(self) -> None:
        """Count from zero."""
        self.counts.clear()
        self.api.queue.calls.clear()
        self.capfd.readouterr()

    def so_far(self) -> dict[str, int]:
        """What it cost since then."""
        lines = len(parts.lines(self.capfd.readouterr().out))
        ensured = {"task_calls": len(self.api.queue.calls)}
        return {name: self.counts[name] for name in ("store_calls", "writes", "reads")} | ensured | {"log_lines": lines}


@pytest.fixture
def costs(api: ApiService, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Costs]:
    emulator, _ = shared_emulator()
    store, counts = FirestoreStore(fresh_project(), DATABASE, emulator=emulator.address), Counter[str]()
    api.store.port.close()
    api.store.port = store
    key = api.key(None)
    connect = store._rpc._client.get
    monkeypatch.setattr(store._rpc._client, "get", lambda: Counting(connect(), counts))
    with parts.logged():
        yield Costs(api, counts, capfd, key)


def message(**more: Any) -> dict[str, Any]:
    return {"from": SENDER, "to": "+15550002222", "text": "Your appointment is at nine.", **more}


def sent_again(costs: Costs) -> int:
    costs.send(again="order-17")
    costs.begin()
    return costs.send(again="order-17")


def wrong_secret(costs: Costs) -> int:
    return costs.send(f"{costs.key[:-1]}{'0' if costs.key[-1] != '0' else '1'}")


def unknown_again(costs: Costs) -> int:
    costs.send(UNKNOWN_KEY)
    costs.begin()
    return costs.send(UNKNOWN_KEY)


REQUESTS: Mapping[str, tuple[Callable[[Costs], int], int]] = {
    "a message": (lambda costs: costs.send(), 202),
    "a message for later": (lambda costs: costs.send(delay="2h"), 202),
    "a message again with its key": (sent_again, 202),
    "a batch of 100 messages": (lambda costs: costs.send_many(100), 200),
    "an unknown key": (lambda costs: costs.send(UNKNOWN_KEY), 401),
    "an unknown key again": (unknown_again, 401),
    "a wrong secret": (wrong_secret, 401),
    "a wrong field": (lambda costs: costs.send(text=""), 400),
}
"""Each request, and the status of its answer."""


def test_budget_names_what_is_counted() -> None:
    assert BUDGET.keys() == REQUESTS.keys()


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_costs_its_budget(costs: Costs, name: str) -> None:
    request, expected = REQUESTS[name]
    assert costs.send() == 202, "the caches are warm"
    costs.begin()
    assert request(costs) == expected
    assert costs.so_far() == BUDGET[name]
