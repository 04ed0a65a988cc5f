"""Rules for monitoring: every metric is used, every alert can fire and notifies someone, and each has a page."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import promql_parser as promql
from google.cloud.logging_v2.types import LogMetric
from google.cloud.monitoring_dashboard_v1 import Dashboard
from google.cloud.monitoring_v3 import AlertPolicy, NotificationChannel, UptimeCheckConfig
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from tests.infra.code_side import Code
from tests.infra.log_filters import FilterInvalid, extracted_path, parse
from tests.infra.plans import Plan, Resource

DOCS = Path(__file__).parents[2] / "docs"
RUNBOOK, OPERATING = DOCS / "runbook.md", DOCS / "operating.md"
METRIC, POLICY, DASHBOARD = "google_logging_metric", "google_monitoring_alert_policy", "google_monitoring_dashboard"
CHANNEL, UPTIME = "google_monitoring_notification_channel", "google_monitoring_uptime_check_config"
MESSAGES: Mapping[str, Any] = {
    METRIC: LogMetric,
    POLICY: AlertPolicy,
    CHANNEL: NotificationChannel,
    UPTIME: UptimeCheckConfig,
}
TERRAFORMS_OWN = {"project", "deletion_policy", "force_delete", "id", "timeouts", "uptime_check_id", "creation_record"}
"""Arguments that are not sent to the API."""

UNKNOWN = "known after the apply"

OURS = "logging_googleapis_com:user_"
THEIRS = {
    "run_googleapis_com:request_count": {"response_code", "response_code_class"},
    "run_googleapis_com:request_latencies": {"response_code_class"},
    "cloudtasks_googleapis_com:queue_depth": set[str](),
}
"""Google's metrics that we query, and their labels: https://cloud.google.com/monitoring/api/metrics_gcp."""

USES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "queue_depth_critical": (("number", "queue_depth_critical"),),
    "queue_depth_warning": (("number", "queue_depth_warning"),),
    "dead_letters_critical": (("number", "dead_letters_critical"),),
    "dead_letters_warning": (("number", "dead_letters_warning"),),
    "sender_disconnected_critical": (("lasts", "disconnected_critical"),),
    "sender_disconnected_warning": (("lasts", "disconnected_warning"),),
    "provider_down_critical": (("lasts", "provider_down_critical"),),
    "provider_down_warning": (("lasts", "provider_down_warning"),),
    "backend_down_critical": (("lasts", "backend_down_critical"),),
    "backend_down_warning": (("lasts", "backend_down_warning"),),
    "failed_receipts": (("number", "failed_receipts_percent"), ("number", "failed_receipts_least")),
    "sweep_silent": (("window", "sweep_silent"),),
    "processing_slow": (("number", "processed_per_second"), ("number", "waiting")),
    "oldest_pending": (("seconds", "oldest_pending"),),
    "oldest_dead": (("days", "oldest_dead"),),
    "needs_reauth": (),
    "unknown_sender": (("number", "unknown_sender"),),
    "webhook_errors": (("number", "webhook_errors"),),
    "webhook_slow": (("number", "webhook_p95"), ("number", "webhook_p95_of_at_least")),
    "api_errors": (("number", "api_errors_percent"), ("number", "api_errors_least")),
    "api_slow": (("number", "api_p95"), ("number", "api_p95_of_at_least")),
    "api_refused": (("number", "api_refused"),),
}
"""Each alert's thresholds, and where each is: a number in the query, minutes or days as seconds in it, the minutes of a
window, or the minutes for which the query must hold.
"""

OF_RESOURCES = {"monitored_resource", "service_name", "queue_id", "le"}
SUFFIXES = ("_sum", "_count", "_bucket")


def message_of(resource: Resource) -> Message:
    """The message that the API would receive. Raises json_format.ParseError for an unknown field or value."""
    return _message(resource.type, json.dumps(resource.values))


