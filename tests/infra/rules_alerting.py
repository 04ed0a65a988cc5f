"""Rules for the metrics' inputs and the alerts' firing: each number from its own field, each time within its bounds."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache

from shared.log_events import EVENTS, FIELDS
from tests.infra.code_side import Code
from tests.infra.log_filters import FilterInvalid, extracted_path
from tests.infra.plans import Plan, Resource
from tests.infra.rules_monitoring import METRIC, POLICY, UPTIME, selectors_of
from tests.infra.rules_services import PUBLIC
from tests.infra.threshold_conditions import ConditionInvalid, Series, speaks

EVENT = re.compile(r'jsonPayload\.event="(\w+)"')
NAMED_OTHERWISE: Mapping[str, str] = {
    "queue_depth": "pending",
    "dead_letters": "dead",
    "evolution_connected": "connected",
    "message_latency_seconds": "latency_seconds",
}
"""Metrics whose name differs from that of their field."""

FIRING_INTERVALS = (30, 60)
"""Seconds between evaluations: Cloud Monitoring's minimum, and the time between two sweeps."""

LONGEST_OPEN = 86_400
"""Seconds: an incident whose series has ended stays open for a day at most."""


def field_meant(metric: str) -> str:
    """The field of a log line that a metric reads, by the metric's name."""
    name = metric.removeprefix("whatsapp_")
    return NAMED_OTHERWISE.get(name, name)


def each_metric_takes_its_own_field(plan: Plan, code: Code) -> Iterator[str]:
    for metric in plan.of(METRIC):
        named = EVENT.search(metric["filter"])
        fields = set(FIELDS)
        if named:
            about = EVENTS.get(named[1])
            if about is None:
                yield f"{metric['name']} counts {named[1]}, which shared/log_events.py does not know."
                continue
            fields = {*about.always, *about.may}
        taken = {"": metric["value_extractor"]} if metric.get("value_extractor") else {}
        for label, extractor in {**taken, **(metric.get("label_extractors") or {})}.items():
            wanted = label or field_meant(metric["name"])
            with suppress(FilterInvalid):  # another rule reports it
                path = extracted_path(extractor)
                if path != ("jsonPayload", wanted):
                    yield f"{metric['name']} takes {path[-1]} where {wanted} belongs."
                elif wanted not in fields:
                    yield f"{metric['name']} takes {wanted}, which no line of it has (shared/log_events.py)."


# ---- the alert that does not use PromQL

CHECK_PASSED = "monitoring.googleapis.com/uptime_check/check_passed"
PLACES = ("usa-oregon", "usa-iowa", "usa-virginia", "eur-belgium", "apac-singapore", "sa-brazil-sao_paulo")
"""The locations of an uptime check, https://cloud.google.com/monitoring/uptime-checks."""

END = 120


def _asked(host: str, period: int, down: Mapping[str, range], metric: str = CHECK_PASSED) -> list[Series]:
    """Every location's results, one each period; locations that are `down` get none meanwhile."""
    return [
        Series(
            {
                "metric.type": metric,
                "resource.type": "uptime_url",
                "resource.labels.host": host,
                "metric.labels.checker_location": place,
            },
            {minute: minute not in down.get(place, range(0)) for minute in range(at % period, END, period)},
        )
        for at, place in enumerate(PLACES)
    ]


def _expected(host: str, period: int) -> Iterator[tuple[str, Sequence[Series], dict[int, bool]]]:
    """Courses of events, and at which minutes the alert fires or does not."""
    everywhere = dict.fromkeys(PLACES, range(30, 60))
    soon = 30 + period + 3
    yield "all is well", _asked(host, period, {}), dict.fromkeys(range(5, END), False)
    yield "it is never asked", [], {END - 1: False}
    yield (
        "the service is down from minute 30 to 60",
        _asked(host, period, everywhere),
        {
            29: False,
            soon: True,
            59: True,
            60 + period + 3: False,
            END - 1: False,
        },
    )
    two = dict.fromkeys(PLACES[:2], range(30, END))
    yield "two places do not reach it", _asked(host, period, two), {29: False, soon: True, END - 1: True}
    one = {PLACES[0]: range(30, END)}
    yield "one place does not reach it", _asked(host, period, one), dict.fromkeys(range(5, END), False)
    yield "another host is down", _asked("elsewhere.example.com", period, everywhere), {45: False}
    other = _asked(host, period, everywhere, "monitoring.googleapis.com/uptime_check/content_mismatch")
    yield "another metric is false", other, {45: False}


