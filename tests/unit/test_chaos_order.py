"""The order of a chaos run: calls of the handler that overlap, and lanes that fork or are not kept, are found."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli.chaos import collect
from cli.chaos.audit import Audit, AuditInputs, audit, by_key
from cli.chaos.businesses import businesses
from cli.chaos.collect import close
from cli.chaos.handler import TRIES, calls_in, handle, tries_in
from cli.chaos.logs import read_logs
from cli.chaos.message_fate import Fate, LedgerEntry, Rules
from cli.chaos.message_script import Script
from cli.chaos.order_audit import Call, out_of_lane, overlaps
from cli.chaos.plan import Inbound, PlanSettings, make_plan
from cli.chaos.report import End
from cli.chaos.run_settings import RunSettings
from shared.domain.identity import message_event_id, outbound_key
from shared.domain.limits import DoubtPolicy
from shared.domain.messages import Contact, Message
from shared.domain.record import Delivery, Kind
from tests.support.builders import LIMITS, NOW, at, done

CONTACT = "15550000007"
BUSINESSES = businesses(2, "100000000000001")
RULES = Rules(BUSINESSES, DoubtPolicy.RESEND, LIMITS.doubt_window)


def calls(*spans: tuple[float, float]) -> list[Call]:
    return [Call(str(number), began, ended) for number, (began, ended) in enumerate(spans)]


@pytest.mark.parametrize(
    ("spans", "bad"),
    [
        ([(0, 1), (1, 2), (2, 3)], []),
        ([(2, 3), (0, 1), (1, 2)], []),
        ([(0, 1), (0.9, 2)], ["1"]),
        ([(0, 5), (1, 2), (3, 4)], ["1", "2"]),
        ([(0, 20), (1, 2)], []),
        ([], []),
    ],
    ids=["in turn", "in any order", "at once", "two within one", "longer than a lease", "none"],
)
def test_call_that_begins_before_another_has_ended_overlaps(spans: list[tuple[float, float]], bad: list[str]) -> None:
    assert [key for key, _ in overlaps(calls(*spans), 10, ())] == bad


def test_call_that_lost_its_lease_may_overlap() -> None:
    assert list(overlaps(calls((0, 1), (0.5, 2)), 10, {"0"})) == []


def lane(*afters: str | None, **changes: object) -> list[Delivery]:
    """Records of as many plans, with the keys 1, 2 and so on."""
    made = [
        done(key=str(number), after=after, correlation_id=f"plan-{number}") for number, after in enumerate(afters, 1)
    ]
    return [replace(record, **changes) for record in made]  # type: ignore[arg-type]


def took(*keys: str) -> dict[str | None, list[LedgerEntry]]:
    """WhatsApp took these, in this order."""
    reply = Script(0, "t", 0, 0).replies[0]
    return by_key(LedgerEntry(key, "100000000000001", CONTACT, reply, at(n), n) for n, key in enumerate(keys))


def wrong(records: list[Delivery], *keys: str) -> list[str]:
    return [key for key, _ in out_of_lane(records, took(*keys))]


def test_lane_that_is_kept_is_in_order() -> None:
    assert wrong(lane(None, "1", "2"), "1", "2", "3") == []
    assert wrong(lane(None, "1", "2"), "1", "3") == [], "one that was never sent is passed"


def test_message_sent_before_an_earlier_one_is_out_of_order() -> None:
    assert wrong(lane(None, "1", "2"), "2", "1", "3") == ["2"]


def test_order_within_a_plan_is_judged_by_the_plan() -> None:
    assert wrong(lane(None, "1", correlation_id="one-plan"), "2", "1") == []


def test_lane_that_forks_is_found() -> None:
    assert wrong(lane(None, "1", "1"), "1", "2", "3") == ["2", "3"]


def test_second_message_that_follows_none_is_found() -> None:
    assert wrong(lane(None, None), "1", "2") == ["2"]


def test_replayed_message_may_come_late_and_one_may_overtake_if_its_record_says_so() -> None:
    first, second = lane(None, "1")
    assert wrong([replace(first, round=1), second], "2", "1") == []
    assert wrong([first, replace(second, overtook="1")], "2", "1") == []


# ---- the account


def two_messages(after: str | None) -> tuple[list[Inbound], dict[str, Delivery], list[str]]:
    sent = [Inbound(f"wamid.CHAOS.{number}", CONTACT, Script(number, "t", 0, 0)) for number in (1, 2)]
    events = [message_event_id("meta", BUSINESSES[0].sender, one.id) for one in sent]
    first, second = (outbound_key(event, 0) for event in events)
    records = {event: done(Kind.INBOUND, key=event, plan_size=1) for event in events}
    records[first] = done(key=first, correlation_id="plan-1")
    records[second] = done(key=second, correlation_id="plan-2", after=after and first)
    return sent, records, [first, second]


def account(
    after: str | None = "first",
    order: Callable[[list[str]], list[str]] = list,
    calls: dict[int, list[tuple[float, float]]] | None = None,
) -> Audit:
    sent, records, keys = two_messages(after)
    replies = {key: one.script.replies[0] for one, key in zip(sent, keys, strict=True)}
    found = [
        LedgerEntry(key, BUSINESSES[0].sender, CONTACT, replies[key], at(n), n) for n, key in enumerate(order(keys))
    ]
    inputs = AuditInputs(by_key(found), records.get, frozenset(), RULES, calls=calls or {}, inbound_lease=10)
    return audit(sent, inputs)


def test_replies_to_two_messages_in_their_order_are_well() -> None:
    assert account(calls={1: [(0, 1)], 2: [(1, 2)]}).bad == 0


def test_replies_to_two_messages_in_the_wrong_order_are_a_fault() -> None:
    result = account(order=lambda keys: keys[::-1])
    assert result.replies[Fate.OUT_OF_ORDER] == result.bad == 1


def test_two_messages_handled_at_once_are_a_fault() -> None:
    result = account(calls={1: [(0, 1)], 2: [(0.5, 2)]})
    assert result.received[Fate.OVERLAPPED] == result.bad == 1


def test_plan_outside_the_lane_is_a_fault() -> None:
    assert account(after=None).bad == 1


def test_each_tenant_has_a_lane_and_a_turn_of_its_own_with_a_contact() -> None:
    sent = [Inbound(f"wamid.CHAOS.{number}", CONTACT, Script(number, "t", 0, 0), number - 1) for number in (1, 2)]
    events = [message_event_id("meta", BUSINESSES[one.tenant].sender, one.id) for one in sent]
    records = {outbound_key(event, 0): done(key=outbound_key(event, 0)) for event in events}
    calls = {1: [(0.0, 1.0)], 2: [(0.5, 2.0)]}
    result = audit(sent, AuditInputs({}, records.get, frozenset(), RULES, calls=calls, inbound_lease=10))
    assert (result.received[Fate.OVERLAPPED], result.replies[Fate.OUT_OF_ORDER]) == (0, 0)


def test_run_that_was_stopped_early_is_not_judged_by_its_order() -> None:
    sent, records, _ = two_messages(None)
    inputs = AuditInputs({}, records.get, frozenset(), RULES, ended_at=NOW, calls={1: [(0, 1)], 2: [(0, 1)]})
    assert audit(sent, inputs).received[Fate.OVERLAPPED] == 0


# ---- where it comes from


def test_handler_notes_when_each_of_its_calls_began_and_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries_in(tmp_path).mkdir()
    monkeypatch.setenv(TRIES, str(tries_in(tmp_path)))
    contact = Contact(CONTACT, phone=CONTACT)
    message = Message("text", Script(7, "tt", 20, 0).text, "wamid.7", contact, "1", "default", NOW)
    for _ in range(2):
        list(handle(message))
    ((number, found),) = calls_in(tries_in(tmp_path)).items()
    assert number == 7
    (first_began, first_ended), (second_began, _) = found
    assert first_ended - first_began >= 0.02
    assert second_began >= first_ended


def test_events_whose_lease_was_lost_are_read_from_the_log(tmp_path: Path) -> None:
    (tmp_path / "logs.jsonl").write_text(
        '{"event": "lease_lost", "inbound_event_id": "of-an-event"}\n{"event": "lease_lost", "delivery": "a-reply"}\n'
    )
    assert read_logs(tmp_path, set()).lost_leases == {"of-an-event"}


def test_audit_is_given_the_calls_the_lease_and_the_lost_leases_of_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[AuditInputs] = []

    def noted(_: object, inputs: AuditInputs) -> Audit:
        given.append(inputs)
        return Audit()

    monkeypatch.setattr(collect, "audit", noted)
    tries_in(tmp_path).mkdir()
    (tries_in(tmp_path) / "7.calls").write_text("1.5 2.5\n")
    (tmp_path / "logs.jsonl").write_text('{"event": "lease_lost", "inbound_event_id": "of-an-event"}\n')
    order = PlanSettings(messages=1, seconds=1, contacts=1, seed=1)
    settings = RunSettings(order, "sqlite", False, DoubtPolicy.RESEND, False, 10, tmp_path, "handler")
    stack: Any = SimpleNamespace(
        control=SimpleNamespace(get=lambda path: [] if path == "ledger" else {}),
        data_dir=tmp_path,
        businesses=BUSINESSES,
        read=lambda _: None,
        parts=SimpleNamespace(proxy=None),
    )
    injector: Any = SimpleNamespace(injected=Counter())
    close(settings, make_plan(order), stack, injector, (), End(seconds=1, sent=0, is_quiet=True, tasks_left=0))
    (inputs,) = given
    assert (inputs.calls, inputs.lost_leases) == ({7: [(1.5, 2.5)]}, {"of-an-event"})
    assert inputs.inbound_lease == settings.limits.inbound_lease.total_seconds() > 0


def test_contacts_write_in_bursts() -> None:
    plan = make_plan(PlanSettings(messages=400, seconds=40, contacts=80, seed=1))
    contacts = [batch.messages[0].contact for batch in plan.batches]
    again = sum(one == other for one, other in pairwise(contacts))
    assert 0.25 < again / len(contacts) < 0.55
