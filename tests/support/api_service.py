"""The API service in one process, over a real SQLite store. Each answer is held to the service's own document."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from flask import Flask
from werkzeug.exceptions import HTTPException
from werkzeug.test import TestResponse

from services.api.callers import Callers
from services.api.dead_letters import DeadLetterParts
from services.api.health_routes import HealthParts
from services.api.main import Api, create_app
from services.api.messages import MessageParts
from services.api.new_messages import NewMessages
from services.api.rate_limits import RateLimits
from services.api.registry_parts import RegistryParts
from shared import config
from shared.bootstrap.channels import explain, read_message, reading
from shared.domain.onboarding import Checked, NoSuchNumber, OnboardingRefused
from shared.domain.record import Delivery
from shared.domain.tenants import DEFAULT_TENANT, Scope, Sender, Tenant
from shared.operations.claims import Claims
from shared.operations.connect import Connect
from shared.operations.health import Health
from shared.operations.keys import add_key
from shared.operations.messages import Cancel
from shared.operations.registry import add_tenant
from shared.operations.senders import add_sender
from shared.pipeline.accept_message import AcceptMessage
from shared.pipeline.conversations import Conversations
from shared.pipeline.dispatch import TaskDispatch
from shared.pipeline.recent_marks import RecentMarks
from shared.stores.sqlite.store import SqliteStore
from shared.tenants.api_keys import ApiKeys
from shared.tenants.environment import EnvironmentTenants
from shared.tenants.registered import RegisteredTenants
from tests.support.api_document import PLAIN, ApiDocument
from tests.support.parts import LIMITS, NOW, SENDER, Clock, NoQueue, Tapped

PROBLEM = "application/problem+json"
NO_KEY = ""
EVERYTHING = tuple(Scope)
PLAIN_RULES = {name.partition(" ")[2] for name in PLAIN}


@dataclass
class ApiService:
    """`client` is Flask's; a test sends its requests with `call`, which also checks their answers."""

    app: Flask
    store: Tapped
    queue: Tapped
    clock: Clock
    document: ApiDocument
    provider: "FakeOnboarding"

    @classmethod
    def of(cls, parts: Api, store: Tapped, queue: Tapped, clock: Clock, provider: "FakeOnboarding") -> "ApiService":
        app = create_app(parts)
        document = app.test_client().get("/openapi.json").get_json()
        return cls(app, store, queue, clock, ApiDocument(document), provider)

    def begin(self, directory: Path) -> None:
        """A new store and queue, at a time at which nothing that was read before counts."""
        self.clock.go(2 * 3600)
        self.store.port = SqliteStore(directory / "pombo.sqlite", LIMITS, self.clock.now)
        self.queue.port = NoQueue()
        self.provider.begin()
        for port in (self.store, self.queue):
            port.calls.clear()
            port.before = port.after = lambda *_: None

    # ---- what is there

    def tenant(self, id: str, *numbers: str) -> list[Sender]:
        """A tenant of the registry with these numbers, each in an account of its own."""
        add_tenant(self.store.port, self.clock, Tenant(id), 20)
        return [self.sender(id, number) for number in numbers]

    def sender(self, tenant: str, number: str) -> Sender:
        return add_sender(
            self.store.port, self.store.port, self.clock, (), Sender(tenant, "meta", number, f"9{number}")
        )

    def key(self, tenant: str | None = DEFAULT_TENANT, *scopes: Scope) -> str:
        """A new key, with all scopes unless some are named."""
        return add_key(self.store.port, self.clock, tenant, scopes or EVERYTHING)[1]

    def stored(self, id: str) -> Delivery:
        found: Delivery | None = self.store.port.get(id)
        assert found is not None
        return found

    @property
    def made(self) -> list[tuple[Any, ...]]:
        """The tasks that were made."""
        return self.queue.asked("ensure")

    def is_down(self, port: Tapped, error: Exception, *methods: str) -> None:
        """From now on these methods of a port fail, or all."""
        port.before = lambda name, *_: error if not methods or name in methods else None

    # ---- requests

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> TestResponse:
        """The answer, which is one that the document declares. `key` None: a new one of tenant default."""
        key = self.key() if key is None else key
        given = {**({"Authorization": f"Bearer {key}"} if key else {}), **(headers or {})}
        if body is not None:
            more |= {"data": json.dumps(body), "content_type": "application/json"}
        answer = self.app.test_client().open(path, method=method, headers=given, **more)
        self._check(method, path, answer)
        return answer

    def _check(self, method: str, path: str, answer: TestResponse) -> None:
        rule = self._rule(method, path.partition("?")[0])
        if answer.content_type == PROBLEM:
            self.document.check_body({"$ref": "#/components/schemas/ProblemDocument"}, answer.get_json())
            assert answer.get_json()["status"] == answer.status_code
        if rule is not None and rule not in PLAIN_RULES and not rule.startswith("/docs"):
            self.document.check(method, rule, answer.status_code, answer.content_type, answer.get_json())

    def _rule(self, method: str, path: str) -> str | None:
        """None if there is no such route."""
        try:
            rule, _ = self.app.url_map.bind("").match(path, method, return_rule=True)
        except HTTPException:
            return None
        return rule.rule


