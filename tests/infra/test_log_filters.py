"""Every filter of the metrics, the dashboard and the pages, before the lines that the services really write."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from shared.logs import EVENTS
from tests.infra.log_filters import Entry, FilterInvalid, entry_of, extracted_path, field_of, parse
from tests.infra.log_run import Line, lines_of_a_run
from tests.infra.mutations import Mutation, put
from tests.infra.plans import Plan
from tests.infra.rules_monitoring import DASHBOARD, METRIC
from tests.support import log_table

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[Line]:
    return lines_of_a_run(tmp_path_factory.mktemp("run"))


# ---- the language

ENTRY: Entry = entry_of(
    {
        "time": "2026-11-28T10:15:02Z",
        "severity": "WARNING",
        "message": "The message is waiting; no attempt was made.",
        "event": "outbound_waiting",
        "attempt": 3,
        "final": False,
        "logging.googleapis.com/labels": {"tenant": "default"},
    }
)


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ('jsonPayload.event="outbound_waiting"', True),
        ('jsonPayload.event = "Outbound_Waiting"', True),
        ('jsonPayload.event="outbound"', False),
        ('jsonPayload.event=("outbound_sent" OR "outbound_waiting")', True),
        ('jsonPayload.event=("outbound_sent" OR "Outbound_Waiting" OR "swept")', True),
        ('jsonPayload.event=("outbound_sent" OR "outbound")', False),
        ('jsonPayload.absent=("a" OR "b")', False),
        ('jsonPayload.event=("swept" OR "outbound_waiting") AND severity="INFO"', False),
        ('labels.tenant="default" AND severity="WARNING"', True),
        ('labels.tenant="default" AND severity="ERROR"', False),
        ('severity>="INFO"', True),
        ('severity<"WARNING"', False),
        ("jsonPayload.attempt>2", True),
        ("jsonPayload.attempt>=3", True),
        ("jsonPayload.attempt<3", False),
        ("jsonPayload.attempt<=3.5", True),
        ("jsonPayload.attempt=3", True),
        ("jsonPayload.absent>=0", False),
        ('jsonPayload.absent.deeper="x"', False),
        ('resource.type="cloud_run_revision"', True),
        ('resource.type="cloud_run_job"', False),
        ('severity="WARNING"\n  AND jsonPayload.attempt=3', True),
    ],
)
def test_filter_matches_what_google_documents(text: str, matches: bool) -> None:
    assert parse(text)(ENTRY) is matches


@pytest.mark.parametrize(
    "text",
    [
        "",
        "outbound_waiting",
        '"outbound_waiting"',
        'jsonPayload.event="a" OR jsonPayload.event="b"',
        'jsonPayload.event="a" and jsonPayload.event="b"',
        'jsonPayload.event="a" jsonPayload.event="b"',
        'jsonPayload.event="a" AND',
        'AND jsonPayload.event="a"',
        'NOT jsonPayload.event="a"',
        '-jsonPayload.event="a"',
        '(jsonPayload.event="a")',
        'jsonPayload.event!="a"',
        'jsonPayload.event:"a"',
        "jsonPayload.event:*",
        'jsonPayload.event=~"a.*"',
        'jsonPayload.event!~"a.*"',
        'jsonPayload.event>"a"',
        "jsonPayload.event=a",
        "severity>=INFO",
        "jsonPayload.event='a'",
        'jsonPayload.event="a\\"b"',
        'jsonPayload.event=("a" "b")',
        'jsonPayload.event=("a")',
        'jsonPayload.event=("a" or "b")',
        'jsonPayload.event=("a" AND "b")',
        'jsonPayload.event=("a" OR "b"',
        'jsonPayload.event>("a" OR "b")',
        "jsonPayload.attempt=(1 OR 2)",
        'severity=("INFO" OR "ERROR")',
        'jsonPayload."event"="a"',
        'event="a"',
        'jsonPayload="a"',
        'severity.x="INFO"',
        'severity="BAD"',
        'timestamp>="2026-01-01"',
        'jsonPayload.event="a" -- a comment',
        "sample(insertId, 0.1)",
        "jsonPayload.attempt=3x",
        "jsonPayload.attempt==3",
        'jsonPayload.event="a" AND AND severity="INFO"',
        'jsonPayload.event="a',
    ],
)
def test_other_filter_syntax_is_refused(text: str) -> None:
    with pytest.raises(FilterInvalid):
        parse(text)


@pytest.mark.parametrize(
    "text",
    ['jsonPayload.attempt="3"', "jsonPayload.event>=3", "jsonPayload.final=1", 'jsonPayload.attempt=("3" OR "4")'],
)
def test_a_value_of_another_kind_than_the_fields_is_refused(text: str) -> None:
    with pytest.raises(FilterInvalid, match="another kind"):
        parse(text)(ENTRY)


@pytest.mark.parametrize("text", ["jsonPayload.event", 'REGEXP_EXTRACT(jsonPayload.event, "(.*)")', "EXTRACT()"])
def test_an_extractor_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(FilterInvalid):
        extracted_path(text)


# ---- the table of events


def test_every_event_of_the_table_is_in_the_run(lines: list[Line]) -> None:
    assert {line["event"] for line in lines} == set(EVENTS)


def test_every_line_has_the_fields_of_the_table_and_no_other(lines: list[Line]) -> None:
    assert {fault for line in lines for fault in log_table.faults(line)} == set()


def test_a_send_and_its_receipts_have_the_same_message_hash(lines: list[Line]) -> None:
    hashed = {"outbound_sent", "receipt_applied", "receipt_failed", "receipt_unknown"}
    of_events = [line for line in lines if line["event"] in hashed]
    assert {line["event"] for line in of_events} == hashed
    assert all(re.fullmatch(r"[0-9a-f]{40}", line["message_hash"]) for line in of_events)
    sent = {line["delivery"]: line["message_hash"] for line in of_events if line["event"] == "outbound_sent"}
    receipts = [line for line in of_events if line["event"].startswith("receipt_") and line.get("delivery") in sent]
    assert all(line["message_hash"] == sent[line["delivery"]] for line in receipts)


def test_each_line_of_a_task_names_the_queue_of_its_half(lines: list[Line]) -> None:
    """The shared one, or a numbered one of the same half."""
    queues = {(line["event"].partition("_")[0], line["queue"].partition("-t0")[0]) for line in lines if "queue" in line}
    assert {it for it in queues if it[0] in ("inbound", "outbound")} == {
        ("inbound", "inbound"),
        ("outbound", "outbound"),
    }


# ---- the metrics


def _is(*events: str, **fields: Any) -> Callable[[Line], bool]:
    return lambda line: line["event"] in events and fields.items() <= line.items()


_SUCCESS = _is("inbound_processing_finished", "outbound_sent", "outbound_attempt", state="done")
_FAILED = _is("receipt_failed", "dead_lettered")


def _found_down(whose: str) -> Callable[[Line], bool]:
    return lambda line: line["event"] == "swept" and line[f"{whose}_down"] >= 1


MEANT: Mapping[str, Callable[[Line], bool]] = {
    **dict.fromkeys(
        (
            "whatsapp_queue_depth",
            "whatsapp_in_doubt",
            "whatsapp_dead_letters",
            "whatsapp_receipts_failed",
            "whatsapp_oldest_pending_seconds",
            "whatsapp_oldest_dead_seconds",
            "whatsapp_sweeps_total",
        ),
        _is("swept"),
    ),
    "whatsapp_evolution_connected": _is("sender_checked"),
    "whatsapp_provider_down": _found_down("provider"),
    "whatsapp_backend_down": _found_down("backend"),
    "whatsapp_messages_processed_total": lambda line: _SUCCESS(line) or _FAILED(line),
    "whatsapp_message_latency_seconds": _is("inbound_processing_finished", "outbound_sent", state="done"),
    "whatsapp_unknown_sender_total": _is("inbound_new", state="dropped", reason="unknown_sender"),
    "whatsapp_dead_lettered_total": _is("dead_lettered"),
    "whatsapp_receipt_failed_total": _is("receipt_failed"),
    "whatsapp_needs_reauth_total": _is("tenant_needs_reauth"),
    "whatsapp_sender_blocked_total": _is("sender_blocked"),
    "whatsapp_webhooks_refused_total": _is("webhook_refused"),
}
"""Of which lines each metric is made, said once more and in another way than by its filter."""

TAKEN = {
    "whatsapp_queue_depth": "pending",
    "whatsapp_in_doubt": "in_doubt",
    "whatsapp_dead_letters": "dead",
    "whatsapp_receipts_failed": "receipts_failed",
    "whatsapp_provider_down": "provider_down",
    "whatsapp_backend_down": "backend_down",
    "whatsapp_oldest_pending_seconds": "oldest_pending_seconds",
    "whatsapp_oldest_dead_seconds": "oldest_dead_seconds",
    "whatsapp_evolution_connected": "connected",
    "whatsapp_message_latency_seconds": "latency_seconds",
}
"""The number that each distribution takes."""


def faults_before(lines: list[Line], plan: Plan) -> list[str]:
    """What is wrong with the metrics, seen from the lines."""
    found = []
    for metric in plan.of(METRIC):
        name, matches = metric["name"], parse(metric["filter"])
        meant = [line for line in lines if MEANT[name](line)]
        matched = [line for line in lines if matches(entry_of(line))]
        if not meant:
            found.append(f"The run has no line for {name}.")
        found += [f"{name} leaves out {line['event']}." for line in meant if line not in matched]
        found += [f"{name} counts {line['event']} too." for line in matched if line not in meant]
        found += _unextracted(name, metric, [entry_of(line) for line in matched])
    return found


def _unextracted(name: str, metric: Any, entries: list[Entry]) -> list[str]:
    found = []
    if metric.get("value_extractor"):
        path = extracted_path(metric["value_extractor"])
        values = [field_of(entry, path) for entry in entries]
        found += [f"{name} takes {value!r} for a number." for value in values if type(value) not in (int, float)]
        if path != ("jsonPayload", TAKEN[name]):
            found.append(f"{name} takes {path[-1]}, not {TAKEN[name]}.")
    for label, extractor in (metric.get("label_extractors") or {}).items():
        if entries and not any(field_of(entry, extracted_path(extractor)) for entry in entries):
            found.append(f"{name} finds its label {label} in no line.")
        if label == "status":
            said = [(entry, field_of(entry, extracted_path(extractor))) for entry in entries]
            found += [
                f"{name} takes {status!r} for the status of {entry['jsonPayload']['event']}."
                for entry, status in said
                if status != ("failed" if _FAILED(entry["jsonPayload"]) else "success")
            ]
    return found


def test_every_metric_is_fed_by_the_lines_it_is_meant_for_and_by_no_other(
    lines: list[Line], plan_of: Callable[[str], Plan]
) -> None:
    plan = plan_of("bare")
    assert {it["name"] for it in plan.of(METRIC)} == set(MEANT)
    assert faults_before(lines, plan) == []


@pytest.mark.parametrize(
    ("name", "change", "fault"),
    [
        ("queue_depth", put('jsonPayload.event="sweept"', "filter"), "whatsapp_queue_depth leaves out swept"),
        ("queue_depth", put('severity="INFO"', "filter"), "whatsapp_queue_depth counts webhook_received too"),
        ("dead_letters", put("EXTRACT(jsonPayload.dead_letters)", "value_extractor"), "takes None for a number"),
        ("connected", put("EXTRACT(jsonPayload.reason)", "value_extractor"), "takes 'blocked' for a number"),
        (
            "dead_lettered",
            put({"code": "EXTRACT(jsonPayload.error_code)"}, "label_extractors"),
            "label code in no",
        ),
        ("processed", put('jsonPayload.state="done"', "filter"), "processed_total counts lease_lost too"),
        ("processed", put('jsonPayload.status="success"', "filter"), "processed_total leaves out receipt_failed"),
        ("processed", put('jsonPayload.status="success"', "filter"), "processed_total leaves out dead_lettered"),
        ("processed", put('jsonPayload.status="failed"', "filter"), "processed_total leaves out outbound_sent"),
        (
            "processed",
            put({"status": "EXTRACT(jsonPayload.state)", "stage": "EXTRACT(jsonPayload.stage)"}, "label_extractors"),
            "takes 'done' for the status of outbound_sent",
        ),
        (
            "receipt_failed_total",
            put('jsonPayload.event="receipt_applied"', "filter"),
            "receipt_failed_total leaves out receipt_failed",
        ),
        ("receipt_failed_total", put({"code": "EXTRACT(jsonPayload.reason)"}, "label_extractors"), "label code in no"),
        ("receipts_failed", put("EXTRACT(jsonPayload.dead)", "value_extractor"), "takes dead, not receipts_failed"),
        ("receipts_failed", put('jsonPayload.event="sender_checked"', "filter"), "receipts_failed leaves out swept"),
        ("provider_down", put('jsonPayload.event="swept"', "filter"), "provider_down counts swept too"),
        ("backend_down", put('jsonPayload.event="swept"', "filter"), "backend_down counts swept too"),
        ("provider_down", put("jsonPayload.backend_down>0", "filter"), "provider_down leaves out swept"),
        ("backend_down", put("EXTRACT(jsonPayload.provider_down)", "value_extractor"), "takes provider_down, not"),
    ],
)
def test_a_metric_that_is_fed_by_something_else_is_found(
    lines: list[Line], plan_of: Callable[[str], Plan], name: str, change: Callable[[Any], None], fault: str
) -> None:
    late: Line = {**next(it for it in lines if _is("outbound_sent")(it)), "event": "lease_lost", "severity": "WARNING"}
    wrong = Mutation(name, METRIC, name, change, fault).of(plan_of("bare"))
    assert any(fault in found for found in faults_before([*lines, late], wrong))


def test_both_sides_of_each_metric_are_in_the_run(lines: list[Line]) -> None:
    """A sender is connected, blocked and refused; a delivery dies of a code and of none; both stages come to an end."""
    assert {line.get("reason") for line in lines if _is("sender_checked")(line)} == {None, "blocked", "needs_reauth"}
    assert {line.get("code") for line in lines if _is("dead_lettered")(line)} >= {None, 131026}
    done = [line for line in lines if _SUCCESS(line)]
    assert {line["stage"] for line in done} == {"inbound", "outbound"}
    assert {line["event"] for line in done} >= {"inbound_processing_finished", "outbound_sent", "outbound_attempt"}


def test_both_sides_of_an_outage_are_in_the_run(lines: list[Line]) -> None:
    swept = [line for line in lines if line["event"] == "swept"]
    for whose in ("provider", "backend"):
        assert {line[f"{whose}_down"] > 0 for line in swept} == {True, False}
        assert any(_is(f"{whose}_down")(line) for line in lines)
        assert any(_is(f"{whose}_up")(line) for line in lines)
    assert {line["receipts_failed"] > 0 for line in swept} == {True, False}


def test_a_message_that_a_receipt_reports_as_failed_counts_in_both_statuses(
    lines: list[Line], plan_of: Callable[[str], Plan]
) -> None:
    """The internal service logs that it was sent, the webhook service that it failed."""
    (metric,) = [it for it in plan_of("bare").of(METRIC) if it["name"] == "whatsapp_messages_processed_total"]
    matches, status = parse(metric["filter"]), extracted_path(metric["label_extractors"]["status"])
    failed = [line for line in lines if line["event"] == "receipt_failed"]
    assert failed
    for one in failed:
        own = [entry_of(line) for line in lines if line.get("delivery") == one["delivery"]]
        assert sorted(field_of(entry, status) for entry in own if matches(entry)) == ["failed", "success"]


def test_nothing_private_becomes_a_label(plan_of: Callable[[str], Plan]) -> None:
    labels = {label for it in plan_of("bare").of(METRIC) for label in it.get("label_extractors") or {}}
    assert labels == {"phone_number_id", "tenant", "reason", "stage", "code", "status"}, (
        "a label is no place for anything private: think of docs/security.md before there is another"
    )


# ---- the pages, and the dashboard

_COMMAND = re.compile(r"gcloud logging read '([^']+)'((?:[^\n]*\\\n)*[^\n]*)")
_SHORTENED = re.compile(r'(\w+)\.(\w+)="\w*…"')


def _commands(page: str) -> list[tuple[str, str]]:
    """The filters of a page, and the rest of each command."""
    return [(found[1], found[2]) for found in _COMMAND.finditer((DOCS / page).read_text())]


def _filled(text: str, lines: list[Line]) -> str:
    """A filter with an id of the run's in place of one that the page has shortened."""
    rest = parse(" AND ".join(part for part in text.split(" AND ") if "…" not in part) or 'severity>="DEBUG"')

    def known(found: re.Match[str]) -> str:
        entries = (entry_of(line) for line in lines)
        values = (field_of(entry, (found[1], found[2])) for entry in entries if rest(entry))
        return f'{found[1]}.{found[2]}="{next(value for value in values if value)}"'

    return _SHORTENED.sub(known, text)


