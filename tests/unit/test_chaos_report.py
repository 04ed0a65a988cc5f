"""What a chaos run reads in its logs, what it asks of itself, and what it says at the end."""

import json
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cli.chaos import main
from cli.chaos.api_load import ApiSent
from cli.chaos.api_plan import ApiMessage
from cli.chaos.audit import Audit, Evidence, Fate, Finding
from cli.chaos.command import chaos
from cli.chaos.enough_faults import Need, needs, share
from cli.chaos.fault_schedule import Action
from cli.chaos.handler import HANDLER
from cli.chaos.logs import LogSummary, read_logs
from cli.chaos.main import again
from cli.chaos.message_script import ScriptedReply
from cli.chaos.plan import PlanSettings
from cli.chaos.report import SHOWN_ABOVE, End, Result, as_dict, as_text
from cli.chaos.run import _settings
from cli.chaos.run_settings import RunSettings
from local import invocation
from local.stack import EndedAtStart
from shared import config
from shared.domain.limits import DoubtPolicy
from tests.support.builders import at

KEY, OTHER = "0f" * 20, "0e" * 20


def read(tmp_path: Path, *lines: dict[str, Any] | str, doubled: Sequence[str] = ()) -> LogSummary:
    whole = [line if isinstance(line, str) else json.dumps({"time": at(0).isoformat(), **line}) for line in lines]
    (tmp_path / "logs.jsonl").write_text("".join(f"{line}\n" for line in whole))
    return read_logs(tmp_path, doubled)


# ---- log lines


def test_lines_are_counted_by_their_event(tmp_path: Path) -> None:
    told = read(tmp_path, {"event": "inbound_duplicate"}, {"event": "inbound_duplicate"}, {"event": "swept"})

    assert told.events == {"inbound_duplicate": 2, "swept": 1}
    assert told.stray_count == 0


@pytest.mark.parametrize(
    "line",
    [
        {"event": "unexpected_error"},
        {"event": "unexpected_error", "reason": "something else"},
        {"event": "receipt_applied", "who": "+15550000001"},
        {"event": "receipt_applied", "who": "15550000001"},
        {"event": "receipt_applied", "id": "wamid.HBgL"},
        {"event": "receipt_applied", "text": "pigeon 000017 t 0 0"},
        "no JSON",
        '"a string"',
    ],
)
def test_unexpected_log_line_is_a_stray(tmp_path: Path, line: dict[str, Any] | str) -> None:
    told = read(tmp_path, {"event": "started"}, line)

    assert told.stray_count == len(told.strays) == 1


@pytest.mark.parametrize("reason", ["store_unavailable", "queue_unavailable", "registry_unavailable"])
def test_error_of_an_unavailable_store_or_queue_is_not_a_stray(tmp_path: Path, reason: str) -> None:
    assert read(tmp_path, {"event": "unexpected_error", "reason": reason}).stray_count == 0


def test_hash_that_begins_like_a_phone_number_is_not_a_stray(tmp_path: Path) -> None:
    assert read(tmp_path, {"event": "started", "task_name": "15557197731cb666883a0f091efd895a5aaf2b7d"}).strays == []


def test_strays_on_standard_error_are_found(tmp_path: Path) -> None:
    (tmp_path / "internal.stderr.log").write_text("a handler prints pigeon 000017\n")

    assert read(tmp_path).stray_count == 1


def test_sent_request_with_a_broken_connection_is_an_interrupted_attempt(tmp_path: Path) -> None:
    told = read(
        tmp_path,
        {"event": "attempt_failed", "status": 503, "broken": True},
        {"event": "attempt_failed", "status": 503},
        {"event": "webhook_failed", "status": None, "error": "IncompleteReadError"},
        {"event": "webhook_failed", "status": None, "error": "ConnectionRefusedError"},
        {"event": "webhook_failed", "status": 500, "error": None},
        {"event": "started", "interrupted": 3},
        {"event": "started", "interrupted": 0},
        {"event": "started"},
    )

    assert told.interrupted == {"tasks": 1, "webhooks": 1, "emulator": 3}


def test_first_doubt_and_first_receipt_of_a_double_are_recorded(tmp_path: Path) -> None:
    def line(event: str, seconds: int, key: str = KEY) -> dict[str, Any]:
        return {"event": event, "delivery": key, "time": at(seconds).isoformat()}

    told = read(
        tmp_path,
        line("outbound_in_doubt", 1),
        line("outbound_in_doubt", 2),
        line("receipt_applied", 3),
        line("receipt_applied", 4),
        line("receipt_applied", 0, OTHER),
        doubled=[KEY],
    )

    assert told.evidence == {KEY: Evidence(at(1), at(3))}


