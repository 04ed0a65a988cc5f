"""The account of a chaos run: each sort of bad ledger is found, and each honest end is told from it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from cli.chaos.audit import Audit, AuditInputs, audit, by_key
from cli.chaos.businesses import businesses
from cli.chaos.message_fate import BAD, Evidence, Fate, LedgerEntry, Rules, entries
from cli.chaos.message_script import Script, ScriptedReply
from cli.chaos.plan import Inbound
from shared.domain.identity import message_event_id, outbound_key
from shared.domain.limits import DoubtPolicy
from shared.domain.record import Delivery, Kind, State
from tests.support.builders import LIMITS, at, done, in_doubt, pending

SENDER, CONTACT = "100000000000001", "15550000007"
WINDOW = timedelta(seconds=300)
BUSINESSES = businesses(2, SENDER)
RULES = Rules(BUSINESSES, DoubtPolicy.RESEND, WINDOW)
INBOUND = Inbound("wamid.CHAOS.1.0", CONTACT, Script(0, "tbl", 0, 0))
RAISING = replace(INBOUND, script=Script(0, "tbl", 0, None))
EVENT = message_event_id("meta", SENDER, INBOUND.id)
KEYS = [outbound_key(EVENT, index) for index in range(3)]

Records = Mapping[str, Delivery]


def records(**changes: Delivery | None) -> dict[str, Delivery]:
    """The records of a message that went well, save for these: `event`, `first`, `second`, `third`."""
    found: dict[str, Delivery | None] = {"event": done(Kind.INBOUND, plan_size=3)}
    found |= {name: done() for name in ("first", "second", "third")}
    found |= changes
    keys = dict(zip(("event", "first", "second", "third"), (EVENT, *KEYS), strict=True))
    after = {"second": KEYS[0], "third": KEYS[1]}
    return {
        keys[name]: replace(record, key=keys[name], after=after.get(name)) for name, record in found.items() if record
    }


def ledger(*indexes: int) -> list[LedgerEntry]:
    """The replies of these indexes as WhatsApp took them, one a second."""
    replies = INBOUND.script.replies
    return [LedgerEntry(KEYS[n], SENDER, CONTACT, replies[n], at(place), place) for place, n in enumerate(indexes)]


def account(
    found: Sequence[LedgerEntry],
    known: Records,
    inbound: Inbound = INBOUND,
    rules: Rules = RULES,
    evidence: Mapping[str, Evidence] | None = None,
    refused: frozenset[str] = frozenset(),
) -> Audit:
    return audit([inbound], AuditInputs(by_key(found), known.get, refused, rules, evidence or {}))


def dead(reason: str, kind: Kind = Kind.OUTBOUND, doubts: int = 0) -> Delivery:
    return pending(kind, state=State.DEAD, reason=reason, doubts=doubts)


# ---- what is well


def test_a_message_that_went_well_is_handled_and_its_replies_delivered_once() -> None:
    result = account(ledger(0, 1, 2), records())

    assert result.received == {Fate.HANDLED: 1}
    assert result.replies == {Fate.DELIVERED: 3}
    assert (result.bad, result.findings) == (0, [])


def test_other_messages_between_replies_break_no_order() -> None:
    found = [replace(entry, place=10 * entry.place) for entry in ledger(0, 1, 2)]

    assert account(found, records()).bad == 0


@pytest.mark.parametrize("reason", ["error", "attempts"])
def test_always_raising_handler_is_dead_as_planned_even_after_a_cut_off_attempt(reason: str) -> None:
    result = account([], {EVENT: dead(reason, Kind.INBOUND)}, RAISING)

    assert (result.received, result.replies) == ({Fate.DEAD_AS_PLANNED: 1}, {})
    assert not result.reasons


def test_a_refused_contact_gets_nothing_as_planned() -> None:
    refused = dead("permanent")

    result = account([], records(first=refused, second=refused, third=refused), refused=frozenset({CONTACT}))

    assert result.replies == {Fate.DEAD_AS_PLANNED: 3}
    assert (result.bad, result.reasons) == (0, {})


@pytest.mark.parametrize("reason", ["attempts", "waited", "in_doubt"])
def test_dead_letter_is_reported_with_its_reason_and_not_lost(reason: str) -> None:
    result = account(ledger(0, 2), records(second=dead(reason)))

    assert result.replies == {Fate.DELIVERED: 2, Fate.DEAD_LETTER: 1}
    assert result.reasons == {f"outbound: {reason}": 1}
    assert result.bad == 0


def test_dead_inbound_message_whose_handler_would_answer_is_reported() -> None:
    result = account([], {EVENT: dead("attempts", Kind.INBOUND)})

    assert (result.received, result.replies) == ({Fate.DEAD_LETTER: 1}, {})
    assert result.reasons == {"inbound: attempts": 1}


# ---- what is not


def test_a_reply_that_whatsapp_never_had_is_lost_though_its_record_is_done() -> None:
    result = account(ledger(0, 2), records())

    assert result.replies == {Fate.DELIVERED: 2, Fate.LOST: 1}
    assert (result.bad, result.findings[0].key) == (1, KEYS[1])


def test_a_reply_that_was_never_made_is_lost() -> None:
    assert account(ledger(0, 1), records(third=None)).replies[Fate.LOST] == 1


def test_a_message_that_has_no_record_is_unaccounted_and_its_replies_are_lost() -> None:
    result = account([], {})

    assert (result.received, result.replies) == ({Fate.UNACCOUNTED: 1}, {Fate.LOST: 3})


@pytest.mark.parametrize("state", [State.PENDING, State.LEASED, State.IN_DOUBT])
def test_a_reply_that_is_open_at_the_end_is_unaccounted_even_if_it_was_sent(state: State) -> None:
    assert account(ledger(0, 1, 2), records(third=pending(state=state))).replies[Fate.UNACCOUNTED] == 1


@pytest.mark.parametrize("state", [State.PENDING, State.LEASED])
def test_a_message_received_that_is_open_at_the_end_is_unaccounted(state: State) -> None:
    result = account([], records(event=pending(Kind.INBOUND, state=state), first=None, second=None, third=None))

    assert result.received == {Fate.UNACCOUNTED: 1}


def test_a_reply_that_was_dropped_is_lost() -> None:
    assert account(ledger(0, 1), records(third=pending(state=State.DROPPED))).replies[Fate.LOST] == 1


def test_a_message_received_that_was_dropped_is_lost() -> None:
    event = pending(Kind.INBOUND, state=State.DROPPED, reason="unknown_sender")

    assert account([], {EVENT: event}).received == {Fate.LOST: 1}


def test_a_reply_without_a_record_is_unaccounted() -> None:
    assert account(ledger(0, 1, 2), records(third=None)).replies[Fate.UNACCOUNTED] == 1


def test_unplanned_reply_is_unaccounted() -> None:
    stray = replace(ledger(0)[0], key=outbound_key(EVENT, 3))
    unknown = replace(stray, key=None)

    assert account([*ledger(0, 1, 2), stray, unknown], records()).replies[Fate.UNACCOUNTED] == 2


def test_replies_to_a_message_that_is_dead_are_found() -> None:
    assert account(ledger(0), {EVENT: dead("error", Kind.INBOUND)}, RAISING).replies[Fate.UNACCOUNTED] == 1


@pytest.mark.parametrize(
    "entry",
    [
        replace(ledger(1)[0], reply=ScriptedReply("text", {"body": "other words"})),
        replace(ledger(1)[0], reply=replace(INBOUND.script.replies[1], type="text")),
        replace(ledger(1)[0], reply=INBOUND.script.replies[2]),
        replace(ledger(1)[0], to="15550000008"),
        replace(ledger(1)[0], to=None),
    ],
    ids=["other words", "another type", "another reply's", "another contact", "nobody"],
)
def test_another_content_or_recipient_is_wrong(entry: LedgerEntry) -> None:
    first, _, third = ledger(0, 1, 2)

    assert account([first, replace(entry, place=1), third], records()).replies[Fate.WRONG] == 1


def test_the_second_of_two_sendings_is_looked_at_too() -> None:
    wrong = replace(ledger(0)[0], reply=ScriptedReply("text", {"body": "other words"}), place=9)

    assert account([*ledger(0, 1, 2), wrong], records()).replies[Fate.WRONG] == 1


def test_a_reply_that_reached_a_refused_contact_is_wrong() -> None:
    assert account(ledger(0, 1, 2), records(), refused=frozenset({CONTACT})).replies == {Fate.WRONG: 3}


def test_another_number_of_replies_than_the_handler_gave_is_wrong() -> None:
    result = account(ledger(0, 1, 2), records(event=done(Kind.INBOUND, plan_size=2)))

    assert result.received == {Fate.WRONG: 1}


def test_a_message_that_is_done_though_its_handler_always_raises_is_wrong() -> None:
    assert account(ledger(0, 1, 2), records(), RAISING).received == {Fate.WRONG: 1}


@pytest.mark.parametrize(("order", "bad"), [((1, 0, 2), 1), ((0, 2, 1), 1), ((2, 1, 0), 2), ((2, 0, 1), 1)])
def test_a_reply_before_its_predecessor_is_out_of_order(order: tuple[int, ...], bad: int) -> None:
    result = account(ledger(*order), records())

    assert result.replies[Fate.OUT_OF_ORDER] == bad == result.bad


def test_only_the_first_time_that_a_reply_is_sent_counts_for_its_order() -> None:
    doubted = records(first=done(doubts=1))
    evidence = {KEYS[0]: Evidence(doubted_at=at(0))}

    found = [*ledger(0, 1, 2), replace(ledger(0)[0], place=3, accepted_at=at(301))]

    assert account(found, doubted, evidence=evidence).replies == {
        Fate.DOUBLED_BY_POLICY: 1,
        Fate.DELIVERED: 2,
    }


def test_dead_predecessor_releases_its_successors_in_order() -> None:
    assert account(ledger(1, 2), records(first=dead("in_doubt", doubts=2))).bad == 0


def test_replayed_reply_can_follow_its_successors() -> None:
    assert account(ledger(1, 2, 0), records(first=done(round=1))).bad == 0
    assert account(ledger(1, 2, 0), records(first=done())).bad == 2


def test_reply_can_overtake_one_that_did_not_end_in_time_if_its_record_says_so() -> None:
    overtaking = records(second=done(overtook=KEYS[0]))
    assert account(ledger(1, 2, 0), overtaking).bad == 0
    assert account(ledger(2, 1, 0), overtaking).bad == 1


# ---- doubles


def twice(seconds: float = 310) -> list[LedgerEntry]:
    """The first reply is sent again, so long after the first time."""
    return [*ledger(0, 1, 2), replace(ledger(0)[0], place=3, accepted_at=at(seconds))]


DOUBTED = records(first=done(doubts=1))


def doubled(found: Sequence[LedgerEntry], evidence: Evidence, known: Records = DOUBTED, rules: Rules = RULES) -> bool:
    """Whether it is a fault."""
    result = account(found, known, rules=rules, evidence={KEYS[0]: evidence})
    assert result.replies[Fate.DOUBLED] + result.replies[Fate.DOUBLED_BY_POLICY] == 1
    return Fate.DOUBLED in result.replies


def test_double_after_a_doubt_without_receipt_follows_the_policy() -> None:
    assert not doubled(twice(), Evidence(doubted_at=at(1)))


def test_double_with_a_receipt_after_the_doubt_follows_the_policy() -> None:
    assert not doubled(twice(), Evidence(doubted_at=at(1), receipt_at=at(302)))


def test_a_double_whose_receipt_came_within_the_doubt_window_is_a_fault() -> None:
    assert doubled(twice(), Evidence(doubted_at=at(1), receipt_at=at(299)))


def test_a_double_before_the_doubt_was_over_is_a_fault_if_a_receipt_was_there() -> None:
    assert doubled(twice(30), Evidence(doubted_at=at(1), receipt_at=at(20)))


def test_a_double_without_a_doubt_is_a_fault() -> None:
    assert doubled(twice(), Evidence(doubted_at=at(1)), records())


def test_a_double_of_which_no_log_line_knows_a_doubt_is_a_fault() -> None:
    assert doubled(twice(), Evidence())


def test_a_double_where_the_policy_is_hold_is_a_fault() -> None:
    assert doubled(twice(), Evidence(doubted_at=at(1)), rules=replace(RULES, policy=DoubtPolicy.HOLD))


def test_a_message_sent_three_times_is_a_fault() -> None:
    third = replace(ledger(0)[0], place=4, accepted_at=at(700))

    assert doubled([*twice(), third], Evidence(doubted_at=at(1)), records(first=done(doubts=2)))


def test_double_that_is_dead_in_doubt_is_reported_as_both() -> None:
    known = records(first=dead("in_doubt", doubts=2))

    result = account(twice(), known, evidence={KEYS[0]: Evidence(doubted_at=at(1))})

    assert result.replies[Fate.DOUBLED_BY_POLICY] == 1
    assert result.reasons == {"outbound: in_doubt": 1}


# ---- what is counted besides


def test_doubted_messages_are_counted() -> None:
    known = records(first=done(doubts=1), second=in_doubt())

    assert account(ledger(0, 1, 2), known).doubted == 2


def test_the_ledger_is_read_as_the_simulator_gives_it() -> None:
    row = {
        "key": KEYS[0],
        "phone_number_id": SENDER,
        "echo": f"pombo1.{KEYS[0]}.0.abcdefgh",
        "to": f"+{CONTACT}",
        "recipient": None,
        "type": "text",
        "body": {"body": "hello"},
        "wamid": "wamid.1",
        "accepted_at": "2026-03-01T12:00:00.000000Z",
        "answered": None,
    }

    reply = ScriptedReply("text", {"body": "hello"})
    assert list(entries([row])) == [LedgerEntry(KEYS[0], SENDER, CONTACT, reply, at(0), 0)]


def test_message_stored_under_another_tenant_is_crossed() -> None:
    of_second = replace(INBOUND, tenant=1)
    key = message_event_id("meta", BUSINESSES[1].sender, INBOUND.id)
    found = account([], {key: replace(done(Kind.INBOUND, plan_size=3), key=key, tenant="default")}, of_second)
    assert found.received[Fate.CROSSED] == 1
    assert found.bad > 0


def test_reply_from_another_tenants_number_is_crossed() -> None:
    entry = replace(ledger(0)[0], sender=BUSINESSES[1].sender)
    found = account([entry, *ledger(1, 2)], records())
    assert (found.replies[Fate.CROSSED], found.replies[Fate.DELIVERED]) == (1, 2)
    assert found.bad == 1


def test_reply_stored_under_another_tenant_is_crossed() -> None:
    found = account(ledger(0, 1, 2), records(first=replace(done(), tenant=BUSINESSES[1].tenant)))
    assert (found.replies[Fate.CROSSED], found.bad) == (1, 1)


def test_first_findings_are_listed_and_all_are_counted() -> None:
    others = [replace(INBOUND, id=f"wamid.CHAOS.1.{number}") for number in range(100)]

    result = audit(others, AuditInputs({}, {}.get, frozenset(), RULES))

    assert result.received[Fate.UNACCOUNTED] == 100
    assert 0 < len(result.findings) <= 20


@pytest.mark.parametrize(
    "known",
    [
        {},
        records(event=pending(Kind.INBOUND), first=None, second=None, third=None),
        records(third=pending()),
        records(third=done(finished_at=at(101))),
        records(event=done(Kind.INBOUND, plan_size=3, finished_at=at(101))),
    ],
    ids=["not stored yet", "not handled yet", "not sent yet", "sent since", "handled since"],
)
def test_open_messages_of_an_aborted_run_are_not_judged(known: Records) -> None:
    found = ledger(0, 1) if KEYS[0] in known else []

    result = audit([INBOUND], AuditInputs(by_key(found), known.get, frozenset(), RULES, ended_at=at(100)))

    assert (result.on_their_way, result.received, result.replies) == (1, {}, {})


def test_finished_messages_of_an_aborted_run_are_judged() -> None:
    inputs = AuditInputs(by_key(ledger(0, 2)), records().get, frozenset(), RULES, ended_at=at(100))

    assert audit([INBOUND], inputs).replies == {Fate.DELIVERED: 2, Fate.LOST: 1}


def test_every_fate_is_either_bad_or_honest() -> None:
    honest = {
        Fate.HANDLED,
        Fate.DELIVERED,
        Fate.CANCELLED,
        Fate.DEAD_AS_PLANNED,
        Fate.DEAD_LETTER,
    }

    assert {*honest, Fate.DOUBLED_BY_POLICY, *BAD} == set(Fate)
    assert LIMITS.doubt_window == WINDOW
