"""Rules that every plan of an environment must satisfy. Each yields a sentence for each fault."""

from collections.abc import Callable, Iterator

from tests.infra import (
    rules_alerting,
    rules_edges,
    rules_identity,
    rules_logging,
    rules_monitoring,
    rules_permissions,
    rules_platform,
    rules_queues,
    rules_services,
    rules_stores,
)
from tests.infra.code_side import Code
from tests.infra.plans import Plan

Rule = Callable[[Plan, Code], Iterator[str]]

RULES: tuple[Rule, ...] = (
    *rules_services.RULES,
    *rules_queues.RULES,
    *rules_stores.RULES,
    *rules_edges.RULES,
    *rules_identity.RULES,
    *rules_permissions.RULES,
    *rules_monitoring.RULES,
    *rules_logging.RULES,
    *rules_alerting.RULES,
    *rules_platform.RULES,
)


def faults(plan: Plan, code: Code | None = None) -> list[str]:
    """All faults of a plan."""
    return [fault for rule in RULES for fault in rule(plan, code or Code())]
