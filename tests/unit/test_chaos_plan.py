"""The plan and the schedule of a chaos run come from the seed alone, and the handler does what a message says."""

from collections import Counter
from dataclasses import replace
from itertools import islice, pairwise, takewhile
from pathlib import Path

import pytest

from cli.chaos import handler
from cli.chaos.fault_schedule import KILLED, STORE, Action, Disruption, FaultRates, disruptions
from cli.chaos.message_script import CANARY, Script
from cli.chaos.plan import FIRST_CONTACT, PlanSettings, WebhookBatch, make_plan, slower
from local.faults import fault_from
from local.whatsapp.customer_actions import order_from
from local.whatsapp.webhook_payloads import DISPLAY_PHONE_NUMBER
from shared.domain.messages import Message

ORDER = PlanSettings(messages=1000, seconds=100, contacts=50, seed=7)
RATES = FaultRates(kill_every=5, fault_every=0.2, lease=6, doubt=30)
SERVER = replace(RATES, server=True, keeps=True, loses_tasks=True)


# ---- the plan


def test_same_seed_gives_same_plan_and_another_seed_another() -> None:
    assert make_plan(ORDER) == make_plan(ORDER)
    assert make_plan(replace(ORDER, seed=8)) != make_plan(ORDER)


@pytest.mark.parametrize("messages", [1, 2, 99, 1000])
def test_a_plan_has_just_so_many_messages_each_with_its_own_id_and_text(messages: int) -> None:
    planned = list(make_plan(replace(ORDER, messages=messages)).messages)

    assert len(planned) == len({one.id for one in planned}) == len({one.script.text for one in planned}) == messages


def test_the_simulator_gives_the_messages_of_a_batch_the_ids_of_the_plan() -> None:
    sizes = set()
    for batch in make_plan(ORDER).batches:
        contents = [{"body": message.script.text} for message in batch.messages]
        order = order_from(
            {"from": batch.messages[0].contact, "type": "text", "contents": contents, "id": batch.id}, "1"
        )
        assert order.message_ids() == [message.id for message in batch.messages]
        sizes.add(len(contents))
    assert len(sizes) > 3


def test_the_messages_come_over_the_whole_time_and_in_order() -> None:
    times = [batch.at for batch in make_plan(ORDER).batches]

    assert times == sorted(times)
    assert (times[0], times[-1] > 95, times[-1] <= 100) == (0, True, True)


def test_a_plan_has_replies_of_every_number_and_kind_delays_and_exceptions() -> None:
    scripts = [message.script for message in make_plan(ORDER).messages]

    assert {len(script.kinds) for script in scripts} == {1, 2, 3, 4, 5}
    assert set("".join(script.kinds for script in scripts)) == set("tbl")
    assert {script.raises for script in scripts} == {0, 1, 2, None}
    assert max(script.milliseconds for script in scripts) > 1000


@pytest.mark.parametrize(
    ("messages", "seconds", "time_scale", "expected"),
    [
        (29, 30, 10, 0),
        (30, 30, 10, 2500),
        (30, 60, 10, 2500),
        (30, 30, 20, 1250),
        (30, 30, 1, 2500),
        (200, 25, 20, 156),
        (999, 100, 10, 250),
        (1000, 100, 10, 0),
        (1000, 2000, 10, 0),
    ],
)
def test_short_run_has_a_slower_handler_so_that_kills_interrupt_it(
    messages: int, seconds: float, time_scale: float, expected: int
) -> None:
    assert slower(messages, seconds, time_scale) == expected


def test_slower_handler_adds_its_delay_to_each_message_only() -> None:
    for usual, slow in zip(make_plan(ORDER).messages, make_plan(replace(ORDER, slower=2500)).messages, strict=True):
        assert slow == replace(usual, script=replace(usual.script, milliseconds=usual.script.milliseconds + 2500))


@pytest.mark.parametrize("time_scale", [1, 2, 10, 20])
def test_the_slowest_handler_of_a_run_is_faster_than_its_timeout(time_scale: float) -> None:
    assert slower(30, 30, time_scale) + 1500 < 60_000 / time_scale


