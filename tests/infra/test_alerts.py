"""Each alert speaks when it should and is silent when it should: Prometheus itself reads the plan's queries."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from machine import missing
from offline.workspace import TERRAFORM
from plans import Plan
from rules_monitoring import OURS, POLICY, RUNBOOK

ALERTS_TF = TERRAFORM / "modules" / "monitoring" / "alerts.tf"
OF_A_REVISION = {"monitored_resource": "cloud_run_revision"}
OF_THE_WEBHOOK = {**OF_A_REVISION, "service_name": "pombo-webhook"}
REQUESTS, LATENCIES = "run_googleapis_com:request_count", "run_googleapis_com:request_latencies"

Series = Mapping[str, float | str]
"""A series, and by how much it grows each minute, or its values in promtool's words."""


def series(name: str, labels: Mapping[str, str]) -> str:
    return name + json.dumps(labels).replace('": "', '="').replace('", "', '", ').replace('{"', "{")


def reported(metric: str, value: float, **labels: str) -> Series:
    """What a sweep reports once a minute: a distribution of one value."""
    of = OF_A_REVISION | labels
    return {
        series(f"{OURS}whatsapp_{metric}_sum", of): value,
        series(f"{OURS}whatsapp_{metric}_count", of): 1,
    }


def counted(metric: str, per_minute: float | str, **labels: str) -> Series:
    return {series(f"{OURS}whatsapp_{metric}", OF_A_REVISION | labels): per_minute}


def answered(per_minute: float, **labels: str) -> Series:
    return {series(REQUESTS, OF_THE_WEBHOOK | labels): per_minute}


def took(within_100: float, within_400: float) -> Series:
    """How many answers a minute were as quick as that, in milliseconds."""
    counts = {"100": within_100, "400": within_400, "+Inf": within_400}
    buckets = {series(f"{LATENCIES}_bucket", OF_THE_WEBHOOK | {"le": le}): count for le, count in counts.items()}
    return {**buckets, **answered(within_400, response_code_class="2xx")}


SENDER = {"phone_number_id": "100000000000001"}


@dataclass(frozen=True, slots=True)
class Case:
    """What goes on from minute 0 to 60, and whether the alert speaks."""

    alert: str
    what: str
    going_on: Series
    after: int | None
    """Minutes until it speaks; None for never."""
    about: Mapping[str, str] = field(default_factory=dict)


def connected(value: float, reason: str = "") -> Series:
    return reported("evolution_connected", value, tenant="default", reason=reason, **SENDER)


CASES = (
    Case("queue_depth_critical", "1001 wait", reported("queue_depth", 1001), 5),
    Case("queue_depth_critical", "1000 wait", reported("queue_depth", 1000), None),
    Case("queue_depth_warning", "101 wait", reported("queue_depth", 101), 5),
    Case("queue_depth_warning", "100 wait", reported("queue_depth", 100), None),
    Case("dead_letters_critical", "51 are dead", reported("dead_letters", 51), 0),
    Case("dead_letters_critical", "50 are dead", reported("dead_letters", 50), None),
    Case("dead_letters_warning", "11 are dead", reported("dead_letters", 11), 0),
    Case("dead_letters_warning", "10 are dead", reported("dead_letters", 10), None),
    Case("sender_disconnected_critical", "one is away", connected(0, "blocked"), 10, SENDER),
    Case("sender_disconnected_critical", "one is here", connected(1), None),
    Case("sender_disconnected_warning", "one is away", connected(0, "blocked"), 2, SENDER),
    Case("sender_disconnected_warning", "one is here", connected(1), None),
    Case("sweep_silent", "no sweep ever came", {}, 0),
    Case("sweep_silent", "a sweep a minute", counted("sweeps_total", 1), None),
    Case(
        "processing_slow",
        "31 wait and 24 a minute end",
        {**reported("queue_depth", 31), **counted("messages_processed_total", 24, stage="inbound")},
        2,
    ),
    Case("processing_slow", "31 wait and none ever ended", reported("queue_depth", 31), 2),
    Case(
        "processing_slow",
        "100 a second came to an end until it stopped at minute 30",
        {**reported("queue_depth", 31), **counted("messages_processed_total", "0+6000x30 180000x30", stage="inbound")},
        30 + 5,
    ),
    Case(
        "processing_slow",
        "31 wait and 36 a minute end",
        {**reported("queue_depth", 31), **counted("messages_processed_total", 36, stage="inbound")},
        None,
    ),
    Case("processing_slow", "there is little to do", reported("queue_depth", 30), None),
    Case("oldest_pending", "one waits for 31 minutes", reported("oldest_pending_seconds", 31 * 60), 0),
    Case("oldest_pending", "one waits for 30 minutes", reported("oldest_pending_seconds", 30 * 60), None),
    Case("needs_reauth", "a credential is refused", connected(0, "needs_reauth"), 0, SENDER),
    Case("needs_reauth", "a sender is blocked", connected(0, "blocked"), None),
    Case("needs_reauth", "all is well", connected(1), None),
    Case("unknown_sender", "one a minute", counted("unknown_sender_total", 1, **SENDER), 0, SENDER),
    Case("unknown_sender", "none any more", counted("unknown_sender_total", 0, **SENDER), None),
    Case("webhook_errors", "three 5xx each minute", answered(3, response_code_class="5xx"), 0),
    Case("webhook_errors", "5xx now and then", answered(0.5, response_code_class="5xx"), None),
    Case("webhook_errors", "4xx each minute", answered(60, response_code_class="4xx"), None),
    Case("webhook_slow", "one in ten takes 100 to 400 ms", took(54, 60), 5),
    Case("webhook_slow", "one in forty takes 100 to 400 ms", took(58.5, 60), None),
    Case("webhook_slow", "few come, and each is slow", took(0, 9), None),
)
"""On the default thresholds, each alert just above its own and just below."""


