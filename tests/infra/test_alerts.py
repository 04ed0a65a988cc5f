"""Each alert speaks when it should and is silent when it should: Prometheus itself reads the plan's queries."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.infra.offline.workspace import TERRAFORM
from tests.infra.plans import Plan
from tests.infra.rules_monitoring import OURS, RUNBOOK, USES, alerts_of, thresholds
from tests.support.machine import missing

ALERTS_TF = TERRAFORM / "modules" / "monitoring" / "alerts.tf"
OF_A_REVISION = {"monitored_resource": "cloud_run_revision"}
OF_THE_WEBHOOK = {**OF_A_REVISION, "service_name": "pombo-webhook"}
OF_THE_API = {**OF_A_REVISION, "service_name": "pombo-api"}
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


def answered(per_minute: float | str, of: Mapping[str, str] = OF_THE_WEBHOOK, **labels: str) -> Series:
    return {series(REQUESTS, of | labels): per_minute}


def took(counts: Mapping[str, float], of: Mapping[str, str] = OF_THE_WEBHOOK) -> Series:
    """How many answers a minute were as quick as so many milliseconds; the last count is that of all."""
    *_, all_of_them = counts.values()
    buckets = {
        series(f"{LATENCIES}_bucket", of | {"le": le}): count for le, count in {**counts, "+Inf": all_of_them}.items()
    }
    return {**buckets, **answered(all_of_them, of, response_code_class="2xx")}


def api_answered(by_status: Mapping[str, float | str]) -> Series:
    """How many responses of the API a minute have each status."""
    return {
        name: growth
        for status, count in by_status.items()
        for name, growth in answered(
            count, OF_THE_API, response_code=status, response_code_class=f"{status[0]}xx"
        ).items()
    }


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
    over: int | None = None
    """The minute by which it is silent again; None: it speaks to the end."""
    never: bool = False
    """Whether each minute is looked at, and not the last one alone."""


def connected(value: float, reason: str = "") -> Series:
    return reported("evolution_connected", value, tenant="default", reason=reason, **SENDER)


SWEEPS = counted("sweeps_total", 1)


def down(whose: str, each_sweep: str, of_sweeps: str) -> Series:
    """The sum of what the sweeps found, and how many found one, as they grow."""
    return {
        series(f"{OURS}whatsapp_{whose}_down_sum", OF_A_REVISION): each_sweep,
        series(f"{OURS}whatsapp_{whose}_down_count", OF_A_REVISION): of_sweeps,
        **SWEEPS,
    }


def _outages(whose: str, severity: str, minutes: int) -> Iterator[Case]:
    alert, onset = f"{whose}_down_{severity}", 3
    yield Case(alert, "one is down", down(whose, "0+1x60", "0+1x60"), minutes)
    yield Case(alert, "ten are down", down(whose, "0+10x60", "0+1x60"), minutes)
    yield Case(
        alert,
        "one is down until minute 40",
        down(whose, "0+1x40 40x20", "0+1x40 40x20"),
        minutes,
        over=40 + onset,
    )
    short = minutes - 1
    yield Case(
        alert,
        f"ten are down for {short} minutes",
        down(whose, f"0x10 0+10x{short} {10 * short}x60", f"0x10 0+1x{short} {short}x60"),
        None,
        never=True,
    )
    yield Case(alert, "none is down any more", down(whose, "100x60", "100x60"), None)
    yield Case(alert, "none was ever down", SWEEPS, None)
    yield Case(alert, "nothing is known", {}, None)
    yield Case(
        alert,
        "the sweeps stop while one is down",
        {**down(whose, "0+1x2 2x58", "0+1x2 2x58"), **counted("sweeps_total", "0+1x2 2x58")},
        None,
    )


def receipts(failed: float | str, accepted: float | str | None) -> Series:
    of_accepted = {} if accepted is None else counted(ENDED, accepted, stage="outbound", status="success")
    return {**counted("receipt_failed_total", failed, code="131042"), **of_accepted}


ENDED = "messages_processed_total"
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
    *(
        case
        for whose in ("provider", "backend")
        for severity, minutes in (("warning", 5), ("critical", 30))
        for case in _outages(whose, severity, minutes)
    ),
    Case("failed_receipts", "21 of 100 a minute fail", receipts(21, 100), 0),
    Case("failed_receipts", "20 of 100 a minute fail", receipts(20, 100), None),
    Case("failed_receipts", "each of 6 in 15 minutes fails", receipts(0.4, 0.4), 13),
    Case("failed_receipts", "each of 4 in 15 minutes fails", receipts(0.28, 0.28), None),
    Case("failed_receipts", "6 of 600 in 15 minutes fail", receipts(0.4, 40), None),
    Case("failed_receipts", "6 in 15 minutes fail and none was ever accepted", receipts(0.4, None), 13),
    Case("failed_receipts", "each fails until minute 30", receipts("0+5x30 150x30", 5), 0, over=46),
    Case("failed_receipts", "none fails any more", receipts("100x60", 5), None),
    Case("failed_receipts", "nothing is known", {}, None),
    Case(
        "failed_receipts",
        "events are handled, and each message fails",
        {**receipts(1, 1), **counted(ENDED, 100, stage="inbound", status="success")},
        5,
    ),
    Case("sweep_silent", "no sweep ever came", {}, 0),
    Case("sweep_silent", "a sweep a minute", counted("sweeps_total", 1), None),
    Case(
        "processing_slow",
        "31 wait and 24 a minute end",
        {**reported("queue_depth", 31), **counted(ENDED, 24, stage="inbound", status="success")},
        2,
    ),
    Case("processing_slow", "31 wait and none ever ended", reported("queue_depth", 31), 2),
    Case(
        "processing_slow",
        "100 a second came to an end until it stopped at minute 30",
        {
            **reported("queue_depth", 31),
            **counted(ENDED, "0+6000x30 180000x30", stage="inbound", status="success"),
        },
        30 + 5,
    ),
    Case(
        "processing_slow",
        "31 wait and 36 a minute end",
        {**reported("queue_depth", 31), **counted(ENDED, 36, stage="inbound", status="success")},
        None,
    ),
    Case(
        "processing_slow",
        "31 wait and 36 a minute fail",
        {**reported("queue_depth", 31), **counted(ENDED, 36, stage="outbound", status="failed")},
        2,
    ),
    Case("processing_slow", "there is little to do", reported("queue_depth", 30), None),
    Case("oldest_pending", "one waits for 31 minutes", reported("oldest_pending_seconds", 31 * 60), 0),
    Case("oldest_pending", "one waits for 30 minutes", reported("oldest_pending_seconds", 30 * 60), None),
    Case("oldest_dead", "one was received 91 days ago", reported("oldest_dead_seconds", 91 * 86400), 0),
    Case("oldest_dead", "one was received 90 days ago", reported("oldest_dead_seconds", 90 * 86400), None),
    Case("oldest_dead", "there is no dead letter", reported("oldest_dead_seconds", 0), None),
    Case("needs_reauth", "a credential is refused", connected(0, "needs_reauth"), 0, SENDER),
    Case("needs_reauth", "a sender is blocked", connected(0, "blocked"), None),
    Case("needs_reauth", "all is well", connected(1), None),
    Case("unknown_sender", "one a minute", counted("unknown_sender_total", 1, **SENDER), 0, SENDER),
    Case("unknown_sender", "none any more", counted("unknown_sender_total", 0, **SENDER), None),
    Case("webhook_errors", "three 5xx each minute", answered(3, response_code_class="5xx"), 0),
    Case("webhook_errors", "5xx now and then", answered(0.5, response_code_class="5xx"), None),
    Case("webhook_errors", "4xx each minute", answered(60, response_code_class="4xx"), None),
    Case("webhook_slow", "one in ten takes 100 to 400 ms", took({"100": 54, "400": 60}), 5),
    Case("webhook_slow", "one in forty takes 100 to 400 ms", took({"100": 58.5, "400": 60}), None),
    Case("webhook_slow", "few come, and each is slow", took({"100": 0, "400": 9}), None),
    Case("webhook_slow", "one in ten of the API is slow", took({"100": 54, "400": 60}, OF_THE_API), None),
    Case("api_errors", "6 of 100 a minute fail", api_answered({"202": 94, "503": 6}), 0),
    Case("api_errors", "5 of 100 a minute fail", api_answered({"202": 95, "500": 5}), None),
    Case("api_errors", "three kinds of 2 of 100 a minute", api_answered({"200": 94, "500": 2, "503": 2, "504": 2}), 0),
    Case("api_errors", "each of 6 in 5 minutes fails", api_answered({"503": 1.2}), 4),
    Case("api_errors", "each of 4 in 5 minutes fails", api_answered({"503": 0.8}), None),
    Case("api_errors", "callers are at fault", api_answered({"202": 10, "400": 60, "401": 60, "429": 60}), None),
    Case(
        "api_errors", "each of the webhook's fails", answered(60, response_code="500", response_code_class="5xx"), None
    ),
    Case("api_errors", "each fails until minute 30", api_answered({"503": "0+5x30 150x30"}), 0, over=36),
    Case("api_errors", "nobody calls", {}, None),
    Case("api_slow", "one in ten takes 1 to 2 s", took({"1000": 54, "2000": 60}, OF_THE_API), 5),
    Case("api_slow", "one in forty takes 1 to 2 s", took({"1000": 58.5, "2000": 60}, OF_THE_API), None),
    Case("api_slow", "few come, and each is slow", took({"1000": 0, "2000": 9}, OF_THE_API), None),
    Case("api_slow", "one in ten of the webhook is slow", took({"1000": 54, "2000": 60}), None),
    *(
        Case("api_refused", f"61 a minute get {code}", api_answered({"202": 60, code: 61}), 4, {"response_code": code})
        for code in ("401", "429")
    ),
    Case("api_refused", "60 a minute of each", api_answered({"202": 60, "401": 60, "429": 60}), None),
    Case("api_refused", "many are refused otherwise", api_answered({"400": 99, "403": 99, "503": 99}), None),
    Case(
        "api_refused",
        "61 a minute get 401 until minute 30",
        api_answered({"401": "0+61x30 1830x30"}),
        4,
        {"response_code": "401"},
        over=36,
    ),
)
"""On the default thresholds, each alert just above its own and just below."""


@pytest.fixture(scope="session")
def promtool() -> str:
    """Prometheus's own tool; in CI it is there."""
    found = shutil.which("promtool")
    if found is None:
        missing("promtool is not here: the alerts cannot be tried; on Debian or Ubuntu: apt-get install prometheus")
    return found