def test_always_raising_messages_come_early_in_the_plan() -> None:
    raising = [message.script.number for message in make_plan(ORDER).messages if message.script.raises is None]

    assert 0 < len(raising) < 40
    assert max(raising) <= ORDER.messages / 10


def test_a_plan_has_webhooks_that_come_several_times_and_contacts_who_are_refused() -> None:
    plan = make_plan(ORDER)
    batches: list[WebhookBatch] = list(plan.batches)

    assert {batch.times for batch in batches} == {1, 2, 3}
    assert {batch.rebatch for batch in batches} == {True, False}
    assert 0 < len(plan.refused) < 5
    assert any(message.contact in plan.refused for message in plan.messages)


def test_no_contact_has_the_business_number() -> None:
    contacts = {message.contact for message in make_plan(replace(ORDER, messages=3000, contacts=100_000)).messages}

    assert DISPLAY_PHONE_NUMBER not in contacts
    assert all(len(contact) == len(DISPLAY_PHONE_NUMBER) for contact in contacts)
    assert int(DISPLAY_PHONE_NUMBER) < FIRST_CONTACT


def test_at_most_five_contacts_are_refused_in_a_large_plan() -> None:
    assert 0 < len(make_plan(replace(ORDER, contacts=20_000)).refused) <= 5


def test_contacts_are_spread_over_the_tenants_and_nothing_else_changes() -> None:
    one, four = make_plan(ORDER), make_plan(replace(ORDER, tenants=4))
    assert {message.tenant for message in one.messages} == {0}
    tenants: dict[str, set[int]] = {}
    for message in four.messages:
        tenants.setdefault(message.contact, set()).add(message.tenant)
    assert all(len(found) == 1 for found in tenants.values())
    assert set().union(*tenants.values()) == {0, 1, 2, 3}
    assert [replace(message, tenant=0) for message in four.messages] == list(one.messages)


# ---- the script and the handler


def test_script_survives_the_round_trip_through_its_text() -> None:
    for message in make_plan(ORDER).messages:
        assert Script.of(message.script.text) == message.script


def test_no_two_replies_of_a_run_are_alike_and_each_has_the_canary() -> None:
    replies = [str(reply) for message in make_plan(ORDER).messages for reply in message.script.replies]

    assert len(set(replies)) == len(replies) > ORDER.messages
    assert all(CANARY in reply for reply in replies)


@pytest.fixture
def tries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(handler.TRIES, str(tmp_path))


def said(text: str) -> list[tuple[str, object]]:
    message = Message.__new__(Message)
    object.__setattr__(message, "text", text)
    return [(reply.type, reply.content) for reply in handler.handle(message)]


@pytest.mark.usefixtures("tries")
def test_handler_returns_the_replies_of_the_script() -> None:
    script = Script(17, "tbl", 0, 0)

    assert said(script.text) == [(reply.type, reply.body) for reply in script.replies]


@pytest.mark.usefixtures("tries")
def test_handler_raises_as_often_as_the_script_requires_then_answers() -> None:
    script = Script(17, "tt", 0, 2)
    for _ in range(2):
        with pytest.raises(handler.AsPlanned):
            said(script.text)

    assert len(said(script.text)) == 2


@pytest.mark.usefixtures("tries")
def test_always_raising_handler_raises_on_every_call() -> None:
    for _ in range(20):
        with pytest.raises(handler.AsPlanned):
            said(Script(17, "t", 0, None).text)


# ---- the schedule


def first(rates: FaultRates, number: int = 2000, seed: int = 7) -> list[Disruption]:
    return list(islice(disruptions(seed, rates), number))


def test_same_seed_gives_same_disruptions_and_another_seed_others() -> None:
    assert first(SERVER) == first(SERVER)
    assert first(SERVER, seed=8) != first(SERVER)


def test_disruptions_are_endless_and_ordered_by_time() -> None:
    times = [disruption.at for disruption in first(SERVER, 5000)]

    assert times == sorted(times)
    assert times[0] > 0