@pytest.fixture(scope="session")
def promtool() -> str:
    """Prometheus's own tool; in CI it is there."""
    found = shutil.which("promtool")
    if found is None:
        missing("promtool is not here: the alerts cannot be tried; on Debian or Ubuntu: apt-get install prometheus")
    return found


def alerts_of(plan: Plan) -> dict[str, Mapping[str, str]]:
    """The alerts that are PromQL, by name: query, duration."""
    found: dict[str, Mapping[str, str]] = {}
    for policy in plan.of(POLICY):
        name = re.search(r'\["(\w+)"\]$', policy.address)
        for condition in policy["conditions"]:
            for it in condition["condition_prometheus_query_language"]:
                assert name
                found[name[1]] = it
    return found


WARM_UP, END = 3, 60
"""Minutes: the first two hold no difference yet."""


def _times(case: Case) -> dict[int, bool]:
    """Minutes at which to look, and whether it speaks by then."""
    if case.after is None:
        return {END: False}
    early = {} if case.after == 0 else {case.after - 1: False}
    return {**early, case.after + WARM_UP: True, END: True}


def _complaint(promtool: str, folder: Path, rule: Mapping[str, str], case: Case) -> str:
    """What promtool says, nothing if all is as the case says."""
    (folder / "rules.json").write_text(
        json.dumps(
            {
                "groups": [
                    {"name": "alerts", "rules": [{"alert": case.alert, "expr": rule["query"], "for": rule["duration"]}]}
                ]
            }
        )
    )
    looks = [
        {
            "eval_time": f"{minute}m",
            "alertname": case.alert,
            "exp_alerts": [{"exp_labels": dict(case.about)}] if speaks else [],
        }
        for minute, speaks in _times(case).items()
    ]
    fed = [
        {"series": name, "values": growth if isinstance(growth, str) else f"0+{growth}x{END}"}
        for name, growth in case.going_on.items()
    ]
    tests = [{"interval": "1m", "input_series": fed, "alert_rule_test": looks}]
    (folder / "test.json").write_text(
        json.dumps({"rule_files": ["rules.json"], "evaluation_interval": "1m", "tests": tests})
    )
    done = subprocess.run(
        [promtool, "test", "rules", "test.json"], cwd=folder, capture_output=True, text=True, timeout=60
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.parametrize("case", CASES, ids=lambda it: f"{it.alert}-{it.what}".replace(" ", "-"))
def test_an_alert_speaks_when_it_should_and_not_before(
    case: Case, promtool: str, plan_of: Callable[[str], Plan], tmp_path: Path
) -> None:
    assert _complaint(promtool, tmp_path, alerts_of(plan_of("bare"))[case.alert], case) == ""


def test_every_alert_is_seen_to_speak_and_to_be_silent(plan_of: Callable[[str], Plan]) -> None:
    alerts = set(alerts_of(plan_of("bare")))
    assert {it.alert for it in CASES if it.after is not None} == alerts
    assert {it.alert for it in CASES if it.after is None} == alerts


def test_an_alert_that_looks_the_wrong_way_is_found(
    promtool: str, plan_of: Callable[[str], Plan], tmp_path: Path
) -> None:
    case = CASES[0]
    rule = alerts_of(plan_of("bare"))[case.alert]
    turned = {**rule, "query": rule["query"].replace(">", "<")}
    assert "FAILED" in _complaint(promtool, tmp_path, turned, case)


def test_the_runbook_names_every_threshold_with_its_default() -> None:
    block = re.search(r"default_thresholds = \{\n(.*?)\n  \}", ALERTS_TF.read_text(), re.S)
    assert block
    made = {name: float(value) for name, value in re.findall(r"^    (\w+)\s+= ([0-9.]+)", block[1], re.M)}
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| ([0-9., ]+) \|", RUNBOOK.read_text(), re.M)
    told = {
        name: float(value)
        for names, values in rows
        for name, value in zip(re.findall(r"\w+", names), values.split(", "), strict=True)
    }
    assert told == made