WARM_UP, END = 3, 60
"""Minutes: the first two hold no difference yet."""


def _times(case: Case) -> dict[int, bool]:
    """Minutes at which to look, and whether it speaks by then."""
    if case.after is None:
        return dict.fromkeys(range(1, END + 1) if case.never else (END,), False)
    early = {} if case.after == 0 else {case.after - 1: False}
    late = {} if case.over is None else {case.over: False}
    return {**early, case.after + WARM_UP: True, **late, END: case.over is None}


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
def test_alert_fires_when_it_should_and_not_before(
    case: Case, promtool: str, plan_of: Callable[[str], Plan], tmp_path: Path
) -> None:
    assert _complaint(promtool, tmp_path, alerts_of(plan_of("bare"))[case.alert], case) == ""


def test_every_alert_has_a_firing_and_a_silent_case(plan_of: Callable[[str], Plan]) -> None:
    alerts = set(alerts_of(plan_of("bare")))
    assert {it.alert for it in CASES if it.after is not None} == alerts
    assert {it.alert for it in CASES if it.after is None} == alerts


def test_alert_that_looks_the_wrong_way_is_found(promtool: str, plan_of: Callable[[str], Plan], tmp_path: Path) -> None:
    case = CASES[0]
    rule = alerts_of(plan_of("bare"))[case.alert]
    turned = {**rule, "query": rule["query"].replace(">", "<")}
    assert "FAILED" in _complaint(promtool, tmp_path, turned, case)


def test_the_runbook_names_every_threshold_with_its_default() -> None:
    block = re.search(r"default_thresholds = \{\n(.*?)\n  \}", ALERTS_TF.read_text(), re.S)
    assert block
    made = {name: float(value) for name, value in re.findall(r"^    (\w+)\s+= ([0-9.]+)", block[1], re.M)}
    assert thresholds(RUNBOOK.read_text()) == made


def test_every_threshold_is_some_alerts(plan_of: Callable[[str], Plan]) -> None:
    assert set(USES) == set(alerts_of(plan_of("bare")))
    assert {name for uses in USES.values() for _, name in uses} == set(thresholds(RUNBOOK.read_text()))
