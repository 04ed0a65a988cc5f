"""Rules for Cloud Logging: which log entries are kept, and which must not be."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tests.infra.code_side import Code
from tests.infra.log_filters import Entry, FilterInvalid, parse
from tests.infra.plans import Plan

EXCLUSION = "google_logging_project_exclusion"
TOKEN = "a-verify-token-of-a-test"
PARAMETER = "hub.verify_token"
_PATTERN = re.compile(r'httpRequest\.requestUrl=~"([^"\\]+)"')
_SAME_IN_RE2 = re.compile(r"(\(\?i\))?[A-Za-z0-9%._|()\[\]-]+")
"""The subset that Python's regular expressions and RE2, which Cloud Logging uses, interpret alike."""


def request_entry(url: str, method: str = "GET", of: str = "cloud_run_revision", status: int = 200) -> Entry:
    """A request as Cloud Run or a load balancer logs it, https://cloud.google.com/run/docs/logging#log-types."""
    return {
        "resource": {"type": of, "labels": {"service_name": "pombo-webhook"}},
        "logName": "projects/my-project-1/logs/run.googleapis.com%2Frequests",
        "severity": "INFO" if status < 400 else "WARNING",
        "httpRequest": {"requestMethod": method, "requestUrl": url, "status": status},
    }


def spellings(name: str) -> Iterator[str]:
    """A parameter's name as a client may write it: literal, fully percent-encoded, or in one character."""
    codes = [f"%{ord(character):02x}" for character in name]
    yield from (name, "".join(codes), "".join(codes).upper())
    for at, code in enumerate(codes):
        yield name[:at] + code + name[at + 1 :]
        yield name[:at] + code.upper() + name[at + 1 :]


def handshakes() -> Iterator[Entry]:
    """Requests that carry a verify token, right or wrong, to any address of the webhook."""
    for host in ("pombo-webhook-123456789012.europe-west1.run.app", "hooks.example.com"):
        for name in spellings(PARAMETER):
            url = f"https://{host}/webhooks/whatsapp?hub.mode=subscribe&{name}={TOKEN}&hub.challenge=1158201444"
            yield request_entry(url)
            yield request_entry(url, status=403)
    yield request_entry(f"https://hooks.example.com/?{PARAMETER}={TOKEN}", of="http_load_balancer")


def other_requests() -> Iterator[Entry]:
    """Requests whose log entries an operator needs."""
    address = "https://pombo-webhook-123456789012.europe-west1.run.app"
    yield request_entry(f"{address}/webhooks/whatsapp", "POST")
    yield request_entry(f"{address}/webhooks/whatsapp", "POST", status=500)
    yield request_entry(f"{address}/webhooks/whatsapp")
    yield request_entry(f"{address}/health")
    yield request_entry(f"{address}/webhooks/whatsapp?hub.mode=subscribe")
    yield request_entry("https://pombo-internal-1.europe-west1.run.app/internal/process_inbound", "POST")


def excludes(text: str, entry: Entry) -> bool:
    """Whether an exclusion's filter matches an entry. Raises FilterInvalid."""
    return all(_matches(part, entry) for part in text.split(" AND "))


def _matches(part: str, entry: Entry) -> bool:
    found = _PATTERN.fullmatch(part.strip())
    if not found:
        return parse(part)(entry)
    if not _SAME_IN_RE2.fullmatch(found[1]):
        raise FilterInvalid(f"{found[1]}: this form of regular expression is not known here.")
    request: Mapping[str, Any] = entry.get("httpRequest", {})
    return re.search(found[1], request.get("requestUrl", "")) is not None


def the_verify_token_is_in_no_log(plan: Plan, code: Code) -> Iterator[str]:
    filters = [it["filter"] for it in plan.of(EXCLUSION) if not it.get("disabled")]
    try:
        kept = [entry for entry in handshakes() if not any(excludes(text, entry) for text in filters)]
        lost = [entry for entry in other_requests() if any(excludes(text, entry) for text in filters)]
    except FilterInvalid as error:
        yield f"An exclusion of log entries is not supported here: {error}"
        return
    for entry in kept[:1]:
        yield f"The request log keeps the verify token: {entry['httpRequest']['requestUrl']}."
    for entry in lost:
        yield f"The request log loses {entry['httpRequest']['requestMethod']} {entry['httpRequest']['requestUrl']}."