@cache
def _message(type_: str, written: str) -> Message:
    """By what it is made from: hundreds of plans differ in one resource each."""
    given = json.loads(written)
    if type_ == DASHBOARD:
        return json_format.Parse(given["dashboard_json"], Dashboard.pb(Dashboard()))
    made = MESSAGES[type_]
    message: Message = made.pb(made())
    values = {name: value for name, value in given.items() if name not in TERRAFORMS_OWN}
    return json_format.ParseDict(_unfolded(values, message.DESCRIPTOR), message)


def _unfolded(values: Mapping[str, Any], about: Descriptor) -> dict[str, Any]:
    """Terraform's values as JSON for a message: in a plan, an optional single block is a list of one."""
    found = {}
    for name, value in values.items():
        field = about.fields_by_name.get(name)
        if value is None or value == []:
            continue
        found[name] = value if field is None else _of_field(value, field)
    return found


def _of_field(value: Any, field: FieldDescriptor) -> Any:
    inner = field.message_type
    if inner is None and isinstance(value, list):
        return [UNKNOWN if element is None else element for element in value]
    if inner is None or inner.GetOptions().map_entry or not isinstance(value, list):
        return value
    elements = [_unfolded(element or {}, inner) for element in value]
    return elements if field.is_repeated else elements[0]


def queries_of(plan: Plan) -> dict[str, str]:
    """Every PromQL query: of alerts by their address, of charts by their title."""
    found = {}
    for policy in plan.of(POLICY):
        for condition in policy["conditions"]:
            for it in condition["condition_prometheus_query_language"]:
                found[policy.address] = it["query"]
    for tile in json.loads(plan.one(DASHBOARD)["dashboard_json"])["mosaicLayout"]["tiles"]:
        for number, line in enumerate(tile["widget"].get("xyChart", {"dataSets": []})["dataSets"]):
            found[f"{tile['widget']['title']} {number}"] = line["timeSeriesQuery"]["prometheusQuery"]
    return found


@cache
def selectors_of(query: str) -> Sequence[tuple[promql.VectorSelector, float | None]]:
    """A query's selectors, and over how many seconds each looks."""
    return tuple(_selectors(promql.parse(query)))


def asked_of(plan: Plan) -> Iterator[tuple[str, promql.VectorSelector, float | None]]:
    """The selectors of every query that parses; another rule reports the others."""
    for about, query in queries_of(plan).items():
        with suppress(ValueError):
            yield from ((about, *asked) for asked in selectors_of(query))


def _selectors(node: Any) -> Iterator[tuple[promql.VectorSelector, float | None]]:
    match node:
        case promql.VectorSelector():
            yield node, None
        case promql.MatrixSelector():
            yield node.vector_selector, node.range.total_seconds()
        case promql.BinaryExpr():
            yield from _selectors(node.lhs)
            yield from _selectors(node.rhs)
        case promql.Call():
            for argument in node.args:
                yield from _selectors(argument)
        case promql.AggregateExpr() | promql.ParenExpr():
            yield from _selectors(node.expr)
        case promql.NumberLiteral():
            pass
        case _:
            raise ValueError(f"{node} is a form of PromQL that is not known here.")


def grouped_by(node: Any) -> set[str]:
    """All labels that a query's sums are grouped by."""
    found: set[str] = set()
    for text in re.findall(r"\bby \(([^)]*)\)", str(node)):
        found |= {label.strip() for label in text.split(",")}
    return found


def metric_of(name: str, plan: Plan) -> Resource | None:
    """Our metric that a PromQL name refers to."""
    base = name.removeprefix(OURS)
    for metric in plan.of(METRIC):
        is_distribution = metric.block("metric_descriptor")["value_type"] == "DISTRIBUTION"
        names = [metric["name"] + suffix for suffix in SUFFIXES] if is_distribution else [metric["name"]]
        if name.startswith(OURS) and base in names:
            return metric
    return None


