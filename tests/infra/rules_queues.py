"""Rules for the queues, and for the scheduler's call."""

import math
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta

import promql_parser as promql

from tests.infra.code_side import Code, seconds
from tests.infra.plans import Plan, Resource
from tests.infra.rules_monitoring import asked_of

_PATH = ("http_target", "uri_override", "path_override")
TASKS_TF = "infra/terraform/modules/tasks/main.tf"
ASKED: Mapping[str, tuple[str, str]] = {
    "INBOUND_TENANT_QUEUE_PATTERN": ("inbound_tenant_queue_per_second", "inbound_max_concurrency_per_tenant"),
    "TENANT_QUEUE_PATTERN": ("tenant_queue_per_second", "max_concurrency_per_tenant"),
}
"""The variables of a root that set the rate of the numbered queues, by the code's variable with their names."""


def _made(queue: Resource) -> tuple[float, int]:
    limits = queue.block("rate_limits")
    return limits["max_dispatches_per_second"], limits["max_concurrent_dispatches"]


def each_queue_the_code_names_is_there_at_its_rate(plan: Plan, code: Code) -> Iterator[str]:
    for service in plan.services:
        for variable, rate in code.rates.items():
            name = service.env.get(variable)
            queue = plan.queues.get(name or "")
            if queue is None:
                yield f"{variable} of {service.key} names {name}; {TASKS_TF} makes no such queue."
                continue
            asked = plan.given("outbound_rate") if variable == "OUTBOUND_TASK_QUEUE_NAME" else rate[0]
            # As many at once as half a second's messages: the same ratio as in the code's own rate.
            wanted = rate if asked == rate[0] else (asked, max(5, math.ceil(asked * rate[1] / rate[0])))
            if _made(queue) != wanted:
                yield f"{name} is {_made(queue)} in {TASKS_TF} and {wanted} for {variable} in local/queues.py."


def each_pair_the_code_uses_is_there_at_its_rate(plan: Plan, code: Code) -> Iterator[str]:
    """And no other: a queue that the code does not use may be a tenant's messages that wait for nobody."""
    for service in plan.services:
        unused = set(plan.queues) - {service.env.get(variable) for variable in code.rates}
        for variable in code.tenant_rates:
            names = set(code.queue_names(variable, service.env))
            for name in sorted(names - set(plan.queues)):
                yield f"{variable} of {service.key} names {name}; {TASKS_TF} makes no such queue."
            wanted = tuple(plan.given(asked) for asked in ASKED[variable])
            for name in sorted(names & set(plan.queues)):
                if _made(plan.queues[name]) != wanted:
                    yield f"{name} is {_made(plan.queues[name])} in {TASKS_TF} and {wanted} was asked for."
            unused -= names
        if unused:
            yield f"{service.key} puts tasks in no such queue: {sorted(unused)}."


def variables_of_tenants_have_the_codes_defaults(plan: Plan, code: Code) -> Iterator[str]:
    defaults = {name: it.get("default") for name, it in plan.root_variables.items()}
    for variable, rate in code.tenant_rates.items():
        found = tuple(defaults.get(asked) for asked in ASKED[variable])
        if found != rate:
            yield f"The queues of {variable} are {found} by default, and {rate} in local/queues.py."
    (setting,) = (it for it in code.settings if it.name == "TENANT_QUEUES")
    if str(defaults.get("tenant_queues")) != setting.always:
        yield f"tenant_queues is {defaults.get('tenant_queues')} by default, and TENANT_QUEUES {setting.always}."


