"""Rules: what every plan of an environment is held to. Each yields a sentence for each fault."""

from collections.abc import Callable, Iterator

import rules_alerting
import rules_edges
import rules_identity
import rules_logging
import rules_monitoring
import rules_permissions
import rules_platform
import rules_queues
import rules_services
import rules_stores
from code_side import Code
from plans import Plan

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
    """All that is wrong with a plan."""
    return [fault for rule in RULES for fault in rule(plan, code or Code())]