# ---- the proof


def test_a_whole_run_has_to_show_all_and_a_shorter_one_its_share_but_never_nothing() -> None:
    assert [share(20, messages) for messages in (10_000, 3000, 1500, 150, 1)] == [20, 20, 10, 1, 1]


def test_every_process_and_every_number_is_asked_for() -> None:
    asked = list(needs(3000, {"webhook": 20, "store": 19}, 200, 49, 100, 0))

    assert [need.least for need in asked] == [20, 20, 200, 50, 100, 1]
    assert [need.what for need in asked if not need.met] == [
        "kills of store",
        "messages in doubt",
        "outages longer than eight attempts",
    ]


# ---- the end


RUN_SETTINGS = RunSettings(
    PlanSettings(messages=10, seconds=31.5, contacts=20, seed=7),
    "sqlite",
    sweep=False,
    policy=DoubtPolicy.RESEND,
    withhold_receipts=False,
    time_scale=10,
    data_dir=Path("data"),
    handler=HANDLER,
)
QUIET = End(seconds=60.4, sent=10, is_quiet=True, tasks_left=0)


def result(**changes: Any) -> Result:
    well = Result(
        run_settings=RUN_SETTINGS,
        end=QUIET,
        injected={(Action.KILL, "webhook"): 3, (Action.STALL, "store"): 2},
        swallowed=0,
        made={"task duplicate": 5},
        account=Audit(received=Counter({Fate.HANDLED: 10}), replies=Counter({Fate.DELIVERED: 25})),
        told=LogSummary(events=Counter({"started": 4})),
        needs=[Need("kills of webhook", 3, 1)],
    )
    return replace(well, **changes)


def test_a_run_takes_no_backend_from_the_environment(tmp_path: Path) -> None:
    theirs = {
        "HANDLER_URL": "http://127.0.0.1:9/handle",
        "HANDLER_URL_SECRET": "whsec_" + "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0",
        "HANDLER_KINDS": "*",
    }
    settings = config.load(theirs | _settings(replace(RUN_SETTINGS, data_dir=tmp_path)), config.INTERNAL)
    assert (settings["HANDLER"], settings.get("HANDLER_URL")) == (HANDLER, None)


def with_fate(fate: Fate) -> Audit:
    account = Audit()
    account.note(account.replies, fate, KEY, "A sentence.")
    return account


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, 0),
        ({"account": with_fate(Fate.LOST)}, 1),
        ({"account": with_fate(Fate.DOUBLED)}, 1),
        ({"account": with_fate(Fate.OUT_OF_ORDER)}, 1),
        ({"account": with_fate(Fate.EARLY)}, 1),
        ({"account": with_fate(Fate.UNSTOPPED)}, 1),
        ({"account": Audit(by_api=Counter({Fate.LOST: 1}))}, 1),
        ({"account": with_fate(Fate.WRONG)}, 1),
        ({"account": with_fate(Fate.UNACCOUNTED)}, 1),
        ({"account": with_fate(Fate.DOUBLED_BY_POLICY)}, 0),
        ({"account": with_fate(Fate.DEAD_LETTER)}, 0),
        ({"told": LogSummary(stray_count=1)}, 1),
        ({"end": replace(QUIET, is_quiet=False)}, 1),
        ({"needs": [Need("kills of webhook", 0, 1)]}, 2),
        ({"needs": [Need("kills of webhook", 0, 1)], "account": with_fate(Fate.LOST)}, 1),
        ({"end": replace(QUIET, is_quiet=False, early=at(0))}, 130),
    ],
)
def test_exit_code_separates_success_failure_and_nothing_proven(changes: dict[str, Any], code: int) -> None:
    found = result(**changes)

    assert found.exit_code == as_dict(found)["exit_code"] == code
    assert ("Every message is accounted for" in as_text(found)) is (code == 0)


@pytest.mark.parametrize("where", ["replies", "by_api"])
def test_message_doubled_by_policy_is_said_in_the_last_line(where: str) -> None:
    counts: dict[str, Any] = {where: Counter({Fate.DOUBLED_BY_POLICY: 1})}

    assert "none doubled but by policy," in as_text(result(account=Audit(**counts)))
    assert "none doubled," in as_text(result())


def test_table_shows_seed_faults_and_fates() -> None:
    text = as_text(result())

    for words in ("seed", "kills of webhook", "standstills of the store", "tasks delivered twice", "delivered once"):
        assert words in text


