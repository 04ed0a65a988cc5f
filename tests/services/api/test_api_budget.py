"""The budget of the API: what a request costs in calls and documents of Firestore, tasks, and lines of the log."""

import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from werkzeug.test import TestResponse

from shared.domain.record import State
from shared.domain.tenants import Scope
from shared.stores.firestore.store import FirestoreStore
from tests.support import parts
from tests.support.api_service import ApiService
from tests.support.firestore_backend import DATABASE, fresh_project, shared_emulator
from tests.support.parts import NOW, ROOT, SENDER

BUDGET: Mapping[str, Mapping[str, int]] = tomllib.loads((ROOT / "tests/data/api_budget.toml").read_text())
UNKNOWN_KEY = f"pombo_{'0' * 16}_{'0' * 64}"
PAGE, LETTERS, TENANTS = 50, 5, 4
DEAD = {"state": State.DEAD, "reason": "permanent", "attempt": 1, "finished_at": NOW, "sweep_at": None}


@dataclass
class Counting:
    """A Firestore client. It counts the calls that are made of it, and the documents that Firestore bills."""

    client: Any
    counts: Counter[str]

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def call(request: Mapping[str, Any], **options: Any) -> Any:
            self.counts["store_calls"] += 1
            self.counts["writes"] += len(request.get("writes", ()))
            answer = getattr(self.client, method)(request=request, **options)
            if method == "commit":
                return answer
            found = list(answer)
            self.counts["reads"] += billed(method, found)
            return found

        return call


def billed(method: str, found: Sequence[Any]) -> int:
    """A name without a document costs a read. So does a query that finds nothing, and a count of up to 1,000."""
    assert method in ("batch_get_documents", "run_query", "run_aggregation_query"), method
    return max(1, sum("document" in one for one in found)) if method == "run_query" else len(found)


@dataclass
class Costs:
    """The API on Firestore, and what its requests cost."""

    api: ApiService
    counts: Counter[str]
    capfd: pytest.CaptureFixture[str]
    key: str

    def ask(self, method: str, path: str, body: Any = None, key: str | None = None, again: str = "") -> TestResponse:
        """The answer. `again`: the request's Idempotency-Key."""
        headers = {"Idempotency-Key": again} if again else {}
        return self.api.call(method, path, body, key=key or self.key, headers=headers)

    def send(self, key: str | None = None, again: str = "", **more: Any) -> TestResponse:
        return self.ask("POST", "/v1/messages", message(**more), key, again)

    def send_many(self, count: int) -> TestResponse:
        return self.ask("POST", "/v1/messages/batch", {"messages": [message()] * count})

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


Request = Callable[[Costs], TestResponse]
"""Prepares what it needs, and then begins to count."""


def sent_again(costs: Costs) -> TestResponse:
    costs.send(again="order-17")
    costs.begin()
    return costs.send(again="order-17")


def wrong_secret(costs: Costs) -> TestResponse:
    return costs.send(f"{costs.key[:-1]}{'0' if costs.key[-1] != '0' else '1'}")


def unknown_again(costs: Costs) -> TestResponse:
    costs.send(UNKNOWN_KEY)
    costs.begin()
    return costs.send(UNKNOWN_KEY)


def of_a_message(method: str, what: str = "") -> Request:
    """A request about a message that waits."""

    def request(costs: Costs) -> TestResponse:
        id = costs.send(delay="2h").get_json()["id"]
        costs.begin()
        return costs.ask(method, f"/v1/messages/{id}{what}", {} if what else None)

    return request


def messages(costs: Costs) -> TestResponse:
    """The first page: there are more."""
    costs.send_many(PAGE + 1)
    costs.begin()
    return costs.ask("GET", f"/v1/messages?tenant=default&limit={PAGE}")


def of_letters(method: str, path: str, body: Any = None, *scopes: Scope) -> Request:
    """A request about dead letters, of which there are LETTERS; with a key of these scopes, or of all. `path` may name
    the `{id}` of one.
    """

    def request(costs: Costs) -> TestResponse:
        letters = [parts.a_reply(number, **DEAD) for number in range(LETTERS)]
        for letter in letters:
            costs.api.store.port.create(letter)
        key = costs.api.key(None, *scopes)
        costs.ask("GET", "/v1/messages/nobody", key=key)  # so that the key is known
        costs.begin()
        return costs.ask(method, path.format(id=letters[0].key), body, key)

    return request


def of_registry(path: str) -> Request:
    """A request about tenants with a number and a key each, of which there are TENANTS."""

    def request(costs: Costs) -> TestResponse:
        for number in range(TENANTS):
            costs.api.tenant(f"tenant-{number}", f"20{number}")
            costs.api.key(f"tenant-{number}")
        costs.begin()
        return costs.ask("GET", path)

    return request


def health_again(costs: Costs) -> TestResponse:
    costs.ask("GET", "/health/whatsapp")
    costs.begin()
    return costs.ask("GET", "/health/whatsapp")


LETTERS_PATH = "/v1/dead-letters"
REQUESTS: Mapping[str, tuple[Request, int]] = {
    "a message": (lambda costs: costs.send(), 202),
    "a message for later": (lambda costs: costs.send(delay="2h"), 202),
    "a message again with its key": (sent_again, 202),
    "a batch of 100 messages": (lambda costs: costs.send_many(100), 200),
    "a message shown": (of_a_message("GET"), 200),
    "a message cancelled": (of_a_message("POST", "/cancel"), 200),
    "50 of more messages": (messages, 200),
    "5 dead letters": (of_letters("GET", LETTERS_PATH, None, Scope.READ), 200),
    "5 dead letters with previews": (of_letters("GET", LETTERS_PATH), 200),
    "a dead letter replayed": (of_letters("POST", LETTERS_PATH + "/{id}/replay", {}), 200),
    "a dead letter discarded": (of_letters("POST", LETTERS_PATH + "/{id}/discard", {"reason": "old"}), 200),
    "5 dead letters replayed": (of_letters("POST", LETTERS_PATH + "/replay", {"all": True}), 200),
    "5 dead letters discarded": (of_letters("POST", LETTERS_PATH + "/discard", {"all": True, "reason": "old"}), 200),
    "the health for anyone": (of_letters("GET", "/health/whatsapp"), 200),
    "the health for anyone again": (health_again, 200),
    "the health of the deployment": (of_letters("GET", "/health/whatsapp/detailed"), 200),
    "the health of a tenant": (of_letters("GET", "/health/whatsapp/detailed?tenant=default"), 200),
    "the dead letters of a tenant": (of_letters("GET", "/health/whatsapp/dlq?tenant=default"), 200),
    "the figures of the deployment": (of_letters("GET", "/v1/admin/health"), 200),
    "the figures of a tenant": (of_letters("GET", "/v1/admin/health?tenant=default"), 200),
    "3 of more tenants": (of_registry("/v1/tenants?limit=3"), 200),
    "3 of more numbers": (of_registry("/v1/senders?limit=3"), 200),
    "3 of more keys": (of_registry("/v1/keys?limit=3"), 200),
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
    assert costs.send().status_code == 202, "the caches are warm"
    costs.begin()
    assert request(costs).status_code == expected
    assert costs.so_far() == BUDGET[name]