def each_uptime_alert_speaks_when_its_service_is_down(plan: Plan, code: Code) -> Iterator[str]:
    conditions = {
        _key(policy): (policy.address, one["condition_threshold"][0])
        for policy in plan.of(POLICY)
        for one in policy["conditions"]
        if one["condition_threshold"]
    }
    for check in plan.of(UPTIME):
        host, period = check.block("monitored_resource")["labels"]["host"], str(check["period"])
        if _key(check) not in conditions:
            yield f"No alert looks at the uptime check of {_key(check)}."
        elif re.fullmatch(r"[0-9]+s", period):  # otherwise another rule reports it
            address, condition = conditions[_key(check)]
            yield from (f"{address} {it}" for it in _misfires(json.dumps(condition), host, _seconds(period) // 60))


def _key(resource: Resource) -> str:
    """The service that a check or its alert is about."""
    return resource.address.rpartition('["')[2].removesuffix('"]')


def each_public_service_is_asked_from_outside(plan: Plan, code: Code) -> Iterator[str]:
    asked = {check.block("monitored_resource")["labels"]["host"] for check in plan.of(UPTIME)}
    for key in PUBLIC:
        if plan.outputs[f"{key}_url"].removeprefix("https://").partition("/")[0] not in asked:
            yield f"No uptime check asks {key}, which is public."


@cache
def _misfires(condition: str, host: str, minutes: int) -> tuple[str, ...]:
    """When a condition fires or is silent wrongly. Most plans of a run have the same one, and it costs the most."""
    found = []
    for what, series, looks in _expected(host, minutes):
        try:
            wrong = [at for at, wanted in looks.items() if speaks(json.loads(condition), series, at) is not wanted]
        except ConditionInvalid as error:
            return (*found, f"has a condition that is not known here: {error}")
        if wrong:
            verb = "does not fire" if looks[wrong[0]] else "fires"
            found.append(f"{verb} at minute {wrong[0]} while {what}.")
    return tuple(found)


MOST_BETWEEN_CHECKS = 300
"""Seconds, as docs/runbook.md says."""


def an_uptime_check_asks_as_a_caller_does(plan: Plan, code: Code) -> Iterator[str]:
    for check in plan.of(UPTIME):
        http = check.block("http_check")
        if (http.get("use_ssl"), http.get("validate_ssl"), http.get("port")) != (True, True, 443):
            yield f"{check.address} does not ask by TLS on port 443, or takes any certificate."
        period = str(check["period"])
        if re.fullmatch(r"[0-9]+s", period) and _seconds(period) > MOST_BETWEEN_CHECKS:
            yield f"{check.address} asks every {period}: at least every {MOST_BETWEEN_CHECKS} s."


# ---- times


def alerts_are_looked_at_and_end_in_time(plan: Plan, code: Code) -> Iterator[str]:
    for policy in plan.of(POLICY):
        looks_back = 0.0
        for condition in policy["conditions"]:
            for it in condition["condition_prometheus_query_language"]:
                every = _seconds(it["evaluation_interval"] or "30s")
                if every % 30 or not FIRING_INTERVALS[0] <= every <= FIRING_INTERVALS[1]:
                    yield f"{policy.address} is evaluated every {every} s, and a sweep reports every 60."
                with suppress(ValueError):
                    looks_back = max(looks_back, *(back or 0 for _, back in selectors_of(it["query"])))
            for it in condition["condition_threshold"]:
                looks_back = max(looks_back, *(_seconds(how["alignment_period"]) for how in it["aggregations"]))
        closes = _closes_after(policy)
        if not max(1800, looks_back) <= closes <= LONGEST_OPEN:
            least = max(1800, looks_back)
            yield f"{policy.address} closes {closes} s after its last value: from {least:g} to a day at most."


def _closes_after(policy: Resource) -> int:
    """Seven days if nothing is set."""
    return _seconds(policy.block("alert_strategy").get("auto_close") or "604800s")


def _seconds(length: str) -> int:
    return int(float(length.removesuffix("s")))


RULES = (
    each_metric_takes_its_own_field,
    each_uptime_alert_speaks_when_its_service_is_down,
    each_public_service_is_asked_from_outside,
    an_uptime_check_asks_as_a_caller_does,
    alerts_are_looked_at_and_end_in_time,
)