@pytest.mark.parametrize("seed", range(20))
def test_each_process_is_killed_at_about_the_configured_rate(seed: int) -> None:
    until = takewhile(lambda disruption: disruption.at < 100, disruptions(seed, SERVER))
    kills = Counter(disruption.target for disruption in until if disruption.kind is Action.KILL)

    for name in (*KILLED, STORE):
        assert 15 <= kills[name] <= 27


def test_a_store_without_a_server_is_not_struck() -> None:
    assert STORE not in {disruption.target for disruption in first(RATES)}
    assert not {Action.CUT, Action.SILENCE, Action.SWALLOW} & {disruption.kind for disruption in first(RATES)}


def test_a_server_that_forgets_is_cut_off_and_frozen_and_never_killed() -> None:
    struck = {disruption.kind for disruption in first(replace(SERVER, keeps=False)) if disruption.target == STORE}

    assert struck == {Action.STALL, Action.CUT, Action.SILENCE, Action.SWALLOW}


def test_every_fault_of_the_schedule_is_one_that_the_local_cloud_knows() -> None:
    faults = [fault_from(dict(disruption.fault)) for disruption in first(SERVER) if disruption.kind is Action.FAULT]

    assert {fault.on for fault in faults} == {"provider", "send", "receipt", "webhook", "task"}
    assert all(fault.times > 0 or fault.seconds for fault in faults), "none is left for good"


def test_whatsapp_outage_outlasts_eight_attempts_from_the_first_half_on() -> None:
    rates = replace(SERVER, outage=45.0, length=100.0)
    for seed in range(20):
        outages = [
            disruption
            for disruption in islice(disruptions(seed, rates), 3000)
            if disruption.fault.get("on") == "provider" and disruption.fault["kind"] == "unreachable"
        ]
        assert 10 <= outages[0].at <= 50
        assert all(45 <= disruption.fault["seconds"] <= 54 for disruption in outages)
        assert all(later.at - one.at >= 3 * 45 for one, later in pairwise(outages)), "it comes back in between"


def test_without_a_length_no_outage_is_scheduled() -> None:
    assert not [disruption for disruption in first(SERVER) if disruption.fault.get("kind") == "unreachable"]


def test_schedule_drops_no_tasks_without_a_sweep() -> None:
    lost = [
        disruption
        for disruption in first(RATES)
        if disruption.fault.get("on") == "task" and disruption.fault["kind"] == "drop"
    ]

    assert not lost


def test_no_receipt_is_so_late_that_a_doubt_ends_before_it() -> None:
    late = [
        disruption.fault["seconds"]
        for disruption in first(SERVER)
        if disruption.fault.get("on") == "receipt" and "seconds" in disruption.fault
    ]

    assert 0 < max(late) < RATES.doubt / 2


def test_where_receipts_are_withheld_no_other_fault_of_theirs_lets_them_through() -> None:
    withheld = first(replace(RATES, receipts=False))

    assert not [disruption for disruption in withheld if disruption.fault.get("on") == "receipt"]


def test_a_standstill_is_now_shorter_and_now_longer_than_a_lease() -> None:
    seconds = [disruption.seconds for disruption in first(RATES) if disruption.kind is Action.STALL]

    assert min(seconds) < RATES.lease < max(seconds)


def test_short_run_starts_with_each_fault_its_proof_needs_in_turn() -> None:
    owed = [
        disruption
        for disruption in until(30, replace(RATES, fault_every=1e9, owed_every=5))
        if disruption.kind is Action.FAULT
    ]

    assert [disruption.at for disruption in owed] == [2.5, 7.5, 12.5, 17.5, 22.5, 27.5]
    assert [disruption.fault["kind"] for disruption in owed] == ["accept_then_drop", "duplicate"] * 3
    assert {disruption.target for disruption in owed} == {"send", "task"}


def test_rates_without_owed_faults_schedule_no_fault() -> None:
    assert [
        disruption for disruption in until(30, replace(RATES, fault_every=1e9)) if disruption.kind is Action.FAULT
    ] == []


def until(seconds: float, rates: FaultRates) -> list[Disruption]:
    """The blows of the first seconds."""
    return list(takewhile(lambda disruption: disruption.at < seconds, disruptions(7, rates)))