def alerts_of(plan: Plan) -> dict[str, Mapping[str, Any]]:
    """The PromQL alerts by name: query, duration."""
    found: dict[str, Mapping[str, Any]] = {}
    for policy in plan.of(POLICY):
        name = re.search(r'\["(\w+)"\]$', policy.address)
        for condition in policy["conditions"]:
            for it in condition["condition_prometheus_query_language"]:
                assert name
                found[name[1]] = it
    return found


def thresholds(markdown: str) -> dict[str, float]:
    """The runbook's table of thresholds: name → default."""
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| ([0-9., ]+) \|", markdown, re.M)
    return {
        name: float(value)
        for names, values in rows
        for name, value in zip(re.findall(r"\w+", names), values.split(", "), strict=True)
    }


def charts_of(plan: Plan) -> dict[str, set[str]]:
    """The dashboard's charts: title → its metrics, ours by their own names."""
    found = {}
    for tile in json.loads(plan.one(DASHBOARD)["dashboard_json"])["mosaicLayout"]["tiles"]:
        lines = tile["widget"].get("xyChart", {"dataSets": []})["dataSets"]
        queries = [line["timeSeriesQuery"]["prometheusQuery"] for line in lines]
        if queries:
            found[tile["widget"]["title"]] = {name for query in queries for name in _metrics_in(query, plan)}
    return found


def _metrics_in(query: str, plan: Plan) -> Iterator[str]:
    with suppress(ValueError):  # another rule reports it
        for selector, _ in selectors_of(query):
            metric = metric_of(str(selector.name), plan)
            yield metric["name"] if metric else str(selector.name).removesuffix("_bucket")


def charts_told(markdown: str) -> dict[str, set[str]]:
    """The charts on the operator's page: a table of chart and metrics."""
    section = re.search(r"^## The dashboard\n(.*?)(?=^## |\Z)", markdown, re.M | re.S)
    rows = re.findall(r"^\| ([^|`]+) \| (`[^|]+) \|", section[1] if section else "", re.M)
    return {title: set(re.findall(r"`([^`]+)`", metrics)) for title, metrics in rows}


def _literals(node: Any) -> Iterator[float]:
    """The numbers that a query compares values with."""
    match node:
        case promql.NumberLiteral():
            yield node.val
        case promql.BinaryExpr():
            yield from _literals(node.lhs)
            yield from _literals(node.rhs)
        case promql.ParenExpr():
            yield from _literals(node.expr)
        case _:
            pass


# ---- rules


def the_api_knows_every_word(plan: Plan, code: Code) -> Iterator[str]:
    for resource in plan.of(*MESSAGES, DASHBOARD):
        try:
            message = message_of(resource)
        except json_format.ParseError as error:
            yield f"{resource.address} is not a {resource.type} of the API: {error}"
            continue
        if resource.type == DASHBOARD:
            given, back = json.loads(resource["dashboard_json"]), json_format.MessageToDict(message)
            if given != back:
                yield f"{resource.address} comes back from the API in another form, which is a change in every plan."


def filters_say_only_what_is_known(plan: Plan, code: Code) -> Iterator[str]:
    for metric in plan.of(METRIC):
        extractors = [*(metric.get("label_extractors") or {}).values(), metric.get("value_extractor")]
        try:
            parse(metric["filter"])
            for extractor in filter(None, extractors):
                extracted_path(extractor)
        except FilterInvalid as error:
            yield f"The filter of {metric['name']} is not supported here: {error}"


def metrics_are_what_they_can_be(plan: Plan, code: Code) -> Iterator[str]:
    for metric in plan.of(METRIC):
        about = metric.block("metric_descriptor")
        wanted = "DISTRIBUTION" if metric.get("value_extractor") else "INT64"
        if about["metric_kind"] != "DELTA" or about["value_type"] != wanted:
            yield f"{metric['name']} is {about['metric_kind']} {about['value_type']}: of logs it can be DELTA {wanted}."
        labels = {it["key"] for it in about["labels"]}
        if labels != set(metric.get("label_extractors") or {}):
            yield f"{metric['name']} has the labels {sorted(labels)} and takes others out of a line."


