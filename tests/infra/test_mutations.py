"""The rules catch what they are there for: a plan, or the code, with one thing wrong."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import cache
from typing import Any

import pytest
from google.cloud.tasks_v2 import RetryConfig

from shared.config import SETTINGS, WEBHOOK, Setting
from shared.stores.firestore.schema import COLLECTIONS, RECEIPTS, RECORDS, Collection
from tests.infra import mutations_api, mutations_platform
from tests.infra.code_side import Code
from tests.infra.mutations import MUTATIONS as OF_THE_SERVICES
from tests.infra.mutations import Mutation
from tests.infra.plans import Plan
from tests.infra.rules import RULES, faults

MUTATIONS = (*OF_THE_SERVICES, *mutations_platform.MUTATIONS, *mutations_api.MUTATIONS)

Reported = Mapping[str, list[str]]
"""What each rule says of a plan, by the rule's name."""


def report(plan: Plan, code: Code) -> Reported:
    return {rule.__name__: list(rule(plan, code)) for rule in RULES}


@pytest.fixture(scope="module")
def report_of(plan_of: Callable[[str], Plan]) -> Callable[[Mutation], Reported]:
    """The report of the mutated plan, made once for all tests that read it."""
    return cache(lambda mutation: report(mutation.of(plan_of("everything")), Code()))


@pytest.mark.parametrize("mutation", mutations_platform.OF_KEYS, ids=lambda it: it.name.replace(" ", "-"))
def test_wrong_key_plan_is_reported(mutation: Mutation, plan_of: Callable[[str], Plan]) -> None:
    assert any(mutation.fault in fault for fault in faults(mutation.of(plan_of("keyed"))))


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda it: it.name.replace(" ", "-"))
def test_wrong_plan_is_reported(mutation: Mutation, report_of: Callable[[Mutation], Reported]) -> None:
    assert any(mutation.fault in fault for found in report_of(mutation).values() for fault in found)


def _setting(name: str, *services: str, **more: bool) -> Setting:
    return Setting(name, services, str, "new", always="1", **more)


def _but(name: str, **changes: bool) -> tuple[Setting, ...]:
    """The settings, one of them changed."""
    return tuple(replace(it, **changes) if it.name == name else it for it in SETTINGS)


def _but_collection(changed: Collection, **changes: Any) -> tuple[Collection, ...]:
    """The collections, one of them changed."""
    return tuple(replace(it, **changes) if it is changed else it for it in COLLECTIONS)


CHANGES_OF_THE_CODE = [
    (
        "a variable more",
        Code(settings=(*SETTINGS, _setting("NEW_ONE", WEBHOOK))),
        ("NEW_ONE", "shared/config/settings.py", "services.tf"),
    ),
    (
        "a variable less",
        Code(settings=tuple(it for it in SETTINGS if it.name != "WEBHOOK_MAX_BYTES")),
        ("WEBHOOK_MAX_BYTES", "services.tf", "shared/config/settings.py"),
    ),
    (
        "a variable that becomes secret",
        Code(settings=_but("STORE", secret=True)),
        ("STORE", "shared/config/settings.py", "services.tf"),
    ),
    (
        "a variable for one machine only",
        Code(settings=_but("SWEEP_AFTER", only_local=True)),
        ("SWEEP_AFTER", "services.tf"),
    ),
    (
        "a service more",
        Code(services=(*Code().services, "console")),
        ("console", "shared/config/settings.py", "services.tf"),
    ),
    (
        "a collection more",
        Code(collections=(*COLLECTIONS, Collection("keys", ttl="expire_at"))),
        ("keys.expire_at", "firestore/schema.py", "modules/firestore/main.tf"),
    ),
    (
        "a collection that expires no more",
        Code(collections=_but_collection(RECEIPTS, ttl=None)),
        ("receipts.expire_at", "modules/firestore/main.tf", "firestore/schema.py"),
    ),
    (
        "an index more",
        Code(collections=_but_collection(RECORDS, indexed=(*RECORDS.indexed, "refused_at"))),
        ("records.refused_at", "firestore/schema.py", "modules/firestore/main.tf"),
    ),
    (
        "an index over more fields",
        Code(collections=_but_collection(RECORDS, composite=(("state", "tenant", "due_at"),))),
        ("due_at", "firestore/schema.py", "modules/firestore/main.tf"),
    ),
    (
        "an index in the other direction",
        Code(collections=_but_collection(RECORDS, composite=(("tenant", "received_at"),))),
        ("'-received_at') is indexed together by infra", "modules/firestore/main.tf", "firestore/schema.py"),
    ),
    (
        "a queue more",
        Code(rates={**Code().rates, "MEDIA_TASK_QUEUE_NAME": (1, 1)}),
        ("MEDIA_TASK_QUEUE_NAME", "modules/tasks/main.tf"),
    ),
    (
        "another rate",
        Code(rates={**Code().rates, "INBOUND_TASK_QUEUE_NAME": (50, 80)}),
        ("INBOUND_TASK_QUEUE_NAME", "local/queues.py", "modules/tasks/main.tf"),
    ),
    (
        "another rate of a tenant",
        Code(tenant_rates={**Code().tenant_rates, "TENANT_QUEUE_PATTERN": (80, 5)}),
        ("TENANT_QUEUE_PATTERN", "by default", "local/queues.py"),
    ),
    (
        "another path",
        Code(paths={**Code().paths, "DRAIN_TASK_QUEUE_NAME": "/internal/wake"}),
        ("drain leads to", "/internal/wake", "modules/tasks/main.tf"),
    ),
    (
        "another retry",
        Code(retry=RetryConfig(max_attempts=100, min_backoff=timedelta(seconds=7), max_backoff=timedelta(seconds=600))),
        ("7s", "local/queues.py", "modules/tasks/main.tf"),
    ),
]


@pytest.mark.parametrize(
    ("code", "words"), [it[1:] for it in CHANGES_OF_THE_CODE], ids=[it[0] for it in CHANGES_OF_THE_CODE]
)
def test_change_of_the_code_alone_is_reported_with_both_sides(
    code: Code, words: tuple[str, ...], plan_of: Callable[[str], Plan]
) -> None:
    assert any(all(word in fault for word in words) for fault in faults(plan_of("bare"), code))


def test_every_rule_notices_something(
    plan_of: Callable[[str], Plan], report_of: Callable[[Mutation], Reported]
) -> None:
    """A rule that no mutation brings to speak may be one that cannot."""
    reports = [report_of(mutation) for mutation in MUTATIONS]
    reports += [report(plan_of("bare"), code) for _, code, _ in CHANGES_OF_THE_CODE]
    spoke = {name for reported in reports for name, found in reported.items() if found}
    assert {rule.__name__ for rule in RULES} == spoke