class FakeOnboarding:
    """A provider that knows the numbers of its accounts, each with a token; and where tokens are kept."""

    def begin(self) -> None:
        self.numbers: dict[tuple[str, str], str] = {}
        self.secrets: dict[str, str] = {}
        self.calls: list[str] = []
        self.error: Exception | None = None

    def check(self, provider_id: str, account: str, token: str) -> Checked:
        self.calls.append("check")
        if self.error:
            raise self.error
        known = self.numbers.get((account, provider_id))
        if known is None:
            raise NoSuchNumber("The account has no such number.")
        if known != token:
            raise OnboardingRefused("The access token is not valid.")
        return Checked("+1 555 000 0001", NOW + timedelta(days=60))

    def subscribe(self, *_: str) -> None:
        self.calls.append("subscribe")

    def newest(self, name: str) -> str | None:
        return self.secrets.get(name)

    def add(self, name: str, value: str) -> None:
        self.secrets[name] = value

    def remove(self, name: str) -> None:
        self.secrets.pop(name, None)


def problem(answer: TestResponse) -> tuple[int, str, str | None]:
    """Status, code and field of a refusal."""
    document = answer.get_json()
    assert answer.content_type == PROBLEM, document
    return answer.status_code, document["code"], document.get("field")


def ids(items: Iterable[Mapping[str, Any]]) -> list[str]:
    return [item["id"] for item in items]


def build() -> ApiService:
    """The service, without a store yet (`begin`)."""
    store, queue, clock = Tapped(None), Tapped(None), Clock()
    tenants = RegisteredTenants(EnvironmentTenants.of(("meta", SENDER)), store, clock.monotonic)
    provider = FakeOnboarding()
    claims = Claims(store, clock, tenants.senders_of_environment(), Connect(provider, provider, store))
    dispatch = TaskDispatch(queue, clock, LIMITS, reading(), tenants)
    parts = Api(
        config=config.load({}, config.API),
        callers=Callers(ApiKeys(store, clock.monotonic), RateLimits(clock.monotonic)),
        messages=MessageParts(
            store=store,
            new_messages=NewMessages(tenants, reading(), clock),
            accept=AcceptMessage(
                store,
                dispatch,
                LIMITS,
                clock,
                RecentMarks(store, LIMITS.marks_age, clock),
                Conversations(store, clock, b"a key"),
            ),
            cancel=Cancel(store, dispatch, LIMITS, clock),
            explain=explain,
        ),
        dead_letters=DeadLetterParts.of(store, queue, tenants, LIMITS, clock),
        registry=RegistryParts(store, store, clock, queue, claims, pairs=20),
        health=HealthParts(Health(store, store, tenants, LIMITS, clock), read_message),
        store=store,
        queue=queue,
    )
    return ApiService.of(parts, store, queue, clock, provider)