def queues_try_again_as_the_code_counts_on(plan: Plan, code: Code) -> Iterator[str]:
    most = code.most("MAX_ATTEMPTS")
    for name, queue in plan.queues.items():
        retry = queue.block("retry_config")
        made = (retry["max_attempts"], retry["min_backoff"], retry["max_backoff"], retry["max_doublings"])
        wanted = (
            code.retry.max_attempts,
            seconds(code.retry.min_backoff),
            seconds(code.retry.max_backoff),
            code.retry.max_doublings,
        )
        if made != wanted:
            yield f"{name} tries again {made} in {TASKS_TF} and {wanted} in local/queues.py."
        if retry["max_attempts"] <= most:
            yield f"{name} gives a task up after {retry['max_attempts']} attempts; MAX_ATTEMPTS may be {most}."
        if _length(retry["min_backoff"]) < 5 or _length(retry["max_backoff"]) > 600:
            yield f"{name} waits {retry['min_backoff']} to {retry['max_backoff']}: at least 5 s, at most 600 s."
        if retry.get("max_retry_duration") != "0s":
            yield f"{name} gives a task up only when max_attempts and max_retry_duration are both over: it must be 0s."


def queues_cannot_be_destroyed_by_the_provider(plan: Plan, code: Code) -> Iterator[str]:
    for name, queue in plan.queues.items():
        if queue.get("deletion_policy") != "PREVENT":
            yield f"{name} may be deleted, and its name is then dead for 7 days."


def the_scheduler_calls_the_sweep(plan: Plan, code: Code) -> Iterator[str]:
    job, internal = plan.one("google_cloud_scheduler_job"), plan.service("internal")
    target, token = job.block("http_target"), job.block("http_target", "oidc_token")
    url = internal.env.get("INTERNAL_TASK_BASE_URL")
    if target["uri"] != f"{url}/internal/sweep" or target["http_method"] != "POST":
        yield f"The scheduler calls {target['http_method']} {target['uri']}; the sweep is POST {url}/internal/sweep."
    if token.get("service_account_email") != internal.env.get("SCHEDULER_SERVICE_ACCOUNT"):
        yield f"The scheduler calls as {token.get('service_account_email')}, and SCHEDULER_SERVICE_ACCOUNT is another."
    if token.get("audience") != url:
        yield f"The scheduler's token is for {token.get('audience')}; internal checks INTERNAL_TASK_BASE_URL."
    if target.get("headers"):
        yield f"The scheduler sends {', '.join(target['headers'])}: a header lies in the state."
    limits = code.limits("internal", {name: it or "" for name, it in internal.env.items()}, internal.secrets)
    if _length(job["attempt_deadline"]) < limits.sweep_budget.total_seconds() + 30:
        yield f"The scheduler waits {job['attempt_deadline']} for a sweep of {seconds(limits.sweep_budget)}."
    minutes = re.fullmatch(r"(?:\*/([0-9]+)|\*) \* \* \* \*", job["schedule"])
    if not minutes or timedelta(minutes=int(minutes[1] or 1)) > limits.sweep_after / 2:
        yield f"The sweep runs at {job['schedule']}, too seldom for SWEEP_AFTER={seconds(limits.sweep_after)}."
    if job.get("paused"):
        yield "The sweep is paused."


def charts_watch_all_queues_that_lead_to_one_path(plan: Plan, code: Code) -> Iterator[str]:
    paths = {name: queue.block(*_PATH).get("path") for name, queue in plan.queues.items()}
    for about, selector, _ in asked_of(plan):
        for matcher in selector.matchers.matchers:
            if matcher.name == "queue_id":
                pattern = matcher.value if matcher.op == promql.MatchOp.Re else re.escape(matcher.value)
                found = {name for name in paths if re.fullmatch(pattern, name)}
                beside = {name for name in paths if paths[name] in {paths[one] for one in found}}
                if not found or found != beside:
                    yield f"{about} watches the queues {matcher.value}: {len(found)} of {len(beside)}."


def _length(text: str) -> float:
    return float(text.removesuffix("s"))


RULES = (
    each_queue_the_code_names_is_there_at_its_rate,
    each_pair_the_code_uses_is_there_at_its_rate,
    variables_of_tenants_have_the_codes_defaults,
    queues_try_again_as_the_code_counts_on,
    queues_cannot_be_destroyed_by_the_provider,
    the_scheduler_calls_the_sweep,
    charts_watch_all_queues_that_lead_to_one_path,
)