PAGES = ("runbook.md", "operating.md", "deploy.md")
NOT_OF_THE_RUN = (
    'resource.type="cloud_scheduler_job" AND severity>="ERROR"',
    'resource.type="cloud_run_revision" AND severity>="INFO"',
)
OF_THE_RUN = [(page, text) for page in PAGES for text, _ in _commands(page) if text not in NOT_OF_THE_RUN]


@pytest.mark.parametrize(("page", "text"), dict.fromkeys(OF_THE_RUN), ids=lambda it: re.sub(r"\W+", "-", it)[-60:])
def test_a_filter_on_a_page_finds_lines_of_the_event_it_names_and_no_others(
    page: str, text: str, lines: list[Line]
) -> None:
    filled = _filled(text, lines)
    matches = parse(filled)
    found = [line for line in lines if matches(entry_of(line))]
    assert found, "it finds nothing in a run that has everything"
    assert len(found) < len(lines), "it finds everything"
    named = re.findall(r'jsonPayload\.event="(\w+)"', text)
    assert set(named) <= set(EVENTS)
    assert not named or {line["event"] for line in found} == set(named)


def test_each_column_that_the_runbook_shows_is_in_the_lines(lines: list[Line]) -> None:
    """(The operator's page also shows what a line has only where something failed that does not fail here.)"""
    for text, more in _commands("runbook.md"):
        table = re.search(r"table\(([^)]*)\)", more)
        matches = parse(_filled(text, lines))
        # What a page asks by an id may be anybody's, and need not have all that another has.
        entries = [entry_of(line) for line in lines if "…" in text or matches(entry_of(line))]
        for column in table[1].split(", ") if table else ():
            assert any(field_of(entry, tuple(column.split("."))) is not None for entry in entries), (text, column)


def test_the_first_look_at_a_deployment_shows_every_line(lines: list[Line]) -> None:
    (text,) = {text for text, _ in _commands("deploy.md") if "severity" in text}
    matches = parse(text)
    assert all(matches(entry_of(line)) for line in lines)


def test_scheduler_log_query_uses_only_the_known_filter_syntax() -> None:
    """Google's own lines, of which a run has none: https://cloud.google.com/scheduler/docs/logging."""
    (text,) = {text for text, _ in _commands("runbook.md") if "cloud_scheduler_job" in text}
    assert parse(text).paths == {("resource", "type"), ("severity",)}


def test_the_dashboard_lists_the_errors(lines: list[Line], plan_of: Callable[[str], Plan]) -> None:
    tiles = json.loads(plan_of("bare").one(DASHBOARD)["dashboard_json"])["mosaicLayout"]["tiles"]
    (text,) = [it["widget"]["logsPanel"]["filter"] for it in tiles if "logsPanel" in it["widget"]]
    matches = parse(text)
    found = {line["event"] for line in lines if matches(entry_of(line))}
    assert found == {"dead_lettered", "tenant_needs_reauth", "sender_blocked", "config_error"}