def queries_ask_for_what_is_there(plan: Plan, code: Code) -> Iterator[str]:
    for about, query in queries_of(plan).items():
        try:
            asked = list(selectors_of(query))
        except ValueError as error:
            yield f"{about} is not PromQL: {error}"
            continue
        labels = set(grouped_by(promql.parse(query)))
        known: set[str] = set(OF_RESOURCES)
        for selector, _ in asked:
            name = str(selector.name)
            metric = metric_of(name, plan)
            base = next((name.removesuffix(it) for it in SUFFIXES if name.removesuffix(it) in THEIRS), name)
            if metric is None and base not in THEIRS:
                yield f"{about} asks for {name}, which is not there."
                continue
            known |= (
                THEIRS[base] if metric is None else {it["key"] for it in metric.block("metric_descriptor")["labels"]}
            )
            matchers = {it.name for it in selector.matchers.matchers}
            if "monitored_resource" not in matchers:
                yield f"{about} does not name the resource of {name}: the API refuses a metric of several."
            labels |= matchers
        if labels - known:
            yield f"{about} looks at {', '.join(sorted(labels - known))}, which no metric in it has."


def every_metric_is_looked_at(plan: Plan, code: Code) -> Iterator[str]:
    asked = {str(selector.name) for _, selector, _ in asked_of(plan)}
    seen = {metric["name"] for name in asked if (metric := metric_of(name, plan))}
    for name in sorted({it["name"] for it in plan.of(METRIC)} - seen):
        yield f"{name} is in no alert and on no chart."


def the_dashboard_is_the_one_that_the_page_tells_of(plan: Plan, code: Code) -> Iterator[str]:
    there, told = charts_of(plan), charts_told(OPERATING.read_text())
    for title in sorted(told.keys() - there.keys()):
        yield f"docs/operating.md describes the chart {title!r}, which is not on the dashboard."
    for title in sorted(there.keys() - told.keys()):
        yield f"The chart {title!r} is on the dashboard, and docs/operating.md does not describe it."
    for title in sorted(there.keys() & told.keys()):
        if there[title] != told[title]:
            yield f"The chart {title!r} shows {sorted(there[title])}; docs/operating.md says {sorted(told[title])}."


def alerts_use_their_thresholds(plan: Plan, code: Code) -> Iterator[str]:
    wanted = {**thresholds(RUNBOOK.read_text()), **(plan.variables.get("alert_thresholds") or {})}
    for alert, rule in alerts_of(plan).items():
        try:
            windows = [seconds for _, seconds in selectors_of(rule["query"])]
            numbers = list(_literals(promql.parse(rule["query"])))
        except ValueError:
            continue  # another rule reports it
        for where, name in USES[alert]:
            value = wanted[name]
            is_used = {
                "number": value in numbers,
                "seconds": value * 60 in numbers,
                "days": value * 86400 in numbers,
                "window": value * 60 in windows,
                "lasts": rule["duration"] == f"{value * 60:g}s",
            }[where]
            if not is_used:
                yield f"The alert {alert} does not go by {name}, which is {value:g}."


def an_alert_named_after_a_service_asks_it_alone(plan: Plan, code: Code) -> Iterator[str]:
    names = {service.key: service["name"] for service in plan.services}
    for alert, rule in alerts_of(plan).items():
        wanted = names.get(alert.partition("_")[0])
        with suppress(ValueError):  # another rule reports it
            asked = {it.value for one, _ in selectors_of(rule["query"]) for it in _of_service(one)}
            for name in sorted(asked - {wanted} if wanted else ()):
                yield f"The alert {alert} asks {name}."
            if wanted and wanted not in asked:
                yield f"The alert {alert} does not ask {wanted}."


def _of_service(selector: promql.VectorSelector) -> Iterator[Any]:
    return (it for it in selector.matchers.matchers if it.name == "service_name")