def test_table_shows_what_was_sent_through_the_api_only_if_something_was() -> None:
    message = ApiMessage("a-key", "15550000007", ScriptedReply("text", {}))
    account = Audit(by_api=Counter({Fate.DELIVERED: 3, Fate.CANCELLED: 1}))
    shared = replace(RUN_SETTINGS, order=replace(RUN_SETTINGS.order, api_share=0.4))
    by_api = [ApiSent(message, repetitions=2)] * 4

    shown = as_dict(result(run_settings=shared, account=account, by_api=by_api))

    assert shown["Run"]["messages sent through the API"] == "4 of 4"
    assert shown["What that met"]["requests to the API repeated"] == 8
    counts = shown["Messages sent through the API"]
    assert (counts["delivered once"], counts["cancelled, never sent"], counts["sent early"]) == (3, 1, 0)
    assert "through the API" not in as_text(result())


def test_too_quiet_a_run_lists_what_it_lacks() -> None:
    assert "kills of webhook 0 of 1" in as_text(result(needs=[Need("kills of webhook", 0, 1)]))


def test_bad_message_is_reported_with_key_and_timeline() -> None:
    text = as_text(result(account=with_fate(Fate.LOST), timelines=["Message abc: the timeline"]))

    assert KEY in text
    assert "Message abc: the timeline" in text
    assert as_dict(result(account=with_fate(Fate.LOST)))["findings"] == [
        {"fate": "lost", "key": KEY, "sentence": "A sentence."}
    ]


def test_a_finding_names_no_contact_and_no_text() -> None:
    assert set(Finding.__slots__) == {"fate", "key", "sentence"}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"sweep": True, "withhold_receipts": True, "policy": DoubtPolicy.HOLD},
        {"handler": "mine:handle", "store": "redis", "time_scale": 12.5},
        {"order": replace(RUN_SETTINGS.order, api_share=0.35)},
    ],
)
def test_the_command_that_makes_the_same_run_is_understood_as_the_same(changes: dict[str, Any]) -> None:
    run_settings = replace(RUN_SETTINGS, **changes)

    words = shlex.split(again(run_settings))

    assert words[:2] == [invocation.program(), "chaos"]
    given = chaos.make_context("chaos", words[2:]).params
    assert given["api_share"] == run_settings.order.api_share
    assert (given["messages"], given["seconds"], given["contacts"], given["seed"]) == (10, 31.5, 20, 7)
    assert (given["store"], given["policy"], given["time_scale"]) == (
        run_settings.store,
        run_settings.policy,
        run_settings.time_scale,
    )
    assert (given["no_sweep"], given["withhold_receipts"]) == (not run_settings.sweep, run_settings.withhold_receipts)
    assert (given["handler"] or HANDLER) == run_settings.handler


def test_a_run_has_an_outage_longer_than_the_waits_of_eight_attempts() -> None:
    scaled = replace(RUN_SETTINGS, time_scale=10)
    waits = 10 + 20 + 40 + 80 + 160 + 300 + 300
    assert scaled.rates.outage == waits / 10
    assert scaled.rates.length == 31.5


@pytest.mark.parametrize(
    ("messages", "owed_every"), [(29, 0), (30, 30 / 4), (200, 30 / 16), (999, 30 / 68), (1000, 0), (3000, 0)]
)
def test_short_run_gets_twice_the_faults_its_proof_needs(messages: int, owed_every: float) -> None:
    order = PlanSettings(messages=messages, seconds=30, contacts=20, seed=7)
    assert replace(RUN_SETTINGS, order=order).rates.owed_every == pytest.approx(owed_every)


@pytest.mark.parametrize(("messages", "warned"), [(29, True), (30, False)])
def test_too_few_messages_to_prove_anything_cause_a_warning(
    messages: int, warned: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[RunSettings] = []

    def end_at_once(run_settings: RunSettings, *_: object) -> Result:
        asked.append(run_settings)
        raise EndedAtStart

    monkeypatch.setattr(main, "run_chaos", end_at_once)
    ended = CliRunner().invoke(chaos, ["--messages", str(messages), "--data-dir", str(tmp_path / "data")])

    assert ended.exit_code == 130
    assert ("fewer than 30 messages rarely proves" in ended.output) is warned
    assert [it.order.slower for it in asked] == [0 if warned else 2500]
    assert [it.order.api_share for it in asked] == [0.2]


def test_the_timeline_that_several_bad_messages_share_is_printed_once() -> None:
    account = with_fate(Fate.LOST)
    account.findings = [Finding(Fate.LOST, key, "It is lost.") for key in (KEY, OTHER, KEY)]

    text = as_text(result(account=account, timelines=["Message abc", "Message abc", "Message def"]))

    assert text.count("Message abc") == text.count(SHOWN_ABOVE) == text.count("Message def") == 1
    assert text.count("It is lost.") == 3