SINK, BUCKET, AUDIT = (
    "google_logging_project_sink",
    "google_logging_project_bucket_config",
    "google_project_iam_audit_config",
)
_LEFT_OUT = re.compile(r'NOT LOG_ID\("(cloudaudit|externalaudit)\.googleapis\.com/(\w+)"\)')
REQUIRED = {
    (kind, log)
    for kind in ("cloudaudit", "externalaudit")
    for log in ("activity", "system_event", "access_transparency")
}
"""The entries that the sink _Default leaves to _Required: audit logs that cannot be turned off.
https://cloud.google.com/logging/docs/routing/overview#sinks.
"""

KEPT_DAYS = 30
"""As docs/deploy.md says, and as in the bucket _Default."""


def logs_are_kept_where_it_is_asked(plan: Plan, code: Code) -> Iterator[str]:
    location = plan.given("log_location")
    wanted = [location] if location else []
    if any(it["retention_days"] != KEPT_DAYS for it in plan.of(BUCKET)):
        yield f"Logs are kept for other than {KEPT_DAYS} days."
    if [it["location"] for it in plan.of(BUCKET)] != wanted:
        yield f"log_location is {location}, and logs are kept in {[it['location'] for it in plan.of(BUCKET)]}."
    sinks = plan.of(SINK)
    if [it["name"] for it in sinks] != ["_Default"] * len(wanted):
        yield f"Logs go where log_location says by the sink _Default alone, and not by {[it['name'] for it in sinks]}."
    for sink in sinks:
        if sink.get("disabled"):
            yield "No log entry is kept: the sink is off."
        parts = (sink.get("filter") or "").split(" AND ")
        left_out = {(found[1], found[2]) for part in parts if (found := _LEFT_OUT.fullmatch(part))}
        if len(parts) != len(left_out) or left_out != REQUIRED:
            yield f"The sink leaves out other logs than those that _Required keeps: {sink.get('filter')}."
        excluded = {(it["name"], it["filter"]) for it in sink.get("exclusions") or [] if not it.get("disabled")}
        if excluded != {(it["name"], it["filter"]) for it in plan.of(EXCLUSION)}:
            yield "The sink and the exclusions of the project take each other's away: both must name the same."


def data_access_is_logged_of_people_alone(plan: Plan, code: Code) -> Iterator[str]:
    asked = set(plan.given("audited_apis") or ())
    audited = {it["service"]: it for it in plan.of(AUDIT)}
    if set(audited) != asked:
        yield f"audited_apis are {sorted(asked)}, and {sorted(audited)} are logged."
    services = {f"serviceAccount:{it.block('template')['service_account']}" for it in plan.services}
    for name, it in audited.items():
        kinds = {log["log_type"]: set(log["exempted_members"] or ()) for log in it["audit_log_config"]}
        if set(kinds) != {"ADMIN_READ", "DATA_READ", "DATA_WRITE"}:
            yield f"Of {name} only {sorted(kinds)} is logged."
        if any(exempted != services for exempted in kinds.values()):
            yield f"{name} exempts others than the services, whose own lines say what they do."


def a_budget_tells_somebody(plan: Plan, code: Code) -> Iterator[str]:
    asked, budgets = plan.given("budget"), plan.of("google_billing_budget")
    if bool(asked) != bool(budgets):
        yield "There is a budget where none is asked for, or none where one is."
    for it in budgets:
        if (it["billing_account"], it.block("amount", "specified_amount")["units"]) != (
            asked["billing_account"],
            str(asked["amount"]),
        ):
            yield f"The budget differs from the requested one: {asked}."
        number = re.search(r"-([0-9]+)\.", str(plan.outputs["internal_url"]))
        if it.block("budget_filter").get("projects") != [f"projects/{number[1] if number else ''}"]:
            yield "The budget is of other projects than this one, or of the whole billing account."
        shares = {
            (rule["threshold_percent"], rule.get("spend_basis") or "CURRENT_SPEND") for rule in it["threshold_rules"]
        }
        if not {(1, "CURRENT_SPEND"), (1, "FORECASTED_SPEND")} <= shares:
            yield "The budget does not tell when it is spent, or that it will be."
        if (0.5, "CURRENT_SPEND") not in shares or any(share > 1 for share, _ in shares):
            yield "The budget does not tell when half of it is spent, or tells only of more than all of it."
        told = it.block("all_updates_rule").get("monitoring_notification_channels") or []
        wanted = len(plan.given("alert_emails") or ()) + len(plan.given("warning_channels") or ())
        if len(told) != min(5, wanted):
            yield f"The budget notifies {len(told)} of {wanted}."


RULES = (
    the_verify_token_is_in_no_log,
    logs_are_kept_where_it_is_asked,
    data_access_is_logged_of_people_alone,
    a_budget_tells_somebody,
)