def windows_hold_two_sweeps(plan: Plan, code: Code) -> Iterator[str]:
    schedule = plan.one("google_cloud_scheduler_job")["schedule"]
    every = re.fullmatch(r"(?:\*/([0-9]+)|\*) \* \* \* \*", schedule)
    between = 60 * int(every[1] or 1) if every else 3600
    for about, selector, seconds in asked_of(plan):
        metric = metric_of(str(selector.name), plan)
        by_sweep = metric is not None and re.search('"(swept|sender_checked)"', metric["filter"])
        if by_sweep and (seconds or 0) < 2 * between:
            yield f"{about} looks back {seconds} s, in which there may be no sweep: they come each {between} s."


def alerts_are_made_before_their_metrics_have_a_point(plan: Plan, code: Code) -> Iterator[str]:
    for policy in plan.of(POLICY):
        for condition in policy["conditions"]:
            for it in condition["condition_prometheus_query_language"]:
                if not it["disable_metric_validation"]:
                    yield f"{policy.address} is refused at the first apply: its metric has no point yet."


def every_alert_tells_somebody(plan: Plan, code: Code) -> Iterator[str]:
    emails = set(plan.variables.get("alert_emails") or ())
    told = {it["labels"]["email_address"] for it in plan.of(CHANNEL)}
    if told != emails:
        yield f"alert_emails are {sorted(emails)}, and {sorted(told)} have a channel."
    for policy in plan.of(POLICY):
        channels = policy.get("notification_channels") or []
        of_severity = plan.given(f"{str(policy['severity']).lower()}_channels") or []
        # A name that is known only after the apply is None here, and counts.
        if len(channels) != len(emails) + len(of_severity):
            yield f"{policy.address} notifies {len(channels)} of {len(emails) + len(of_severity)}."
        elif set(of_severity) != {name for name in channels if name} & _named(plan):
            yield f"{policy.address} notifies channels of another severity: {sorted(filter(None, channels))}."
        if policy.get("enabled") is False:
            yield f"{policy.address} is turned off."
        if "OPENED" not in (policy.block("alert_strategy").get("notification_prompts") or ["OPENED"]):
            yield f"{policy.address} does not notify when it begins."


def _named(plan: Plan) -> set[str]:
    """Existing channels."""
    return {*(plan.given("critical_channels") or ()), *(plan.given("warning_channels") or ())}


def the_runbook_and_the_alerts_are_the_same(plan: Plan, code: Code) -> Iterator[str]:
    there: set[tuple[str, str]] = set()
    for policy in plan.of(POLICY):
        named = re.search(r"docs/runbook\.md#([a-z0-9-]+)$", policy.block("documentation").get("content", ""))
        there.add((named[1] if named else f"no section ({policy.address})", str(policy["severity"]).lower()))
    told = set(sections(RUNBOOK.read_text()))
    for section, severity in sorted(told - there):
        yield f"docs/runbook.md describes {section} ({severity}), but no alert exists."
    for section, severity in sorted(there - told):
        yield f"An alert leads to {section} ({severity}), and docs/runbook.md has no such section."


def sections(markdown: str) -> Iterator[tuple[str, str]]:
    """The runbook's alerts: each second-level heading with a bold severity beneath it, `**Critical, warning.**`."""
    for title, words in re.findall(r"^## (.+)\n\n\*\*([A-Za-z, ]+)\.\*\*", markdown, re.M):
        for severity in words.lower().split(", "):
            yield title.lower().replace(" ", "-"), severity


RULES = (
    the_api_knows_every_word,
    filters_say_only_what_is_known,
    metrics_are_what_they_can_be,
    queries_ask_for_what_is_there,
    every_metric_is_looked_at,
    the_dashboard_is_the_one_that_the_page_tells_of,
    alerts_use_their_thresholds,
    an_alert_named_after_a_service_asks_it_alone,
    windows_hold_two_sweeps,
    alerts_are_made_before_their_metrics_have_a_point,
    every_alert_tells_somebody,
    the_runbook_and_the_alerts_are_the_same,
)
