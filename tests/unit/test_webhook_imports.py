"""The webhook service imports only what receives: each module more makes every new instance start later."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

from shared import config
from tests.unit import webhook_imports

UPDATE = "if the webhook service really needs this: PYTHONPATH=. python tests/unit/webhook_imports.py"
NEVER = (
    "flask",
    "functions_framework",
    "google.api_core",
    "google.auth",
    "google.cloud",
    "google.protobuf",
    "grpc",
    "gunicorn",
    "httpx",
    "requests",
)
"""Libraries that the service does without until the first call, if at all. What its server imports is not counted."""

OF_STORE: Mapping[str, str] = {"redis": "redis", "sqlite3": "sqlite"}
"""Libraries that only one store needs."""

SENDING = {"shared.domain.messages", "shared.domain.verdicts", "shared.pipeline.ports", "shared.channels.meta.channel"}
"""Each brings a part of reading and sending with it."""

imported = cache(webhook_imports.imported)
each_store = pytest.mark.parametrize("store", webhook_imports.STORES)


def lists() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(webhook_imports.LISTS.read_text())
    return found


@each_store
def test_webhook_service_imports_exactly_the_listed_modules(store: str) -> None:
    assert webhook_imports.of_project(imported(store)) == lists()[store], UPDATE


@each_store
def test_webhook_service_imports_no_library_that_it_does_not_use(store: str) -> None:
    others = {library for library, of in OF_STORE.items() if of != store}
    refused = (*NEVER, *others)
    found = {module for module in imported(store) if any(f"{module}.".startswith(f"{name}.") for name in refused)}
    assert found == set()


@each_store
def test_webhook_service_imports_nothing_that_reads_or_sends_messages(store: str) -> None:
    assert imported(store).isdisjoint(SENDING)


def test_every_store_has_a_list() -> None:
    assert tuple(lists()) == tuple(webhook_imports.STORES) == config.STORES
